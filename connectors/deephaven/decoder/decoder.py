"""Decodes landed Deephaven frames into change rows: columns to blocks, blocks to rows.

There are two steps. They run in Python workers, with one shuffle of packed columns between them, or for a small cut in
this process::

    frames ──step──▶ pieces of (block, column) ──shuffle by block──▶ step ──▶ net change rows

The second step folds all updates of the cut (`connectors.deephaven.decoder.assembly`), so there is at most one change
per row key. For a changelog, and for the versions of a history, it keeps updates apart. The memory of a worker is
bounded by one Arrow batch, or one block of 65,536 rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.conf.errors import SchemaDrift
from silverfold.connectors.base import MOST_BAD, Cut, CutStatistics, Decoder, Undecodable
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.change_rows import ChangeRows, error_rows, names_sent
from silverfold.connectors.deephaven.decoder.assembly import NetChanges, assemble
from silverfold.connectors.deephaven.decoder.blocks import (
    ERROR_COLUMN,
    PIECE,
    WIDE_COLUMN,
    BlockCutter,
    Longs,
    WideRange,
)
from silverfold.connectors.deephaven.decoder.cut_reader import (
    ColumnCells,
    Context,
    CutReader,
    Removals,
    landed_frames,
    read_context,
)
from silverfold.connectors.deephaven.decoder.silver_types import SilverColumn, silver_columns
from silverfold.connectors.deephaven.options import DeephavenFeed, DeephavenTable
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.frames import ControlFrame
from silverfold.transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE

ROW_KEY = "_row_key"
"""Key column of every change row: the source's 64-bit row index."""

_READ = ("frame_seq", "epoch", "body")
_RANGE = pa.schema(
    [("moment", pa.int64()), ("frame_seq", pa.int64()), ("first_key", pa.int64()), ("last_key", pa.int64())]
)
_STATISTICS = pa.schema(
    [
        ("bad", pa.list_(pa.struct([("position", pa.int64()), ("error_class", pa.string()), ("reason", pa.string())]))),
        ("changes", pa.int64()),
        ("first_key", pa.int64()),
        ("last_key", pa.int64()),
        ("wide_ranges", pa.int64()),
        ("truncated", pa.int64()),
    ]
)

_ROWS_AT_ONCE = 1 << 22
"""Single-column rows from which a batch of pieces is emitted: a few bytes may name thousands of removed rows."""


@dataclass(frozen=True)
class DeephavenDecoder(Decoder[DeephavenTable]):
    """A `connectors.base.Decoder` of one feed."""

    feed: DeephavenFeed

    def context(self, control: Iterable[ControlFrame]) -> Context:
        """Return the byte order of each epoch and the columns of each subscription."""
        return read_context(control, self._roles)

    def row_type(self, context: Context, cut: Cut, table: DeephavenTable) -> StructType:
        """Return the silver columns of the stream's newest subscription in the cut.

        Raises:
            UnknownTemplate: The schema lacks the message of a column.
            SchemaDrift: No subscribe response of the epoch landed before the cut's end.
        """
        return from_arrow_schema(_row_schema(self._columns(context, cut, table)))

    def statistics(self, frames: ArrowRows, context: Context, cut: Cut, table: DeephavenTable) -> CutStatistics:
        """Read every frame once. Runs one Spark job; collects one row per Arrow batch."""
        step = _StatisticsStep(self._reader(context, cut, table))
        return _merge_statistics(
            [_BatchStatistics(**line) for line in _row_frames(frames).run(step, _STATISTICS, *_READ).collect()]
        )

    def has_counters(self, context: Context, cut: Cut, table: DeephavenTable) -> bool:
        """Return whether a column may lose nanoseconds."""
        return any(column.drops_nanoseconds for column in self._columns(context, cut, table))

    def changes(self, frames: ArrowRows, context: Context, cut: Cut, table: DeephavenTable) -> ArrowRows:
        """Return net changes, one per row key; for a changelog one per update and row key, without removals."""
        reader = self._reader(context, cut, table)
        step = _AssembleStep(reader.columns, cut, upsert=table.upserts, by_update=reader.lists_ranges)
        return _assemble(frames, reader, step)

    def versions(self, frames: ArrowRows, context: Context, cut: Cut, table: DeephavenTable) -> ArrowRows:
        """Return changes, one per update and row key, positioned at the update's end, without wide removed ranges."""
        reader = self._reader(context, cut, table)
        step = _AssembleStep(reader.columns, cut, upsert=table.upserts, by_update=True, at_ends=True)
        return _assemble(frames, reader, step)

    def removed_ranges(self, frames: ArrowRows, context: Context, cut: Cut, table: DeephavenTable) -> ArrowRows:
        """Return removed ranges too wide to list; for a changelog all removed ranges."""
        step = _RangeStep(self._reader(context, cut, table), cut.ends)
        return _row_frames(frames).run(step, _RANGE, *_READ)

    @cached_property
    def _roles(self) -> Roles:
        return load_roles(self.feed.options.schema_, self.feed.options.text)

    def _columns(self, context: Context, cut: Cut, table: DeephavenTable) -> tuple[SilverColumn, ...]:
        subscription = context.latest(cut.stream, cut.epoch, before=cut.last)
        if subscription is None:
            raise SchemaDrift(f"epoch {cut.epoch} has no subscribe response for it", table=cut.stream)
        return silver_columns(subscription.columns, self.feed.options, table)

    def _reader(self, context: Context, cut: Cut, table: DeephavenTable) -> CutReader:
        return CutReader(context, cut.begins, self._columns(context, cut, table), lists_ranges=table.keeps_log)


