"""Folds bronze in plain Python: the rows a silver table must hold at a position, by the shortest way to say it.

It is there to find mistakes, so it shares nothing with what builds silver but the reading of bronze and the wire
codec: not the planner, not the decoder, not the fold, not Spark. The laws it keeps are the design's own:

- an update counts when it is whole; a ``begin`` or ``end`` that does not belong to one voids what was open;
- a table whose stream has snapshots is its last whole snapshot, then the data updates of the same epoch in order: all
  of them for the first snapshot of an epoch, else those that began after it did;
- any other table is every whole update, in order.

All rows are held in memory, at about a kilobyte each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from conf.errors import PositionGap
from connectors.base import Boundary, Connector, ControlFrame, Feed, Kind, PlainChange
from pipelines.bronze import read_frames, read_small_columns, read_stream
from pipelines.bronze_table import retained_from
from pipelines.places import Place

Row: TypeAlias = dict[str, Any]
_Body: TypeAlias = tuple[int, bytes]

LOG_KEYS = ("_position", "_row_key", "_op", "_last_row_key")
"""What tells the rows of a log apart."""


class Landed(NamedTuple):
    """A whole update of a stream in bronze."""

    begin: int
    end: int
    epoch: int
    snapshot: bool


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


def fold_bronze(
    bronze: Place, connector: Connector, feed: Feed, table: str, through: int, *, left_out: Collection[int] = ()
) -> Expected:
    """Return what the table must hold once everything up to and including a position is applied.

    Args:
        left_out: Positions of frames that are skipped.

    Raises:
        PositionGap: Bronze lacks frames that are needed.
        WireError, ProtocolError: A needed frame cannot be read.
        StoreUnavailable: Bronze cannot be read now.
    """
    settings, reader = feed.tables[table], connector.plain(feed, table)
    chosen = _chosen(bronze, connector, feed, table, through)
    log = connector.keeps_log(settings)
    fold = LogFold(reader.keys) if log else TableFold(reader.keys, upserts=not connector.has_snapshots(settings))
    controls = _Controls(frame for frame in read_frames(bronze, kind=Kind.CONTROL) if frame.frame_seq <= through)
    for update, frames in _with_frames(bronze, table, chosen):
        for control in controls.before(update.begin):
            reader.control(control)
        told = [frame for frame in frames if frame[1] and frame[0] not in left_out]
        fold.apply(reader.changes(update.epoch, told), reader.columns, snapshot=update.snapshot)
    for control in controls.before(through):
        reader.control(control)
    names = settings.keys or (LOG_KEYS if log else reader.keys)
    begins = min((update.begin for update in chosen), default=None)
    return Expected(names, (*fold.own_columns, *reader.columns), fold.all_rows(), begins)


@dataclass
class TableFold:
    """A table's state in a dictionary.

    Args:
        own_columns: The source's keys, which each row carries.
        upserts: An update of a row that is not there begins it.
    """

    own_columns: tuple[str, ...]
    upserts: bool = False
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def apply(self, changes: Iterable[PlainChange], columns: Sequence[str] = (), *, snapshot: bool = False) -> None:
        """Apply one whole update."""
        if snapshot:
            for key in list(self.rows):
                self.put(key, None)
        for change in changes:
            self._change(change)

    def all_rows(self) -> list[Row]:
        """Return the rows, keys included."""
        return list(self.rows.values())

    def put(self, key: tuple[Any, ...], row: Row | None) -> None:
        """Let a row stand at a key, or none."""
        if row is None:
            del self.rows[key]
        else:
            self.rows[key] = row

    def _change(self, change: PlainChange) -> None:
        stands = self.rows.get(change.key)
        if change.op == "delete":
            for key in list(self._named(change)):
                self.put(key, None)
        elif change.op == "insert" or (stands is None and self.upserts):
            self.put(change.key, {**dict(zip(self.own_columns, change.key, strict=True)), **change.row})
        elif stands is not None:
            self.put(change.key, {**stands, **change.row})

    def _named(self, change: PlainChange) -> Iterator[tuple[Any, ...]]:
        """Yield the keys of the rows that a delete names."""
        first, last = change.key, change.last_key or change.key
        whole = all(isinstance(end, int) for end in (*first, *last)) and len(first) == 1
        if whole and last[0] - first[0] < len(self.rows):
            yield from (key for number in range(first[0], last[0] + 1) if (key := (number,)) in self.rows)
        else:
            yield from (key for key in self.rows if first <= key <= last)


@dataclass
class LogFold:
    """A log of changes: per update one row for each row key written, and one for each removed range."""

    keys: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns that a log has besides the source's."""
        return ("_op", "_position", *self.keys, "_last_row_key", "_present")

    def apply(self, changes: Iterable[PlainChange], columns: Sequence[str] = (), *, snapshot: bool = False) -> None:
        """Add the rows of one whole update."""
        net: dict[tuple[Any, ...], PlainChange] = {}
        for change in changes:
            if change.op == "delete":
                self.rows.append(self._row(change) | {"_last_row_key": (change.last_key or change.key)[0]})
                continue
            before = net.get(change.key, change)
            position = max(before.position, change.position)
            net[change.key] = PlainChange(before.op, position, change.key, {**before.row, **change.row})
        for change in net.values():
            sent = [name for name in columns if name in change.row]
            partial = change.op == "update" and len(sent) < len(columns)
            self.rows.append({**self._row(change), **change.row, "_present": sent if partial else None})

    def all_rows(self) -> list[Row]:
        """Return the rows in the order in which they were added."""
        return self.rows

    def _row(self, change: PlainChange) -> Row:
        return {"_op": change.op, "_position": change.position, **dict(zip(self.keys, change.key, strict=True))}


