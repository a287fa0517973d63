"""Locations of the blocks of one body in many messages: a table that a walk fills in any order.

A level is the root block of a message, or the entries of one of its groups. Its rows are columns of one matrix:
message, offset and length of the block; for each nested group its number of entries; for each data its offset and its
length. Parts that a message does not have are `ABSENT`.
"""

from __future__ import annotations

import numpy as np

from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bools, Longs
from silverfold.connectors.wire.sbe.schema.model import Body

ABSENT = -1
FIRST_GROUP = 3


class BlockTable:
    """The blocks of one body found so far, and those of its groups.

    Rows of messages found to be unreadable stay until `finalize`.
    """

    def __init__(self, body: Body) -> None:
        self.body = body
        self.groups = tuple(BlockTable(group) for group in body.groups)
        self._first_data = FIRST_GROUP + len(body.groups)
        self.width = self._first_data + 2 * len(body.data)
        self.rows = np.empty((self.width, 0), np.int64)
        """Valid after `finalize`."""
        self._chunks: list[Longs] = []

    def chunk(self, message: Longs, start: Longs, block_length: Longs) -> Longs:
        """Add blocks; return their columns, with all nested parts absent."""
        columns = np.empty((self.width, len(message)), np.int64)
        columns[0], columns[1], columns[2], columns[FIRST_GROUP:] = message, start, block_length, ABSENT
        self._chunks.append(columns)
        return columns

    def runs(self, message: Longs, start: Longs, block_length: Longs, count: Longs) -> None:
        """Add runs of consecutive blocks, with all nested parts absent."""
        before = np.repeat(np.cumsum(count) - count, count)
        lengths = np.repeat(block_length, count)
        self.chunk(
            np.repeat(message, count), np.repeat(start, count) + lengths * (np.arange(len(before)) - before), lengths
        )

    def data_column(self, data: int) -> int:
        """Return the column with the offsets of a data element, given its index. The next column has the lengths."""
        return self._first_data + 2 * data

    def finalize(self, bad: Bools) -> None:
        """Sort all rows by offset, and drop those of bad messages."""
        chunks = [chunk for chunk in (self.rows, *self._chunks) if chunk.shape[1]]
        self._chunks = []
        rows = np.concatenate(chunks, axis=1) if len(chunks) > 1 else chunks[0] if chunks else self.rows
        if bool((rows[1, 1:] < rows[1, :-1]).any()):
            # stable: empty blocks stay in the order they were found
            rows = rows.take(np.argsort(rows[1], kind="stable"), axis=1)
        good = ~bad[rows[0]]
        self.rows = rows if bool(good.all()) else rows[:, good]
        for group in self.groups:
            group.finalize(bad)