def _row_frames(frames: ArrowRows) -> ArrowRows:
    """Drop the Begin and End frames of updates: only the frames between them carry rows."""
    return frames.where("boundary", "inside")


def _assemble(frames: ArrowRows, reader: CutReader, step: _AssembleStep) -> ArrowRows:
    """Decode frames into pieces, bring the pieces of each block together, and assemble them into change rows."""
    cutting = _PieceStep(reader, frames.parts, by_update=step.by_update)
    pieces = _row_frames(frames).run(cutting, PIECE, *_READ)
    return pieces.repartition("part", "updates", "block").run(step, step.rows.type)


def _row_schema(columns: Iterable[SilverColumn]) -> pa.Schema:
    return pa.schema([column.field for column in columns])


class _BatchStatistics(NamedTuple):
    """A row of `_STATISTICS`."""

    bad: list[dict[str, Any]]
    changes: int
    first_key: int | None
    last_key: int | None
    wide_ranges: int
    truncated: int


@dataclass(frozen=True)
class _StatisticsStep:
    reader: CutReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            bad, changes, wide, truncated, bounds = list[Undecodable](), 0, 0, 0, []
            for found in self.reader.read(landed_frames(batch)):
                match found:
                    case ColumnCells(change, lost):
                        changes, truncated = changes + len(change.keys), truncated + lost
                        bounds += _bounds(change.keys)
                    case Removals(narrow, ranges):
                        changes, wide = changes + len(narrow.keys), wide + len(ranges)
                        bounds += _bounds(narrow.keys)
                    case Undecodable():
                        bad.append(found)
            first, last = (min(bounds), max(bounds)) if bounds else (None, None)
            line = ([each._asdict() for each in sorted(bad)[:MOST_BAD]], changes, first, last, wide, truncated)
            yield pa.RecordBatch.from_arrays(
                [pa.array([value], field.type) for value, field in zip(line, _STATISTICS, strict=True)],
                schema=_STATISTICS,
            )


def _bounds(keys: np.typing.NDArray[np.int64]) -> list[int]:
    return [int(keys.min()), int(keys.max())] if len(keys) else []


def _merge_statistics(lines: list[_BatchStatistics]) -> CutStatistics:
    bad = sorted(Undecodable(**each) for line in lines for each in line.bad)
    lost, wide = sum(line.truncated for line in lines), sum(line.wide_ranges for line in lines)
    first = [line.first_key for line in lines if line.first_key is not None]
    last = [line.last_key for line in lines if line.last_key is not None]
    return CutStatistics(
        bad=bad[:MOST_BAD],
        changes=sum(line.changes for line in lines),
        bounds={ROW_KEY: (min(first), max(last))} if first and not wide else {},
        wide_ranges=wide,
        counters={"truncated_nanoseconds": lost} if lost else {},
    )


@dataclass(frozen=True)
class _PieceStep:
    reader: CutReader
    parts: int
    by_update: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            cutter = BlockCutter(self.parts, by_update=self.by_update)
            for found in self.reader.read(landed_frames(batch)):
                match found:
                    case ColumnCells(change):
                        cutter.add(change)
                    case Removals(narrow, ranges):
                        cutter.add(narrow)
                        for removed in () if self.by_update else ranges:
                            cutter.add_wide(removed)
                    case Undecodable(position, error_class, reason):
                        cutter.add_error(position, error_class, reason)
                if cutter.rows >= _ROWS_AT_ONCE:
                    yield cutter.pieces()
                    cutter = BlockCutter(self.parts, by_update=self.by_update)
            yield cutter.pieces()


