"""Decoding of landed notifications into appended rows, in Arrow: what the feed's decoder runs in Spark.

The rows are either the messages of a channel or, as a log, the changes of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import pyarrow as pa

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.change_rows import APPENDED_KEY, ChangeRows
from silverfold.connectors.sqlitecloud.protocol.frame_access import notification_text
from silverfold.connectors.sqlitecloud.protocol.landed.payload import (
    Change,
    ChannelMessage,
    Key,
    TableUpdate,
    json_text,
    read_notification,
)

MESSAGE: Final = pa.struct([("sender", pa.string()), ("payload", pa.string())])
"""Columns of a table of messages: the sending session, "0" for the server; and the payload, NULL for none."""

LOGGED: Final = pa.struct([(name, pa.string()) for name in ("sender", "op", "key", "old_key", "columns")])
"""Columns of a log: the writing session; insert, update or delete; then, in JSON, the key, the old key of an update
that moved its row, and the columns sent, NULL for a delete."""

Cells: TypeAlias = Mapping[str, str | None]


@dataclass(frozen=True)
class AddedRows:
    """Decoder of notifications into appended rows. Picklable.

    Args:
        row: Columns of the rows, all text.
        read: Returns the rows of a notification's text. Raises WireError.
    """

    row: pa.StructType
    read: Callable[[bytes], Sequence[Cells]]

    @cached_property
    def _rows(self) -> ChangeRows:
        return ChangeRows(self.row, APPENDED_KEY, omitted=frozenset({"old_key", "present"}))

    @property
    def type(self) -> pa.Schema:
        """Schema of the change rows."""
        return self._rows.type

    def changes(self, positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield an insert for each row, and one row with ``error`` for each frame that cannot be decoded."""
        inserts: list[tuple[int, int, Cells]] = []
        errors: dict[int, WireError] = {}
        for position, body in zip(positions, bodies, strict=True):
            try:
                rows = self.read(notification_text(body))
            except WireError as error:
                errors[position] = error
            else:
                inserts += ((position, ordinal, row) for ordinal, row in enumerate(rows))
        batch = self._rows.batch(
            pa.array([position for position, _, _ in inserts], pa.int64()),
            pa.repeat("insert", len(inserts)),
            [pa.array([row[name] for _, _, row in inserts], pa.string()) for name in self.row.names],
            ordinals=pa.array([ordinal for _, ordinal, _ in inserts], pa.int32()),
        )
        yield from self._rows.whole_frames(batch, errors)


def _message_rows(text: bytes) -> Sequence[Cells]:
    message = read_notification(text)
    if not isinstance(message, ChannelMessage):
        raise InvalidValue("a table's notification is no message", reason="unknown_kind")
    return [{"sender": message.sender, "payload": message.text}]


def _log_rows(text: bytes) -> Sequence[Cells]:
    update = read_notification(text)
    if not isinstance(update, TableUpdate):
        raise InvalidValue("a message is no table's notification", reason="unknown_kind")
    return [_log_row(update, change) for change in update.changes]


def _log_row(update: TableUpdate, change: Change) -> Cells:
    def key_json(key: Key) -> str:
        return json_text(dict(zip(update.keys, key, strict=True)))

    return {
        "sender": update.sender,
        "op": change.op,
        "key": key_json(change.key),
        "old_key": None if change.old_key is None else key_json(change.old_key),
        "columns": None if change.op == "delete" else json_text(change.columns),
    }


MESSAGES: Final = AddedRows(MESSAGE, _message_rows)
LOG: Final = AddedRows(LOGGED, _log_rows)
