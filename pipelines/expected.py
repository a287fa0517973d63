"""Folds bronze in plain Python: the rows a silver table must hold at a position, by the shortest way to say it.

It is there to find mistakes, so it shares nothing with what builds silver but the reading of bronze and the wire
codec: not the planner, not the decoder, not the fold, not Spark. The laws it keeps are the design's own:

- an update counts when it is whole; a ``begin`` or ``end`` that does not belong to one voids what was open;
- a table whose stream has snapshots is its last whole snapshot, then the data updates of the same epoch in order: all
  of them for the first snapshot of an epoch, unless it begins with a mark, else those that began after it did;
- any other table is every whole update, in order.

Rows are folded a span of keys at a time (`BronzeFold.expected`): each is held in memory at one to two kilobytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from conf.errors import DoubledPositions, PositionGap
from conf.model import Table
from conf.names import folded
from connectors.base import Boundary, Connector, Feed, Keeps, Kind, PlainChange, PlainReader
from connectors.key_span import EVERY_KEY, KeySpan
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

    def comparable(self, found: pa.Table) -> pa.Table:
        """Return what can be compared of the rows found: all."""
        return found

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


@dataclass(frozen=True)
class LandedTable:
    """The frames from which a table is made, as they stand in bronze up to and including a position.

    Args:
        left_out: Positions of frames that are skipped.
    """

    bronze: Place
    connector: Connector
    feed: Feed
    table: str
    through: int
    left_out: Collection[int] = ()

    @property
    def settings(self) -> Table:
        """The table's settings."""
        return self.feed.tables[self.table]

    @property
    def stream(self) -> str:
        """The stream that feeds the table."""
        return self.connector.stream(self.feed, self.table)

    def updates(self) -> LandedUpdates:
        """Return the whole updates of the stream. Raises StoreUnavailable."""
        return landed_updates(self.bronze, self.feed.name, self.stream, self.through)

    def told(self, order: Sequence[Landed]) -> Told:
        """Return what reads updates that take effect in an order, with all that was told before the first."""
        told = Told(self.bronze, self.connector.plain(self.feed, self.table), self.through, self.left_out)
        told.take_controls(order[0].begin if order else self.through)
        return told


