"""Describes how messages are framed, as data that settings can contain.

::

    stream or packet = packet* ;  packet = [packet header] frame* ;  frame = [frame header] message [padding]

A mistake in a description raises ValueError, as settings models expect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from silverfold.connectors.wire.sbe.schema.model import ByteOrder

LARGEST = 16 * 1024 * 1024
"""Default for the longest accepted message, in bytes."""

SEQUENCE: Final = "sequence"
"""Name of the number in the packet header, or else in the frame header, that counts packets or messages."""


@dataclass(frozen=True)
class Number:
    """An integer in a header.

    Args:
        name: Name under which each message reports it.
        offset: From the start of the header.
        size: In bytes.
        order: ``<`` little-endian, ``>`` big-endian.
    """

    name: str
    offset: int
    size: Literal[1, 2, 4, 8]
    order: ByteOrder = "<"
    signed: bool = False

    def after(self, value: int, count: int) -> int:
        """Return the value that comes ``count`` after another one: behind the highest comes the lowest."""
        lowest = -(1 << (8 * self.size - 1)) if self.signed else 0
        return (value + count - lowest) % (1 << 8 * self.size) + lowest


@dataclass(frozen=True)
class Mark:
    """Fixed bytes in a header.

    Args:
        bytes_hex: In hex, such as ``feca``.
    """

    offset: int
    bytes_hex: str

    def __post_init__(self) -> None:
        if not re.fullmatch("([0-9A-Fa-f]{2})+", self.bytes_hex):
            raise ValueError(f"bytes_hex {self.bytes_hex!r}: pairs of hex digits, such as feca")

    @property
    def octets(self) -> bytes:
        """The bytes."""
        return bytes.fromhex(self.bytes_hex)


@dataclass(frozen=True)
class FixedHeader:
    """A header of fixed size; bytes that belong to no number or mark are skipped."""

    size: int = 0
    numbers: tuple[Number, ...] = ()
    marks: tuple[Mark, ...] = ()

    def __post_init__(self) -> None:
        for number in self.numbers:
            self._check_place(number.name, number.offset, number.size)
        for mark in self.marks:
            self._check_place(f"mark {mark.bytes_hex}", mark.offset, len(mark.octets))

    def _check_place(self, what: str, offset: int, size: int) -> None:
        if offset < 0 or offset + size > self.size:
            raise ValueError(f"{what} at {offset} lies outside a header of {self.size} bytes")

    def has(self, name: str) -> bool:
        """Return whether there is a number of this name."""
        return any(number.name == name for number in self.numbers)


@dataclass(frozen=True)
class PacketType:
    """Type of a packet, in the packet header.

    Args:
        number: Name of the number in the packet header.
        frames: Its value for packets with frames.
        others: Size in bytes of all other packets, such as heartbeats: the beginning of the header, without frames.
    """

    number: str
    frames: int
    others: int


@dataclass(frozen=True)
class EncodingType:
    """Encoding type of the message, in the frame header (FIX SOFH).

    Frames of other encoding types can be cut, but not decoded. A type that a venue fixes is a `Mark` instead: where
    lengths have 16 bits, it alone shows that the position in the stream is lost.

    Args:
        number: Name of the number in the frame header.
        little: Its value for little-endian SBE.
        big: Its value for big-endian SBE.
    """

    number: str
    little: int
    big: int

    def is_sbe(self, value: int) -> bool:
        """Return whether an encoding type is SBE, of either byte order."""
        return value in (self.little, self.big)


@dataclass(frozen=True)
class Flags:
    """Bits of a number in a header.

    Args:
        number: Name of the number in the header.
        mask: The bits; any of them counts.
    """

    number: str
    mask: int


@dataclass(frozen=True)
class Framing:
    """Framing of a sequence of messages.

    Args:
        frame: The header before each message.
        length: Name of the number in it that is the length. Without one, only ``unframed`` applies.
        length_counts: Bytes that the length counts besides the message: its own, those of the whole frame header;
            negative if it leaves out the message's own header.
        largest: Longest message to accept, in bytes.
        padding: Frames take a multiple of this many bytes; padding that the length does not count is skipped.
        encoding: The frame header's encoding type, if it has one.
        packet: The header before the frames of a packet.
        per_packet: How many frames follow it: one, as many as ``count`` says, or all until the input ends.
        count: Name of the number in the packet header that counts frames.
        packet_type: The packet header's type of packet, if packets of some types have no frames.
        sequence_counts: What the number called ``sequence`` in the packet header counts: packets, or messages; it is
            then that of the packet's first message. One in the frame header counts frames, of one message each.
        out_of_sequence: Marks packets, or else frames, that the count leaves out, such as snapshots: their ``sequence``
            neither follows from the one before nor leads to the next.
        unframed: Without a length: the input is one message, or messages are packed back to back and the end of each is
            found by decoding it.
    """

    frame: FixedHeader = FixedHeader()
    length: str | None = None
    length_counts: int = 0
    largest: int = LARGEST
    padding: int = 1
    encoding: EncodingType | None = None
    packet: FixedHeader = FixedHeader()
    per_packet: Literal["one", "counted", "until-end"] = "until-end"
    count: str | None = None
    packet_type: PacketType | None = None
    sequence_counts: Literal["packets", "messages"] = "packets"
    out_of_sequence: Flags | None = None
    unframed: Literal["whole", "packed"] = "whole"

    def __post_init__(self) -> None:
        if self.length is not None and not self.frame.has(self.length):
            raise ValueError(f"the frame header has no number {self.length}, which is to be the length")
        if (self.per_packet == "counted") != (self.count is not None):
            raise ValueError("count names a number, and names it only, where per_packet is counted")
        if self.count is not None and not self.packet.has(self.count):
            raise ValueError(f"the packet header has no number {self.count}, which is to count the frames")
        if self.packet_type is not None and not self.beginning.has(self.packet_type.number):
            detail = f"the packet header's first {self.packet_type.others} bytes have no number"
            raise ValueError(f"{detail} {self.packet_type.number}, which is to tell the type")
        if self.encoding is not None and not self.frame.has(self.encoding.number):
            raise ValueError(f"the frame header has no number {self.encoding.number}, which is to tell the encoding")
        if self.out_of_sequence is not None and not self.sequenced.has(self.out_of_sequence.number):
            detail = f"the header with the number {SEQUENCE} has no number {self.out_of_sequence.number}"
            raise ValueError(f"{detail}, which is to tell what is out of sequence")
        if self.length is None and (self.frame.size or self.packet.size):
            raise ValueError("headers without a length do not tell where a message ends")
        if self.padding < 1 or self.largest < 1:
            raise ValueError("padding and largest are 1 or more")

    @property
    def needs_datagrams(self) -> bool:
        """Whether packets end with their datagrams: neither a connection nor a file shows where."""
        return bool(self.packet.size) and self.per_packet == "until-end"

    @property
    def sequenced(self) -> FixedHeader:
        """The header whose ``sequence`` is watched: the packet header, or the frame header if that one has none."""
        return self.packet if self.packet.has(SEQUENCE) else self.frame

    @property
    def beginning(self) -> FixedHeader:
        """The part of the packet header that packets of all types have."""
        if self.packet_type is None:
            return self.packet
        size = self.packet_type.others
        numbers = tuple(each for each in self.packet.numbers if each.offset + each.size <= size)
        marks = tuple(each for each in self.packet.marks if each.offset + len(each.octets) <= size)
        return FixedHeader(size, numbers, marks)
