"""Computes the expected table after every update: a dictionary of rows, independent of the engine.

Receives the landed updates, with their end positions, and how faults were repaired. `Oracle.replay` replays all of it
from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Context, Decimal
from typing import Any, TypeAlias

from tests.matrix.steps import Change, Key, Snapshot, Update

_EXACT = Context(prec=80)

Row: TypeAlias = dict[str, Any]
State: TypeAlias = dict[Key, Row]
Version: TypeAlias = tuple[Key, Row, int, int | None]
"""Key, row, start position, and end position if it has ended."""


@dataclass(frozen=True)
class Rule:
    """A rule, in SQL and in Python."""

    sql: str
    met: Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Source:
    """Description of a source for the oracle.

    Args:
        columns: All columns it ever has.
        unique: Columns that are silver's key, where the source's key differs.
        judges: An inconsistent change holds the table.
    """

    columns: tuple[str, ...]
    snapshots: bool
    source_ordered: bool = False
    unique: tuple[str, ...] = ()
    judges: bool = False


@dataclass
class Truth:
    """Result of replaying all landed updates."""

    at: dict[int, State] = field(default_factory=dict)
    """The table after every reachable update, by end position, in order."""
    restarts: set[int] = field(default_factory=set)
    """End positions of snapshots among them."""
    blocked: list[int] = field(default_factory=list)
    """End positions of updates that cannot be applied, temporarily or permanently."""
    versions: list[Version] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The last reachable end position; -1 if none."""
        return max(self.at, default=-1)


class Table:
    """Rows by key, changed one by one; records the keys touched since the last call of `touched`."""

    def __init__(self, source: Source) -> None:
        self.source, self.rows, self.before = source, State(), dict[Key, Row | None]()
        self.unexplained = False

    def take(self, changes: Iterable[Change]) -> None:
        """Apply the changes of one frame: all moved rows leave their keys before any arrives."""
        displaced = State()
        for change in changes:
            if change.op == "insert":
                self.unexplained |= change.key in self.rows
                self._put(change.key, {**dict.fromkeys(self.source.columns), **change.sent})
            elif change.op == "delete":
                self.unexplained |= self._take_away(change.key, displaced) is None
            elif change.old_key is None:
                self._update(change)
            else:
                self._move(change, displaced)

    def touched(self) -> list[tuple[Key, Row | None, Row | None]]:
        """Return the keys touched since the last call, with their previous and current rows."""
        found = [(key, before, self.rows.get(key)) for key, before in self.before.items()]
        self.before.clear()
        return found

    def _update(self, change: Change) -> None:
        row = self.rows.get(change.key)
        if row is None and self.source.snapshots:
            self.unexplained = True
        else:
            self._put(change.key, {**(row or dict.fromkeys(self.source.columns)), **change.sent})

    def _move(self, change: Change, displaced: State) -> None:
        assert change.old_key is not None
        row = self._take_away(change.old_key, displaced)
        if row is None and self.source.snapshots:
            self.unexplained = True
            return
        if change.key in self.rows:
            displaced[change.key] = self.rows[change.key]
        self._put(change.key, {**(row or dict.fromkeys(self.source.columns)), **change.sent})

    def _put(self, key: Key, row: Row) -> None:
        self.before.setdefault(key, self.rows.get(key))
        self.rows[key] = row

    def _take_away(self, key: Key, displaced: State) -> Row | None:
        if key in displaced:
            return displaced.pop(key)
        self.before.setdefault(key, self.rows.get(key))
        return self.rows.pop(key, None)


@dataclass
class _Landed:
    """An update or a snapshot; None begins an epoch."""

    end: int
    what: Update | Snapshot | None


