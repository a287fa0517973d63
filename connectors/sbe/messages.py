"""What a connection or a file brings, as events: messages, and what is wrong or odd about the bytes around them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from conf.errors import WireError
from connectors.wire.sbe.header import Header
from connectors.wire.sbe.model import Message


class MessageReceived(NamedTuple):
    """One whole message."""

    body: bytes
    header: Header
    template: Message | None
    """None when the schema does not know it, or the message is of another schema."""
    place: str
    """Where to go on behind it: `connectors.sbe.filepositions`."""


class SequenceGap(NamedTuple):
    """The numbers that packets carry do not follow each other."""

    expected: int
    found: int


class BadBytes(NamedTuple):
    """The bytes that follow cannot be cut into messages. Nothing comes after it."""

    error: WireError
    begins: int
    """Offset in the input of the first byte that was not cut."""
    left: bytes
    """All bytes from there on that had come."""


Event: TypeAlias = MessageReceived | SequenceGap | BadBytes
