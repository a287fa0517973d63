"""Server behaviour where the documentation leaves it open, and faults on request.

The switches let a client or receiver meet, on one machine, everything the hosted service may do.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, Vocabulary


class Pacing(StrEnum):
    """How notifications are written to the socket."""

    SAFE = "safe"
    """One frame at a time, in short slices, with pauses on plain TCP: the official clients lose none."""
    JOINED = "joined"
    """Many frames in one write, as fast as the client accepts them."""
    SPLIT = "split"
    """In pieces of any length, split anywhere."""


class Channels(StrEnum):
    """The meaning of a channel."""

    APART = "apart"
    """Channels of the server, separate from tables: ``LISTEN TABLE`` listens to a table. The service's behaviour since
    it uses the new words."""
    TABLES = "tables"
    """Channels of the current database. A channel named like a table carries that table's changes, and ``*`` those of
    all (PUBSUB.md)."""


@dataclass(frozen=True)
class ServerOptions:
    """Switches of a server. Notifications and requests are counted from 1, per session.

    Args:
        capture: How SQLite reports changes.
        dialect: How changes are encoded.
        channels: The meaning of a channel; None for `Channels.TABLES` with the old words, else `Channels.APART`.
        pacing: How notifications are written to the socket.
        notification_frame: The type of their frames.
        repeated_listen: The reply to every LISTEN of a session after the first.
        server_sender: The encoding of sender 0, the server itself.
        compression: Whether results are compressed for clients that request it.
        chunk_bytes: Approximate size beyond which a result is chunked.
        slow_reader: The handling of a client with more than ``most_unsent`` bytes queued: close its connection,
            silently drop what exceeds the limit, or make writers wait for it.
        delay: Seconds before each write of notifications, one or several according to `pacing`.
        refuse_pauth: Refuse every second connection.
        drop: Notifications that are not sent.
        double: Notifications that are sent twice.
        cut: A notification that is cut in half; then its connection is closed.
        oversize: A notification that announces an unacceptable length.
        close_pubsub_after: A notification after which its connection is closed.
        close_main_at: A request at which its connection is closed, before it is executed.
        close_main_after_chunk: A chunk of any result after which the connection is closed.
    """

    capture: CaptureMode = CaptureMode.SESSION
    dialect: Dialect = field(default_factory=Dialect)
    channels: Channels | None = None
    pacing: Pacing = Pacing.SAFE
    notification_frame: Literal["#", "+"] = "#"
    repeated_listen: Literal["ok", "ticket"] = "ok"
    server_sender: Literal["number", "text"] = "number"
    compression: bool = True
    chunk_bytes: int = 307_200
    slow_reader: Literal["close", "drop", "stall"] = "close"
    most_unsent: int = 64 << 20
    delay: float = 0.0
    refuse_pauth: bool = False
    drop: Container[int] = ()
    double: Container[int] = ()
    cut: int | None = None
    oversize: int | None = None
    close_pubsub_after: int | None = None
    close_main_at: int | None = None
    close_main_after_chunk: int | None = None

    @property
    def has_channels_of_tables(self) -> bool:
        """Whether channels belong to the current database and may address tables by name."""
        by_words = Channels.TABLES if self.dialect.words is Vocabulary.OLD else Channels.APART
        return (self.channels or by_words) is Channels.TABLES
