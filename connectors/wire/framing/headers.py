"""Reads headers of fixed size: returns their numbers by name and checks their fixed bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.framing.settings import FixedHeader, Number

CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Maps a size in bytes to the `struct` code of an unsigned integer."""


class HeaderReader:
    """Reads one kind of header. ``read(chunk, at)`` returns its numbers by name; ``size`` bytes must be there."""

    __slots__ = ("_marks", "_numbers", "size")

    def __init__(self, header: FixedHeader) -> None:
        self.size = header.size
        self._numbers = tuple((number.name, number.offset, _unpack(number)) for number in header.numbers)
        self._marks = tuple((mark.offset, mark.octets) for mark in header.marks)

    def read(self, chunk: bytes, at: int) -> dict[str, int]:
        """Return the numbers. Raises InvalidValue, ``frame-mark``, if the fixed bytes differ."""
        for offset, expected in self._marks:
            found = chunk[at + offset : at + offset + len(expected)]
            if found != expected:
                raise InvalidValue(f"bytes {found.hex()} where {expected.hex()} always stands", reason="frame-mark")
        return {name: unpack(chunk, at + offset)[0] for name, offset, unpack in self._numbers}


@cache
def header_reader(header: FixedHeader) -> HeaderReader:
    """Return the cached reader of a header."""
    return HeaderReader(header)


def _unpack(number: Number) -> Callable[[bytes, int], tuple[int, ...]]:
    code = CODES[number.size]
    return struct.Struct(number.order + (code.lower() if number.signed else code)).unpack_from
