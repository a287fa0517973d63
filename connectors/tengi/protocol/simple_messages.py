"""Finds where a simple message ends, if it is there: in half the time of `scanner`, which takes over for all others.

Simple are packets of Packet's own class, whose keys and texts have one chunk, with numbers, ids, texts and such packets
as values. Nearly all messages of a feed are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from silverfold.connectors.tengi.protocol.limits import MAX_DEPTH
from silverfold.connectors.tengi.protocol.strings import CHUNK

FIXED: Final = {-1: 3, -2: 4, -3: 4, -4: 6, -5: 6, -6: 10, -7: 10, -11: 8, -101: 18}
"""Bytes of objects of a fixed size, with their id."""
_STRING: Final = -8
_MESSAGE: Final = b"\xff\x9a\xff\x9b"
_PACKET: Final = b"\xff\x99\xfc\x18"

_Unpack: TypeAlias = Callable[[bytes | bytearray, int], tuple[int, ...]]
_SHORT: Final[_Unpack] = struct.Struct(">h").unpack_from
_INT32: Final[_Unpack] = struct.Struct(">i").unpack_from
_HEAD: Final[_Unpack] = struct.Struct(">iiH").unpack_from


class NotSimple(Exception):
    """Something that only the walk can skip."""


def message_end(octets: bytes | bytearray, at: int, head: bytes) -> int | None:
    """Return the end of a simple packet, in a message or alone; None for any other object.

    Args:
        head: What precedes the connection's id; none if no id does.
    """
    if head:
        if not octets.startswith(head, at):
            return None
        at += 19
    is_message = octets.startswith(_MESSAGE, at)
    try:
        return _packet_end(octets, at + 20, 1) if is_message else _packet_end(octets, at, 0)
    except (struct.error, NotSimple):
        return None


def _packet_end(octets: bytes | bytearray, at: int, depth: int) -> int:
    """Return the end of a packet of simple entries. Raises as `entry_end`."""
    if depth >= MAX_DEPTH or not octets.startswith(_PACKET, at):
        raise NotSimple
    at = _text_end(octets, at + 4)
    (count,) = _INT32(octets, at)
    if count < 0:
        raise NotSimple
    at += 4
    for _ in range(count):
        at = entry_end(octets, at, depth + 1)
    return at


def entry_end(octets: bytes | bytearray, at: int, depth: int) -> int:
    """Return the end of a key and its value, which may lie behind the bytes.

    Raises:
        struct.error, NotSimple: They are not there, or not simple.
    """
    at = _text_end(octets, at)
    (kind,) = _SHORT(octets, at)
    if kind in FIXED:
        return at + FIXED[kind]
    return _text_end(octets, at + 2) if kind == _STRING else _packet_end(octets, at, depth)


def _text_end(octets: bytes | bytearray, at: int) -> int:
    """Return the end of a text of one chunk."""
    size, again, length = _HEAD(octets, at)
    if not 0 < size == again < CHUNK:
        raise NotSimple
    return at + 10 + length
