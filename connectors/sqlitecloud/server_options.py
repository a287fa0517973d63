"""How a server behaves where the documentation leaves it open, and what it does wrong when asked to.

Every switch is there so that a client or a receiver meets, on one machine, what the hosted service may do.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from connectors.sqlitecloud.capture import CaptureMode
from connectors.sqlitecloud.dialect import Dialect, Vocabulary


class Pacing(StrEnum):
    """How notifications are written to the socket."""

    SAFE = "safe"
    """So that the official clients lose none: a frame at a time, in short slices, and on plain TCP with pauses."""
    JOINED = "joined"
    """Many frames in one write, as fast as the client takes them."""
    SPLIT = "split"
    """In pieces of any length, which end anywhere."""


class Channels(StrEnum):
    """What a channel is."""

    APART = "apart"
    """Of the server, and of no table: ``LISTEN TABLE`` listens to one. The service's since its words are the new."""
    TABLES = "tables"
    """Of the database in use. One called as a table of it tells what is written to that, and ``*`` what is written to
    any (PUBSUB.md)."""


@dataclass(frozen=True)
class ServerOptions:
    """Switches of a server. Notifications are counted from 1, for each session by itself; so are its requests.

    Args:
        capture: How SQLite reports changes.
        dialect: How they are written.
        channels: What a channel is; None for `Channels.TABLES` with the old words, else `Channels.APART`.
        pacing: How notifications are written to the socket.
        notification_frame: The type of their frames.
        repeated_listen: What every LISTEN of a session but the first is answered with.
        server_sender: How the sender 0, the server itself, is written.
        compression: Whether results are compressed for clients that ask for it.
        chunk_bytes: A result longer than about that comes in chunks.
        slow_reader: What becomes of a client for which more than ``most_unsent`` bytes wait: its connection is closed,
            what does not fit is dropped without a word, or writers wait for it.
        delay: Seconds before each write of notifications, of one or of several as `pacing` has it.
        refuse_pauth: Refuse every second connection.
        drop: Notifications that are not sent.
        double: Notifications that are sent twice.
        cut: A notification of which half is sent; then its connection is closed.
        oversize: A notification that is announced as longer than anybody takes.
        close_pubsub_after: A notification after which its connection is closed.
        close_main_at: A request at which its connection is closed, before it is done.
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
        """Whether a channel is of the database in use, and may be called as a table."""
        by_words = Channels.TABLES if self.dialect.words is Vocabulary.OLD else Channels.APART
        return (self.channels or by_words) is Channels.TABLES
