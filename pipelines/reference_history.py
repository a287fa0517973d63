"""Folds bronze in plain Python into versions: what a history table must hold at a position.

Beside the laws of `pipelines.reference_fold`, with which it shares the reading of bronze:

- every update counts, also one that a later snapshot makes needless for the rows that stand; but an epoch's only from
  the epoch's first whole snapshot on;
- all changes of a key in one moment make one version, which ends where the next begins. A moment is a change's
  position; its update's end, where the connector folds updates (``net``); its ``sequence``, where the source has one;
- a snapshot and what overlays it take effect at once: rows that are equal go on, rows they do not name end where the
  snapshot does, any other begins at the last moment in which something was said of its key;
- an update that cannot be read or could not be taken, and those after it, count for nothing up to the next whole
  snapshot.

Where bronze begins at a floor, the fold begins with the first whole snapshot above it. What that tells:

- versions that begin after it: exactly;
- those that stand at its end: all but when they began, if it was before the snapshot;
- those that ended before: nothing. They are not looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa

from conf.errors import ProtocolError, WireError
from connectors.base import Connector, ReferenceChange
from connectors.key_span import EVERY_KEY, Key, KeySpan
from pipelines.compare import same
from pipelines.landed_updates import Landed, taking_effect
from pipelines.reference_fold import Expected, LandedContext, LandedTable, in_sequence
from pipelines.table_fold import Row, TableFold

START: Final = "__START_AT"
END: Final = "__END_AT"

Step: TypeAlias = tuple[Landed, ...]
"""What takes effect at once: an update; or a snapshot, then those that overlay it."""

_Moment: TypeAlias = Any
_Said: TypeAlias = tuple[_Moment, ReferenceChange]


@dataclass(frozen=True)
class ExpectedHistory(Expected):
    """What a history table must hold.

    Args:
        snapshot_end: Position up to which versions that ended are not known; None when all are.
    """

    snapshot_end: int | None

    def comparable(self, found: pa.Table) -> pa.Table:
        """Return what can be compared of the versions found.

        Those that ended too early are left out, and those that stood all the time begin where it is expected.
        """
        if self.snapshot_end is None or self.begins is None:
            return found
        keys, begins = self.keys[:-1], self.begins
        stood = {_key(row, keys): row[START] for row in self.rows if row[START] <= self.snapshot_end}
        known = [row for row in found.to_pylist() if row[END] is None or row[END] > self.snapshot_end]
        older = [row for row in known if row[START] < begins]
        for row in older:
            row[START] = stood.get(_key(row, keys), row[START])
        return pa.Table.from_pylist(known, schema=found.schema)


@dataclass(frozen=True)
class HistoryFold:
    """The updates that make a history, to be folded: as a whole, or those of a span of keys.

    Args:
        steps: In order.
        passed_over: Positions of the first frames of updates that the table could not take, until a snapshot came.
        snapshot_end: As of `ExpectedHistory`.
    """

    landed: LandedTable
    steps: Sequence[Step]
    passed_over: Collection[int]
    snapshot_end: int | None

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Columns that name a row; a version is named by them and `START`."""
        return self.landed.told(self._order).keys

    @property
    def has_spans(self) -> bool:
        """It can be folded a span of ``keys`` at a time."""
        return True

    def expected(self, within: KeySpan = EVERY_KEY) -> ExpectedHistory:
        """Return the versions of the rows whose keys are in a span. Errors as of `pipelines.reference_fold.BronzeFold`."""
        landed, told = self.landed, self.landed.told(self._order)
        snapshots = landed.connector.has_snapshots(landed.settings)
        fold = VersionFold(_Touched(told.keys, within, upserts=not snapshots, snapshot_end=-1))
        late: list[ReferenceChange] = []
        for snapshot, said in self._readable(told, fold.rows, passes=snapshots):
            if landed.connector.source_ordered:
                late += (change for _, change in said)
            elif snapshot is not None:
                fold.replace(said, snapshot_end=snapshot.end)
            else:
                fold.take(said)
        fold.take([(change.sequence, change) for change in in_sequence(late)])
        told.finish()
        columns = dict.fromkeys((*told.keys, *told.columns, START, END))
        begins = min((update.begin for update in self._order), default=None)
        return ExpectedHistory((*told.keys, START), tuple(columns), fold.versions(), begins, self.snapshot_end)

    @cached_property
    def _order(self) -> Sequence[Landed]:
        return [update for step in self.steps for update in step]

    def _readable(
        self, told: LandedContext, rows: _Touched, *, passes: bool
    ) -> Iterator[tuple[Landed | None, list[_Said]]]:
        """Yield of each step its snapshot, if it has one, and what is said in it of the rows.

        Args:
            passes: What cannot be read is passed over, up to the next snapshot: the table has held there until then.
                Where none came, the table went on without it, and nothing says so: it is raised after all.
        """
        landed, held, holds, unread = self.landed, frozenset(self.passed_over), False, None
        updates = taking_effect(landed.bronze, landed.stream, self._order)
        for step in self.steps:
            snapshot = step[0] if step[0].snapshot else None
            unread = unread if snapshot is None else None
            holds = (holds and snapshot is None) or any(update.begin in held for update in step)
            said: list[_Said] = []
            for update, frames in islice(updates, len(step)):
                if holds:
                    continue
                try:
                    changes = filter(rows.concerns, told.changes(update, frames, rows.within))
                    said += [_moment(landed.connector, change, update) for change in changes]
                except (WireError, ProtocolError) as error:
                    if not passes:
                        raise
                    holds, unread = True, error
            if not holds:
                yield snapshot, said
        if unread is not None:
            raise unread


