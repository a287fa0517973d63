"""The bytes before the body of a packet, and the constants that identify its kind.

::

    packet = flag 00, handshake | flag 01, object Identifier (connection id), Message or Handshake
    Message = ff9a, object Identifier (message id), body
"""

from __future__ import annotations

from typing import Final, NamedTuple

from silverfold.conf.errors import InvalidValue, RemoteProtocolError
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.encoder import Encoder
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, TypeRegistry
from silverfold.connectors.tengi.protocol.values import Identifier, Message

MAGIC: Final = b"TeNgI"
"""First bytes of a client on TCP."""
MESSAGE: Final = b"\xff\x9a"
"""First bytes of a Message."""
IDENTIFIER: Final = b"\xff\x9b"
"""First bytes of an Identifier."""
_HANDSHAKE: Final = b"\xff\x99\xff\x37"


class Head(NamedTuple):
    """The ids before the body of a packet."""

    connection_id: Identifier | None
    """None in a handshake request."""
    message_id: Identifier | None
    """None in a handshake."""
    at: int
    """Offset of the body, or of the Handshake."""


def read_head(packet: bytes) -> Head:
    """Return the head of a packet. An HTTP server finds the connection by it.

    Raises:
        TruncatedMessage: ``truncated``.
        InvalidValue: ``unexpected_object``: an Identifier is missing.
        RemoteProtocolError: ``unexpected_object``: the packet has neither a Handshake nor a Message.
    """
    if packet.startswith(b"\1\xff\x9b") and packet.startswith(MESSAGE + IDENTIFIER, 19) and len(packet) >= 39:
        return Head(Identifier(packet[3:19]), Identifier(packet[23:39]), 39)  # a quarter of the time, and most packets
    decoder = Decoder(packet)
    connection_id = _read_identifier(decoder) if decoder.read_boolean() else None
    at = decoder.offset
    if packet[at : at + 4] == _HANDSHAKE:
        return Head(connection_id, None, at)
    if decoder.read_bytes(2) != MESSAGE:
        raise RemoteProtocolError("a packet has neither a handshake nor a message", reason="unexpected_object")
    return Head(connection_id, _read_identifier(decoder), decoder.offset)


def _read_identifier(decoder: Decoder) -> Identifier:
    at = decoder.offset
    if decoder.read_bytes(2) != IDENTIFIER:
        raise InvalidValue("an Identifier is due", offset=at, reason="unexpected_object")
    return decoder.read_identifier()


def encode_message_of(body: bytes) -> bytes:
    """Return a new Message with a random id, encoded as an object. ``body`` is an encoded object."""
    return MESSAGE + IDENTIFIER + Identifier.random() + body


def encode_message(message: Message, types: TypeRegistry = BUILT_IN) -> bytes:
    """Return a Message, encoded as an object. Raises WireError if the body cannot be written."""
    encoder = Encoder(types)
    encoder.write_object(message)
    return encoder.to_bytes()
