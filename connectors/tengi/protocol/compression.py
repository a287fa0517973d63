"""Compressed integers and bitsets: "Int32 Compression" and "BitSet Compression" in the README of the Java project.

::

    integer   first byte S I C C C C C F, later bytes C C C C C C C F
              S sign, I content is inverted, C content, most significant first, F another byte follows
    bitset    chunks of 1, 2 or 4 bytes: type (2 bits), size (2, 3, 4 bits), slots (3, 10, 25 bits), F another follows
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from silverfold.conf.errors import InvalidValue, TruncatedMessage

MAX_SLOTS: Final = 1 << 20
"""Most values of a bitset that is read."""

_NULL: Final = 0x40


class _Chunk(NamedTuple):
    """Layout of one type of chunk."""

    bytes: int
    slots: int
    """Most values it holds; the size field counts from ``base``."""
    base: int

    @property
    def size_bits(self) -> int:
        return 8 * self.bytes - 3 - self.slots


_CHUNKS: Final = {1: _Chunk(1, 3, 0), 2: _Chunk(2, 10, 3), 3: _Chunk(4, 25, 10)}
"""By the first two bits. Fourteen values are two double chunks, fifteen a quad: so the Java implementation writes."""


def encode_compressed(value: int, width: int) -> bytes:
    """Return a compressed integer of 32 or 64 bits, in its shortest form. Raises InvalidValue if it does not fit."""
    limit = 1 << width - 1
    if not -limit <= value < limit:
        raise InvalidValue(f"{value} does not fit {width} bits", reason="out_of_range")
    content, inverse = value & limit - 1, ~value & limit - 1
    signs = 0x80 if value < 0 else 0
    if inverse.bit_length() < content.bit_length():
        signs, content = signs | 0x40, inverse
    later = -(-max(content.bit_length() - 5, 0) // 7)
    octets = bytearray((content >> 7 * (later - number) & 0x7F) << 1 | 1 for number in range(later + 1))
    octets[0] |= signs
    octets[-1] &= 0xFE
    return bytes(octets)


def decode_compressed(octets: bytes, at: int, width: int) -> tuple[int, int]:
    """Return a compressed integer of 32 or 64 bits, and the offset behind it.

    Raises:
        TruncatedMessage: The bytes end before the integer.
        InvalidValue: ``bad_compression``: more bytes, or more bits, than the width allows.
    """
    most, limit = (5, 1 << 31) if width == 32 else (10, 1 << 63)
    for end in range(at, at + most):
        if end >= len(octets):
            raise TruncatedMessage("the bytes end in a compressed integer", offset=at, reason="truncated")
        if not octets[end] & 1:
            break
    else:
        raise InvalidValue(f"a compressed integer exceeds {most} bytes", offset=at, reason="bad_compression")
    content = octets[at] >> 1 & 0x1F
    for octet in octets[at + 1 : end + 1]:
        content = content << 7 | octet >> 1
    if content >= limit:
        detail = f"the content of a compressed integer exceeds {width - 1} bits"
        raise InvalidValue(detail, offset=at, reason="bad_compression")
    if octets[at] & 0x40:
        content = limit - 1 - content
    return content - limit if octets[at] & 0x80 else content, end + 1


def encode_bitset(values: Sequence[bool] | None) -> bytes:
    """Return a bitset. None and an empty one are the same bytes."""
    if not values:
        return bytes([_NULL])
    bits = "".join(["1" if value else "0" for value in values])
    octets, at = bytearray(), 0
    while at < len(bits):
        left = len(bits) - at
        kind = 1 if left <= 3 else 2 if left <= 14 else 3
        chunk = _CHUNKS[kind]
        taken = bits[at : at + chunk.slots]
        at += len(taken)
        word = kind << chunk.size_bits | len(taken) - chunk.base
        word = word << chunk.slots | int(taken.ljust(chunk.slots, "0"), 2)
        octets += (word << 1 | (at < len(bits))).to_bytes(chunk.bytes)
    return bytes(octets)


def decode_bitset(octets: bytes, at: int) -> tuple[list[bool] | None, int]:
    """Return a bitset, None for null, and the offset behind it.

    Raises:
        TruncatedMessage: The bytes end before the bitset.
        InvalidValue: ``bad_bitset``: a chunk of type 0, null after other chunks, or more than `MAX_SLOTS` values.
    """
    found: list[str] = []
    slots, start, follows = 0, at, True
    while follows:
        if at >= len(octets):
            raise TruncatedMessage("the bytes end in a bitset", offset=start, reason="truncated")
        if octets[at] & 0xFE == _NULL:
            if at == start:
                return None, at + 1
            raise InvalidValue("null after other chunks of a bitset", offset=at, reason="bad_bitset")
        chunk = _CHUNKS.get(octets[at] >> 6)
        if chunk is None:
            raise InvalidValue("a chunk of a bitset has type 0", offset=at, reason="bad_bitset")
        if at + chunk.bytes > len(octets):
            raise TruncatedMessage("the bytes end in a bitset", offset=start, reason="truncated")
        word = int.from_bytes(octets[at : at + chunk.bytes])
        size = chunk.base + (word >> chunk.slots + 1 & (1 << chunk.size_bits) - 1)
        slots += size
        if slots > MAX_SLOTS:
            raise InvalidValue(f"a bitset of more than {MAX_SLOTS} values", offset=start, reason="bad_bitset")
        found.append(format(word >> 1 & (1 << chunk.slots) - 1, f"0{chunk.slots}b")[:size])
        at, follows = at + chunk.bytes, bool(word & 1)
    return [bit == "1" for bit in "".join(found)], at
