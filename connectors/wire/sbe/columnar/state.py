"""How far a walk is in each of its messages, and which of them it gave up."""

from __future__ import annotations

import numpy as np

from connectors.wire.sbe.columnar.octets import Bodies, Bools, Longs

COLUMN_BYTES_AT_ONCE = 1 << 27
"""Most bytes that blocks may take in columns, of messages walked together: short blocks take more than on the wire."""

_ROW_BYTES = 24
"""What the place of a block takes."""


class TooMuchAtOnce(Exception):
    """Each message is within its limits, but all of them together take too much memory: walk fewer."""


class State:
    """One element for each message."""

    def __init__(self, bodies: Bodies, version: Longs, header: int, *, empty_entries: int) -> None:
        self.octets = bodies.octets
        self.begin, self.end = bodies.start, bodies.end
        self.cursor = bodies.start + header
        """Offset of what is read next."""
        self.version = version
        self.bad: Bools = np.zeros(len(version), np.bool_)
        self.stopped: Bools = np.zeros(len(version), np.bool_)
        """Unknown parts at the end could not be passed: where the message ends is not known."""
        self._empty_left = np.full(len(version), empty_entries, np.int64)
        self._column_bytes = 0

    def message(self, index: int) -> memoryview:
        """Return the bytes of one message."""
        return self.octets[self.begin[index] : self.end[index]].data

    def fail(self, which: Longs, wrong: Bools) -> Bools:
        """Give up those messages for which something is wrong; return the others."""
        self.bad[which[wrong]] = True
        return ~wrong

    def count_empty(self, which: Longs, entries: Longs | int) -> None:
        """Count entries that take no bytes. Each message is named once."""
        self._empty_left[which] -= entries
        self.fail(which, self._empty_left[which] < 0)

    def weigh(self, blocks: int, size: int) -> None:
        """Count the memory that so many blocks of a size take.

        Raises:
            TooMuchAtOnce: The messages together take too much.
        """
        self._column_bytes += blocks * (size + _ROW_BYTES)
        if self._column_bytes > COLUMN_BYTES_AT_ONCE and len(self.version) > 1:
            raise TooMuchAtOnce
