"""Events of a connection or a file: messages, frames of other encodings, sequence gaps, and bytes that are neither."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from silverfold.conf.errors import WireError
from silverfold.connectors.wire.sbe.codec.header import Header
from silverfold.connectors.wire.sbe.schema.model import Message


class MessageReceived(NamedTuple):
    """One complete message."""

    body: bytes
    header: Header
    template: Message | None
    """None if the schema lacks the template, or the message is of another schema."""
    resume_at: str
    """Position to resume from after the message (`connectors.sbe.protocol.filepositions`)."""


class OtherEncodingReceived(NamedTuple):
    """One complete frame that is no SBE message."""

    body: bytes
    encoding: int
    """Encoding type in the frame header."""
    resume_at: str
    """Position to resume from after the frame."""


class SequenceGap(NamedTuple):
    """Packets, messages or frames are missing, repeated or out of order: numbers do not follow each other."""

    expected: int
    found: int


class BadBytes(NamedTuple):
    """The remaining bytes cannot be cut into messages. This is the last event."""

    error: WireError
    begins: int
    """Offset in the input of the first byte that was not cut."""
    left: bytes
    """All received bytes from there on."""


Event: TypeAlias = MessageReceived | OtherEncodingReceived | SequenceGap | BadBytes
