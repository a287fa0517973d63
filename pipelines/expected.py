"""Folds bronze in plain Python: the rows a silver table must hold at a position, by the shortest way to say it.

It is there to find mistakes, so it shares nothing with what builds silver but the reading of bronze and the wire
codec: not the planner, not the decoder, not the fold, not Spark. The laws it keeps are the design's own:

- an update counts when it is whole; a ``begin`` or ``end`` that does not belong to one voids what was open;
- a table whose stream has snapshots is its last whole snapshot, then the data updates of the same epoch in order: all
  of them for the first snapshot of an epoch, unless it begins with a mark, else those that began after it did;
- any other table is every whole update, in order.

All rows are held in memory, at about a kilobyte each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from conf.errors import DoubledPositions, PositionGap
from conf.names import folded
from connectors.base import Boundary, Connector, Feed, Keeps, Kind, PlainChange, PlainReader
from pipelines.bronze import read_frames, read_small_columns, read_stream
from pipelines.bronze_table import retained_from
from pipelines.places import Place
from pipelines.table_fold import LogFold, Row, TableFold

Body: TypeAlias = tuple[int, bytes]
"""Position and body of a frame."""

LOG_KEYS = ("_position", "_row_key", "_op", "_last_row_key")
"""What tells the rows of a log apart."""


class Landed(NamedTuple):
    """A whole update of a stream in bronze."""

    begin: int
    end: int
    epoch: int
    snapshot: bool
    asked: bool
    """A snapshot that begins with a mark: it was asked for then."""


@dataclass(frozen=True)
class Expected:
    """What a silver table must hold.

    Args:
        keys: Columns that name a row.
        columns: All columns that count, keys included.
        rows: In no particular order; a column that a row lacks is null.
        begins: Position from which bronze was folded; None when nothing was.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Sequence[Row]
    begins: int | None

    def spelt_as(self, names: Iterable[str]) -> Self:
        """Return the same with columns as a table calls them, which keeps the letter case they had at first."""
        spelt = {folded(name): name for name in names}
        told = {*self.keys, *self.columns}.union(*self.rows)
        other = {name: spelt[folded(name)] for name in told if spelt.get(folded(name), name) != name}
        if not other:
            return self
        return replace(
            self,
            keys=tuple(other.get(name, name) for name in self.keys),
            columns=tuple(dict.fromkeys(other.get(name, name) for name in self.columns)),
            rows=[{other.get(name, name): value for name, value in row.items()} for row in self.rows],
        )


def fold_bronze(
    bronze: Place,
    connector: Connector,
    feed: Feed,
    table: str,
    through: int,
    *,
    left_out: Collection[int] = (),
    since: int = 0,
) -> Expected:
    """Return what the table must hold once everything up to and including a position is applied.

    Args:
        left_out: Positions of frames that are skipped.
        since: Position of the first update that the table took; only of a table without snapshots.

    Raises:
        PositionGap: Bronze lacks frames that are needed, or has them twice.
        WireError, ProtocolError: A needed frame cannot be read.
        StoreUnavailable: Bronze cannot be read now.
    """
    settings, reader = feed.tables[table], connector.plain(feed, table)
    found = landed_updates(bronze, feed.name, connector.stream(feed, table), through)
    snapshots = connector.has_snapshots(settings)
    chosen = last_state(found.updates, resync=connector.continuity == "resync") if snapshots else sorted(found.updates)
    found.need(min((update.begin for update in chosen), default=min(through, 0)) if snapshots else since)
    log = connector.keeps(settings) is Keeps.CHANGES
    told = Told(bronze, reader, through, left_out)
    told.take_controls(chosen[0].begin if chosen else through)
    settled = next((update.end for update in chosen if update.snapshot), -1)
    fold = LogFold(reader.keys) if log else TableFold(reader.keys, upserts=not snapshots, settled=settled)
    late: list[PlainChange] = []
    for update, frames in _with_frames(bronze, connector.stream(feed, table), chosen):
        changes = told.changes(update, frames)
        if connector.sequenced:
            late += changes
        else:
            fold.apply(changes, told.columns, snapshot=update.snapshot)
    fold.apply(in_sequence(late), told.columns)
    told.finish()
    names = settings.keys or (LOG_KEYS if log else reader.keys)
    begins = min((update.begin for update in chosen), default=None)
    return Expected(names, tuple(dict.fromkeys((*fold.own_columns, *told.columns))), fold.all_rows(), begins)


