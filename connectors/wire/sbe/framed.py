"""Cuts framed bytes into messages of one schema."""

from __future__ import annotations

from connectors.wire.framing.cutter import FrameCutter
from connectors.wire.framing.settings import Framing
from connectors.wire.sbe.decode import decode
from connectors.wire.sbe.model import Buffer, Schema


def cutter_for(schema: Schema, framing: Framing) -> FrameCutter:
    """Return a cutter that knows what the schema tells: the smallest message, the byte order, where messages end.

    Messages that are packed one behind another end where the schema's last element does: senders with a newer schema
    that added groups or data cannot be read so.
    """
    return FrameCutter(
        framing,
        smallest=schema.header.size,
        byte_order=schema.byte_order,
        measure=lambda body: measure(schema, body),
    )


def measure(schema: Schema, body: Buffer) -> int:
    """Return how many bytes the message takes that stands at the beginning, as the schema knows it.

    Raises:
        WireError: As `decode.MessageReader.read` says; text that is not valid is no error here.
    """
    return decode(schema, body, text="bytes").consumed
