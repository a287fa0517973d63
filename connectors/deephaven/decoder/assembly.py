"""Assembles the pieces of a block (`connectors.deephaven.decoder.blocks`) into rows, with numpy.

Assembly also folds any number of updates. Per row, the last insert, removal and modification decide; per cell, the last
value since. When updates are kept apart, folding happens only within each of them.

Changes take effect by update; within an update by phase (removals, then added rows, then modified rows), then by
position. This is Deephaven's own order of index changes. This module knows neither SBE nor Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from silverfold.connectors.deephaven.decoder.blocks import (
    ADDED,
    BLOCK_BITS,
    BLOCK_ROWS,
    MODIFIED,
    REMOVED,
    Longs,
    WideRange,
    contiguous,
)

Indices: TypeAlias = npt.NDArray[np.intp] | slice


@dataclass
class Column:
    """All pieces of one column of a block, in order of effect."""

    offsets: Indices
    update: Longs
    phase: Longs
    position: Longs
    values: pa.Array | None


def gather(pieces: Sequence[tuple[bytes, bytes, bytes]], kind: pa.DataType | None) -> Column:
    """Join the pieces of one column and sort their rows by update, phase and position."""
    runs = np.concatenate([np.frombuffer(runs, np.int64) for runs, _, _ in pieces]).reshape(-1, 4)
    offsets = np.concatenate([_offsets(packed, runs) for runs, packed, _ in pieces])
    values = None if kind is None else pa.concat_arrays([_unpack(packed, kind) for _, _, packed in pieces])
    update, phase, position = (np.repeat(runs[:, i], runs[:, 3]) for i in range(3))
    if contiguous(offsets):
        return Column(slice(int(offsets[0]), int(offsets[-1]) + 1), update, phase, position, values)
    order = np.lexsort((runs[:, 2], runs[:, 1], runs[:, 0]))
    if not contiguous(order):
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rows = np.argsort(np.repeat(rank, runs[:, 3]), kind="stable")
        offsets, update, phase, position = offsets[rows], update[rows], phase[rows], position[rows]
        values = None if values is None else values.take(pa.array(rows))
    return Column(offsets, update, phase, position, values)


def _offsets(packed: bytes, runs: bytes) -> npt.NDArray[np.intp]:
    """Return the offsets of a piece's rows within its block."""
    offsets = np.frombuffer(packed, np.uint16).astype(np.intp)
    rows = int(np.frombuffer(runs, np.int64)[3::4].sum())
    return offsets if len(offsets) == rows else np.arange(offsets[0], offsets[0] + rows)


class NetChanges(NamedTuple):
    """Net changes of one block, one per touched row key in ascending order.

    With updates kept apart, there is one per update and row key, in order of updates.
    """

    keys: Longs
    update: Longs
    """Last update that touched the row."""
    position: Longs
    inserted: npt.NDArray[np.bool_]
    """Whether the row begins in this cut: no earlier values carry over."""
    deleted: npt.NDArray[np.bool_]
    columns: list[pa.Array]
    """One array per column of the table; NULL where nothing was sent."""
    sent: list[npt.NDArray[np.bool_]]
    """Parallel to ``columns``: which cells were sent since the row began."""


def assemble(
    block: int,
    pieces: Iterable[tuple[int, bytes, bytes, bytes]],
    kinds: Sequence[pa.DataType],
    wide: Sequence[WideRange] = (),
    *,
    upsert: bool = False,
    by_update: bool = False,
) -> NetChanges:
    """Scatter the pieces (column, runs, offsets, values) of one block into rows and fold their updates.

    Cost is proportional to the rows touched, not to the rows of the block.

    Args:
        by_update: Fold only within updates: one row for each update that touches it. Excludes ``wide``.
        upsert: A row modified after its removal begins again, as it does when the two fall into different cuts.
    """
    by_column: dict[int, list[tuple[bytes, bytes, bytes]]] = {}
    for column, runs, offsets, values in pieces:
        by_column.setdefault(column, []).append((runs, offsets, values))
    packed = [(offsets, runs) for found in by_column.values() for runs, offsets, _ in found]
    touched = _TouchedByUpdate(packed) if by_update else _Touched(packed)
    row_changes = _RowChanges(touched.offsets + (block << BLOCK_BITS))
    cells: dict[int, _Cells] = {}
    for column, found in by_column.items():
        gathered = gather(found, kinds[column] if column >= 0 else None)
        at = touched.indices(gathered)
        row_changes.record(gathered, at)
        if column >= 0:
            cells[column] = _Cells(gathered, at, len(row_changes.keys))
    row_changes.record_wide(wide)
    return row_changes.rows([cells.get(i) or kind for i, kind in enumerate(kinds)], upsert=upsert)