def fold_history(
    landed: LandedTable, *, passed_over: Collection[int] = (), since: int = 0, begins_at: int = 0
) -> HistoryFold:
    """Return the updates that make the versions a history must hold, once all that has landed is applied.

    Args:
        passed_over: Positions of the first frames of updates that the table could not take, until a snapshot came.
        since: As of `pipelines.reference_fold.fold_bronze`.
        begins_at: Position from which on the history was made; only of a table with snapshots.

    Raises:
        PositionGap: Bronze lacks frames that are needed, or has them twice.
        StoreUnavailable: Bronze cannot be read now.
    """
    snapshots, resync = landed.connector.has_snapshots(landed.settings), landed.connector.continuity == "resync"
    found = landed.updates()
    updates = [update for update in found.updates if update.begin >= begins_at]
    chosen = list(steps(updates, resync=resync) if snapshots else _singly(updates))
    begun = max(found.floor, begins_at)
    begins = min((update.begin for step in chosen for update in step), default=0)
    found.need(begins if snapshots and begun else since)
    snapshot_end = chosen[0][0].end if chosen and snapshots and begun else None
    return HistoryFold(landed, chosen, passed_over, snapshot_end)


@dataclass
class _Touched(TableFold):
    """A table's state, and what stood at the keys that were touched before they were."""

    before: dict[Key, Row | None] = field(default_factory=dict)

    def put(self, key: Key, row: Row | None) -> None:
        """Let a row stand at a key, or none."""
        self.before.setdefault(key, self.rows.get(key))
        super().put(key, row)

    def touched(self) -> Iterator[tuple[Key, Row | None, Row | None]]:
        """Yield the keys touched since the last call, with the rows that stood there and stand there."""
        for key, before in self.before.items():
            yield key, before, self.rows.get(key)
        self.before.clear()


@dataclass
class VersionFold:
    """A table's versions."""

    rows: _Touched
    _ended: list[Row] = field(default_factory=list)
    _began: dict[Key, _Moment] = field(default_factory=dict)

    def take(self, said: Iterable[_Said]) -> None:
        """Take changes, ordered by moment."""
        for moment, changes in groupby(said, key=itemgetter(0)):
            for _, change in changes:
                self.rows.take(change)
            for key, before, now in self.rows.touched():
                self._turn(key, before, now, moment)

    def replace(self, said: Sequence[_Said], *, snapshot_end: int) -> None:
        """Take a snapshot and what overlays it, in order of effect."""
        self.rows.snapshot_end = snapshot_end
        self.rows.apply((), snapshot=True)
        last: dict[Key, int] = {}
        for moment, change in said:
            self.rows.take(change)
            moved = () if change.old_key is None else (last.get(change.old_key, moment),)
            last[change.key] = max(moment, last.get(change.key, moment), *moved)
        for key, before, now in self.rows.touched():
            if before is None or now is None or not _equal(before, now):
                self._turn(key, before, now, snapshot_end if now is None else last[key])

    def versions(self) -> list[Row]:
        """Return all versions, in no order."""
        return [*self._ended, *({**row, START: self._began[key], END: None} for key, row in self.rows.rows.items())]

    def _turn(self, key: Key, before: Row | None, now: Row | None, moment: _Moment) -> None:
        """End the version that stood at a key, and begin the one that stands."""
        if before is not None:
            self._ended.append({**before, START: self._began.pop(key), END: moment})
        if now is not None:
            self._began[key] = moment


def steps(updates: Sequence[Landed], *, resync: bool) -> Iterator[Step]:
    """Yield what takes effect, one after another, of a stream that has snapshots.

    Args:
        updates: In landing order of their ends.
        resync: A new epoch begins anew; else all epochs are one.
    """
    coming = deque(update for update in updates if update.snapshot)
    synced: int | None = None
    waiting: list[Landed] = []
    for update in updates:
        epoch = update.epoch if resync else 0
        if update.snapshot:
            coming.popleft()
            overlay = [each for each in waiting if not resync or each.epoch == epoch]
            is_first = synced != epoch and not update.asked
            yield update, *sorted(each for each in overlay if is_first or each.begin > update.begin)
            synced, waiting = epoch, []
        elif synced == epoch and not (coming and coming[0].begin < update.begin):
            yield (update,)
        else:
            waiting.append(update)


def _singly(updates: Iterable[Landed]) -> Iterator[Step]:
    return ((update,) for update in sorted(updates))


def _moment(connector: Connector, change: ReferenceChange, update: Landed) -> _Said:
    return update.end if connector.folds else change.position, change


def _equal(one: Row, other: Row) -> bool:
    return all(same(one.get(name), other.get(name)) for name in {**one, **other})


def _key(row: Mapping[str, Any], keys: Sequence[str]) -> Key:
    return tuple(row[name] for name in keys)
