"""Frames messages, the reverse of `connectors.wire.framing.cutter`: for our own sources, and for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from silverfold.conf.errors import OversizedMessage
from silverfold.connectors.wire.framing.headers import CODES
from silverfold.connectors.wire.framing.settings import SEQUENCE, FixedHeader, Framing, Number
from silverfold.connectors.wire.sbe.schema.model import ByteOrder


class FrameWriter:
    """Writes the messages of one stream. ``sequence`` counts from 1 on; numbers it does not know are zero."""

    def __init__(self, framing: Framing, *, byte_order: ByteOrder = "<") -> None:
        self._framing = framing
        encoding = framing.encoding
        value = None if encoding is None else encoding.little if byte_order == "<" else encoding.big
        self._constants = {} if encoding is None or value is None else {encoding.number: value}
        counts = [(1 << 8 * number.size) - 1 for number in framing.packet.numbers if number.name == framing.count]
        self._max_per_packet = min(counts, default=0)
        self._packets = self._messages = 0

    def write(self, bodies: Sequence[bytes]) -> bytes:
        """Return the framed messages, in as few packets as possible.

        Raises:
            OversizedMessage: ``frame-too-large``: a message exceeds the framing's ``largest``, or its length field.
        """
        framing = self._framing
        if not framing.packet.size or (framing.per_packet == "until-end" and self._packets):
            return b"".join(map(self._frame, bodies))
        if framing.per_packet == "one":
            return b"".join(self._packet([body]) for body in bodies)
        per_packet = self._max_per_packet or len(bodies)
        parts = [bodies[first : first + per_packet] for first in range(0, len(bodies), per_packet)] if bodies else []
        return b"".join(map(self._packet, parts))

    def _packet(self, bodies: Sequence[bytes]) -> bytes:
        self._packets += 1
        first = self._messages + 1
        numbers = {SEQUENCE: first if self._framing.sequence_counts == "messages" else self._packets}
        if self._framing.count is not None:
            numbers[self._framing.count] = len(bodies)
        if self._framing.packet_type is not None:
            numbers[self._framing.packet_type.number] = self._framing.packet_type.frames
        return _header(self._framing.packet, numbers) + b"".join(map(self._frame, bodies))

    def _frame(self, body: bytes) -> bytes:
        framing = self._framing
        self._messages += 1
        size = framing.frame.size + len(body)
        numbers = {SEQUENCE: self._messages, **self._constants}
        if framing.length is not None:
            numbers[framing.length] = len(body) + framing.length_counts
        if len(body) > framing.largest:
            detail = f"a message of {len(body)} bytes, {framing.largest} are allowed"
            raise OversizedMessage(detail, reason="frame-too-large")
        return _header(framing.frame, numbers) + body + bytes(-size % framing.padding)


def _header(header: FixedHeader, numbers: Mapping[str, int]) -> bytes:
    octets = bytearray(header.size)
    for mark in header.marks:
        fixed = mark.octets
        octets[mark.offset : mark.offset + len(fixed)] = fixed
    for number in header.numbers:
        _write_number(octets, number, numbers.get(number.name, 0))
    return bytes(octets)


def _write_number(octets: bytearray, number: Number, value: int) -> None:
    code = CODES[number.size]
    layout = number.order + (code.lower() if number.signed else code)
    try:
        struct.pack_into(layout, octets, number.offset, value)
    except struct.error as error:
        detail = f"{number.name} {value} does not fit {number.size} bytes"
        raise OversizedMessage(detail, reason="frame-too-large") from error
