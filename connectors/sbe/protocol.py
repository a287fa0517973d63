"""Cuts one connection or file into messages and reads their headers: bytes in, events out.

Feed with `Session.receive`, pull with `Session.next_event` until it returns None. The two are apart, so that what is
wrong with the bytes never costs the messages before. Bodies are not decoded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conf.errors import WireError
from connectors.sbe.messages import BadBytes, Event, MessageReceived, SequenceGap
from connectors.wire.framing.cutter import Frame
from connectors.wire.framing.settings import Framing
from connectors.wire.sbe.framed import cutter_for
from connectors.wire.sbe.header import read_header
from connectors.wire.sbe.model import Schema

SEQUENCE: Final = "sequence"
"""The number of a packet header, or else of the frame header, that counts packets or messages."""


class Session:
    """One input from its first byte to its last.

    Args:
        begins: Bytes of the input that were read before: offsets go on from there.
    """

    def __init__(self, schema: Schema, framing: Framing, *, begins: int = 0) -> None:
        self._schema, self._framing, self._begins = schema, framing, begins
        self._cutter = cutter_for(schema, framing)
        self._end = begins
        self._over = False
        self._numbers = _Numbers(framing)
        self._next: MessageReceived | None = None

    @property
    def end(self) -> int:
        """Bytes of the input up to the end of the last message that was pulled."""
        return self._end

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived. Chunk boundaries carry no meaning."""
        self._cutter.receive(chunk)

    def receive_eof(self) -> None:
        """Take note that no bytes follow: part of a message is wrong then."""
        self._cutter.receive_eof()

    def next_event(self) -> Event | None:
        """Return what comes next; None when more bytes are needed, and after `BadBytes`."""
        if self._next is not None:
            event, self._next = self._next, None
            return event
        if self._over:
            return None
        try:
            frame = self._cutter.next_frame()
        except WireError as error:
            self._over = True
            return BadBytes(error, self._end)
        return None if frame is None else self._of(frame)

    def _of(self, frame: Frame) -> Event:
        header = read_header(self._schema, frame.body)
        ours = header.schema_id == self._schema.id
        template = self._schema.templates.get(header.template_id) if ours else None
        self._end = self._begins + _end(frame, self._framing)
        message = MessageReceived(frame.body, header, template, self._end)
        gap = self._numbers.gap(frame)
        if gap is None:
            return message
        self._next = message
        return gap


class _Numbers:
    """Watches the numbers that come with frames. They count packets, or messages: either is in order.

    Args:
        framing: Tells where the numbers are, if there are any.
    """

    def __init__(self, framing: Framing) -> None:
        self._of_packet = framing.packet.has(SEQUENCE)
        self._watches = self._of_packet or framing.frame.has(SEQUENCE)
        self._packet: Mapping[str, int] | None = None
        self._last: int | None = None
        self._messages = 0

    def gap(self, frame: Frame) -> SequenceGap | None:
        """Return what is missing before a frame; None when nothing is."""
        if not self._watches or (self._of_packet and frame.packet is self._packet):
            self._messages += 1
            return None
        found = (frame.packet if self._of_packet else frame.head)[SEQUENCE]
        last, follows = self._last, {1, self._messages}
        self._packet, self._last, self._messages = frame.packet, found, 1
        return None if last is None or found - last in follows else SequenceGap(last + 1, found)


def _end(frame: Frame, framing: Framing) -> int:
    """Return the bytes of the input up to the end of a frame, its padding included."""
    size = framing.frame.size + len(frame.body)
    return frame.offset + len(frame.body) + -size % framing.padding