@dataclass(frozen=True)
class _RangeStep:
    reader: CutReader
    update_ends: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            wide = [
                (self.update_ends[removed.update], *removed[1:])
                for found in self.reader.read(landed_frames(batch))
                if isinstance(found, Removals)
                for removed in found.wide
            ]
            columns = zip(*wide, strict=True) if wide else [()] * len(_RANGE)
            yield pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], schema=_RANGE)


class _AssembleStep:
    """Assembles the pieces of each block, which are consecutive in a partition, into change rows.

    Args:
        by_update: Keep updates apart.
        at_ends: Position each change at the end of its update, not at its last frame; distinguishes rows of the
            snapshot from rows added later.
    """

    def __init__(
        self, columns: tuple[SilverColumn, ...], cut: Cut, *, upsert: bool, by_update: bool, at_ends: bool = False
    ) -> None:
        self.names = [column.info.name for column in columns]
        self.kinds = [column.arrow for column in columns]
        self.replaces, self.snapshot_end = cut.replaces, cut.snapshot_end
        self.upsert, self.by_update = upsert, by_update
        self.update_ends = np.array(cut.ends, np.int64) if at_ends else None
        row, key = pa.struct([column.field for column in columns]), pa.struct([(ROW_KEY, pa.int64())])
        self.rows = ChangeRows(row, key, omitted=frozenset({"ordinal", "old_key"}))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wide: list[WideRange] = []
        at: tuple[int, int] | None = None
        pieces: list[tuple[int, bytes, bytes, bytes]] = []
        for updates, block, column, runs, offsets, values in _piece_rows(batches):
            if column == ERROR_COLUMN:
                yield self._error(runs, values)
            elif column == WIDE_COLUMN:
                wide.append(_wide(runs, offsets))
            else:
                if at != (updates, block):
                    if at is not None:
                        yield self._assemble(at[1], pieces, wide)
                    at, pieces = (updates, block), []
                pieces.append((column, runs, offsets, values))
        if at is not None:
            yield self._assemble(at[1], pieces, wide)

    def _assemble(
        self, block: int, pieces: list[tuple[int, bytes, bytes, bytes]], wide: list[WideRange]
    ) -> pa.RecordBatch:
        rows = assemble(block, pieces, self.kinds, wide, upsert=self.upsert, by_update=self.by_update)
        return self._rows(rows, rows.position if self.update_ends is None else self.update_ends[rows.update])

    def _rows(self, rows: NetChanges, position: Longs) -> pa.RecordBatch:
        of_snapshot = self.replaces & ((self.update_ends is None) | (position == self.snapshot_end))
        op = np.where(rows.inserted, np.where(of_snapshot, 3, 0), np.where(rows.deleted, 1, 2)).astype(np.int8)
        ops = pa.DictionaryArray.from_arrays(pa.array(op), pa.array([INSERT, DELETE, UPDATE, SNAPSHOT]))
        positions, keys = pa.array(position), [pa.array(rows.keys)]
        return self.rows.batch(positions, ops.cast(pa.string()), rows.columns, keys=keys, present=self._present(rows))

    def _present(self, rows: NetChanges) -> pa.Array:
        """Return the names of the columns sent, for existing rows that did not get all of them; else NULL."""
        updated = ~rows.inserted & ~rows.deleted
        partial = updated & ~np.logical_and.reduce(rows.sent) if rows.sent else np.zeros(len(rows.keys), np.bool_)
        return names_sent(self.names, rows.sent, partial)

    def _error(self, runs: bytes, text: bytes) -> pa.RecordBatch:
        error_class, reason = text.decode().split("\0", 1)
        return error_rows(self.rows.type, [int(np.frombuffer(runs, np.int64)[2])], [(error_class, reason)])


def _piece_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, int, bytes, bytes, bytes]]:
    names = ("updates", "block", "column", "runs", "offsets", "values")
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _wide(runs: bytes, ends: bytes) -> WideRange:
    update, _, position, _ = np.frombuffer(runs, np.int64).tolist()
    first, last = np.frombuffer(ends, np.int64).tolist()
    return WideRange(update, position, first, last)
