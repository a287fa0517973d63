"""The blocks of one level, one row each: the bytes that columns read, and which fields are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bools, Longs, Octets, gather, stride_of
from silverfold.connectors.wire.sbe.columnar.levels import BlockTable
from silverfold.connectors.wire.sbe.columnar.state import WalkState

_NEWEST = (1 << 63) - 1


def block_ends(ends: Sequence[tuple[int, int]], version: Longs) -> int | Longs:
    """Return the end of a field in each block, or one end for all, by the version of the block's message.

    Args:
        ends: Result of `connectors.wire.sbe.codec.blocks.field_ends` for the field.
    """
    if len(ends) == 1:
        return ends[0][1]
    versions, lengths = np.array(ends).T
    needed: Longs = lengths[np.searchsorted(versions, version, "right") - 1]
    return needed


class Blocks:
    """The blocks of a finalized level, in order.

    Args:
        size: Bytes of each block that its columns read.
    """

    def __init__(self, level: BlockTable, state: WalkState, size: int) -> None:
        self.message, start, self.length = level.rows[:3]
        self.count = len(self.message)
        self.octets = state.octets
        self._state = state
        self.version = state.version[self.message]
        self._oldest = int(self.version.min(initial=_NEWEST))
        self._shortest = int(self.length.min(initial=_NEWEST))
        self._first, self._stride = 0, size
        self._base = self._align(start, size)

    def _align(self, start: Longs, size: int) -> Octets:
        """Return a buffer in which the blocks have a constant stride."""
        if self._shortest < size:
            return self._pad(start, size)
        stride = stride_of(start)
        if not stride:
            return gather(self.octets, start, size)
        self._first, self._stride = int(start[0]), stride
        return self.octets

    def _pad(self, start: Longs, size: int) -> Octets:
        """Return the blocks, zero-padded where they end early on the wire."""
        rows = np.zeros((self.count, size), np.uint8)
        lengths = np.minimum(self.length, size)
        for length in np.unique(lengths).tolist():
            which = lengths == length
            rows[which, :length] = gather(self.octets, start[which], length)
        return rows

    def read(self, dtype: npt.DTypeLike, offset: int) -> npt.NDArray[Any]:
        """Return one value of each block, as a view; missing bytes are zero."""
        kind = np.dtype(dtype)
        if self.count == 0:
            return np.empty((0, *kind.shape), kind.base)
        return np.ndarray((self.count,), kind, self._base, self._first + offset, (self._stride,))

    def missing(self, since: int, end: int | Longs, missing: Bools | None = None) -> Bools | None:
        """Return in which blocks a part is missing: newer than the message, or beyond the block's end on the wire.

        Args:
            end: End of the part in the block, in bytes; one for all or one per block.
            missing: Where the enclosing element is already missing.

        Returns:
            None if it is present in all blocks.
        """
        for lowest, column, needed in (
            (self._oldest, self.version, since),
            (self._shortest, self.length, end),
        ):
            if lowest < (needed if isinstance(needed, int) else needed.max(initial=0)):
                without = column < needed
                missing = without if missing is None else missing | without
        return missing

    def reject(self, rows: Longs) -> None:
        """Mark the messages of some blocks as bad: they contain an invalid value."""
        self._state.mark_bad(self.message[rows])
