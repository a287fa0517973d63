"""Reading of landed frames: a packet as it came over TCP or WebSocket, or a Message of the answer to an HTTP poll.

The first byte tells the two apart: a packet begins with a boolean, `01`, a Message with its marshaller id, `ff9a`.
"""

from __future__ import annotations

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.limits import MAX_PACKET
from silverfold.connectors.tengi.protocol.values import Identifier, Packet


def read_frame(body: bytes, *, limit: int = MAX_PACKET) -> Packet:
    """Return the packet in a landed frame.

    Args:
        limit: Most bytes that a length may announce.

    Raises:
        WireError: The bytes are not what the codec writes; ``unexpected_object`` if they have no Message with a Packet;
            ``trailing_bytes`` if more follows.
    """
    decoder = Decoder(body, limit=limit)
    if body[:1] == b"\1":
        decoder.read_boolean()
        if type(decoder.read_object()) is not Identifier:
            raise InvalidValue("no connection id begins the packet", offset=1, reason="unexpected_object")
    found = decoder.read_message().body
    decoder.check_end()
    if type(found) is not Packet:
        raise InvalidValue(f"{type(found).__name__} instead of a Packet", reason="unexpected_object")
    return found
