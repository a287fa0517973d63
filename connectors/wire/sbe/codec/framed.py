"""Cuts framed bytes into messages of one schema."""

from __future__ import annotations

from silverfold.connectors.wire.framing.cutter import FrameCutter, PacketObserver
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.header import ROLES
from silverfold.connectors.wire.sbe.schema.model import Buffer, Schema


def cutter_for(schema: Schema, framing: Framing, *, on_packet: PacketObserver | None = None) -> FrameCutter:
    """Return a cutter with the schema's header size, byte order, and end of messages.

    Packed messages end after the schema's last element: messages of senders with a newer schema that added groups or
    data cannot be read this way. ``on_packet`` is the cutter's.
    """
    return FrameCutter(
        framing,
        smallest=schema.header.size,
        is_inside=_is_inside(schema, framing),
        byte_order=schema.byte_order,
        measure=lambda body: measure(schema, body),
        on_packet=on_packet,
    )


def _is_inside(schema: Schema, framing: Framing) -> bool:
    """Return whether the schema's header includes the frame header, length and all, as Coinbase's do."""
    roles = [schema.header.roles[name] for name in ROLES]
    begins = min((role.offset for role in roles if role.constant is None), default=0)
    return begins >= framing.frame.size and any(
        (member.offset, member.encoding.size) == (number.offset, number.size)
        for number in framing.frame.numbers
        if number.name == framing.length
        for member in schema.header.composite.members
    )


def measure(schema: Schema, body: Buffer) -> int:
    """Return the size of the message at the beginning of ``body``, according to the schema.

    Raises:
        WireError: See `decode.MessageReader.read`; invalid text is no error here.
    """
    return decode(schema, body, text="bytes").consumed
