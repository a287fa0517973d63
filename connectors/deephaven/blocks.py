"""Turns column messages into rows: cuts columns into blocks of row keys, then scatters each block into rows.

A Deephaven update sends each column by itself, so a row is spread over as many messages as it has columns. Row keys
are cut into blocks of 65,536. `BlockCutter` packs what one batch of frames says of one column and one block into a
*piece*; Spark brings the pieces of a block together; `assemble` scatters them into rows with numpy and in doing so
folds any number of updates: per row the last insert, removal and modification decide, per cell the last value since.

Order of changes: by update, inside an update removals first, then added, then modified rows, then by position
(Deephaven's own order of index changes). Nothing here knows SBE or Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs: TypeAlias = npt.NDArray[np.int64]

BLOCK_BITS = 16
BLOCK_ROWS = 1 << BLOCK_BITS

REMOVED, ADDED, MODIFIED = 0, 1, 2
"""Phases of an update, in the order in which they take effect."""

FIRST_BLOCK = -(1 << 62)
"""Block of pieces that concern every block; sorts before all others."""

REMOVAL_COLUMN, WIDE_COLUMN, ERROR_COLUMN = -1, -2, -3
"""Stand in a piece's ``column`` where it holds no values: removed keys, a wide removed range, an undecodable frame."""

NARROW = 4096
"""Removed ranges up to this many keys are listed key by key; wider ones stay ranges until they meet existing rows."""

PIECE = pa.schema(
    [
        ("part", pa.int32()),  # partition that assembles the piece
        ("update", pa.int64()),  # index of the update for a log; 0 where updates are folded
        ("block", pa.int64()),
        ("column", pa.int32()),  # index in the table's columns, or one of the three above
        ("runs", pa.binary()),  # int64 quadruples: update, phase, position, rows
        ("offsets", pa.binary()),  # uint16 per row: row key minus the block's first
        ("values", pa.binary()),  # Arrow record batch of one column; error: "class\0reason"
    ]
)


class Change(NamedTuple):
    """What one message says: rows of one column (``column`` ≥ 0), or removed keys."""

    column: int
    update: int
    phase: int
    position: int
    keys: Longs
    values: pa.Array | None


class WideRange(NamedTuple):
    """A removed range kept as a range, both ends inclusive."""

    update: int
    position: int
    first: int
    last: int


@dataclass
class BlockCutter:
    """Collects changes of one batch of frames, then gives them as pieces.

    Args:
        parts: Number of partitions that assemble; block ``b`` goes to part ``b % parts``.
        by_update: Keep updates apart (a log of changes) instead of folding them.
    """

    parts: int
    by_update: bool = False
    _changes: dict[tuple[int, int], list[Change]] = field(default_factory=dict)
    _rows: list[tuple[int, int, int, int, bytes, bytes, bytes]] = field(default_factory=list)

    def add(self, change: Change) -> None:
        """Take one message's rows of one column, or its narrow removals."""
        if len(change.keys):
            update = change.update if self.by_update else 0
            self._changes.setdefault((change.column, update), []).append(change)

    def add_wide(self, removed: WideRange) -> None:
        """Take a wide removed range: every part must see it."""
        run = np.array([removed.update, REMOVED, removed.position, 0], np.int64).tobytes()
        ends = np.array([removed.first, removed.last], np.int64).tobytes()
        for part in range(self.parts):
            self._rows.append((part, 0, FIRST_BLOCK, WIDE_COLUMN, run, ends, b""))

    def add_error(self, position: int, error_class: str, reason: str) -> None:
        """Take a frame that cannot be decoded."""
        run = np.array([0, 0, position, 0], np.int64).tobytes()
        self._rows.append((0, 0, FIRST_BLOCK, ERROR_COLUMN, run, b"", f"{error_class}\0{reason}".encode()))

    def pieces(self) -> pa.RecordBatch:
        """Return everything taken, as `PIECE` rows."""
        for (column, update), changes in self._changes.items():
            self._rows += self._cut(column, update, changes)
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(PIECE)
        return pa.RecordBatch.from_arrays(
            [pa.array(values, kind.type) for values, kind in zip(columns, PIECE, strict=True)], schema=PIECE
        )

    def _cut(
        self, column: int, update: int, changes: Sequence[Change]
    ) -> Iterator[tuple[int, int, int, int, bytes, bytes, bytes]]:
        keys = np.concatenate([change.keys for change in changes])
        run_of = np.repeat(np.arange(len(changes)), [len(change.keys) for change in changes])
        arrays = [change.values for change in changes if change.values is not None]
        values = pa.concat_arrays(arrays) if arrays else None
        blocks = keys >> BLOCK_BITS
        starts = np.flatnonzero(np.diff(blocks, prepend=blocks[0] - 1))
        if len(starts) > len(changes) + len(np.unique(blocks)):
            order = np.argsort(blocks, kind="stable")
            keys, run_of, blocks = keys[order], run_of[order], blocks[order]
            values = None if values is None else values.take(pa.array(order))
            starts = np.flatnonzero(np.diff(blocks, prepend=blocks[0] - 1))
        heads = np.array([(c.update, c.phase, c.position, 0) for c in changes], np.int64)
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            block = int(blocks[start])
            yield (
                block % self.parts,
                update,
                block,
                column,
                _runs(heads, run_of[start:end]).tobytes(),
                (keys[start:end] & (BLOCK_ROWS - 1)).astype(np.uint16).tobytes(),
                b"" if values is None else _pack(values.slice(start, end - start)),
            )


