"""Reads the values inside frames: snapshots have millions of them.

::

    : VALUE SP      integer, signed 64 bit          + LEN SP bytes          text
    , VALUE SP      float, any form of strtod       ! LEN SP bytes 00       text; LEN counts the 00
    _ SP            null                            $ LEN SP bytes          blob
"""

from __future__ import annotations

import math
import re
from typing import Final, NoReturn

from conf.errors import InvalidValue
from connectors.sqlitecloud.messages import SIGNED_64, RawText, Value

_INTEGER, _FLOAT, _NULL, _TEXT, _ZERO_TEXT, _BLOB = b":,_+!$"

_SMALL: Final = {b"%d" % number: number for number in range(10_000)}
"""Numbers that come most often: looked up, they need no check."""

_WHOLE: Final = re.compile(rb"-?[0-9]{1,19}")
_REAL: Final = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_HEX: Final = re.compile(rb"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"[0-9]{1,19}")


def read_values(octets: bytes, at: int, count: int, reason: str) -> tuple[list[Value], int]:
    """Return ``count`` values that stand one after the other, and the offset behind the last.

    Args:
        at: Offset of the first.
        reason: Of the error when the bytes end too early, or begin no value: ``bad_rowset``.

    Raises:
        InvalidValue: Also ``bad_number`` and ``missing_nul``.
    """
    values: list[Value] = []
    append, find, small, size = values.append, octets.find, _SMALL.get, len(octets)
    for _ in range(count):
        space = find(b" ", at)
        if space <= at:
            _no_value(octets, at, reason)
        kind = octets[at]
        number = small(octets[at + 1 : space])
        begin = space + 1
        if kind == _INTEGER:
            append(_integer(octets, at, space) if number is None else number)
            at = begin
            continue
        if kind == _NULL:
            if begin != at + 2:
                raise InvalidValue("null has no value", offset=at, reason="bad_number")
            append(None)
            at = begin
            continue
        if kind == _FLOAT:
            append(_float(octets, at, space))
            at = begin
            continue
        end = begin + (_length(octets, at, space, reason) if number is None else number)
        if end > size:
            raise InvalidValue(f"{end - size} bytes are missing at the end of a value", offset=at, reason=reason)
        if kind == _TEXT:
            append(_text(octets[begin:end]))
        elif kind == _BLOB:
            append(octets[begin:end])
        elif kind == _ZERO_TEXT:
            append(_text(_without_nul(octets, begin, end)))
        else:
            _no_value(octets, at, reason)
        at = end
    return values, at


def read_count(octets: bytes, at: int, reason: str) -> tuple[int, int]:
    """Return the number that stands before the next space, and the offset behind that. Raises InvalidValue."""
    space = octets.find(b" ", at)
    found = octets[at : max(space, at)]
    if not _LENGTH.fullmatch(found):
        raise InvalidValue(f"{octets[at : at + 8]!r} is not a count and a space", offset=at, reason=reason)
    return int(found), space + 1


def _text(octets: bytes) -> str | RawText:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return RawText(octets)


def _without_nul(octets: bytes, begin: int, end: int) -> bytes:
    if end == begin or octets[end - 1] != 0:
        raise InvalidValue("a zero-terminated text does not end with a zero byte", offset=begin, reason="missing_nul")
    return octets[begin : end - 1]


def _length(octets: bytes, at: int, space: int, reason: str) -> int:
    found = octets[at + 1 : space]
    if not _LENGTH.fullmatch(found):
        _no_value(octets, at, reason)
    return int(found)


def _integer(octets: bytes, at: int, space: int) -> int:
    found = octets[at + 1 : space]
    number = int(found) if _WHOLE.fullmatch(found) else None
    if number is None or number not in SIGNED_64:
        raise InvalidValue(f"{found[:24]!r} is not an integer of 64 bits", offset=at, reason="bad_number")
    return number


def _float(octets: bytes, at: int, space: int) -> float:
    found = octets[at + 1 : space]
    if _REAL.fullmatch(found):
        return float(found)
    if _HEX.fullmatch(found):
        return _from_hex(found.decode())
    raise InvalidValue(f"{found[:24]!r} is not a number", offset=at, reason="bad_number")


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _no_value(octets: bytes, at: int, reason: str) -> NoReturn:
    raise InvalidValue(f"no value begins with {octets[at : at + 8]!r}", offset=at, reason=reason)
