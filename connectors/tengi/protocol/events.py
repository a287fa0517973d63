"""Events of a connection, and the two settings that decide its bytes: the transport and the kind of peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from silverfold.conf.errors import ProtocolError, WireError
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.heads import IDENTIFIER, MESSAGE, read_head
from silverfold.connectors.tengi.protocol.registry import TypeRegistry
from silverfold.connectors.tengi.protocol.values import Identifier, Message


class Transport(StrEnum):
    """What carries the packets: a stream, or units of one packet each."""

    TCP = "tcp"
    WEBSOCKET = "websocket"
    HTTP = "http"


class Peer(StrEnum):
    """Which implementation is at the other end."""

    TENGI = "tengi"
    JAVA = "java"
    """It cuts its packets on TCP and WebSocket, and ignores bytes behind one."""


class HandshakeReceived(NamedTuple):
    """The handshake of the peer."""

    connection_id: Identifier | None
    """None at the server, which chooses it."""
    values: Mapping[str, Any]


@dataclass
class MessageReceived:
    """A message. Its body is decoded on demand: a receiver only lands the bytes.

    Do not change it: ``frozen`` would enforce that, but takes 1 µs more per message.
    """

    connection_id: Identifier
    message_id: Identifier
    raw: bytes
    """The packet; from the answer to a poll, only the bytes of this Message."""
    body_at: int
    """Offset of the body in ``raw``."""
    types: TypeRegistry = field(repr=False)

    @cached_property
    def body(self) -> Any:
        """The body. Raises WireError if a text or a constant is invalid, or the bytes end too early."""
        return Decoder(self.raw, self.types, at=self.body_at, limit=len(self.raw)).read_object()

    @property
    def message(self) -> Message:
        """Id and body. Raises WireError as ``body``."""
        return Message(self.message_id, self.body)


class PollReceived(NamedTuple):
    """The client polls for messages. The answer may carry this id or another."""

    message_id: Identifier


class PollAnswered(NamedTuple):
    """The messages in the answer to a poll, in order; empty if the server had none in time."""

    messages: tuple[MessageReceived, ...]


class BadFrame(NamedTuple):
    """Refused bytes: the rest of a stream, a whole unit, or the rest of the answer to a poll.

    It is final on TCP, before the handshake is done, and for a ProtocolError: every later call raises the error.
    """

    error: WireError | ProtocolError
    raw: bytes

    @property
    def message_id(self) -> Identifier | None:
        """The message's id; None if it cannot be read, or the message is not allowed."""
        if isinstance(self.error, ProtocolError):
            return None
        if self.raw.startswith(MESSAGE + IDENTIFIER):  # in the answer to a poll
            return Identifier(self.raw[4:20]) if len(self.raw) >= 20 else None
        try:
            return read_head(self.raw).message_id
        except (WireError, ProtocolError):
            return None


class Closed(NamedTuple):
    """The end of the connection."""

    reason: str
    is_ours: bool = False
    """Whether this side ended it."""


Event: TypeAlias = HandshakeReceived | MessageReceived | PollReceived | PollAnswered | BadFrame | Closed
