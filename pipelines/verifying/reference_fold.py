"""Fold bronze in plain Python into the rows a silver table must hold at a position, as directly as possible.

This exists to find mistakes. It shares only the reading of bronze and the wire codec with the code that builds silver:
neither planner, decoder, fold nor Spark. Its rules are those of the design:

- an update counts once it is complete; an unmatched ``begin`` or ``end`` voids the open update;
- a table whose stream has snapshots is its last complete snapshot, then the data updates of the same epoch in order:
  all of them for the first snapshot of an epoch, unless it begins with a mark, else those that began after it did;
- any other table is every complete update, in order; where the oldest were dropped, its base and those after it.

Rows are folded one span of keys at a time (`BronzeFold.expected`): each takes one to two kilobytes of memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from silverfold.conf.errors import PositionGap
from silverfold.conf.model import Table
from silverfold.conf.names import caseless
from silverfold.connectors.base import Connector, Feed, TableKind
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.frames import ControlFrame, Kind
from silverfold.connectors.verification import ReferenceChange, ReferenceReader
from silverfold.pipelines.landing.bronze import read_frames
from silverfold.pipelines.landing.losses import Losses
from silverfold.pipelines.places import Place
from silverfold.pipelines.verifying.base_rows import BaseRows
from silverfold.pipelines.verifying.compared_rows import NOTHING_LEFT_OUT, LeftOut
from silverfold.pipelines.verifying.landed_updates import (
    Body,
    LandedUpdate,
    LandedUpdates,
    in_order_of_effect,
    landed_updates,
    last_state,
)
from silverfold.pipelines.verifying.table_fold import LogFold, Row, TableFold

LOG_KEYS = ("_position", "_row_key", "_op", "_last_row_key")
"""Columns that identify a row of a changelog."""


@dataclass(frozen=True)
class Expected:
    """The expected contents of a silver table.

    Args:
        keys: Columns that identify a row.
        columns: All columns to compare, keys included.
        rows: In no particular order; a missing column is null.
        begins: Position from which bronze was folded; None if nothing was.
        base: Position of the base that the fold began with; None without.
        left_out: Rows that cannot be compared, since changes came late to the base.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Sequence[Row]
    begins: int | None
    base: int | None = field(default=None, kw_only=True)
    left_out: LeftOut = field(default=NOTHING_LEFT_OUT, kw_only=True)

    def comparable(self, found: pa.Table) -> pa.Table:
        """Return the rows found that can be compared: all of them."""
        return found

    def renamed_as(self, names: Iterable[str]) -> Self:
        """Return the same with columns named as in a table, which keeps the letter case of their first appearance."""
        own_names = {caseless(name): name for name in names}
        used = {*self.keys, *self.columns}.union(*self.rows)
        other = {name: own_names[caseless(name)] for name in used if own_names.get(caseless(name), name) != name}
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
    """The frames from which a table is made: those in bronze up to and including a position.

    Args:
        left_out: Positions of frames that are skipped.
        losses: The positions lost from bronze, as the table is affected by them.
        base: The base with which the table begins; None if it begins with bronze.
    """

    bronze: Place
    connector: Connector
    feed: Feed
    table: str
    through: int
    left_out: Collection[int] = ()
    losses: Losses = field(default_factory=Losses)
    base: BaseRows | None = None

    @property
    def settings(self) -> Table:
        """The table's settings."""
        return self.feed.tables[self.table]

    @property
    def stream(self) -> str:
        """The stream that feeds the table."""
        return self.connector.stream(self.feed, self.table)

    def updates(self) -> LandedUpdates:
        """Return the complete updates of the stream. Raises StoreUnavailable."""
        return landed_updates(self.bronze, self.feed.name, self.stream, self.through, lost=self.losses.untouched)

    def context(self, order: Sequence[LandedUpdate]) -> LandedContext:
        """Return a reader for updates in order of effect, with all control frames before the first already read."""
        reader = self.connector.reference(self.feed, self.table)
        names = () if self.base is None else self.base.names
        context = LandedContext(self.controls, reader, self.through, self.left_out, names)
        context.take_controls(order[0].begin if order else self.through)
        return context

    def since(self, since: int) -> int:
        """Return the position from which bronze has to have every frame: ``since`` without a base.

        Raises PositionGap if the table cannot begin with the base, or the base is further than the table, which was set
        back.
        """
        if self.base is None:
            return since
        if self.base.misfit is not None:
            raise PositionGap(feed=self.feed.name, first=0, last=self.base.floor - 1, advice=self.base.misfit)
        if self.base.position > self.through:
            advice = f"`silverfold rebuild {self.feed.name} {self.table}` makes it anew from its base"
            raise PositionGap(feed=self.feed.name, first=self.through + 1, last=self.base.position, advice=advice)
        return self.base.since

    def after_base(self, updates: Sequence[LandedUpdate]) -> Sequence[LandedUpdate]:
        """Return the updates that the base has not."""
        reached = -1 if self.base is None else self.base.position
        return [update for update in updates if update.end > reached]

    @cached_property
    def controls(self) -> Sequence[ControlFrame]:
        """The feed's control frames: read once, however many spans are folded."""
        frames = read_frames(self.bronze, kind=Kind.CONTROL)
        return [frame for frame in frames if frame.frame_seq <= self.through]