def in_sequence(changes: Iterable[PlainChange]) -> list[PlainChange]:
    """Return the changes of a sequenced source in its own order."""
    return sorted(changes, key=lambda change: change.sequence or "")


class Told:
    """What landed frames say, control frames taken as they come by.

    Args:
        through: Position beyond which nothing is looked at.
        left_out: Positions of frames that are skipped.
    """

    def __init__(self, bronze: Place, reader: PlainReader, through: int, left_out: Collection[int]) -> None:
        frames = (frame for frame in read_frames(bronze, kind=Kind.CONTROL) if frame.frame_seq <= through)
        self._reader, self._through, self._left_out = reader, through, left_out
        self._controls = sorted(frames, reverse=True)
        self._first: dict[str, str] = {}
        self._other: dict[str, str] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns, as they were called at first: letter case that changes makes no other column."""
        return tuple(self._other.get(name, name) for name in self._reader.columns)

    def changes(self, update: Landed, frames: Iterable[Body]) -> Sequence[PlainChange]:
        """Return the changes of a whole update. Raises WireError, ProtocolError."""
        self.take_controls(update.begin)
        told = [frame for frame in frames if frame[1] and frame[0] not in self._left_out]
        changes = self._reader.changes(update.epoch, told)
        if not self._other:
            return changes
        return [change._replace(row=self._as_at_first(change.row)) for change in changes]

    def finish(self) -> None:
        """Take the control frames that are left."""
        self.take_controls(self._through)

    def take_controls(self, before: int) -> None:
        """Let the reader take the control frames before a position: it may need them to name its keys."""
        while self._controls and self._controls[-1].frame_seq < before:
            self._reader.control(self._controls.pop())
            for name in (*self._reader.keys, *self._reader.columns):
                first = self._first.setdefault(folded(name), name)
                if first != name:
                    self._other[name] = first

    def _as_at_first(self, row: Mapping[str, Any]) -> Row:
        return {self._other.get(name, name): value for name, value in row.items()}


def whole_updates(batches: Iterable[pa.RecordBatch], stream: str) -> Iterator[Landed]:
    """Yield a stream's whole updates from bronze's small columns, ordered by their ends."""
    opened: tuple[int, int, bool, bool] | None = None  # position, epoch, snapshot, asked
    for position, epoch, kind, boundary in _events(batches, stream):
        is_data = kind == Kind.DATA
        if boundary == Boundary.BEGIN:
            opened = (position, epoch, not is_data, kind == Kind.MARK)
        elif boundary == Boundary.END:
            if opened is not None and opened[1] == epoch:
                yield Landed(opened[0], position, *opened[1:])
            opened = None
        else:
            if not (is_data and opened is not None and opened[1:3] == (epoch, True)):
                opened = None
            yield Landed(position, position, epoch, not is_data, kind == Kind.MARK)


def last_state(updates: Sequence[Landed], *, resync: bool) -> list[Landed]:
    """Return the last whole snapshot and the updates that overlay it, in order of effect; none without a snapshot.

    Args:
        resync: A new epoch begins anew; else all epochs are one.
    """
    snapshot = next((update for update in reversed(updates) if update.snapshot), None)
    if snapshot is None:
        return []
    epoch = [update for update in updates if update.epoch == snapshot.epoch or not resync]
    is_first = sum(update.snapshot for update in epoch) == 1 and not snapshot.asked
    overlay = [u for u in epoch if not u.snapshot and (is_first or u.begin > snapshot.begin)]
    return [snapshot, *sorted(overlay)]


@dataclass(frozen=True)
class LandedUpdates:
    """The whole updates of a stream, in landing order of their ends.

    Args:
        floor: Position from which bronze is kept.
        missing: First and last of each range of positions that bronze lacks.
        doubled: Positions that are there twice.
    """

    feed: str
    updates: Sequence[Landed]
    floor: int
    missing: Sequence[tuple[int, int]]
    doubled: Sequence[int] = ()

    def need(self, first: int) -> None:
        """Raise PositionGap where bronze lacks a position from the first needed on, or has it twice."""
        for begin, end in self.missing:
            if end >= first:
                raise PositionGap(feed=self.feed, first=begin, last=end)
        twice = [position for position in self.doubled if position >= first]
        if twice:
            raise DoubledPositions(feed=self.feed, first=twice[0], last=twice[-1])


def landed_updates(bronze: Place, feed: str, stream: str, through: int) -> LandedUpdates:
    """Return the whole updates up to and including a position. Raises StoreUnavailable."""
    floor = retained_from(bronze, feed)
    seen = _Dense(floor)
    batches = seen.watched(_through(read_small_columns(bronze, after=floor - 1), through))
    updates = list(whole_updates(batches, stream))
    dropped = [(0, floor - 1)] if floor else []
    return LandedUpdates(feed, updates, floor, [*dropped, *seen.holes, *seen.end(through)], seen.doubled)


class _Dense:
    """Looks at positions as they pass, and notes those that are missing or come twice."""

    def __init__(self, first: int) -> None:
        self._next = first
        self.holes: list[tuple[int, int]] = []
        self.doubled: list[int] = []

    def watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for position in batch["frame_seq"].to_pylist():
                if position > self._next:
                    self.holes.append((self._next, position - 1))
                elif position < self._next:
                    self.doubled.append(position)
                self._next = position + 1
            yield batch

    def end(self, last: int) -> list[tuple[int, int]]:
        return [(self._next, last)] if self._next <= last else []


def _through(batches: Iterable[pa.RecordBatch], last: int) -> Iterator[pa.RecordBatch]:
    return (batch.filter(pc.field("frame_seq") <= last) for batch in batches)


def _events(batches: Iterable[pa.RecordBatch], stream: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield position, epoch, kind and boundary of the frames that begin or end an update."""
    turning = pc.field("boundary").cast(pa.string()).isin([b.value for b in _TURNING])
    for batch in batches:
        mine = batch.filter((pc.field("stream").cast(pa.string()) == stream) & turning)
        names = ("frame_seq", "epoch", "kind", "boundary")
        yield from zip(*(mine[name].to_pylist() for name in names), strict=True)


