"""Cuts framed bytes into complete messages, as described by `connectors.wire.framing.settings`.

A stream (connection, file) has one cutter. With datagrams, each packet has its own cutter, so that an error in one
packet does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from silverfold.conf.errors import InvalidValue, OversizedMessage, TruncatedMessage, WireError
from silverfold.connectors.wire.framing.headers import HeaderReader, header_reader
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.sbe.schema.model import Buffer, ByteOrder

Measure: TypeAlias = Callable[[Buffer, bool], int]
"""Returns the length of the message at the beginning of a buffer. Raises TruncatedMessage, or InvalidValue
``count-range``, if the message may continue beyond it; any other WireError if no further bytes can complete it."""

PacketObserver: TypeAlias = Callable[[Mapping[str, int]], None]
"""Takes the numbers of a packet header, by name."""

_NOTHING: Mapping[str, int] = {}
_MORE_MAY_HELP = frozenset({"short-frame", "truncated", "count-range"})


class Frame(NamedTuple):
    """One message with its framing."""

    body: bytes
    offset: int
    """Offset of the message, in bytes from the start of the stream or packet."""
    head: Mapping[str, int] = _NOTHING
    """Numbers in the frame header, by name."""
    packet: Mapping[str, int] = _NOTHING
    """Numbers in the packet header, by name."""
    before: int = 0
    """Bytes of the frame before the message."""
    other_encoding: InvalidValue | None = None
    """``encoding-type``: why the schema cannot read the message, which is of another encoding type; else None."""


class FrameCutter:
    """Turns arbitrary chunks of bytes into complete messages.

    Feed with `receive` and, at the end, `receive_eof`; pull with `next_frame` until it returns None. The two are
    separate so that a bad frame never costs the good ones before it. An error is final: the position in the stream is
    lost. Offsets of errors are in bytes from the start of the stream.

    Args:
        smallest: Minimum size of a message: the size of its header.
        is_inside: The frame header is the beginning of the message's own header, and is returned as part of it.
        byte_order: Byte order of the messages, checked against the framing where it has an encoding type.
        measure: Finds the end of a message, for messages packed back to back: from the bytes there are, and whether
            they are all.
        on_packet: Called with the numbers of each packet that may have frames, before the first of them is returned;
            for those that have none, too.
    """

    def __init__(
        self,
        framing: Framing,
        *,
        smallest: int = 1,
        is_inside: bool = False,
        byte_order: ByteOrder | None = None,
        measure: Measure | None = None,
        on_packet: PacketObserver | None = None,
    ) -> None:
        assert framing.length is not None or framing.unframed == "whole" or measure is not None
        self._framing = framing
        self._inside = framing.frame.size if is_inside else 0
        self._smallest = smallest - self._inside
        self._byte_order = byte_order
        self._measure = measure
        self._on_packet = on_packet
        self._head_reader, self._packet_reader = header_reader(framing.frame), header_reader(framing.packet)
        self._beginning_reader = header_reader(framing.beginning)
        self._cut = self._cut_framed
        if framing.length is None:
            self._cut = self._cut_whole if framing.unframed == "whole" else self._cut_packed
        self._parts: list[bytes] = []
        self._chunk, self._at, self._chunk_offset = b"", 0, 0
        self._received = 0
        self._needed = self._padding = 0
        self._packet: Mapping[str, int] | None = None
        self._left_in_packet: int | None = None
        self._ended = False
        self._error: WireError | None = None

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived. Chunk boundaries have no meaning."""
        if chunk:
            self._parts.append(chunk)
            self._received += len(chunk)

    def receive_eof(self) -> None:
        """Mark the end of the input."""
        self._ended = True

    @property
    def held(self) -> int:
        """Number of bytes that were received but not cut yet."""
        return self._received

    @property
    def offset(self) -> int:
        """Offset of the first byte that was not cut yet, from the start of the stream."""
        return self._chunk_offset + self._at

    def left(self) -> bytes:
        """Return the bytes that were received but not cut yet."""
        self._join()
        return self._chunk[self._at :]

    def next_frame(self) -> Frame | None:
        """Return the next complete message; None if more bytes are needed, or if all were cut and none follow.

        After any of these errors, every later call raises the same error.

        Raises:
            OversizedMessage: ``frame-too-large``: a message is longer than the framing's ``largest``. Raised as soon as
                a frame header announces it; without one, once more bytes of the message have arrived.
            TruncatedMessage: ``short-frame``: a frame shorter than its headers is announced. ``truncated``: the input
                ends inside a header or a message.
            InvalidValue: ``frame-mark``: the fixed bytes of a header differ.
            WireError: Raised by ``measure``.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        try:
            return self._cut()
        except WireError as error:
            self._error = error
            raise

    def _cut_framed(self) -> Frame | None:
        if not self._has_needed() or (self._padding and not self._skip_padding()):
            return None
        if self._packet is None and not self._enter_packet():
            return None
        head_size = self._head_reader.size
        if self._lacks(head_size, may_end=self._left_in_packet is None):
            return None
        head = self._read_header(self._head_reader)
        other = self._other_encoding(head)
        frame_size = head_size + self._message_size(head, other)
        if self._lacks(frame_size):
            return None
        before = head_size - self._inside
        start, end = self._at + before, self._at + frame_size
        packet = self._packet or _NOTHING
        frame = Frame(self._chunk[start:end], self._chunk_offset + start, head, packet, before, other)
        self._consume(frame_size)
        self._padding = -frame_size % self._framing.padding
        if self._left_in_packet is not None:
            self._left_in_packet -= 1
            self._packet = self._packet if self._left_in_packet else None
        return frame

    def _skip_padding(self) -> bool:
        """Skip the padding of the last frame; return False if more of it is to come."""
        if self._received:
            self._join()
            skipped = min(self._padding, self._received)
            self._consume(skipped)
            self._padding -= skipped
        return not self._padding or self._ended

    def _enter_packet(self) -> bool:
        """Read packet headers until a frame is due; return False if more bytes are needed, or none follow."""
        kind = self._framing.packet_type
        while self._packet is None:
            packet = self._read_packet(self._beginning_reader)
            if packet is not None and kind is not None:
                if packet[kind.number] != kind.frames:
                    self._consume(kind.others)
                    continue
                packet = self._read_packet(self._packet_reader)
            if packet is None:
                return False
            self._consume(self._packet_reader.size)
            self._left_in_packet = self._frame_count(packet)
            if self._on_packet is not None:
                self._on_packet(packet)
            self._packet = None if self._left_in_packet == 0 else packet
        return True

    def _read_packet(self, reader: HeaderReader) -> Mapping[str, int] | None:
        """Read a packet header, or its beginning; None if more bytes are needed, or none follow."""
        if not self._received or self._lacks(reader.size):
            return None
        return self._read_header(reader)

    def _read_header(self, reader: HeaderReader) -> dict[str, int]:
        self._join()
        try:
            return reader.read(self._chunk, self._at)
        except InvalidValue as error:
            raise error.moved(self._error_offset) from None

    def _frame_count(self, packet: Mapping[str, int]) -> int | None:
        """Return the number of frames after a packet header; None if all remaining frames belong to it."""
        if self._framing.count is not None:
            return packet[self._framing.count]
        return 1 if self._framing.per_packet == "one" else None

    def _other_encoding(self, head: Mapping[str, int]) -> InvalidValue | None:
        """Return the error for a frame of another encoding type than the schema's; None for one of the schema's."""
        encoding = self._framing.encoding
        if encoding is None or self._byte_order is None:
            return None
        found, expected = head[encoding.number], encoding.little if self._byte_order == "<" else encoding.big
        if found == expected:
            return None
        detail = f"{encoding.number} {found:#06x}, that of the schema's byte order is {expected:#06x}"
        if encoding.is_sbe(found):
            detail += ": this is SBE of the other byte order; is the schema's byteOrder right?"
        return InvalidValue(detail, offset=self._error_offset, reason="encoding-type")

    def _message_size(self, head: Mapping[str, int], other: InvalidValue | None) -> int:
        """Return the size of the message after a frame header; raise if it is out of bounds."""
        assert self._framing.length is not None
        size = head[self._framing.length] - self._framing.length_counts
        smallest, encoding = (self._smallest, "") if other is None else (0, f" ({other.detail})")
        if size > self._framing.largest:
            raise self._too_large(f"a message of {size} bytes is announced{encoding}")
        if size < smallest:
            frame, headers = (self._head_reader.size + each for each in (size, smallest))
            detail = f"a frame of {frame} bytes is announced, its headers alone have {headers}{encoding}"
            raise TruncatedMessage(detail, offset=self._error_offset, reason="short-frame")
        return size

    def _cut_whole(self) -> Frame | None:
        if self._received > self._framing.largest:
            raise self._too_large(f"a message of {self._received} bytes or more")
        if not self._ended or not self._received:
            return None
        self._join()
        frame = Frame(self._chunk, 0)
        self._consume(self._received)
        return frame

    def _cut_packed(self) -> Frame | None:
        if not self._received or not self._has_needed():
            return None
        self._join()
        assert self._measure is not None
        try:
            size = self._measure(memoryview(self._chunk)[self._at :], self._ended)
        except WireError as error:
            if error.reason not in _MORE_MAY_HELP or self._ended:
                raise error.moved(self._error_offset) from None
            if self._received > self._framing.largest:
                raise self._too_large(f"a message of {self._received} bytes or more") from None
            self._needed = self._received + 1
            return None
        if size > self._framing.largest:
            raise self._too_large(f"a message of {size} bytes")
        frame = Frame(self._chunk[self._at : self._at + size], self._chunk_offset + self._at)
        self._consume(size)
        return frame

    def _has_needed(self) -> bool:
        """Return whether the bytes missing at the last attempt are there, so that small chunks cost no extra work."""
        return self._received >= self._needed or self._ended

    def _lacks(self, size: int, *, may_end: bool = False) -> bool:
        """Return whether fewer than ``size`` bytes are there; with ``may_end`` the input may end before the first."""
        if self._received >= size:
            return False
        if self._ended and (self._received or not may_end):
            detail = f"{size} bytes are due, the input ends after {self._received}"
            raise TruncatedMessage(detail, offset=self._error_offset, reason="truncated")
        self._needed = size
        return True

    def _join(self) -> None:
        if self._parts:
            self._chunk_offset += self._at
            self._chunk = b"".join((self._chunk[self._at :], *self._parts))
            self._at = 0
            self._parts.clear()

    def _consume(self, size: int) -> None:
        self._at += size
        self._received -= size
        self._needed = 0

    @property
    def _error_offset(self) -> int:
        return self.offset

    def _too_large(self, what: str) -> OversizedMessage:
        detail = f"{what}, {self._framing.largest} are allowed"
        return OversizedMessage(detail, offset=self._error_offset, reason="frame-too-large")


def frames_of(cutter: FrameCutter, chunks: Iterable[bytes]) -> Iterator[Frame]:
    """Yield the messages of a complete input: a file read in chunks, or one packet. Lazy; buffers only uncut bytes.

    Raises:
        WireError: See `FrameCutter.next_frame`; raised after all good messages before it.
    """
    for chunk in chunks:
        cutter.receive(chunk)
        yield from iter(cutter.next_frame, None)
    cutter.receive_eof()
    yield from iter(cutter.next_frame, None)
