"""Fold bronze in plain Python into versions: what a history table must hold at a position.

In addition to the rules of `pipelines.verifying.reference_fold`, with which it shares the reading of bronze:

- every update counts, even one whose rows a later snapshot supersedes; but none of an epoch before the epoch's first
  complete snapshot;
- all changes of a key at one moment make one version, which ends where the next begins. The moment is the change's
  position; its update's end, where the connector folds updates (``folds``); its ``sequence``, where the source has one;
- a snapshot and its overlay take effect at once: equal rows continue, rows they do not name end where the snapshot
  ends, any other begins at the last moment at which its key changed;
- an update that cannot be read or was not applied, and those after it, are ignored up to the next complete snapshot.

Where bronze begins at a floor, the fold begins with the first complete snapshot above it. It then covers:

- versions that begin after it: exactly;
- versions current at its end: all but their beginning, if that was before the snapshot;
- versions that ended before: not at all. They are not compared.

A table without snapshots begins with its base there: all its versions are compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa

from silverfold.conf.errors import ProtocolError, WireError
from silverfold.connectors.base import Connector
from silverfold.connectors.common.key_span import EVERY_KEY, Key, KeySpan
from silverfold.connectors.verification import ReferenceChange
from silverfold.pipelines.verifying.base_rows import END, START
from silverfold.pipelines.verifying.compare import same
from silverfold.pipelines.verifying.compared_rows import NOTHING_LEFT_OUT
from silverfold.pipelines.verifying.landed_updates import LandedUpdate, in_order_of_effect
from silverfold.pipelines.verifying.reference_fold import Expected, LandedContext, LandedTable, in_sequence
from silverfold.pipelines.verifying.table_fold import Row, TableFold

Step: TypeAlias = tuple[LandedUpdate, ...]
"""Updates that take effect at once: a single update, or a snapshot followed by its overlay."""

_Moment: TypeAlias = Any
_TimedChange: TypeAlias = tuple[_Moment, ReferenceChange]


@dataclass(frozen=True)
class ExpectedHistory(Expected):
    """The expected contents of a history table.

    Args:
        snapshot_end: Position up to which ended versions are unknown; None if all are known.
    """

    snapshot_end: int | None

    def comparable(self, found: pa.Table) -> pa.Table:
        """Return the versions found that can be compared.

        Versions that ended too early are dropped; those that began before the fold get the expected beginning.
        """
        if self.snapshot_end is None or self.begins is None:
            return found
        keys, begins = self.keys[:-1], self.begins
        beginnings = {_key(row, keys): row[START] for row in self.rows if row[START] <= self.snapshot_end}
        known = [row for row in found.to_pylist() if row[END] is None or row[END] > self.snapshot_end]
        older = [row for row in known if row[START] < begins]
        for row in older:
            row[START] = beginnings.get(_key(row, keys), row[START])
        return pa.Table.from_pylist(known, schema=found.schema)


@dataclass(frozen=True)
class HistoryFold:
    """The updates that make a history, to be folded completely or one span of keys at a time.

    Args:
        steps: In order.
        passed_over: First positions of updates that the table could not take until a snapshot came.
        snapshot_end: As in `ExpectedHistory`.
    """

    landed: LandedTable
    steps: Sequence[Step]
    passed_over: Collection[int]
    snapshot_end: int | None

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Columns that identify a row; `START` in addition identifies a version."""
        return self.landed.context(self._order).keys

    @property
    def has_spans(self) -> bool:
        """Whether spans of ``keys`` can be folded separately: always."""
        return True

    def expected(self, within: KeySpan = EVERY_KEY) -> ExpectedHistory:
        """Return the versions of the rows whose keys are in a span. Raises as `BronzeFold`."""
        landed, context = self.landed, self.landed.context(self._order)
        snapshots = landed.connector.has_snapshots(landed.settings)
        fold = VersionFold(_Touched(context.keys, within, upserts=not snapshots, snapshot_end=-1))
        before, late = self._begin(fold, context.keys, within), list[ReferenceChange]()
        for snapshot, timed in self._read_steps(context, fold.rows, passes=snapshots):
            if landed.connector.source_ordered:
                late += (change for _, change in timed)
            elif snapshot is not None:
                fold.replace(timed, snapshot_end=snapshot.end)
            else:
                fold.take(timed)
        fold.take([(change.sequence, change) for change in in_sequence([*before, *late])])
        context.finish()
        base, begins = landed.base, min((update.begin for update in self._order), default=None)
        columns = dict.fromkeys((*context.keys, *context.columns, *(base.names if base else ()), START, END))
        return ExpectedHistory(
            (*context.keys, START),
            tuple(columns),
            fold.versions(),
            begins,
            self.snapshot_end,
            base=base.position if base else None,
            left_out=base.left_out(context.keys, before, late, versions=True) if base else NOTHING_LEFT_OUT,
        )

    def _begin(self, fold: VersionFold, keys: Sequence[str], within: KeySpan) -> Sequence[ReferenceChange]:
        """Begin a fold with the base, if there is one; return the changes that do so, in the source's order."""
        if self.landed.base is None:
            return ()
        if self.landed.connector.source_ordered:
            return self.landed.base.version_changes_within(keys, within)
        fold.begin(self.landed.base.versions_within(keys, within))
        return ()

    @cached_property
    def _order(self) -> Sequence[LandedUpdate]:
        return [update for step in self.steps for update in step]

    def _read_steps(
        self, context: LandedContext, rows: _Touched, *, passes: bool
    ) -> Iterator[tuple[LandedUpdate | None, list[_TimedChange]]]:
        """Yield, for each step, its snapshot, if any, and its changes with their moments.

        Args:
            passes: An unreadable frame is passed over up to the next snapshot, since the table has held there until
                then. Without such a snapshot the table continued without it unrecorded, so the error is raised after
                all.
        """
        landed, held, holds, unread = self.landed, frozenset(self.passed_over), False, None
        updates = in_order_of_effect(landed.bronze, landed.stream, self._order)
        for step in self.steps:
            snapshot = step[0] if step[0].snapshot else None
            unread = unread if snapshot is None else None
            holds = (holds and snapshot is None) or any(update.begin in held for update in step)
            timed: list[_TimedChange] = []
            for update, frames in islice(updates, len(step)):
                if holds:
                    continue
                try:
                    changes = filter(rows.concerns, context.changes(update, frames, rows.within))
                    timed += [_with_moment(landed.connector, change, update) for change in changes]
                except (WireError, ProtocolError) as error:
                    if not passes:
                        raise
                    holds, unread = True, error
            if not holds:
                yield snapshot, timed
        if unread is not None:
            raise unread


