"""Turns landed messages of a channel into rows that are added, in Arrow: what the feed's decoder runs in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from conf.errors import InvalidValue, WireError
from connectors.sqlitecloud.change_rows import ERROR, error_rows
from connectors.sqlitecloud.landed import notified_text
from connectors.sqlitecloud.payload import ChannelMessage, read_notification

ROW: Final = pa.struct([("sender", pa.string()), ("payload", pa.string())])
"""Columns of a table of messages: the session that sent it, "0" for the server; and what it said, NULL for nothing."""

_KEY: Final = pa.struct([("_position", pa.int64()), ("_ordinal", pa.int32())])
TYPE: Final = pa.schema(
    [
        ("frame_seq", pa.int64()),
        ("ordinal", pa.int32()),
        ("op", pa.string()),
        ("key", _KEY),
        ("row", ROW),
        ("error", ERROR),
    ]
)
"""Of the change rows."""


def read_messages(positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield an insert for each message, or one row with ``error`` for each frame that is none."""
    told, unread = [], {}
    for position, body in zip(positions, bodies, strict=True):
        try:
            message = read_notification(notified_text(body))
            if not isinstance(message, ChannelMessage):
                raise InvalidValue("a table's notification is no message", reason="unknown_kind")
            told.append((position, message))
        except WireError as error:
            unread[position] = error
    yield _inserts(told)
    if unread:
        yield error_rows(list(unread), list(unread.values()), TYPE)


def _inserts(told: Sequence[tuple[int, ChannelMessage]]) -> pa.RecordBatch:
    rows = [
        {
            "frame_seq": position,
            "ordinal": 0,
            "op": "insert",
            "key": {"_position": position, "_ordinal": 0},
            "row": {"sender": message.sender, "payload": message.text},
        }
        for position, message in told
    ]
    return pa.RecordBatch.from_pylist(rows, schema=TYPE)
