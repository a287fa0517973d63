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
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs: TypeAlias = npt.NDArray[np.int64]
Offsets: TypeAlias = npt.NDArray[np.uint16]
Places: TypeAlias = npt.NDArray[np.intp] | slice
_Piece: TypeAlias = tuple[int, int, int, int, bytes, bytes, bytes]

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

_LARGE = 1024
"""Rows from which on joining a message with others costs more than it saves."""

PIECE = pa.schema(
    [
        ("part", pa.int32()),  # partition that assembles the piece
        ("update", pa.int64()),  # index of the update for a log; 0 where updates are folded
        ("block", pa.int64()),
        ("column", pa.int32()),  # index in the table's columns, or one of the three above
        ("runs", pa.binary()),  # int64 quadruples: update, phase, position, rows
        ("offsets", pa.binary()),  # uint16 per row: row key minus the block's first; only the first of consecutive keys
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
    rows: int = 0
    """Rows taken so far, once for each column: how much memory the pieces will need."""
    _changes: dict[tuple[int, int], list[Change]] = field(default_factory=dict)
    _rows: list[_Piece] = field(default_factory=list)

    def add(self, change: Change) -> None:
        """Take one message's rows of one column, or its narrow removals.

        Small messages are joined before they are cut; a large one is a piece for each of its blocks at once.
        """
        update = change.update if self.by_update else 0
        self.rows += len(change.keys)
        if len(change.keys) >= _LARGE and _contiguous(change.keys):
            self._rows += self._slice(change, update)
        elif len(change.keys) >= _LARGE:
            self._rows += self._cut(change.column, update, [change])
        elif len(change.keys):
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

    def _slice(self, change: Change, update: int) -> Iterator[_Piece]:
        """Cut a message of consecutive keys: nothing is looked at row by row."""
        first, rows, start = int(change.keys[0]), len(change.keys), 0
        while start < rows:
            block, offset = divmod(first + start, BLOCK_ROWS)
            count = min(rows - start, BLOCK_ROWS - offset)
            run = np.array([change.update, change.phase, change.position, count], np.int64)
            values = None if change.values is None else change.values.slice(start, count)
            yield self._piece(
                change.column, update, block, runs=run, offsets=np.array([offset], np.uint16), values=values
            )
            start += count

    def _cut(self, column: int, update: int, changes: Sequence[Change]) -> Iterator[_Piece]:
        keys, run_of, values = _joined(changes)
        blocks = keys >> BLOCK_BITS
        starts = _starts(blocks)
        if (len(changes) > 1 and len(starts) > len(changes)) or _descends(blocks, run_of, starts[1:]):
            order = np.argsort(blocks, kind="stable")
            keys, run_of, blocks = keys[order], run_of[order], blocks[order]
            values = None if values is None else values.take(pa.array(order))
            starts = _starts(blocks)
        heads = np.array([(c.update, c.phase, c.position, 0) for c in changes], np.int64)
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            runs = _runs(heads, run_of[start:end])
            offsets = (keys[start:end] & (BLOCK_ROWS - 1)).astype(np.uint16)
            mine = None if values is None else values.slice(start, end - start)
            yield self._piece(column, update, int(blocks[start]), runs=runs, offsets=offsets, values=mine)

    def _piece(
        self, column: int, update: int, block: int, *, runs: Longs, offsets: Offsets, values: pa.Array | None
    ) -> _Piece:
        packed = b"" if values is None else _pack(values)
        return block % self.parts, update, block, column, runs.tobytes(), offsets.tobytes(), packed


def _joined(changes: Sequence[Change]) -> tuple[Longs, npt.NDArray[np.intp], pa.Array | None]:
    """Return all keys, for each the index of its change, and all values."""
    if len(changes) == 1:
        (change,) = changes
        return change.keys, np.zeros(len(change.keys), np.intp), change.values
    keys = np.concatenate([change.keys for change in changes])
    run_of = np.repeat(np.arange(len(changes)), [len(change.keys) for change in changes])
    arrays = [change.values for change in changes if change.values is not None]
    return keys, run_of, pa.concat_arrays(arrays) if arrays else None


def _starts(stretches: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.intp]:
    """Return where each stretch of equal numbers starts."""
    return np.concatenate([[0], np.flatnonzero(stretches[1:] != stretches[:-1]) + 1])


def _descends(blocks: Longs, run_of: npt.NDArray[np.intp], starts: npt.NDArray[np.intp]) -> bool:
    """Tell whether a change goes down to a lower block: then it may have two pieces of one block, without order."""
    return bool(((blocks[starts] < blocks[starts - 1]) & (run_of[starts] == run_of[starts - 1])).any())


def _runs(heads: Longs, run_of: npt.NDArray[np.intp]) -> Longs:
    """Return (update, phase, position, rows) for each stretch of equal runs."""
    starts = _starts(run_of)
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

    offsets: Places
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
    if _contiguous(offsets):
        return Column(slice(int(offsets[0]), int(offsets[-1]) + 1), update, phase, position, values)
    order = np.lexsort((runs[:, 2], runs[:, 1], runs[:, 0]))
    if not _contiguous(order):
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rows = np.argsort(np.repeat(rank, runs[:, 3]), kind="stable")
        offsets, update, phase, position = offsets[rows], update[rows], phase[rows], position[rows]
        values = None if values is None else values.take(pa.array(rows))
    return Column(offsets, update, phase, position, values)


def _offsets(packed: bytes, runs: bytes) -> npt.NDArray[np.intp]:
    """Return the offsets of a piece's rows."""
    offsets = np.frombuffer(packed, np.uint16).astype(np.intp)
    rows = int(np.frombuffer(runs, np.int64)[3::4].sum())
    return offsets if len(offsets) == rows else np.arange(offsets[0], offsets[0] + rows)


def _contiguous(numbers: npt.NDArray[np.integer[Any]]) -> bool:
    """Tell whether each number follows the one before; False for none."""
    return bool(len(numbers)) and bool(np.all(numbers[1:] == numbers[:-1] + 1))


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


def assemble(
    block: int,
    pieces: Iterable[tuple[int, bytes, bytes, bytes]],
    kinds: Sequence[pa.DataType],
    wide: Sequence[WideRange] = (),
    *,
    upsert: bool = False,
) -> Rows:
    """Scatter the pieces (column, runs, offsets, values) of one block into rows and fold their updates.

    Costs by the rows touched, however few of the block's they are.

    Args:
        upsert: A row modified after it was removed begins again, as it does where the two are in different cuts.
    """
    by_column: dict[int, list[tuple[bytes, bytes, bytes]]] = {}
    for column, runs, offsets, values in pieces:
        by_column.setdefault(column, []).append((runs, offsets, values))
    touched = _Touched(_offsets(offsets, runs) for found in by_column.values() for runs, offsets, _ in found)
    board = _Board(touched.offsets + (block << BLOCK_BITS))
    cells: dict[int, _Cells] = {}
    for column, found in by_column.items():
        gathered = gather(found, kinds[column] if column >= 0 else None)
        at = touched.places(gathered)
        board.note(gathered, at)
        if column >= 0:
            cells[column] = _Cells(gathered, at, len(board.keys))
    board.note_wide(wide)
    return board.rows([cells.get(i) or kind for i, kind in enumerate(kinds)], upsert=upsert)


class _Touched:
    """The rows of a block that any column speaks of, and each one's place among them."""

    def __init__(self, offsets_of_pieces: Iterable[npt.NDArray[np.intp]]) -> None:
        touched = np.zeros(BLOCK_ROWS, np.bool_)
        for offsets in offsets_of_pieces:
            touched[offsets] = True
        self.offsets = np.flatnonzero(touched)
        self._places = np.empty(BLOCK_ROWS, np.intp)  # only what is touched is ever written or read
        self._places[self.offsets] = np.arange(len(self.offsets))

    def places(self, column: Column) -> Places:
        """Return the places of a column's rows; those of rows that follow each other do so too."""
        if isinstance(column.offsets, slice):
            first = int(self._places[column.offsets.start])
            return slice(first, first + column.offsets.stop - column.offsets.start)
        return self._places[column.offsets]


class _Cells:
    """One column of a block: for each touched row, which value was sent last and in which update."""

    def __init__(self, column: Column, at: Places, rows: int) -> None:
        assert column.values is not None
        self.values = column.values
        self.source = np.full(rows, -1, np.int32)
        self.update = np.full(rows, -1, np.int64)
        self.source[at] = np.arange(len(column.values), dtype=np.int32)
        self.update[at] = column.update

    def sent(self, since: Longs) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Return the values of the touched rows and which of them were sent, not before update ``since``."""
        source = self.source
        sent = (source >= 0) & (self.update >= since)
        if len(source) == len(self.values) and bool(sent.all()) and _contiguous(source):
            return self.values, sent
        return self.values.take(pa.array(source, mask=~sent)), sent


class _Board:
    """For each touched row: the last update that added, removed and modified it, and its last position."""

    def __init__(self, keys: Longs) -> None:
        self.keys = keys
        self.added, self.removed, self.modified, self.position = (np.full(len(keys), -1, np.int64) for _ in range(4))

    def note(self, column: Column, at: Places) -> None:
        """Write down what one column's rows say. Rows come in order of effect, so the last assignment wins."""
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

    def note_wide(self, wide: Iterable[WideRange]) -> None:
        """Let wide removals take effect on the touched rows."""
        for removed in wide:
            first, end = np.searchsorted(self.keys, removed.first), np.searchsorted(self.keys, removed.last, "right")
            at = slice(int(first), int(end))
            self.removed[at] = np.maximum(self.removed[at], removed.update)
            self.position[at] = np.maximum(self.position[at], removed.position)

    def rows(self, columns: Sequence[_Cells | pa.DataType], *, upsert: bool) -> Rows:
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
        return Rows(
            keys=self.keys,
            position=self.position,
            inserted=inserted,
            deleted=deleted,
            columns=[values for values, _ in found],
            sent=[sent for _, sent in found],
        )
