"""The bytes of many messages as one numpy array, and gathering pieces of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from silverfold.connectors.wire.sbe.schema.model import Buffer

Octets: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

Indices: TypeAlias = "Longs | slice"
ALL = slice(None)

CLAMP = 1 << 31
"""Counts and block lengths are clamped to this before multiplication; no valid one reaches it."""


class Bodies(NamedTuple):
    """Consecutive messages: message i is ``octets[start[i]:end[i]]``. Both arrays ascend."""

    octets: Octets
    start: Longs
    end: Longs

    def part(self, first: int, last: int) -> Bodies:
        """Return the messages from ``first`` up to ``last``, without any other bytes."""
        if first == last:
            return Bodies(self.octets[:0], self.start[:0], self.end[:0])
        base, stop = int(self.start[first]), int(self.end[first:last].max())
        return Bodies(self.octets[base:stop], self.start[first:last] - base, self.end[first:last] - base)

    def body(self, index: int) -> Buffer:
        """Return the bytes of one message, as a view."""
        return self.octets[self.start[index] : self.end[index]].data


def bodies_of(messages: Any) -> Bodies:
    """Return the bytes of a binary Arrow array without a copy, or of a sequence of messages; null is empty."""
    array = messages if isinstance(messages, pa.Array) else pa.array(_bytes(messages), pa.large_binary())
    if not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        array = array.cast(pa.large_binary())
    width = np.int32 if pa.types.is_binary(array.type) else np.int64
    if len(array) == 0:
        return Bodies(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    _, offsets, content = array.buffers()
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    start, end = bounds[:-1], bounds[1:]
    if array.null_count:
        end = np.where(np.asarray(array.is_null()), start, end)
    octets = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return Bodies(octets, start, end)


def _bytes(messages: Sequence[Buffer]) -> list[bytes]:
    return [message if isinstance(message, bytes) else bytes(message) for message in messages]


def gather(octets: Octets, start: Longs, size: int) -> Octets:
    """Return ``size`` bytes from each start, one row each. The bytes must be there.

    The array is viewed as overlapping voids, one starting at each byte, so that one index picks a full row.
    """
    if size == 0 or len(start) == 0:
        return np.empty((len(start), size), np.uint8)
    if stride := stride_of(start):
        first = int(start[0])
        return np.ascontiguousarray(np.ndarray((len(start), size), np.uint8, octets, first, (stride, 1)))
    windows = np.ndarray((len(octets) - size + 1,), f"V{size}", octets, 0, (1,))
    return windows[start].view(np.uint8).reshape(len(start), size)


def stride_of(start: Longs) -> int:
    """Return the constant distance between starts; 0 if it varies."""
    if len(start) < 2:
        return 0
    first = int(start[1] - start[0])
    if int(start[-1] - start[0]) != first * (len(start) - 1):
        return 0
    return first if bool((start[1:] - start[:-1] == first).all()) else 0


def where(chosen: Bools) -> Indices:
    """Return an index of the selected elements; selecting all of them causes no copy."""
    return ALL if chosen.all() else np.flatnonzero(chosen)