@dataclass(frozen=True)
class BronzeFold:
    """The updates that make a table, to be folded completely or one span of keys at a time.

    Args:
        order: The updates in order of effect.
    """

    landed: LandedTable
    order: Sequence[LandedUpdate]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Columns that identify a row."""
        context = self.landed.context(self.order)
        context.finish()
        return self._row_keys(context.keys)

    @cached_property
    def has_spans(self) -> bool:
        """Whether spans of ``keys`` can be folded separately: the source identifies its rows by them too."""
        source = self.landed.context(self.order).keys
        return self._is_log or [caseless(name) for name in self.keys] == [caseless(name) for name in source]

    def expected(self, within: KeySpan = EVERY_KEY) -> Expected:
        """Return the rows whose keys are in a span.

        Raises:
            WireError, ProtocolError: A needed frame cannot be read.
            NotBySpans: A row moved into the span or out of it, or its key cannot be ordered.
            StoreUnavailable: Bronze cannot be read now.
        """
        landed, context = self.landed, self.landed.context(self.order)
        snapshots = landed.connector.has_snapshots(landed.settings)
        snapshot_end = next((update.end for update in self.order if update.snapshot), -1)
        fold = (
            LogFold(context.keys, within, self.keys)
            if self._is_log
            else TableFold(context.keys, within, upserts=not snapshots, snapshot_end=snapshot_end)
        )
        before, late = self._begin(fold, context.keys, within), list[ReferenceChange]()
        for update, frames in in_order_of_effect(landed.bronze, landed.stream, self.order):
            changes = context.changes(update, frames, EVERY_KEY if self._is_log else within)
            if landed.connector.source_ordered:
                late += filter(fold.concerns, changes)
            else:
                fold.apply(changes, context.columns, snapshot=update.snapshot)
        fold.apply(in_sequence([*before, *late]), context.columns)
        context.finish()
        begins, base = min((update.begin for update in self.order), default=None), landed.base
        return Expected(
            self._row_keys(context.keys),
            tuple(dict.fromkeys((*fold.own_columns, *context.columns, *(base.names if base else ())))),
            fold.all_rows(),
            begins,
            base=base.position if base else None,
            left_out=base.left_out(context.keys, before, late) if base else NOTHING_LEFT_OUT,
        )

    def _begin(self, fold: LogFold | TableFold, keys: Sequence[str], within: KeySpan) -> Sequence[ReferenceChange]:
        """Begin a fold with the base, if there is one; return the changes that do so, in the source's order."""
        base = self.landed.base
        if base is None:
            return ()
        if isinstance(fold, LogFold):
            fold.add_rows(base.log_rows())
        elif self.landed.connector.source_ordered:
            return base.changes_within(keys, within)
        else:
            fold.rows = base.rows_within(keys, within)
        return ()

    def _row_keys(self, source: tuple[str, ...]) -> tuple[str, ...]:
        return self.landed.settings.keys or (LOG_KEYS if self._is_log else source)

    @cached_property
    def _is_log(self) -> bool:
        return self.landed.connector.table_kind(self.landed.settings) is TableKind.CHANGELOG


def fold_bronze(landed: LandedTable, *, since: int = 0) -> BronzeFold:
    """Return the updates that make the rows a table must hold, once all that has landed is applied.

    Args:
        since: Position from which a table without snapshots needs every frame, if it begins with bronze.

    Raises:
        PositionGap: Bronze lacks frames that are needed, or has them twice.
        StoreUnavailable: Bronze cannot be read now.
    """
    found, resync = landed.updates(), landed.connector.continuity == "resync"
    snapshots = landed.connector.has_snapshots(landed.settings)
    order = last_state(found.updates, resync=resync) if snapshots else sorted(found.updates)
    first = min((update.begin for update in order), default=min(landed.through, 0))
    found.require(first if snapshots else landed.since(since))
    return BronzeFold(landed, landed.after_base(order))


def in_sequence(changes: Iterable[ReferenceChange]) -> list[ReferenceChange]:
    """Return the changes of a source-ordered source in its own order."""
    return sorted(changes, key=lambda change: change.sequence or "")


class LandedContext:
    """Reads landed frames, passing control frames to the reader in turn.

    Args:
        controls: The feed's control frames.
        through: Position up to which frames are read.
        left_out: Positions of frames that are skipped.
        names: Names of columns before the first frame.
    """

    def __init__(
        self,
        controls: Iterable[ControlFrame],
        reader: ReferenceReader,
        through: int,
        left_out: Collection[int],
        names: Iterable[str] = (),
    ) -> None:
        self._reader, self._through, self._left_out = reader, through, left_out
        self._controls = sorted(controls, reverse=True)
        self._first = {caseless(name): name for name in names}
        self._other: dict[str, str] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns under their first names: a change of letter case does not make another column."""
        return tuple(self._other.get(name, name) for name in self._reader.columns)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the columns by which the source identifies a row."""
        return self._reader.keys

    def changes(
        self, update: LandedUpdate, frames: Iterable[Body], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        """Return the changes of a complete update; keys outside the span may be included. Reads frames lazily.

        Raises:
            WireError, ProtocolError: A frame cannot be read; maybe only while iterating over the changes.
        """
        self.take_controls(update.begin)
        included = (frame for frame in frames if frame[1] and frame[0] not in self._left_out)
        changes = self._reader.changes(update.epoch, included, within)
        if not self._other:
            return changes
        return (change._replace(row=self._as_at_first(change.row)) for change in changes)

    def finish(self) -> None:
        """Read the remaining control frames."""
        self.take_controls(self._through)

    def take_controls(self, before: int) -> None:
        """Pass the control frames before a position to the reader: it may need them to name its keys."""
        while self._controls and self._controls[-1].frame_seq < before:
            self._reader.control(self._controls.pop())
            for name in (*self._reader.keys, *self._reader.columns):
                first = self._first.setdefault(caseless(name), name)
                if first != name:
                    self._other[name] = first

    def _as_at_first(self, row: Mapping[str, Any]) -> Row:
        return {self._other.get(name, name): value for name, value in row.items()}
