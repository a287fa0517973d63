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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from conf.model import Table
from conf.names import folded
from connectors.base import Connector, ControlFrame, Feed, Kind, ReferenceChange, ReferenceReader, TableKind
from connectors.key_span import EVERY_KEY, KeySpan
from pipelines.bronze import read_frames
from pipelines.landed_updates import Body, Landed, LandedUpdates, landed_updates, last_state, taking_effect
from pipelines.losses import Losses
from pipelines.places import Place
from pipelines.table_fold import LogFold, Row, TableFold

LOG_KEYS = ("_position", "_row_key", "_op", "_last_row_key")
"""What tells the rows of a log apart."""


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
        losses: What of bronze's losses the table has, and lacks.
    """

    bronze: Place
    connector: Connector
    feed: Feed
    table: str
    through: int
    left_out: Collection[int] = ()
    losses: Losses = field(default_factory=Losses)

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
        return landed_updates(self.bronze, self.feed.name, self.stream, self.through, lost=self.losses.untouched)

    def told(self, order: Sequence[Landed]) -> LandedContext:
        """Return what reads updates that take effect in an order, with all that was told before the first."""
        told = LandedContext(
            self._controls, self.connector.reference(self.feed, self.table), self.through, self.left_out
        )
        told.take_controls(order[0].begin if order else self.through)
        return told

    @cached_property
    def _controls(self) -> Sequence[ControlFrame]:
        """The feed's control frames: read once, whatever number of spans are folded."""
        frames = read_frames(self.bronze, kind=Kind.CONTROL)
        return [frame for frame in frames if frame.frame_seq <= self.through]


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
        snapshot_end = next((update.end for update in self.order if update.snapshot), -1)
        fold = (
            LogFold(told.keys, within, self.keys)
            if self._is_log
            else TableFold(told.keys, within, upserts=not snapshots, snapshot_end=snapshot_end)
        )
        late: list[ReferenceChange] = []
        for update, frames in taking_effect(landed.bronze, landed.stream, self.order):
            changes = told.changes(update, frames, EVERY_KEY if self._is_log else within)
            if landed.connector.source_ordered:
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
        return self.landed.connector.table_kind(self.landed.settings) is TableKind.CHANGELOG


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


def in_sequence(changes: Iterable[ReferenceChange]) -> list[ReferenceChange]:
    """Return the changes of a sequenced source in its own order."""
    return sorted(changes, key=lambda change: change.sequence or "")


class LandedContext:
    """What landed frames say, control frames taken as they come by.

    Args:
        controls: The feed's control frames.
        through: Position beyond which nothing is looked at.
        left_out: Positions of frames that are skipped.
    """

    def __init__(
        self, controls: Iterable[ControlFrame], reader: ReferenceReader, through: int, left_out: Collection[int]
    ) -> None:
        self._reader, self._through, self._left_out = reader, through, left_out
        self._controls = sorted(controls, reverse=True)
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

    def changes(self, update: Landed, frames: Iterable[Body], within: KeySpan = EVERY_KEY) -> Iterable[ReferenceChange]:
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
