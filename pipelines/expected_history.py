"""Folds bronze in plain Python into versions: what a history table must hold at a position.

Beside the laws of `pipelines.expected`, with which it shares the reading of bronze:

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
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa

from conf.errors import ProtocolError, WireError
from connectors.base import Connector, Feed, PlainChange
from pipelines.compare import same
from pipelines.expected import Body, Expected, Landed, Told, as_landed, in_sequence, landed_updates
from pipelines.places import Place
from pipelines.table_fold import Key, Row, TableFold

START: Final = "__START_AT"
END: Final = "__END_AT"

Step: TypeAlias = tuple[Landed, ...]
"""What takes effect at once: an update; or a snapshot, then those that overlay it."""

_Moment: TypeAlias = Any
_Said: TypeAlias = tuple[_Moment, PlainChange]


@dataclass(frozen=True)
class ExpectedHistory(Expected):
    """What a history table must hold.

    Args:
        settled: Position up to which versions that ended are not known; None when all are.
    """

    settled: int | None

    def comparable(self, found: pa.Table) -> pa.Table:
        """Return what can be compared of the versions found.

        Those that ended too early are left out, and those that stood all the time begin where it is expected.
        """
        if self.settled is None or self.begins is None:
            return found
        keys, begins = self.keys[:-1], self.begins
        stood = {_key(row, keys): row[START] for row in self.rows if row[START] <= self.settled}
        known = [row for row in found.to_pylist() if row[END] is None or row[END] > self.settled]
        older = [row for row in known if row[START] < begins]
        for row in older:
            row[START] = stood.get(_key(row, keys), row[START])
        return pa.Table.from_pylist(known, schema=found.schema)


def fold_history(
    bronze: Place,
    connector: Connector,
    feed: Feed,
    table: str,
    through: int,
    *,
    left_out: Collection[int] = (),
    passed_over: Collection[int] = (),
    since: int = 0,
    begins_at: int = 0,
) -> ExpectedHistory:
    """Return the versions that the history must hold once everything up to and including a position is applied.

    Other arguments, and errors, as of `pipelines.expected.fold_bronze`.

    Args:
        passed_over: Positions of the first frames of updates that the table could not take, until a snapshot came.
        begins_at: Position from which on the history was made; only of a table with snapshots.
    """
    reader, snapshots = connector.plain(feed, table), connector.has_snapshots(feed.tables[table])
    stream = connector.stream(feed, table)
    landed = landed_updates(bronze, feed.name, stream, through)
    resync = connector.continuity == "resync"
    updates = [update for update in landed.updates if update.begin >= begins_at]
    chosen = list(steps(updates, resync=resync) if snapshots else _singly(updates))
    begins = min((update.begin for step in chosen for update in step), default=None)
    begun = max(landed.floor, begins_at)
    landed.need((begins or 0) if snapshots and begun else since)
    told = Told(bronze, reader, through, left_out)
    told.take_controls(chosen[0][0].begin if chosen else through)
    fold = VersionFold(_Touched(reader.keys, upserts=not snapshots, settled=-1))
    late: list[PlainChange] = []
    held = frozenset(passed_over)
    for snapshot, said in _readable(_with_frames(bronze, stream, chosen), connector, told, held, passes=snapshots):
        if connector.sequenced:
            late += (change for _, change in said)
        elif snapshot is not None:
            fold.replace(said, settled=snapshot.end)
        else:
            fold.take(said)
    fold.take([(change.sequence, change) for change in in_sequence(late)])
    told.finish()
    columns = dict.fromkeys((*reader.keys, *told.columns, START, END))
    settled = chosen[0][0].end if chosen and snapshots and begun else None
    return ExpectedHistory((*reader.keys, START), tuple(columns), fold.versions(), begins, settled)


def _readable(
    landed: Iterable[Sequence[tuple[Landed, list[Body]]]],
    connector: Connector,
    told: Told,
    held: Collection[int],
    *,
    passes: bool,
) -> Iterator[tuple[Landed | None, list[_Said]]]:
    """Yield of each step its snapshot, if it has one, and what is said in it.

    Args:
        held: Positions of the first frames of updates that the table could not take.
        passes: What cannot be read is passed over, up to the next snapshot: the table has held there until then.
    """
    holds = False
    for step in landed:
        first, _ = step[0]
        if holds and not first.snapshot:
            continue
        if any(update.begin in held for update, _ in step):
            holds = True
            continue
        try:
            said = [_moment(connector, change, each) for each, frames in step for change in told.changes(each, frames)]
        except (WireError, ProtocolError):
            if not passes:
                raise
            holds = True
        else:
            holds = False
            yield first if first.snapshot else None, said


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

    def replace(self, said: Sequence[_Said], *, settled: int) -> None:
        """Take a snapshot and what overlays it, in order of effect."""
        self.rows.settled = settled
        self.rows.apply((), snapshot=True)
        last: dict[Key, int] = {}
        for moment, change in said:
            self.rows.take(change)
            moved = () if change.old_key is None else (last.get(change.old_key, moment),)
            last[change.key] = max(moment, last.get(change.key, moment), *moved)
        for key, before, now in self.rows.touched():
            if before is None or now is None or not _equal(before, now):
                self._turn(key, before, now, settled if now is None else last[key])

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


def _with_frames(bronze: Place, stream: str, chosen: Sequence[Step]) -> Iterator[list[tuple[Landed, list[Body]]]]:
    """Yield each step with its frames. A step is whole when its first update is."""
    whole, landed = {step[0]: step for step in chosen}, dict[Landed, list[Body]]()
    for update, frames in as_landed(bronze, stream, [update for step in chosen for update in step]):
        landed[update] = frames
        if update in whole:
            yield [(each, landed.pop(each)) for each in whole[update]]


def _moment(connector: Connector, change: PlainChange, update: Landed) -> _Said:
    return update.end if connector.net else change.position, change


def _equal(one: Row, other: Row) -> bool:
    return all(same(one.get(name), other.get(name)) for name in {**one, **other})


def _key(row: Mapping[str, Any], keys: Sequence[str]) -> Key:
    return tuple(row[name] for name in keys)
