"""Cuts column messages into pieces per block of row keys, the first step towards rows.

A Deephaven update sends each column separately, so a row is spread over as many messages as it has columns. Row keys
are divided into blocks of 65,536. `BlockCutter` packs the values of one column and one block in one batch of frames
into a *piece*. Spark brings the pieces of a block together; `connectors.deephaven.decoder.assembly` turns them into
rows. This module knows neither SBE nor Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs: TypeAlias = npt.NDArray[np.int64]
Offsets: TypeAlias = npt.NDArray[np.uint16]
_Piece: TypeAlias = tuple[int, int, int, int, bytes, bytes, bytes]

BLOCK_BITS = 16
BLOCK_ROWS = 1 << BLOCK_BITS

REMOVED, ADDED, MODIFIED = 0, 1, 2
"""Phases of an update, in the order in which they take effect."""

_UPDATES_PER_GROUP = 256
"""Consecutive updates that are cut and assembled together when updates are kept apart; bounds memory."""

FIRST_BLOCK = -(1 << 62)
"""Block number of pieces that concern every block; sorts before all others."""

REMOVAL_COLUMN, WIDE_COLUMN, ERROR_COLUMN = -1, -2, -3
"""Values of a piece's ``column`` when it holds no values: removed keys, a wide removed range, an undecodable frame."""

NARROW = 4096
"""Removed ranges of up to this many keys are listed by key; wider ones stay ranges until they meet existing rows."""

_LARGE_ROWS = 1024
"""Number of rows from which joining a message with others costs more than it saves."""

PIECE = pa.schema(
    [
        ("part", pa.int32()),  # partition that assembles the piece
        ("updates", pa.int64()),  # which group of `_UPDATES_PER_GROUP` when updates are kept apart; 0 when folded
        ("block", pa.int64()),
        ("column", pa.int32()),  # index into the table's columns, or one of the three constants above
        ("runs", pa.binary()),  # int64 quadruples: update, phase, position, rows
        ("offsets", pa.binary()),  # uint16 per row: row key minus the block's first; one entry for consecutive keys
        ("values", pa.binary()),  # Arrow record batch of one column; error: "class\0reason"
    ]
)


class Change(NamedTuple):
    """The content of one message: rows of one column (``column`` ≥ 0), or removed keys."""

    column: int
    update: int
    phase: int
    position: int
    keys: Longs
    values: pa.Array | None


class WideRange(NamedTuple):
    """A removed range that stays a range; both ends inclusive."""

    update: int
    position: int
    first: int
    last: int