@dataclass(frozen=True)
class BronzeFold:
    """The updates that make a table, to be folded: as a whole, or those of a span of keys.

    Args:
        order: They take effect in it.
    """

    landed: LandedTable
    order: Sequence[Landed]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Columns that name a row."""
        told = self.landed.told(self.order)
        told.finish()
        return self._named(told.keys)

    @cached_property
    def has_spans(self) -> bool:
        """It can be folded a span of ``keys`` at a time: the source names its rows by them too."""
        source = self.landed.told(self.order).keys
        return self._is_log or [folded(name) for name in self.keys] == [folded(name) for name in source]

    def expected(self, within: KeySpan = EVERY_KEY) -> Expected:
        """Return the rows whose keys are in a span.

        Raises:
            WireError, ProtocolError: A needed frame cannot be read.
            NotBySpans: A row moved into the span or out of it, or its key has no order.
            StoreUnavailable: Bronze cannot be read now.
        """
        landed, told = self.landed, self.landed.told(self.order)
        snapshots = landed.connector.has_snapshots(landed.settings)
        settled = next((update.end for update in self.order if update.snapshot), -1)
        fold = (
            LogFold(told.keys, within, self.keys)
            if self._is_log
            else TableFold(told.keys, within, upserts=not snapshots, settled=settled)
        )
        late: list[PlainChange] = []
        for update, frames in taking_effect(landed.bronze, landed.stream, self.order):
            changes = told.changes(update, frames, EVERY_KEY if self._is_log else within)
            if landed.connector.sequenced:
                late += filter(fold.concerns, changes)
            else:
                fold.apply(changes, told.columns, snapshot=update.snapshot)
        fold.apply(in_sequence(late), told.columns)
        told.finish()
        begins = min((update.begin for update in self.order), default=None)
        return Expected(
            self._named(told.keys), tuple(dict.fromkeys((*fold.own_columns, *told.columns))), fold.all_rows(), begins
        )

    def _named(self, source: tuple[str, ...]) -> tuple[str, ...]:
        return self.landed.settings.keys or (LOG_KEYS if self._is_log else source)

    @cached_property
    def _is_log(self) -> bool:
        return self.landed.connector.keeps(self.landed.settings) is Keeps.CHANGES


def fold_bronze(landed: LandedTable, *, since: int = 0) -> BronzeFold:
    """Return the updates that make the rows a table must hold, once all that has landed is applied.

    Args:
        since: Position of the first update that the table took; only of a table without snapshots.

    Raises:
        PositionGap: Bronze lacks frames that are needed, or has them twice.
        StoreUnavailable: Bronze cannot be read now.
    """
    found, resync = landed.updates(), landed.connector.continuity == "resync"
    snapshots = landed.connector.has_snapshots(landed.settings)
    order = last_state(found.updates, resync=resync) if snapshots else sorted(found.updates)
    first = min((update.begin for update in order), default=min(landed.through, 0))
    found.need(first if snapshots else since)
    return BronzeFold(landed, order)


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

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the columns by which the source names a row."""
        return self._reader.keys

    def changes(self, update: Landed, frames: Iterable[Body], within: KeySpan = EVERY_KEY) -> Iterable[PlainChange]:
        """Return the changes of a whole update, those of other keys than the span's or not. Reads frames lazily.

        Raises:
            WireError, ProtocolError: A frame cannot be read; maybe only as the changes are iterated over.
        """
        self.take_controls(update.begin)
        told = (frame for frame in frames if frame[1] and frame[0] not in self._left_out)
        changes = self._reader.changes(update.epoch, told, within)
        if not self._other:
            return changes
        return (change._replace(row=self._as_at_first(change.row)) for change in changes)

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


def taking_effect(bronze: Place, stream: str, order: Sequence[Landed]) -> Iterator[tuple[Landed, Iterable[Body]]]:
    """Yield updates in the order in which they take effect, each with its frames, before the next is asked for.

    Those that landed before their turn wait in memory, the frames of all others are read as they are wanted. An update
    that lies inside another one is a single frame.
    """
    if not order:
        return
    first, last = min(update.begin for update in order), max(update.end for update in order)
    frames = _Frames(_frames(read_stream(bronze, stream, first=first, last=last)), order)
    for update in order:
        mine = frames.of(update)
        yield update, mine
        deque(mine, maxlen=0)  # those that were not wanted


class _Frames:
    """Frames in landing order, given out update by update."""

    def __init__(self, frames: Iterator[Body], updates: Iterable[Landed]) -> None:
        self._frames = frames
        self._begins = {update.begin: update for update in updates}
        self._early: dict[Landed, list[Body]] = {}

    def of(self, update: Landed) -> Iterator[Body]:
        """Yield an update's frames."""
        if update in self._early:
            yield from self._early.pop(update)
            return
        longer: Landed | None = None
        for position, body in self._frames:
            begun = self._begins.get(position)
            if begun is not None and begun.begin < begun.end:
                longer = begun
            owner = begun or longer
            if owner is update:
                yield position, body
            elif owner is not None:
                self._early.setdefault(owner, []).append((position, body))
            if longer is not None and position == longer.end:
                longer = None
            if position == update.end:
                return


def _frames(batches: Iterable[pa.RecordBatch]) -> Iterator[Body]:
    """Yield position and body of the frames that take part in updates; a mark at either end has nothing to say."""
    for batch in batches:
        names = ("frame_seq", "kind", "boundary", "body")
        for position, kind, boundary, body in zip(*(batch[name].to_pylist() for name in names), strict=True):
            if boundary != Boundary.NONE:
                yield position, body if kind in (Kind.DATA, Kind.SNAPSHOT) else b""