class _Controls:
    """Control frames, handed out as positions are reached."""

    def __init__(self, frames: Iterable[ControlFrame]) -> None:
        self._left = sorted(frames, reverse=True)

    def before(self, position: int) -> Iterator[ControlFrame]:
        while self._left and self._left[-1].frame_seq < position:
            yield self._left.pop()


def whole_updates(batches: Iterable[pa.RecordBatch], stream: str) -> Iterator[Landed]:
    """Yield a stream's whole updates from bronze's small columns, ordered by their ends."""
    opened: tuple[int, int, bool] | None = None  # position, epoch, snapshot
    for position, epoch, kind, boundary in _events(batches, stream):
        is_data = kind == Kind.DATA
        if boundary == Boundary.BEGIN:
            opened = (position, epoch, not is_data)
        elif boundary == Boundary.END:
            if opened is not None and opened[1] == epoch:
                yield Landed(opened[0], position, epoch, opened[2])
            opened = None
        else:
            if not (is_data and opened is not None and opened[1:] == (epoch, True)):
                opened = None
            yield Landed(position, position, epoch, not is_data)


def last_state(updates: Sequence[Landed], *, resync: bool) -> list[Landed]:
    """Return the last whole snapshot and the updates that overlay it, in order of effect; none without a snapshot.

    Args:
        resync: A new epoch begins anew; else all epochs are one.
    """
    snapshot = next((update for update in reversed(updates) if update.snapshot), None)
    if snapshot is None:
        return []
    epoch = [update for update in updates if update.epoch == snapshot.epoch or not resync]
    is_first = sum(update.snapshot for update in epoch) == 1
    overlay = [u for u in epoch if not u.snapshot and (is_first or u.begin > snapshot.begin)]
    return [snapshot, *sorted(overlay)]


def _chosen(bronze: Place, connector: Connector, feed: Feed, table: str, through: int) -> list[Landed]:
    """Return the updates to fold, in order of effect.

    Raises:
        PositionGap: Frames among them, or before them where they would count, are missing.
    """
    floor = retained_from(bronze, feed.name)
    seen = _Dense(floor)
    batches = seen.watched(_through(read_small_columns(bronze, after=floor - 1), through))
    updates = list(whole_updates(batches, table))
    if connector.has_snapshots(feed.tables[table]):
        chosen = last_state(updates, resync=connector.continuity == "resync")
        needed = min((update.begin for update in chosen), default=through)
    else:
        chosen, needed = sorted(updates), 0
    missing = [(0, floor - 1)] if floor else []
    for first, last in [*missing, *seen.holes, *seen.end(through)]:
        if last >= needed:
            raise PositionGap(feed=feed.name, first=first, last=last)
    return chosen


class _Dense:
    """Looks at positions as they pass, and notes those that are missing."""

    def __init__(self, first: int) -> None:
        self._next = first
        self.holes: list[tuple[int, int]] = []

    def watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for position in batch["frame_seq"].to_pylist():
                if position > self._next:
                    self.holes.append((self._next, position - 1))
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


def _with_frames(bronze: Place, stream: str, chosen: Sequence[Landed]) -> Iterator[tuple[Landed, list[_Body]]]:
    """Yield each chosen update with its frames, in order of effect: nothing takes effect before the snapshot does."""
    waiting: list[tuple[Landed, list[_Body]]] = []
    comes = any(update.snapshot for update in chosen)
    for update, frames in _as_landed(bronze, stream, chosen):
        if update.snapshot or not comes:
            yield update, frames
            yield from sorted(waiting)
            waiting, comes = [], False
        else:
            waiting.append((update, frames))


def _as_landed(bronze: Place, stream: str, chosen: Sequence[Landed]) -> Iterator[tuple[Landed, list[_Body]]]:
    """Yield each chosen update with its frames, as they end. One that lies inside a snapshot is a single frame."""
    if not chosen:
        return
    single = {update.begin: update for update in chosen if update.begin == update.end}
    longer = {update.begin: update for update in chosen if update.begin < update.end}
    current, frames = None, list[_Body]()
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


def _frames(batches: Iterable[pa.RecordBatch]) -> Iterator[_Body]:
    """Yield position and body of the frames that take part in updates; a mark at either end has nothing to say."""
    for batch in batches:
        names = ("frame_seq", "kind", "boundary", "body")
        for position, kind, boundary, body in zip(*(batch[name].to_pylist() for name in names), strict=True):
            if boundary != Boundary.NONE:
                yield position, body if kind in (Kind.DATA, Kind.SNAPSHOT) else b""