class Oracle:
    """The landed updates, and their outcome so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._landed: list[_Landed] = []
        self._passed: set[int] = set()
        self.mended = False

    def connect(self) -> None:
        self._landed.append(_Landed(-1, None))

    def land(self, end: int, what: Update | Snapshot) -> None:
        self._landed.append(_Landed(end, what))

    def reached(self, position: int) -> None:
        """Record the table's position: frames superseded by a snapshot up to there remain so."""
        truth = self.replay()
        over = max((end for end in truth.restarts if end <= position), default=-1)
        self._passed.update(end for end in truth.blocked if end <= over)

    def replay(self, *, through: int | None = None) -> Truth:
        """Replay all landed updates, or those that end at or before a position."""
        landed = [each for each in self._landed if through is None or each.end <= through]
        if self.source.source_ordered:
            return _Sequenced(self.source, self._effective).replay(landed)
        return self._replay(landed)

    def _replay(self, landed: Iterable[_Landed]) -> Truth:
        fold = _Fold(self.source)
        pending: list[Update] = []
        synced, held = not self.source.snapshots, False
        for each in landed:
            if each.what is None:
                synced, pending = not self.source.snapshots, []
            elif isinstance(each.what, Snapshot):
                overlay = [*pending, *each.what.overlay]
                fold.replace(each.end, each.what, [self._effective(each.end, update) or () for update in overlay])
                synced, held, pending = True, False, []
            elif not synced:
                pending.append(each.what)
            else:
                frames = None if held else self._effective(each.end, each.what)
                held = frames is None or not fold.take(each.end, frames, judges=self._judges(each.end))
                if held:
                    fold.truth.blocked.append(each.end)
        return fold.finish()

    def _judges(self, end: int) -> bool:
        return self.source.judges and (not self.mended or end in self._passed)

    def _effective(self, end: int, update: Update) -> tuple[tuple[Change, ...], ...] | None:
        """Return the frames that are decoded; None if the update cannot be applied."""
        if update.bad is None:
            return update.frames
        if update.ends == "snapshot" or (update.ends != "skip" and (not self.mended or end in self._passed)):
            return None
        left_out = None if update.ends == "fix" else update.bad
        return tuple(frame for at, frame in enumerate(update.frames) if at != left_out)


class _Fold:
    """Replays updates in order, and records the table and its versions."""

    def __init__(self, source: Source) -> None:
        self.truth, self.table = Truth(), Table(source)
        self._began: dict[Key, int] = {}

    def take(self, end: int, frames: Iterable[Iterable[Change]], *, judges: bool) -> bool:
        """Apply an update; if ``judges`` and a change is inconsistent, change nothing and return False."""
        rows, self.table.unexplained = dict(self.table.rows), False
        for frame in frames:
            self.table.take(frame)
        if judges and self.table.unexplained:
            self.table.rows = rows
            self.table.before.clear()
            return False
        self._turn(self.table.touched(), end)
        self.truth.at[end] = dict(self.table.rows)
        return True

    def replace(self, end: int, snapshot: Snapshot, overlay: Iterable[Iterable[Iterable[Change]]]) -> None:
        before = self.table.rows
        self.table.rows = {
            key: {**dict.fromkeys(self.table.source.columns), **row} for key, row in snapshot.rows.items()
        }
        for frames in overlay:
            for frame in frames:
                self.table.take(frame)
        self.table.before.clear()
        now = self.table.rows
        both = [(key, before.get(key), now.get(key)) for key in {**before, **now}]
        self._turn([each for each in both if comparable(each[1]) != comparable(each[2])], end)
        self.truth.at[end] = dict(now)
        self.truth.restarts.add(end)

    def finish(self) -> Truth:
        self.truth.versions += [(key, row, self._began[key], None) for key, row in self.table.rows.items()]
        return self.truth

    def _turn(self, touched: Iterable[tuple[Key, Row | None, Row | None]], moment: int) -> None:
        for key, before, now in touched:
            if before is not None:
                self.truth.versions.append((key, before, self._began.pop(key), moment))
            if now is not None:
                self._began[key] = moment


class _Sequenced:
    """The same for source-ordered changes: replays all changes so far, sorted by sequence."""

    def __init__(self, source: Source, effective: Callable[[int, Update], Any]) -> None:
        self._source, self._effective = source, effective

    def replay(self, landed: Iterable[_Landed]) -> Truth:
        received: dict[Any, Change] = {}
        truth, held = Truth(), False
        for each in landed:
            if isinstance(each.what, Update):
                frames = None if held else self._effective(each.end, each.what)
                if frames is None:
                    held = True
                    truth.blocked.append(each.end)
                    continue
                received |= {change.sequence: change for frame in frames for change in frame}
                fold = self._folded(received)
                truth.at[each.end], truth.versions = dict(fold.table.rows), fold.finish().versions
        return truth

    def _folded(self, received: Mapping[int, Change]) -> _Fold:
        fold = _Fold(self._source)
        for sequence in sorted(received):
            fold.take(sequence, [[received[sequence]]], judges=False)
        return fold


def comparable(row: Mapping[str, Any] | None) -> Any:
    """Return the row in comparable form: NaN equals NaN, zero has no sign."""
    if row is None:
        return None
    return tuple((name, _normalized(value)) for name, value in sorted(row.items()))


def _normalized(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, Decimal):
        return str(value.normalize(_EXACT))
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0  # noqa: PLR0124 - NaN alone is not itself
    return value
