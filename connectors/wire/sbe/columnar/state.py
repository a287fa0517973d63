"""State of a walk: its position in each message, and which messages are bad."""

from __future__ import annotations

import numpy as np

from silverfold.connectors.wire.sbe.columnar.byte_arrays import ALL, Bodies, Bools, Indices, Longs, where

COLUMN_BYTES_AT_ONCE = 1 << 27
"""Most column bytes for the blocks of messages walked together: short blocks take more than on the wire."""

_NEWEST = (1 << 63) - 1
_ROW_BYTES = 24
"""Bytes for the location of a block."""


class TooMuchAtOnce(Exception):
    """Each message is within its limits, but together they take too much memory: walk fewer at once."""


class WalkState:
    """Arrays with one element for each message."""

    def __init__(self, bodies: Bodies, version: Longs, header: int, *, empty_entries: int) -> None:
        self.octets = bodies.octets
        self.begin, self.end = bodies.start, bodies.end
        self.cursor = bodies.start + header
        """Offset of the root block; after the walk, of the end."""
        self.version = version
        self.oldest, self.newest = int(version.min(initial=_NEWEST)), int(version.max(initial=0))
        self.bad: Bools = np.zeros(len(version), np.bool_)
        """Messages marked as bad; see `fail`."""
        self.has_bad = False
        """Whether any message is bad."""
        self.stopped: Bools = np.zeros(len(version), np.bool_)
        """Unknown parts at the end could not be skipped: the end of the message is unknown."""
        self._empty_left = np.full(len(version), empty_entries, np.int64)
        self._column_bytes = 0

    def message(self, index: int) -> memoryview:
        """Return the bytes of one message."""
        return self.octets[self.begin[index] : self.end[index]].data

    def mark_bad(self, which: Longs | int) -> None:
        """Mark messages as bad."""
        self.bad[which] = True
        self.has_bad = True

    def fail(self, which: Longs, wrong: Bools) -> Indices:
        """Mark the messages for which ``wrong`` is set; return the index of the others."""
        if not wrong.any():
            return ALL
        self.mark_bad(which[wrong])
        return np.flatnonzero(~wrong)

    def good(self, which: Longs) -> Indices:
        """Return the index of the messages that are not bad."""
        return where(~self.bad[which]) if self.has_bad else ALL

    def count_empty(self, which: Longs, entries: Longs | int) -> None:
        """Count entries that take no bytes."""
        np.subtract.at(self._empty_left, which, entries)
        self.fail(which, self._empty_left[which] < 0)

    def count_memory(self, blocks: int, size: int) -> None:
        """Count the memory for ``blocks`` blocks of ``size`` bytes.

        Raises:
            TooMuchAtOnce: The messages together take too much.
        """
        self._column_bytes += blocks * (size + _ROW_BYTES)
        if self._column_bytes > COLUMN_BYTES_AT_ONCE and len(self.version) > 1:
            raise TooMuchAtOnce
