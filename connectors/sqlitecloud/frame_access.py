"""Takes landed frames apart, which are whole: the text of a notification, the rows of a snapshot's frame.

Also says to which stream frames belong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from conf.errors import InvalidValue
from connectors.sqlitecloud.frames import RawFrame, parse
from connectors.sqlitecloud.messages import ChunksEnd, Rowset, RowsetChunk, Value

_NOTIFIES: Final = frozenset({b"#", b"+", b"!"})
_HEADER: Final = re.compile(rb"[#+!*/%]([0-9]{1,19}) ")


def message_stream(channel: str) -> str:
    """Return the stream of a channel's messages. A table, whose stream is its name, may be called as the channel is."""
    return f"notify:{channel}"


def log_stream(table: str) -> str:
    """Return the stream of a table's log, in which its notifications land once more."""
    return f"log:{table}"


class Selected(NamedTuple):
    """Rows of a snapshot, in the order of the source."""

    names: tuple[str, ...] | None
    """The columns' names; None in any frame of a result but the first."""
    width: int
    """How many columns there are."""
    rows: Sequence[tuple[Value, ...]]


def notified_text(body: bytes) -> bytes:
    """Return the text of a notification: a frame ``#``, ``+`` or ``!``.

    Raises:
        InvalidValue: ``bad_frame``: it is none.
    """
    start, kind = _header_end(body), body[:1]
    if kind not in _NOTIFIES or (kind == b"!" and not body.endswith(b"\0")):
        raise InvalidValue(f"a frame {chr(body[0])} is no notification", offset=0, reason="bad_frame")
    return body[start : -1 if kind == b"!" else None]


def selected_rows(body: bytes, *, max_frame_bytes: int) -> Selected:
    """Return the rows of a frame of a SELECT's result; none of the frame that ends it.

    Args:
        max_frame_bytes: Most bytes that a compressed frame may expand to.

    Raises:
        InvalidValue: ``bad_frame``: it is no rowset; and what is found inside one.
        OversizedMessage: It would expand to more bytes.
    """
    raw = _whole_frame(body)
    match parse(raw, max_frame_bytes=max_frame_bytes):
        case Rowset(columns, rows):
            return Selected(tuple(column.name for column in columns), len(columns), rows)
        case RowsetChunk(_, _, columns, width, rows):
            return Selected(None if columns is None else tuple(column.name for column in columns), width, rows)
        case ChunksEnd():
            return Selected(None, 0, ())
    raise InvalidValue(f"a frame {raw.kind} has no rows", offset=0, reason="bad_frame")


def _whole_frame(body: bytes) -> RawFrame:
    end = _header_end(body)
    return RawFrame(chr(body[0]), body, end)


def _header_end(body: bytes) -> int:
    header = _HEADER.match(body)
    if header is None or int(header[1]) != len(body) - header.end():
        raise InvalidValue("no whole frame of a notification or a rowset", offset=0, reason="bad_frame")
    return header.end()
