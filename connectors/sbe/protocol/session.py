"""Cuts one connection or file into messages and reads their headers: bytes in, events out.

Feed with `Session.receive`, pull with `Session.next_event` until it returns None. The two are separate, so that bad
bytes never discard the messages before them. Bodies are not decoded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from silverfold.conf.errors import WireError
from silverfold.connectors.sbe.protocol.filepositions import BEGINNING, FilePosition
from silverfold.connectors.sbe.protocol.messages import (
    BadBytes,
    Event,
    MessageReceived,
    OtherEncodingReceived,
    SequenceGap,
)
from silverfold.connectors.wire.framing.cutter import Frame
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.sbe.codec.framed import cutter_for
from silverfold.connectors.wire.sbe.codec.header import read_header
from silverfold.connectors.wire.sbe.schema.model import Schema

SEQUENCE: Final = "sequence"
"""Name of the number in the packet header, or else in the frame header, that counts packets or messages."""


class Session:
    """One input from its first byte to its last, or from the position where an earlier session stopped.

    Args:
        begins: Position of the first byte that will be received. Messages already read are skipped.
    """

    def __init__(self, schema: Schema, framing: Framing, *, begins: FilePosition = BEGINNING) -> None:
        self._schema, self._begins = schema, begins
        self._framing, self._cutter = framing, cutter_for(schema, framing)
        self._positions, self._numbers = _ResumePositions(framing, begins.offset), _Numbers(framing)
        self._passes = begins.passed
        self._over = False
        self._next: MessageReceived | OtherEncodingReceived | None = None

    def receive(self, chunk: bytes) -> None:
        """Feed received bytes, in chunks of any size."""
        self._cutter.receive(chunk)

    def receive_eof(self) -> None:
        """Signal that no bytes follow: a partial message is then an error."""
        self._cutter.receive_eof()

    def next_event(self) -> Event | None:
        """Return the next event; None if more bytes are needed, and after `BadBytes`."""
        if self._next is not None:
            event, self._next = self._next, None
            return event
        while not self._over:
            found = self._cut()
            if found is None or isinstance(found, BadBytes) or self._passes == 0:
                return found
            self._passes, self._next = self._passes - 1, None
        return None

    def _cut(self) -> Event | None:
        frame = None
        try:
            frame = self._cutter.next_frame()
            return None if frame is None else self._event_of(frame)
        except WireError as error:
            self._over = True
            offset, body = ((error.offset or 0), b"") if frame is None else (frame.offset, frame.body)
            return BadBytes(error, self._begins.offset + offset, body + self._cutter.left())

    def _event_of(self, frame: Frame) -> Event:
        other = frame.other_encoding
        received = self._message(frame) if other is None else self._of_other_encoding(frame, other)
        gap = self._numbers.gap(frame)
        if gap is None:
            return received
        self._next = received
        return gap

    def _message(self, frame: Frame) -> MessageReceived:
        header = read_header(self._schema, frame.body)
        ours = header.schema_id == self._schema.id
        template = self._schema.templates.get(header.template_id) if ours else None
        return MessageReceived(frame.body, header, template, self._positions.after(frame))

    def _of_other_encoding(self, frame: Frame, error: WireError) -> OtherEncodingReceived:
        """Return the event for a frame of another encoding. Raise for SBE of the other byte order.

        Such a frame needs a schema with that byte order: it must not be passed over.
        """
        assert self._framing.encoding is not None
        encoding = frame.head[self._framing.encoding.number]
        if self._framing.encoding.is_sbe(encoding):
            raise error
        return OtherEncodingReceived(frame.body, encoding, self._positions.after(frame))


class _ResumePositions:
    """Computes the position to resume from after each frame."""

    def __init__(self, framing: Framing, begins: int) -> None:
        self._framing, self._begins = framing, begins
        self._packet: Mapping[str, int] | None = None
        self._offset = self._taken = 0

    def after(self, frame: Frame) -> str:
        framing, size = self._framing, frame.before + len(frame.body)
        if not framing.packet.size:
            return str(FilePosition(self._begins + frame.offset + len(frame.body) + -size % framing.padding))
        if frame.packet is not self._packet:
            self._packet, self._taken = frame.packet, 0
            self._offset = self._begins + frame.offset - frame.before - framing.packet.size
        self._taken += 1
        return str(FilePosition(self._offset, self._taken))


class _Numbers:
    """Checks the sequence numbers of frames.

    They count packets or messages: which of the two is inferred after the first packet with more than one message.

    Args:
        framing: Gives the location of the numbers, if there are any.
    """

    def __init__(self, framing: Framing) -> None:
        self._of_packet = framing.packet.has(SEQUENCE)
        self._watches = self._of_packet or framing.frame.has(SEQUENCE)
        self._packet: Mapping[str, int] | None = None
        self._last: int | None = None
        self._messages = 0
        self._counts_messages: bool | None = None

    def gap(self, frame: Frame) -> SequenceGap | None:
        """Return the gap before a frame, or None."""
        if not self._watches or (self._of_packet and frame.packet is self._packet):
            self._messages += 1
            return None
        found = (frame.packet if self._of_packet else frame.head)[SEQUENCE]
        gap = None if self._last is None else self._between(self._last, found)
        self._packet, self._last, self._messages = frame.packet, found, 1
        return gap

    def _between(self, last: int, found: int) -> SequenceGap | None:
        if self._messages > 1 and self._counts_messages is None and found - last in (1, self._messages):
            self._counts_messages = found - last > 1
        expected = last + (self._messages if self._counts_messages else 1)
        return None if found == expected else SequenceGap(expected, found)