@dataclass
class BlockCutter:
    """Collects the changes of one batch of frames and returns them as pieces.

    Args:
        parts: Number of partitions that assemble; block ``b`` goes to partition ``b % parts``.
        by_update: Keep updates apart (for a changelog, or the versions of a history) instead of folding them.
    """

    parts: int
    by_update: bool = False
    rows: int = 0
    """Rows taken so far, counted once per column: a measure of the memory that the pieces will need."""
    _changes: dict[tuple[int, int], list[Change]] = field(default_factory=dict)
    _rows: list[_Piece] = field(default_factory=list)

    def add(self, change: Change) -> None:
        """Take one message's rows of one column, or its narrow removals.

        Small messages are joined before they are cut; a large one is cut at once, into one piece per block.
        """
        updates = change.update // _UPDATES_PER_GROUP if self.by_update else 0
        self.rows += len(change.keys)
        if len(change.keys) >= _LARGE_ROWS and contiguous(change.keys):
            self._rows += self._slice(change, updates)
        elif len(change.keys) >= _LARGE_ROWS:
            self._rows += self._cut(change.column, updates, [change])
        elif len(change.keys):
            self._changes.setdefault((change.column, updates), []).append(change)

    def add_wide(self, removed: WideRange) -> None:
        """Take a wide removed range, which every partition must see."""
        run = np.array([removed.update, REMOVED, removed.position, 0], np.int64).tobytes()
        ends = np.array([removed.first, removed.last], np.int64).tobytes()
        for part in range(self.parts):
            self._rows.append((part, 0, FIRST_BLOCK, WIDE_COLUMN, run, ends, b""))

    def add_error(self, position: int, error_class: str, reason: str) -> None:
        """Take a frame that cannot be decoded."""
        run = np.array([0, 0, position, 0], np.int64).tobytes()
        self._rows.append((0, 0, FIRST_BLOCK, ERROR_COLUMN, run, b"", f"{error_class}\0{reason}".encode()))

    def pieces(self) -> pa.RecordBatch:
        """Return everything taken as `PIECE` rows."""
        for (column, updates), changes in self._changes.items():
            self._rows += self._cut(column, updates, changes)
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(PIECE)
        return pa.RecordBatch.from_arrays(
            [pa.array(values, kind.type) for values, kind in zip(columns, PIECE, strict=True)], schema=PIECE
        )

    def _slice(self, change: Change, updates: int) -> Iterator[_Piece]:
        """Cut a message of consecutive keys, without looking at single rows."""
        first, rows, start = int(change.keys[0]), len(change.keys), 0
        while start < rows:
            block, offset = divmod(first + start, BLOCK_ROWS)
            count = min(rows - start, BLOCK_ROWS - offset)
            run = np.array([change.update, change.phase, change.position, count], np.int64)
            values = None if change.values is None else change.values.slice(start, count)
            yield self._piece(
                change.column, updates, block, runs=run, offsets=np.array([offset], np.uint16), values=values
            )
            start += count

    def _cut(self, column: int, updates: int, changes: Sequence[Change]) -> Iterator[_Piece]:
        keys, run_of, values = _concatenate(changes)
        blocks = keys >> BLOCK_BITS
        starts = _run_starts(blocks)
        if (len(changes) > 1 and len(starts) > len(changes)) or _descends(blocks, run_of, starts[1:]):
            order = np.argsort(blocks, kind="stable")
            keys, run_of, blocks = keys[order], run_of[order], blocks[order]
            values = None if values is None else values.take(pa.array(order))
            starts = _run_starts(blocks)
        heads = np.array([(c.update, c.phase, c.position, 0) for c in changes], np.int64)
        for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            runs = _runs(heads, run_of[start:end])
            offsets = (keys[start:end] & (BLOCK_ROWS - 1)).astype(np.uint16)
            part_values = None if values is None else values.slice(start, end - start)
            yield self._piece(column, updates, int(blocks[start]), runs=runs, offsets=offsets, values=part_values)

    def _piece(
        self, column: int, updates: int, block: int, *, runs: Longs, offsets: Offsets, values: pa.Array | None
    ) -> _Piece:
        packed = b"" if values is None else _pack(values)
        return block % self.parts, updates, block, column, runs.tobytes(), offsets.tobytes(), packed


def _concatenate(changes: Sequence[Change]) -> tuple[Longs, npt.NDArray[np.intp], pa.Array | None]:
    """Return all keys, the index of the change of each key, and all values."""
    if len(changes) == 1:
        (change,) = changes
        return change.keys, np.zeros(len(change.keys), np.intp), change.values
    keys = np.concatenate([change.keys for change in changes])
    run_of = np.repeat(np.arange(len(changes)), [len(change.keys) for change in changes])
    arrays = [change.values for change in changes if change.values is not None]
    return keys, run_of, pa.concat_arrays(arrays) if arrays else None


def _run_starts(numbers: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.intp]:
    """Return the start index of each run of equal numbers."""
    return np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1])


def _descends(blocks: Longs, run_of: npt.NDArray[np.intp], starts: npt.NDArray[np.intp]) -> bool:
    """Return whether a change goes back to a lower block, which could give it two unordered pieces of one block."""
    return bool(((blocks[starts] < blocks[starts - 1]) & (run_of[starts] == run_of[starts - 1])).any())


def _runs(heads: Longs, run_of: npt.NDArray[np.intp]) -> Longs:
    """Return (update, phase, position, rows) for each run of rows of the same change."""
    starts = _run_starts(run_of)
    runs = heads[run_of[starts]]
    runs[:, 3] = np.diff(starts, append=len(run_of))
    return runs


def _pack(values: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_arrays([values], names=["v"])
    return bytes(memoryview(batch.serialize()))


def contiguous(numbers: npt.NDArray[np.integer[Any]]) -> bool:
    """Return whether each number is one more than the previous; False for an empty array."""
    return bool(len(numbers)) and bool(np.all(numbers[1:] == numbers[:-1] + 1))
