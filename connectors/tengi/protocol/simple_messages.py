"""Finds the ends of simple messages in half the time of `scanner`, which finds those of all others.

A message is simple if it is a packet of Packet's own class, its keys and texts have one chunk each, and its values are
numbers, ids, texts or such packets. Nearly all messages of a feed are simple.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from silverfold.connectors.tengi.protocol.limits import MAX_DEPTH
from silverfold.connectors.tengi.protocol.strings import CHUNK

FIXED: Final = {-1: 3, -2: 4, -3: 4, -4: 6, -5: 6, -6: 10, -7: 10, -11: 8, -101: 18}
"""Bytes of objects of a fixed size, with their id."""
_STRING: Final = -8
_MESSAGE: Final = b"\xff\x9a\xff\x9b"
_HEAD_SIZE: Final = 19
_PACKET: Final = b"\xff\x99\xfc\x18"

_Unpack: TypeAlias = Callable[[bytes | bytearray, int], tuple[int, ...]]
_SHORT: Final[_Unpack] = struct.Struct(">h").unpack_from
_INT32: Final[_Unpack] = struct.Struct(">i").unpack_from
_HEAD: Final[_Unpack] = struct.Struct(">iiH").unpack_from


_MOST_SHAPES: Final = 8
_LONGEST_SHAPE: Final = 16 << 10
"""Longest packet, in bytes, whose shape is remembered. Parts of snapshots are longer, and hardly two are alike."""
_MISSES: Final = 64
"""In each run of so many packets without a known shape, the first `_MOST_SHAPES` are remembered.

Remembering one takes as long as a walk."""


class NotSimple(Exception):
    """Only the walk of `scanner` can skip this."""


class _Value(NamedTuple):
    """A value that differs from packet to packet."""

    at: int
    """Offset of a text, or of a number behind its type."""
    size: int
    """Bytes of a number; 0 for a text, whose length is on the wire."""
    depth: int
    """Number of objects around it."""


class _Step(NamedTuple):
    """Bytes that are equal in all packets of a shape, and the value after them."""

    constant: bytes
    size: int
    """Bytes of the constant and of the number after it."""
    is_text: bool
    """Whether a text follows the constant."""


class PacketEnds:
    """Finds the ends of one peer's simple messages. It remembers their shapes: all bytes except the values.

    Texts in the outermost packet, such as a table's name, belong to the shape. A known shape saves 4.6 of 14 µs of
    processor time for a change of 388 bytes, and 24 of 41 µs for an update of ten rows.
    """

    def __init__(self) -> None:
        self._shapes: deque[list[_Step]] = deque(maxlen=_MOST_SHAPES)
        self._misses = 0

    def find(self, octets: bytes | bytearray, at: int, head: bytes) -> int | None:
        """Return the end of a simple packet, as `message_end`."""
        start = at + _HEAD_SIZE if head else at
        if head and not octets.startswith(head, at):
            return None
        for steps in self._shapes:
            end = _shape_end(octets, start, steps)
            if end is not None:
                return end
        self._misses += 1
        if self._misses % _MISSES >= _MOST_SHAPES:
            return message_end(octets, at, head)
        values: list[_Value] = []
        end = message_end(octets, at, head, values)
        if end is not None and end <= min(len(octets), start + _LONGEST_SHAPE):
            self._shapes.appendleft(list(_steps(octets, start, end, values)))
        return end


def _shape_end(octets: bytes | bytearray, at: int, steps: list[_Step]) -> int | None:
    """Return the end of a packet that has the shape; None for any other."""
    for constant, size, is_text in steps:
        if not octets.startswith(constant, at):
            return None
        at += size
        if is_text:
            try:
                at = _text_end(octets, at)
            except (struct.error, NotSimple):
                return None
    return at


def _steps(octets: bytes | bytearray, at: int, end: int, values: list[_Value]) -> Iterator[_Step]:
    outermost = 2 if octets.startswith(_MESSAGE, at) else 1
    for start, size, depth in values:
        if not size and depth == outermost:
            continue
        constant = bytes(octets[at:start])
        yield _Step(constant, len(constant) + size, is_text=not size)
        at = start + size if size else _text_end(octets, start)
    yield _Step(bytes(octets[at:end]), end - at, is_text=False)


def message_end(octets: bytes | bytearray, at: int, head: bytes, values: list[_Value] | None = None) -> int | None:
    """Return the end of a simple packet, in a message or alone; None for any other object.

    Args:
        head: Bytes before the connection's id; empty for an object without one.
        values: Collects the values, except packets.
    """
    if head:
        if not octets.startswith(head, at):
            return None
        at += _HEAD_SIZE
    try:
        if not octets.startswith(_MESSAGE, at):
            return _packet_end(octets, at, 0, values)
        if values is not None:
            values.append(_Value(at + 4, 16, 0))
        return _packet_end(octets, at + 20, 1, values)
    except (struct.error, NotSimple):
        return None


def _packet_end(octets: bytes | bytearray, at: int, depth: int, values: list[_Value] | None) -> int:
    """Return the end of a packet of simple entries. Raises as `entry_end`."""
    if depth >= MAX_DEPTH or not octets.startswith(_PACKET, at):
        raise NotSimple
    at = _text_end(octets, at + 4)
    (count,) = _INT32(octets, at)
    if count < 0:
        raise NotSimple
    at += 4
    for _ in range(count):
        at = entry_end(octets, at, depth + 1, values)
    return at


def entry_end(octets: bytes | bytearray, at: int, depth: int, values: list[_Value] | None = None) -> int:
    """Return the end of a key and its value. It may lie beyond the bytes.

    Raises:
        struct.error: The bytes end too early to tell.
        NotSimple: The key or the value is not simple.
    """
    at = _text_end(octets, at)
    (kind,) = _SHORT(octets, at)
    if kind not in FIXED and kind != _STRING:
        return _packet_end(octets, at, depth, values)
    size = FIXED.get(kind, 2) - 2
    if values is not None:
        values.append(_Value(at + 2, size, depth))
    return at + 2 + size if size else _text_end(octets, at + 2)


def _text_end(octets: bytes | bytearray, at: int) -> int:
    """Return the end of a text of one chunk."""
    size, again, length = _HEAD(octets, at)
    if not 0 < size == again < CHUNK:
        raise NotSimple
    return at + 10 + length
