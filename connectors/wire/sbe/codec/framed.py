"""Cuts framed bytes into messages of one schema."""

from __future__ import annotations

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.wire.framing.cutter import FrameCutter, PacketObserver
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.header import ROLES, read_header
from silverfold.connectors.wire.sbe.schema.model import Buffer, Schema


def cutter_for(schema: Schema, framing: Framing, *, on_packet: PacketObserver | None = None) -> FrameCutter:
    """Return a cutter with the schema's header size, byte order, and end of messages.

    Packed messages end after the schema's last element (`measure`). ``on_packet`` is the cutter's.
    """
    return FrameCutter(
        framing,
        smallest=schema.header.size,
        is_inside=_is_inside(schema, framing),
        byte_order=schema.byte_order,
        measure=lambda body, ended: measure(schema, body, is_all=ended),
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


def measure(schema: Schema, body: Buffer, *, is_all: bool = True) -> int:
    """Return the size of the message at the beginning of ``body``, according to the schema.

    A newer message may have groups or data that the schema lacks, and then ends later. So the header of another
    message has to follow, or nothing.

    Args:
        is_all: Nothing follows ``body``.

    Raises:
        WireError: See `decode.MessageReader.read`; invalid text is no error here.
        TruncatedMessage: ``short-frame``: what follows a newer message is not there yet.
        InvalidValue: ``newer-sender``: what follows a newer message is no message.
    """
    found = decode(schema, body, text="bytes")
    rest = len(body) - found.consumed
    if found.header.version <= schema.version or (is_all and not rest):
        return found.consumed
    if rest < schema.header.size and not is_all:
        detail = f"behind a message of version {found.header.version}, another one's header is due"
        raise TruncatedMessage(detail, offset=len(body), reason="short-frame")
    if rest < schema.header.size or not _may_begin(schema, body[found.consumed :]):
        detail = (
            f"a message of version {found.header.version} does not end where version {schema.version} of the schema "
            "says: give a newer schema"
        )
        raise InvalidValue(detail, offset=0, reason="newer-sender", element=found.message.name)
    return found.consumed


def _may_begin(schema: Schema, body: Buffer) -> bool:
    """Return whether a message may begin here whose end the schema can tell."""
    header = read_header(schema, body)
    return header.schema_id == schema.id and header.template_id in schema.templates
