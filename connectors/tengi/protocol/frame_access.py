"""Reading of landed frames: a packet as it came, or a Message of the answer to an HTTP poll.

The first two bytes tell the two apart: a Message begins with its marshaller id, `ff9a`; a packet with a flag, which is
true for every byte but 0, and the id of an Identifier, `ff9b`.
"""

from __future__ import annotations

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.heads import MESSAGE
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
    has_head = not body.startswith(MESSAGE)
    if has_head and not (decoder.read_boolean() and type(decoder.read_object()) is Identifier):
        raise InvalidValue("no Message, and no packet with a connection id", offset=0, reason="unexpected_object")
    found = decoder.read_message().body
    decoder.check_end()
    if type(found) is not Packet:
        raise InvalidValue(f"{type(found).__name__} instead of a Packet", reason="unexpected_object")
    return found
