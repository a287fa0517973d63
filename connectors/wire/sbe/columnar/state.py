"""How far a walk is in each of its messages, and which of them it gave up."""

from __future__ import annotations

import numpy as np

from connectors.wire.sbe.columnar.octets import ALL, Bodies, Bools, Longs, Places, where

COLUMN_BYTES_AT_ONCE = 1 << 27
"""Most bytes that blocks may take in columns, of messages walked together: short blocks take more than on the wire."""

_NEWEST = (1 << 63) - 1
_ROW_BYTES = 24
"""What the place of a block takes."""


class TooMuchAtOnce(Exception):
    """Each message is within its limits, but all of them together take too much memory: walk fewer."""


class WalkState:
    """One element for each message."""

    def __init__(self, bodies: Bodies, version: Longs, header: int, *, empty_entries: int) -> None:
        self.octets = bodies.octets
        self.begin, self.end = bodies.start, bodies.end
        self.cursor = bodies.start + header
        """Offset of what is read next."""
        self.version = version
        self.oldest, self.newest = int(version.min(initial=_NEWEST)), int(version.max(initial=0))
        self.bad: Bools = np.zeros(len(version), np.bool_)
        """Messages given up; see `fail`."""
        self.hurt = False
        """Some are."""
        self.stopped: Bools = np.zeros(len(version), np.bool_)
        """Unknown parts at the end could not be passed: where the message ends is not known."""
        self._empty_left = np.full(len(version), empty_entries, np.int64)
        self._column_bytes = 0

    def message(self, index: int) -> memoryview:
        """Return the bytes of one message."""
        return self.octets[self.begin[index] : self.end[index]].data

    def give_up(self, which: Longs | int) -> None:
        """Mark messages as bad."""
        self.bad[which] = True
        self.hurt = True

    def fail(self, which: Longs, wrong: Bools) -> Places:
        """Give up those messages for which something is wrong; return the places of the others."""
        if not wrong.any():
            return ALL
        self.give_up(which[wrong])
        return np.flatnonzero(~wrong)

    def good(self, which: Longs) -> Places:
        """Return the places of those messages that are not given up."""
        return where(~self.bad[which]) if self.hurt else ALL

    def count_empty(self, which: Longs, entries: Longs | int) -> None:
        """Count entries that take no bytes. Each message is named once."""
        self._empty_left[which] -= entries
        self.fail(which, self._empty_left[which] < 0)

    def count_empty_of(self, message: int, entries: int) -> int:
        """Count entries of one message that take no bytes; return how many more it may have."""
        left = int(self._empty_left[message]) - entries
        self._empty_left[message] = left
        return left

    def weigh(self, blocks: int, size: int) -> None:
        """Count the memory that so many blocks of a size take.

        Raises:
            TooMuchAtOnce: The messages together take too much.
        """
        self._column_bytes += blocks * (size + _ROW_BYTES)
        if self._column_bytes > COLUMN_BYTES_AT_ONCE and len(self.version) > 1:
            raise TooMuchAtOnce