def fold_history(
    landed: LandedTable, *, passed_over: Collection[int] = (), since: int = 0, begins_at: int = 0
) -> HistoryFold:
    """Return the updates that make the versions a history must hold, once all that has landed is applied.

    Args:
        passed_over: First positions of updates that the table could not take until a snapshot came.
        since: As in `pipelines.verifying.reference_fold.fold_bronze`.
        begins_at: Position from which the history was made; only for a table with snapshots.

    Raises:
        PositionGap: Bronze lacks frames that are needed, or has them twice.
        StoreUnavailable: Bronze cannot be read now.
    """
    snapshots, resync = landed.connector.has_snapshots(landed.settings), landed.connector.continuity == "resync"
    found = landed.updates()
    updates = landed.after_base([update for update in found.updates if update.begin >= begins_at])
    chosen = list(steps(updates, resync=resync) if snapshots else _single_steps(updates))
    begun = max(found.floor, begins_at)
    begins = min((update.begin for step in chosen for update in step), default=0)
    found.require(begins if snapshots and begun else landed.since(since))
    snapshot_end = chosen[0][0].end if chosen and snapshots and begun else None
    return HistoryFold(landed, chosen, passed_over, snapshot_end)


@dataclass
class _Touched(TableFold):
    """A table's state, and the previous rows at the keys touched."""

    before: dict[Key, Row | None] = field(default_factory=dict)

    def put(self, key: Key, row: Row | None) -> None:
        """Set the row at a key, or delete it with None."""
        self.before.setdefault(key, self.rows.get(key))
        super().put(key, row)

    def touched(self) -> Iterator[tuple[Key, Row | None, Row | None]]:
        """Yield the keys touched since the last call, with the row before and the row now."""
        for key, before in self.before.items():
            yield key, before, self.rows.get(key)
        self.before.clear()


