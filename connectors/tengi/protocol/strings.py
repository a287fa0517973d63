"""Strings: twice the number of UTF-16 code units, then chunks of modified UTF-8.

::

    int32 N; int32 N; N div 16384 + 1 chunks, none if N = 0
    chunk = uint16 L; L bytes

The first chunk has at most 16383 code units, each later one 16384. A code unit takes one to three bytes, half of a
surrogate pair three, U+0000 two. Chunks may end between the halves of a pair.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from silverfold.conf.errors import InvalidValue

CHUNK: Final = 16384
"""Code units of a chunk after the first."""

_HEAD: Final = struct.Struct(">iiH")
_LENGTHS: Final = struct.Struct(">ii")
_SIZE: Final = struct.Struct(">H")
_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
_OVERLONG: Final = re.compile(rb"[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f][\x80-\xbf]")
_FOUR_BYTES: Final = re.compile(rb"[\xf0-\xff]")
_SHORT: Final = 64
"""Longest key, in characters, whose bytes are cached."""


def encode_string(text: str) -> bytes:
    """Return the bytes of a string."""
    size = len(text)
    if size < CHUNK and text.isascii() and "\0" not in text:
        return _HEAD.pack(size, size, size) + text.encode() if size else bytes(8)
    units = _ASTRAL.sub(_halves, text)
    size = len(units)
    parts = [_LENGTHS.pack(size, size)]
    for first, last in chunk_bounds(size):
        chunk = units[first:last].encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
        parts += _SIZE.pack(len(chunk)), chunk
    return b"".join(parts)


def encode_key(key: str) -> bytes:
    """Return the bytes of a string that is likely to come again."""
    return _encode_short(key) if len(key) <= _SHORT else encode_string(key)


_encode_short = lru_cache(maxsize=4096)(encode_string)


def chunk_bounds(size: int) -> Iterator[tuple[int, int]]:
    """Yield the first code unit of each chunk, and the one behind its last."""
    first = 0
    while first < size:
        last = min(first + CHUNK - (first == 0), size)
        yield first, last
        first = last


def chunk_count(size: int) -> int:
    """Return how many chunks a string of so many code units has."""
    return size // CHUNK + 1 if size else 0


def decode_units(octets: bytes, size: int, at: int) -> str:
    """Return the code units of a chunk, pairs of surrogates as two characters.

    Overlong forms and a zero byte are accepted, as Java does.

    Args:
        size: Number of code units that the chunk must have.
        at: Offset of the chunk, for errors.

    Raises:
        InvalidValue: ``bad_text``: not modified UTF-8; ``chunk_units``: another number of code units.
    """
    if _FOUR_BYTES.search(octets):
        raise InvalidValue("a string has a byte of f0 to ff", offset=at, reason="bad_text")
    try:
        units = _OVERLONG.sub(_shortest, octets).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise InvalidValue(f"a string is not modified UTF-8: {error.reason}", offset=at, reason="bad_text") from None
    if len(units) != size:
        raise InvalidValue(f"a chunk has {len(units)} code units, not {size}", offset=at, reason="chunk_units")
    return units


def join_pairs(units: str) -> str:
    """Return the text of code units. A surrogate without its partner stays."""
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _halves(found: re.Match[str]) -> str:
    point = ord(found[0]) - 0x10000
    return chr(0xD800 | point >> 10) + chr(0xDC00 | point & 0x3FF)


def _shortest(found: re.Match[bytes]) -> bytes:
    """Return the shortest form of an overlong character: it begins no other, so an error beside it stays one."""
    point = 0
    for octet in found[0][1:]:
        point = point << 6 | octet & 0x3F
    if len(found[0]) == 2:
        point |= (found[0][0] & 1) << 6
    return chr(point).encode()
