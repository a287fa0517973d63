"""Message and event types of the transport.

`connectors.deephaven.protocol.control` reads and writes them; `connectors.deephaven.protocol.columns.decode` the
content of column messages. A ``body`` is a message from its header on, without length prefix, as received.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from silverfold.conf.errors import ProtocolError, WireError
from silverfold.connectors.deephaven.protocol.types import ColumnType


class SubscribeMode(StrEnum):
    """What the server sends for a subscription. ``update_only`` is the documentation's name of ``updates_only``."""

    SNAPSHOT_ONLY = "snapshot_only"
    """One snapshot; then the server removes the subscription."""
    SNAPSHOT_WITH_UPDATES = "snapshot_with_updates"
    """A snapshot, then updates until unsubscribed."""
    UPDATES_ONLY = "updates_only"
    """Updates until unsubscribed: the table cannot be rebuilt from them."""

    @classmethod
    def _missing_(cls, value: object) -> SubscribeMode | None:
        return cls.UPDATES_ONLY if value == "update_only" else None


class ErrorCode(StrEnum):
    """Error codes, by the names of the transport."""

    UNEXPECTED_ERROR = "UNEXPECTED_ERROR"
    UNKNOWN_TABLE = "UNKNOWN_TABLE"
    UNKNOWN_COLUMN = "UNKNOWN_COLUMN"
    DUPLICATE_SUBSCRIPTION_ID = "DUPLICATE_SUBSCRIPTION_ID"
    INVALID_SUBSCRIPTION_ID = "INVALID_SUBSCRIPTION_ID"
    OBJECT_OVERFLOW = "OBJECT_OVERFLOW"


class ColumnInfo(NamedTuple):
    """One subscribed column. ``type`` is None where the schema lacks a column message with that template id."""

    column_id: int
    template_id: int
    name: str
    type: ColumnType | None


class ConnectionResponse(NamedTuple):
    """The server's first message."""

    body: bytes
    message_buffer_size: int


class SubscribeResponse(NamedTuple):
    """A subscription is confirmed; columns in server order."""

    body: bytes
    subscription_id: int
    columns: tuple[ColumnInfo, ...]


class UnsubscribeResponse(NamedTuple):
    """A subscription has ended."""

    body: bytes
    subscription_id: int


class SubscriptionError(NamedTuple):
    """An error from the server. ``code`` is the enum's name, or the number in digits where the schema lacks it."""

    body: bytes
    subscription_id: int
    code: str
    text: str


class UpdateBegan(NamedTuple):
    """An atomic update begins. ``snapshot``, here and on its other frames, marks the snapshot of a subscription."""

    body: bytes
    subscription_id: int
    snapshot: bool


class ColumnReceived(NamedTuple):
    """Values of one column, not yet decoded."""

    body: bytes
    subscription_id: int
    snapshot: bool


class RowsRemovedReceived(NamedTuple):
    """Ranges of removed rows, not yet decoded."""

    body: bytes
    subscription_id: int
    snapshot: bool


class UpdateEnded(NamedTuple):
    """The update is complete."""

    body: bytes
    subscription_id: int
    snapshot: bool


class UpdateVoided(NamedTuple):
    """An open update will never end: none of it may be applied. There is no wire message for this."""

    subscription_id: int
    snapshot: bool


class UnknownMessage(NamedTuple):
    """A message whose template the schema lacks. The session continues."""

    body: bytes
    template_id: int


class BadFrame(NamedTuple):
    """Bytes that violate the protocol. Nothing follows: the session raises ``error`` from now on.

    ``body`` is the message; where no message could be cut, it is everything received, which depends on the chunks.
    """

    body: bytes
    error: WireError | ProtocolError


Event: TypeAlias = (
    ConnectionResponse
    | SubscribeResponse
    | UnsubscribeResponse
    | SubscriptionError
    | UpdateBegan
    | ColumnReceived
    | RowsRemovedReceived
    | UpdateEnded
    | UpdateVoided
    | UnknownMessage
    | BadFrame
)
"""What `connectors.deephaven.protocol.session.Session.next_event` returns."""


class TableSubscribe(NamedTuple):
    """A client's request to subscribe. No columns: all of them. No filter: all rows."""

    body: bytes
    subscription_id: int
    mode: SubscribeMode
    table: str
    columns: tuple[str, ...]
    filter: str


class TableUnsubscribe(NamedTuple):
    """A client's request to end a subscription."""

    body: bytes
    subscription_id: int


class UnreadableSubscribe(NamedTuple):
    """A client's request to subscribe of which only the id can be read."""

    body: bytes
    subscription_id: int
    error: WireError


Request: TypeAlias = TableSubscribe | TableUnsubscribe | UnreadableSubscribe
