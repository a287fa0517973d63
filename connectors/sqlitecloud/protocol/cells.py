"""Parsing of the values inside frames. Snapshots have millions of them.

::

    : VALUE SP      integer, signed 64 bit          + LEN SP bytes          text
    , VALUE SP      float, any form of strtod       ! LEN SP bytes 00       text; LEN counts the 00
    _ SP            null                            $ LEN SP bytes          blob
"""

from __future__ import annotations

import math
import re
from typing import Final, NoReturn

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.messages import SIGNED_64, RawText, Value

_TEXT, _INTEGER, _NULL, _FLOAT, _ZERO_TEXT, _BLOB = b"+:_,!$"

_SMALL: Final = {b"%d" % number: number for number in range(10_000)}
"""The most frequent numbers: looked up, they need no check."""

_FLOAT_BYTES: Final = b"0123456789.eE+-"
"""Characters of a float that Python and ``strtod`` parse alike, if Python parses it at all."""

_INTEGER_TEXT: Final = re.compile(rb"-?[0-9]{1,19}")
_NAMED: Final = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_HEX: Final = re.compile(rb"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]{1,6})?", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"[0-9]{1,19}")


def read_values(octets: bytes, at: int, count: int, reason: str) -> tuple[list[Value], int]:
    """Parse ``count`` consecutive values; return them and the offset behind the last.

    Args:
        at: Offset of the first.
        reason: Error reason if the bytes end too early or start no value.

    Raises:
        InvalidValue: With that reason, ``bad_number`` or ``missing_nul``.
    """
    values: list[Value] = []
    append, find, small, size = values.append, octets.find, _SMALL.get, len(octets)
    for _ in range(count):
        space = find(b" ", at)
        if space <= at:
            _no_value(octets, at, reason)
        kind, token, end = octets[at], octets[at + 1 : space], space + 1
        if kind == _INTEGER:
            number = small(token)
            append(_integer(token, at) if number is None else number)
        elif kind == _FLOAT:
            append(_float(token, at))
        elif kind == _NULL and not token:
            append(None)
        else:
            length = small(token)
            end += _length(octets, at, token, reason) if length is None else length
            if end > size:
                raise InvalidValue(f"{end - size} bytes are missing at the end of a value", offset=at, reason=reason)
            body = octets[space + 1 : end]
            if kind == _BLOB:
                append(body)
            else:
                if kind != _TEXT:
                    body = _without_nul(octets, at, body, reason)
                try:
                    append(body.decode())
                except UnicodeDecodeError:
                    append(RawText(body))
        at = end
    return values, at


def read_count(octets: bytes, at: int, reason: str) -> tuple[int, int]:
    """Parse the number before the next space; return it and the offset behind the space. Raise InvalidValue."""
    space = octets.find(b" ", at)
    found = octets[at : max(space, at)]
    if not _LENGTH.fullmatch(found):
        raise InvalidValue(f"{octets[at : at + 8]!r} is not a count and a space", offset=at, reason=reason)
    return int(found), space + 1


def _without_nul(octets: bytes, at: int, body: bytes, reason: str) -> bytes:
    if octets[at] != _ZERO_TEXT:
        _no_value(octets, at, reason)
    if not body.endswith(b"\0"):
        raise InvalidValue("a zero-terminated text does not end with a zero byte", offset=at, reason="missing_nul")
    return body[:-1]


def _length(octets: bytes, at: int, token: bytes, reason: str) -> int:
    if not _LENGTH.fullmatch(token):
        _no_value(octets, at, reason)
    return int(token)


def _integer(token: bytes, at: int) -> int:
    if token.isdigit() and len(token) < 19:
        return int(token)
    number = int(token) if _INTEGER_TEXT.fullmatch(token) else None
    if number is None or number not in SIGNED_64:
        raise InvalidValue(f"{token[:24]!r} is not an integer of 64 bits", offset=at, reason="bad_number")
    return number


def _float(token: bytes, at: int) -> float:
    try:
        if not token.translate(None, _FLOAT_BYTES) or _NAMED.fullmatch(token):
            return float(token)
        if _HEX.fullmatch(token):
            return float.fromhex(token.decode())
    except ValueError:
        pass
    except OverflowError:  # from fromhex: strtod gives infinity
        return -math.inf if token.startswith(b"-") else math.inf
    raise InvalidValue(f"{token[:24]!r} is not a number", offset=at, reason="bad_number")


def _no_value(octets: bytes, at: int, reason: str) -> NoReturn:
    raise InvalidValue(f"no value begins with {octets[at : at + 8]!r}", offset=at, reason=reason)