def _runs(heads: Longs, run_of: Longs) -> Longs:
    """Return (update, phase, position, rows) for each stretch of equal runs."""
    starts = np.flatnonzero(np.diff(run_of, prepend=-1))
    runs = heads[run_of[starts]]
    runs[:, 3] = np.diff(starts, append=len(run_of))
    return runs


def _pack(values: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_arrays([values], names=["v"])
    return bytes(memoryview(batch.serialize()))


def _unpack(packed: bytes, kind: pa.DataType) -> pa.Array:
    return pa.ipc.read_record_batch(pa.py_buffer(packed), pa.schema([("v", kind)])).column(0)


@dataclass
class Column:
    """Everything the pieces of one block say of one column, in order of effect."""

    offsets: npt.NDArray[np.intp] | slice
    update: Longs
    phase: Longs
    position: Longs
    values: pa.Array | None


def gather(pieces: Sequence[tuple[bytes, bytes, bytes]], kind: pa.DataType | None) -> Column:
    """Join the pieces of one column and sort their rows by update, phase and position."""
    runs = np.concatenate([np.frombuffer(runs, np.int64) for runs, _, _ in pieces]).reshape(-1, 4)
    offsets = np.concatenate([np.frombuffer(packed, np.uint16) for _, packed, _ in pieces]).astype(np.intp)
    values = None if kind is None else pa.concat_arrays([_unpack(packed, kind) for _, _, packed in pieces])
    update, phase, position = (np.repeat(runs[:, i], runs[:, 3]) for i in range(3))
    if len(offsets) and bool(np.all(np.diff(offsets) == 1)):
        return Column(slice(int(offsets[0]), int(offsets[-1]) + 1), update, phase, position, values)
    order = np.lexsort((runs[:, 2], runs[:, 1], runs[:, 0]))
    if not bool(np.all(np.diff(order) == 1)):
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rows = np.argsort(np.repeat(rank, runs[:, 3]), kind="stable")
        offsets, update, phase, position = offsets[rows], update[rows], phase[rows], position[rows]
        values = None if values is None else values.take(pa.array(rows))
    return Column(offsets, update, phase, position, values)


class Rows(NamedTuple):
    """Net changes of one block, one per touched row key, in ascending order of keys."""

    keys: Longs
    position: Longs
    inserted: npt.NDArray[np.bool_]
    """The row begins in this cut: it starts from blank."""
    deleted: npt.NDArray[np.bool_]
    columns: list[pa.Array]
    """One array per column of the table; NULL where nothing was sent."""
    sent: list[npt.NDArray[np.bool_]]
    """Beside ``columns``: which cells were sent since the row began."""
    ignored: int
    """Rows modified after they were removed: changes of rows that do not exist."""


def assemble(
    block: int,
    pieces: Iterable[tuple[int, bytes, bytes, bytes]],
    kinds: Sequence[pa.DataType],
    wide: Sequence[WideRange] = (),
) -> Rows:
    """Scatter the pieces (column, runs, offsets, values) of one block into rows and fold their updates."""
    by_column: dict[int, list[tuple[bytes, bytes, bytes]]] = {}
    for column, runs, offsets, values in pieces:
        by_column.setdefault(column, []).append((runs, offsets, values))
    board = _Board()
    cells: dict[int, _Cells] = {}
    for column, parts in by_column.items():
        gathered = gather(parts, kinds[column] if column >= 0 else None)
        board.note(gathered)
        if column >= 0:
            cells[column] = _Cells(gathered)
    board.note_wide(block, wide)
    return board.rows(block, [cells.get(i) or kind for i, kind in enumerate(kinds)])


class _Cells:
    """One column of a block: for each row, which value was sent last and in which update."""

    def __init__(self, column: Column) -> None:
        assert column.values is not None
        self.values = column.values
        self.source = np.full(BLOCK_ROWS, -1, np.int32)
        self.update = np.full(BLOCK_ROWS, -1, np.int64)
        self.source[column.offsets] = np.arange(len(column.values), dtype=np.int32)
        self.update[column.offsets] = column.update

    def at(self, touched: npt.NDArray[np.intp], since: Longs) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Return the values of the touched rows and which of them were sent, not before update ``since``."""
        source = self.source[touched]
        sent = (source >= 0) & (self.update[touched] >= since)
        if bool(sent.all()) and len(source) == len(self.values) and bool(np.all(np.diff(source) == 1)):
            return self.values, sent
        return self.values.take(pa.array(source, mask=~sent)), sent


class _Board:
    """For each row of a block: the last update that added, removed and modified it, and its last position."""

    def __init__(self) -> None:
        self.added, self.removed, self.modified, self.position = (np.full(BLOCK_ROWS, -1, np.int64) for _ in range(4))
        self.touched = np.zeros(BLOCK_ROWS, np.bool_)

    def note(self, column: Column) -> None:
        """Write down what one column's rows say. Rows come in order of effect, so the last assignment wins."""
        at = column.offsets
        self.touched[at] = True
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

    def note_wide(self, block: int, wide: Sequence[WideRange]) -> None:
        """Let wide removals take effect on the rows of this block."""
        base = block << BLOCK_BITS
        for removed in wide:
            at = slice(max(removed.first - base, 0), max(min(removed.last - base + 1, BLOCK_ROWS), 0))
            self.removed[at] = np.maximum(self.removed[at], removed.update)
            self.position[at] = np.maximum(self.position[at], removed.position)

    def rows(self, block: int, columns: Sequence[_Cells | pa.DataType]) -> Rows:
        """Return the net change of every touched row."""
        touched = np.flatnonzero(self.touched)
        added, removed, modified = self.added[touched], self.removed[touched], self.modified[touched]
        inserted = (added >= 0) & (added >= removed)
        deleted = (removed >= 0) & ~inserted
        since = np.maximum(added, removed)
        found = [
            column.at(touched, since)
            if isinstance(column, _Cells)
            else (pa.nulls(len(touched), column), np.zeros(len(touched), np.bool_))
            for column in columns
        ]
        return Rows(
            keys=touched + (block << BLOCK_BITS),
            position=self.position[touched],
            inserted=inserted,
            deleted=deleted,
            columns=[values for values, _ in found],
            sent=[sent for _, sent in found],
            ignored=int(np.count_nonzero(deleted & (modified >= removed))),
        )
