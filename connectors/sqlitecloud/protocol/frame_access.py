"""Access to landed frames: the text of a notification, the rows of a snapshot frame.

Also names the streams that frames belong to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.frames import RawFrame, parse
from silverfold.connectors.sqlitecloud.protocol.messages import ChunksEnd, Rowset, RowsetChunk, Value

_NOTIFICATION_KINDS: Final = frozenset({b"#", b"+", b"!"})
_HEADER: Final = re.compile(rb"[#+!*/%]([0-9]{1,19}) ")


def message_stream(channel: str) -> str:
    """Return the stream of a channel's messages, distinct from that of a table with the same name."""
    return f"notify:{channel}"


def log_stream(table: str) -> str:
    """Return the stream of a table's log, in which copies of its notifications land."""
    return f"log:{table}"


class Selected(NamedTuple):
    """Rows of a snapshot, in source order."""

    names: tuple[str, ...] | None
    """Column names; None in every frame of a result but the first."""
    width: int
    """The number of columns."""
    rows: Sequence[tuple[Value, ...]]


def notification_text(body: bytes) -> bytes:
    """Return the text of a notification: a frame ``#``, ``+`` or ``!``.

    Raises:
        InvalidValue: ``bad_frame``: not a notification.
    """
    start, kind = _header_end(body), body[:1]
    if kind not in _NOTIFICATION_KINDS or (kind == b"!" and not body.endswith(b"\0")):
        raise InvalidValue(f"a frame {chr(body[0])} is no notification", offset=0, reason="bad_frame")
    return body[start : -1 if kind == b"!" else None]


def selected_rows(body: bytes, *, max_frame_bytes: int) -> Selected:
    """Return the rows in a frame of a SELECT's result; none for the frame that ends it.

    Args:
        max_frame_bytes: Maximum bytes after decompression.

    Raises:
        InvalidValue: ``bad_frame``: not a rowset; or an error inside the rowset.
        OversizedMessage: It would expand to more bytes.
    """
    raw = _raw_frame(body)
    match parse(raw, max_frame_bytes=max_frame_bytes):
        case Rowset(columns, rows):
            return Selected(tuple(column.name for column in columns), len(columns), rows)
        case RowsetChunk(_, _, columns, width, rows):
            return Selected(None if columns is None else tuple(column.name for column in columns), width, rows)
        case ChunksEnd():
            return Selected(None, 0, ())
    raise InvalidValue(f"a frame {raw.kind} has no rows", offset=0, reason="bad_frame")


def _raw_frame(body: bytes) -> RawFrame:
    end = _header_end(body)
    return RawFrame(chr(body[0]), body, end)


def _header_end(body: bytes) -> int:
    header = _HEADER.match(body)
    if header is None or int(header[1]) != len(body) - header.end():
        raise InvalidValue("no whole frame of a notification or a rowset", offset=0, reason="bad_frame")
    return header.end()