class _Touched:
    """The rows of a block that any column mentions, and the index of each among them."""

    def __init__(self, pieces: Iterable[tuple[bytes, bytes]]) -> None:
        touched = np.zeros(BLOCK_ROWS, np.bool_)
        for offsets, runs in pieces:
            touched[_offsets(offsets, runs)] = True
        self.offsets = np.flatnonzero(touched)
        self._indices = np.empty(BLOCK_ROWS, np.intp)  # only touched entries are ever written or read
        self._indices[self.offsets] = np.arange(len(self.offsets))

    def indices(self, column: Column) -> Indices:
        """Return the indices of a column's rows among the touched ones; consecutive rows give a slice."""
        if isinstance(column.offsets, slice):
            first = int(self._indices[column.offsets.start])
            return slice(first, first + column.offsets.stop - column.offsets.start)
        return self._indices[column.offsets]


class _TouchedByUpdate:
    """Like `_Touched`, with each row once per update that mentions it."""

    def __init__(self, pieces: Iterable[tuple[bytes, bytes]]) -> None:
        self._touched = np.unique(np.concatenate([self._row_ids(*piece) for piece in pieces]))
        self.offsets = self._touched & (BLOCK_ROWS - 1)

    @staticmethod
    def _row_ids(offsets: bytes, runs: bytes) -> Longs:
        heads = np.frombuffer(runs, np.int64).reshape(-1, 4)
        return np.repeat(heads[:, 0], heads[:, 3]) << BLOCK_BITS | _offsets(offsets, runs)

    def indices(self, column: Column) -> Indices:
        offsets = column.offsets
        each = np.arange(offsets.start, offsets.stop) if isinstance(offsets, slice) else offsets
        return np.searchsorted(self._touched, column.update << BLOCK_BITS | each)


class _Cells:
    """One column of a block: for each touched row, the last value sent and its update."""

    def __init__(self, column: Column, at: Indices, rows: int) -> None:
        assert column.values is not None
        self.values = column.values
        self.source = np.full(rows, -1, np.int32)
        self.update = np.full(rows, -1, np.int64)
        self.source[at] = np.arange(len(column.values), dtype=np.int32)
        self.update[at] = column.update

    def sent(self, since: Longs) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Return the values of the touched rows, and a mask of those sent in update ``since`` or later."""
        source = self.source
        sent = (source >= 0) & (self.update >= since)
        if len(source) == len(self.values) and bool(sent.all()) and contiguous(source):
            return self.values, sent
        return self.values.take(pa.array(source, mask=~sent)), sent


class _RowChanges:
    """For each touched row, the last update that added, removed and modified it, and its last position."""

    def __init__(self, keys: Longs) -> None:
        self.keys = keys
        self.added, self.removed, self.modified, self.position = (np.full(len(keys), -1, np.int64) for _ in range(4))

    def record(self, column: Column, at: Indices) -> None:
        """Record the rows of one column. Rows come in order of effect, so the last assignment wins."""
        for phase, last in ((REMOVED, self.removed), (ADDED, self.added), (MODIFIED, self.modified)):
            chosen = column.phase == phase
            if bool(chosen.all()):
                last[at] = np.maximum(last[at], column.update)
            elif bool(chosen.any()):
                rows = np.arange(at.start, at.stop)[chosen] if isinstance(at, slice) else at[chosen]
                last[rows] = np.maximum(last[rows], column.update[chosen])
        if isinstance(at, slice):
            self.position[at] = np.maximum(self.position[at], column.position)
        else:
            np.maximum.at(self.position, at, column.position)

    def record_wide(self, wide: Iterable[WideRange]) -> None:
        """Apply wide removals to the touched rows."""
        for removed in wide:
            first, end = np.searchsorted(self.keys, removed.first), np.searchsorted(self.keys, removed.last, "right")
            at = slice(int(first), int(end))
            self.removed[at] = np.maximum(self.removed[at], removed.update)
            self.position[at] = np.maximum(self.position[at], removed.position)

    def rows(self, columns: Sequence[_Cells | pa.DataType], *, upsert: bool) -> NetChanges:
        """Return the net change of every touched row."""
        count = len(self.keys)
        inserted = (self.added >= 0) & (self.added >= self.removed)
        deleted = (self.removed >= 0) & ~inserted
        if upsert:
            modified_after = deleted & (self.modified >= self.removed)
            inserted, deleted = inserted | modified_after, deleted & ~modified_after
        since = np.maximum(self.added, self.removed)
        found = [
            column.sent(since) if isinstance(column, _Cells) else (pa.nulls(count, column), np.zeros(count, np.bool_))
            for column in columns
        ]
        return NetChanges(
            keys=self.keys,
            update=np.maximum(np.maximum(self.added, self.removed), self.modified),
            position=self.position,
            inserted=inserted,
            deleted=deleted,
            columns=[values for values, _ in found],
            sent=[sent for _, sent in found],
        )


def _unpack(packed: bytes, kind: pa.DataType) -> pa.Array:
    return pa.ipc.read_record_batch(pa.py_buffer(packed), pa.schema([("v", kind)])).column(0)