@dataclass
class VersionFold:
    """A table's versions."""

    rows: _Touched
    _ended: list[Row] = field(default_factory=list)
    _began: dict[Key, _Moment] = field(default_factory=dict)

    def begin(self, versions: Iterable[tuple[Key, Row]]) -> None:
        """Begin with versions, by the keys of their rows."""
        for key, version in versions:
            if version[END] is None:
                self.rows.rows[key] = {name: value for name, value in version.items() if name not in (START, END)}
                self._began[key] = version[START]
            else:
                self._ended.append(version)

    def take(self, timed: Iterable[_TimedChange]) -> None:
        """Apply changes, ordered by moment."""
        for moment, changes in groupby(timed, key=itemgetter(0)):
            for _, change in changes:
                self.rows.take(change)
            for key, before, now in self.rows.touched():
                self._begin_version(key, before, now, moment)

    def replace(self, timed: Sequence[_TimedChange], *, snapshot_end: int) -> None:
        """Apply a snapshot and its overlay, in order of effect."""
        self.rows.snapshot_end = snapshot_end
        self.rows.apply((), snapshot=True)
        last: dict[Key, int] = {}
        for moment, change in timed:
            self.rows.take(change)
            moved = () if change.old_key is None else (last.get(change.old_key, moment),)
            last[change.key] = max(moment, last.get(change.key, moment), *moved)
        for key, before, now in self.rows.touched():
            if before is None or now is None or not _equal(before, now):
                self._begin_version(key, before, now, snapshot_end if now is None else last[key])

    def versions(self) -> list[Row]:
        """Return all versions, in no order."""
        return [*self._ended, *({**row, START: self._began[key], END: None} for key, row in self.rows.rows.items())]

    def _begin_version(self, key: Key, before: Row | None, now: Row | None, moment: _Moment) -> None:
        """End the version at a key, and begin the next."""
        if before is not None:
            self._ended.append({**before, START: self._began.pop(key), END: moment})
        if now is not None:
            self._began[key] = moment


def steps(updates: Sequence[LandedUpdate], *, resync: bool) -> Iterator[Step]:
    """Yield the steps of a stream that has snapshots, in order of effect.

    Args:
        updates: In landing order of their ends.
        resync: Each epoch starts over; otherwise all epochs count as one.
    """
    coming = deque(update for update in updates if update.snapshot)
    synced: int | None = None
    pending: list[LandedUpdate] = []
    for update in updates:
        epoch = update.epoch if resync else 0
        if update.snapshot:
            coming.popleft()
            overlay = [each for each in pending if not resync or each.epoch == epoch]
            is_first = synced != epoch and not update.asked
            yield update, *sorted(each for each in overlay if is_first or each.begin > update.begin)
            synced, pending = epoch, []
        elif synced == epoch and not (coming and coming[0].begin < update.begin):
            yield (update,)
        else:
            pending.append(update)


def _single_steps(updates: Iterable[LandedUpdate]) -> Iterator[Step]:
    return ((update,) for update in sorted(updates))


def _with_moment(connector: Connector, change: ReferenceChange, update: LandedUpdate) -> _TimedChange:
    return update.end if connector.folds else change.position, change


def _equal(one: Row, other: Row) -> bool:
    return all(same(one.get(name), other.get(name)) for name in {**one, **other})


def _key(row: Mapping[str, Any], keys: Sequence[str]) -> Key:
    return tuple(row[name] for name in keys)
