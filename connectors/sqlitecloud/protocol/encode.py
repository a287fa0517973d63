"""Encoding of SCSP frames: the server's replies and the client's commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.messages import (
    SIGNED_64,
    Column,
    PubSubTicket,
    RawText,
    Rowset,
    RowsetChunk,
    ServerError,
    Statement,
    Value,
)

OK: Final = b"+2 OK"

_LEAST, _MOST = SIGNED_64[0], SIGNED_64[-1]


def encode_text(text: str | bytes) -> bytes:
    """Return a frame ``+`` with any bytes. Raise InvalidValue for text that is not valid UTF-8, here and below."""
    return _sized(b"+", _octets(text))


def encode_zero_text(text: str | bytes) -> bytes:
    """Return a frame ``!``.

    Raises:
        InvalidValue: The text contains a NUL, at which the peer would end it.
    """
    octets = _octets(text)
    if b"\0" in octets:
        raise InvalidValue("a zero-terminated text cannot hold a NUL", offset=octets.index(0), reason="nul_in_text")
    return _sized(b"!", octets + b"\0")


def encode_json(text: str | bytes) -> bytes:
    """Return a frame ``#``: a notification, or a reply."""
    return _sized(b"#", _octets(text))


def encode_command(text: str | bytes) -> bytes:
    """Return a frame ``^``, whose text the client echoes."""
    return _sized(b"^", _octets(text))


def encode_ticket(ticket: PubSubTicket) -> bytes:
    """Return a frame ``|``: the reply to the first LISTEN."""
    return _sized(b"|", ticket.command.encode())


def encode_error(error: ServerError) -> bytes:
    """Return a frame ``-``, with all three codes."""
    return _sized(b"-", f"{error.code}:{error.extended}:{error.offset} {error.text}".encode("utf-8", "replace"))


def encode_value(value: Value, *, zero_terminated: bool = False) -> bytes:
    """Return the frame of one value.

    Args:
        zero_terminated: Encode text as ``!``, as in requests, and in replies after ``SET CLIENT KEY ZEROTEXT TO 1``.

    Raises:
        InvalidValue: The integer exceeds 64 bits, the float is NaN, the text is not valid UTF-8 or contains a NUL
            although zero-terminated, or the type is not an SQLite type.
    """
    return _values((value,), zero_terminated)


def encode_array(items: Iterable[Value], *, zero_terminated: bool = False) -> bytes:
    """Return a frame ``=``. Raise InvalidValue as `encode_value` does."""
    values = list(items)
    return _sized(b"=", b"%d " % len(values) + _values(values, zero_terminated))


def encode_statement(statement: Statement) -> bytes:
    """Return a client command: a frame ``+``, or ``=`` if it has parameters, whose texts are zero-terminated.

    Raises:
        InvalidValue: As `encode_value`.
    """
    if not statement.parameters:
        return encode_text(statement.text)
    return encode_array((statement.text, *statement.parameters), zero_terminated=True)


def encode_rowset(rowset: Rowset, *, zero_terminated: bool = False, compressed: bool = False) -> bytes:
    """Return a complete result in one frame ``*``, or ``%``.

    Raises:
        InvalidValue: As `encode_value`.
    """
    data = _columns(rowset.columns, rowset.version, zero_terminated) + _rows(rowset.rows, zero_terminated)
    shape = b"0:%d %d %d " % (rowset.version, len(rowset.rows), len(rowset.columns))
    return _compressed(b"*", shape, data) if compressed and data else _sized(b"*", shape + data)


def encode_chunk(chunk: RowsetChunk, *, zero_terminated: bool = False, compressed: bool = False) -> bytes:
    """Return a frame ``/``, or ``%``. The result ends with `connectors.sqlitecloud.protocol.rowsets.CHUNKS_END`.

    Raises:
        InvalidValue: As `encode_value`.
    """
    data = _columns(chunk.columns or (), chunk.version, zero_terminated) + _rows(chunk.rows, zero_terminated)
    shape = b"%d:%d %d %d " % (chunk.index, chunk.version, len(chunk.rows), chunk.width)
    return _compressed(b"/", shape, data) if compressed and data else _sized(b"/", shape + data)


def _columns(columns: Sequence[Column], version: int, zero_terminated: bool) -> bytes:
    """Encode the names, then, in version 2, each property of all columns."""
    lists = list(zip(*columns, strict=True))[: None if version == 2 else 1]
    return b"".join(_values(each, zero_terminated) for each in lists)


def _rows(rows: Iterable[Sequence[Value]], zero_terminated: bool) -> bytes:
    return _values(chain.from_iterable(rows), zero_terminated)


def _compressed(kind: bytes, shape: bytes, data: bytes) -> bytes:
    import lz4.block  # noqa: PLC0415 - of the connector's extra, which settings do not need

    block: bytes = lz4.block.compress(data, store_size=False)
    return _sized(b"%", b"%d %d %s0 %s%s" % (len(block), len(data), kind, shape, block))


def _sized(kind: bytes, body: bytes) -> bytes:
    return b"%s%d %s" % (kind, len(body), body)


def _values(values: Iterable[Value], zero_terminated: bool) -> bytes:
    writers = _ZERO_TERMINATED if zero_terminated else _WRITERS
    try:
        return b"".join([writers[type(value)](value) for value in values])
    except KeyError as error:
        raise InvalidValue(f"{error} is no type of SQLite's values", reason="bad_type") from None


def _null(_value: None) -> bytes:
    return b"_ "


def _blob(value: bytes) -> bytes:
    return _sized(b"$", value)


def _integer(value: int) -> bytes:
    if not _LEAST <= value <= _MOST:
        raise InvalidValue("an integer needs more than 64 bits", reason="bad_number")
    return b":%d " % value


def _float(value: float) -> bytes:
    """Encode infinity as a number beyond all doubles, which every client parses, as SQLite's JSON functions do."""
    if math.isfinite(value):
        return b",%s " % repr(value).encode()
    if math.isnan(value):
        raise InvalidValue("NaN is no value of SQLite", reason="bad_number")
    return b",9.0e+999 " if value > 0 else b",-9.0e+999 "


def _octets(text: str | bytes) -> bytes:
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise InvalidValue(f"a text cannot be UTF-8: {error.reason}", reason="not_utf8") from None


_WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): _null,
    bool: _integer,
    int: _integer,
    float: _float,
    str: encode_text,
    RawText: lambda value: encode_text(value.octets),
    bytes: _blob,
}
_ZERO_TERMINATED: Final[dict[type, Callable[[Any], bytes]]] = {
    **_WRITERS,
    str: encode_zero_text,
    RawText: lambda value: encode_zero_text(value.octets),
}
