"""Cuts one connection or file into messages and reads their headers: bytes in, events out.

Feed with `Session.receive`, pull with `Session.next_event` until it returns None. The two are separate, so that bad
bytes never discard the messages before them. Bodies are not decoded here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

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
from silverfold.connectors.wire.framing.settings import SEQUENCE, Framing
from silverfold.connectors.wire.sbe.codec.framed import cutter_for
from silverfold.connectors.wire.sbe.codec.header import read_header
from silverfold.connectors.wire.sbe.schema.model import Schema


class Session:
    """One input from its first byte to its last, or from the position where an earlier session stopped.

    Args:
        begins: Position of the first byte that will be received. Messages already read are skipped.
    """

    def __init__(self, schema: Schema, framing: Framing, *, begins: FilePosition = BEGINNING) -> None:
        self._schema, self._framing, self._begins = schema, framing, begins
        self._events: deque[Event] = deque()
        self._numbers = _Numbers(framing, self._events.append)
        self._cutter = cutter_for(schema, framing, on_packet=self._numbers.see_packet)
        self._positions = _ResumePositions(framing, begins.offset)
        self._passes = begins.passed
        self._over = False

    def receive(self, chunk: bytes) -> None:
        """Feed received bytes, in chunks of any size."""
        self._cutter.receive(chunk)

    def receive_eof(self) -> None:
        """Signal that no bytes follow: a partial message is then an error."""
        self._cutter.receive_eof()

    def next_event(self) -> Event | None:
        """Return the next event; None if more bytes are needed, and after `BadBytes`."""
        while self._events or not self._over:
            if not self._events:
                self._cut()
            if not self._events:
                return None
            event = self._events.popleft()
            if self._passes == 0 or not isinstance(event, MessageReceived | OtherEncodingReceived):
                return event
            self._passes -= 1
        return None

    def _cut(self) -> None:
        """Cut the next frame, if it is there; its event goes behind the gaps before it."""
        frame = None
        try:
            frame = self._cutter.next_frame()
            if frame is not None:
                self._numbers.see_frame(frame.head)
                self._events.append(self._event_of(frame))
        except WireError as error:
            self._over = True
            offset, body = (self._cutter.offset, b"") if frame is None else (frame.offset, frame.body)
            begins = self._begins.offset
            self._events.append(BadBytes(error.moved(begins), begins + offset, body + self._cutter.left()))

    def _event_of(self, frame: Frame) -> MessageReceived | OtherEncodingReceived:
        other = frame.other_encoding
        return self._message(frame) if other is None else self._of_other_encoding(frame, other)

    def _message(self, frame: Frame) -> MessageReceived:
        try:
            header = read_header(self._schema, frame.body)
        except WireError as error:
            raise error.moved(frame.offset) from None
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
    """Checks the sequence numbers of packets, or else of frames, in the order of their headers.

    Args:
        framing: Says where the numbers are, if there are any, and what they count.
        report: Called with each gap.
    """

    def __init__(self, framing: Framing, report: Callable[[SequenceGap], None]) -> None:
        self._report = report
        number = next((number for number in framing.sequenced.numbers if number.name == SEQUENCE), None)
        self._of_packets = number is not None and framing.sequenced is framing.packet
        self._number = number
        self._count = framing.count if framing.sequence_counts == "messages" else None
        self._apart = framing.out_of_sequence
        self._expected: int | None = None

    def see_packet(self, numbers: Mapping[str, int]) -> None:
        """Take a packet header."""
        if self._of_packets:
            self._see(numbers, 1 if self._count is None else numbers[self._count])

    def see_frame(self, numbers: Mapping[str, int]) -> None:
        """Take a frame header."""
        if not self._of_packets:
            self._see(numbers, 1)

    def _see(self, numbers: Mapping[str, int], count: int) -> None:
        if self._number is None or (self._apart is not None and numbers[self._apart.number] & self._apart.mask):
            return
        found, expected = numbers[SEQUENCE], self._expected
        if expected is not None and found != expected:
            self._report(SequenceGap(expected, found))
        self._expected = self._number.after(found, count)