_TURNING = (Boundary.BEGIN, Boundary.END, Boundary.WHOLE)


def _with_frames(bronze: Place, stream: str, chosen: Sequence[Landed]) -> Iterator[tuple[Landed, list[Body]]]:
    """Yield each chosen update with its frames, in order of effect: nothing takes effect before the snapshot does."""
    waiting: list[tuple[Landed, list[Body]]] = []
    comes = any(update.snapshot for update in chosen)
    for update, frames in as_landed(bronze, stream, chosen):
        if update.snapshot or not comes:
            yield update, frames
            yield from sorted(waiting)
            waiting, comes = [], False
        else:
            waiting.append((update, frames))


def as_landed(bronze: Place, stream: str, chosen: Sequence[Landed]) -> Iterator[tuple[Landed, list[Body]]]:
    """Yield each chosen update with its frames, as they end. One that lies inside a snapshot is a single frame."""
    if not chosen:
        return
    single = {update.begin: update for update in chosen if update.begin == update.end}
    longer = {update.begin: update for update in chosen if update.begin < update.end}
    current, frames = None, list[Body]()
    first, last = min(update.begin for update in chosen), max(update.end for update in chosen)
    for position, body in _frames(read_stream(bronze, stream, first=first, last=last)):
        if position in single:
            yield single[position], [(position, body)]
            continue
        if position in longer:
            current, frames = longer[position], []
        if current is not None:
            frames.append((position, body))
            if position == current.end:
                yield current, frames
                current = None


def _frames(batches: Iterable[pa.RecordBatch]) -> Iterator[Body]:
    """Yield position and body of the frames that take part in updates; a mark at either end has nothing to say."""
    for batch in batches:
        names = ("frame_seq", "kind", "boundary", "body")
        for position, kind, boundary, body in zip(*(batch[name].to_pylist() for name in names), strict=True):
            if boundary != Boundary.NONE:
                yield position, body if kind in (Kind.DATA, Kind.SNAPSHOT) else b""
