"""Finds where packets end. A packet does not carry its length: its objects are walked, and skipped by their lengths.

The walk stops where the bytes end, and continues there once more have come: its time is proportional to the bytes. Only
values of user types are read again from their beginning.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from silverfold.conf.errors import InvalidValue, OversizedMessage, TruncatedMessage, WireError
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.errors import UnknownType, cut_off
from silverfold.connectors.tengi.protocol.limits import JAVA_CUT, MAX_DEPTH, MAX_PACKET, SMALLEST_ENTRY
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, TypeRegistry
from silverfold.connectors.tengi.protocol.simple_messages import FIXED, NotSimple, PacketEnds, entry_end, message_end
from silverfold.connectors.tengi.protocol.strings import chunk_count
from silverfold.connectors.tengi.protocol.values import SMALLEST_MESSAGE, Packet, PollingRequest, PollingResponse

_SHORT: Final = struct.Struct(">h").unpack_from
_SIZE: Final = struct.Struct(">H").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from
_LENGTHS: Final = struct.Struct(">ii").unpack_from

_STRING, _ARRAY, _ENUM, _IDENTIFIER, _MESSAGE, _PACKET, _MARSHALLABLE = -8, -9, -10, -101, -102, -103, -104


class PacketScanner:
    """Cuts a stream into packets.

    Feed with `receive`, then pull with `next_packet` until it returns None. They are separate so that a bad packet
    never costs the good ones before it. An error is final: the next packet's beginning is unknown.

    Args:
        limit: Most bytes of a packet.
        ends: Remembers the shapes of this peer's packets.
    """

    def __init__(
        self, types: TypeRegistry = BUILT_IN, *, limit: int = MAX_PACKET, ends: PacketEnds | None = None
    ) -> None:
        self._types = types
        self.limit = limit
        """Between packets it may be changed."""
        self.head = b""
        """Beginning of all packets; empty while unknown. A packet is ``cut`` if another begins where Java cuts."""
        self._ends = ends or PacketEnds()
        self._is_cut = False
        self._octets = bytearray()
        self._start = self._at = self._ready = 0
        self._walk: Iterator[None] | None = None
        self._error: WireError | None = None

    @property
    def held(self) -> int:
        """Bytes received but not cut yet."""
        return len(self._octets) - self._start

    def left(self) -> bytes:
        """Return the bytes received but not cut yet. After an error, the first of them are the bad packet's."""
        return bytes(self._octets[self._start :])

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived. Chunk boundaries carry no meaning."""
        if self._start:
            del self._octets[: self._start]
            self._at -= self._start
            self._start = 0
        self._octets += chunk
        self._measure()

    def expect_cuts(self, size: int) -> None:
        """Expect that the peer cuts packets at a size. A longer packet is then an error: its rest never comes."""
        self.limit, self._is_cut = size, True

    def skip(self, size: int) -> None:
        """Drop received bytes that belong to no packet."""
        self._start = self._at = self._start + size

    def next_packet(self) -> bytes | None:
        """Return the next whole packet; None if more bytes are needed.

        Raises:
            OversizedMessage: ``too_large``: it exceeds the limit, or announces that.
            TruncatedMessage: ``cut``: it is longer than the size of `expect_cuts`, or another begins in it (`head`).
            UnknownType: ``unknown_type``.
            InvalidValue: A length is wrong, objects are too deep, or a Message has no Identifier.
        """
        return self._next(self._packet, b"\1\xff\x9b")

    def next_object(self) -> bytes | None:
        """Return the next whole object; None if more bytes are needed. Raises as `next_packet`."""
        return self._next(lambda: self._object(0))

    def _next(self, walk: Callable[[], Iterator[None]], head: bytes = b"") -> bytes | None:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._walk is None:
            self._measure()
            end = self._ends.find(self._octets, self._start, head)
            if end is not None and end <= self._ready:
                return self._taken(end)
            self._walk = walk()
        try:
            is_whole = next(self._walk, True)
        except WireError as error:
            self._error = error
            self._check_cut()
            raise
        if not is_whole:
            self._check_cut()
            return None
        return self._taken(self._at)

    def _taken(self, end: int) -> bytes:
        if end - self._start > JAVA_CUT:
            self._check_cut()
        packet = bytes(self._octets[self._start : end])
        self._start = self._at = end
        self._walk = None
        return packet

    def _check_cut(self) -> None:
        """Raise TruncatedMessage if another packet begins where Java cuts. The walk may take its bytes for values."""
        if self.head and self._octets.startswith(self.head, self._start + JAVA_CUT):
            self._error = cut_off(JAVA_CUT)
            raise self._error

    def _measure(self) -> None:
        self._ready = min(len(self._octets), self._start + self.limit)

    def _need(self, size: int) -> Iterator[None]:
        """Wait until so many bytes have arrived. The walk stays where it is.

        Callers look first: entering a generator that need not wait costs more than the field.
        """
        while self._at + size > self._ready:
            if self._at + size - self._start > self.limit and (not self._is_cut or self.held >= self.limit):
                raise self._beyond_limit()
            yield

    def _beyond_limit(self) -> WireError:
        if self._is_cut:
            return cut_off(self.limit)
        detail = f"a packet of more than {self.limit} bytes (`max_packet`)"
        return OversizedMessage(detail, offset=self._at - self._start, reason="too_large")

    def _packet(self) -> Iterator[None]:
        if self._at + 1 > self._ready:
            yield from self._need(1)
        has_id = self._octets[self._at] != 0
        self._at += 1
        if has_id:
            yield from self._identifier()
        yield from self._object(0)

    def _identifier(self) -> Iterator[None]:
        if self._at + 2 > self._ready:
            yield from self._need(2)
        if self._octets[self._at : self._at + 2] != b"\xff\x9b":
            raise self._invalid("an Identifier is due", "unexpected_object")
        if self._at + 18 > self._ready:
            yield from self._need(18)
        self._at += 18

    def _object(self, depth: int) -> Iterator[None]:
        if self._at + 2 > self._ready:
            yield from self._need(2)
        (kind,) = _SHORT(self._octets, self._at)
        size = FIXED.get(kind)
        if size is not None:
            if self._at + size > self._ready:
                yield from self._need(size)
            self._at += size
        elif kind == _STRING:
            self._at += 2
            yield from self._string()
        elif kind == _ARRAY:
            yield from self._array()
        elif kind == _ENUM:
            yield from self._need(4)
            self._at += 4
            yield from self._string()
        elif depth >= MAX_DEPTH:
            raise self._invalid(f"more than {MAX_DEPTH} objects in one another", "too_deep")
        elif kind == _MESSAGE:
            self._at += 2
            yield from self._identifier()
            yield from self._object(depth + 1)
        elif kind == _PACKET:
            yield from self._packet_object(depth)
        elif kind == _MARSHALLABLE:
            yield from self._marshallable(depth)
        elif kind in self._types.marshallers:
            yield from self._user_object(depth)
        else:
            raise self._unknown(kind, 0, "marshaller")

    def _array(self) -> Iterator[None]:
        yield from self._need(6)
        self._at += 2
        yield from self._length(1)
        (size,) = _INT32(self._octets, self._at - 4)
        yield from self._need(size)
        self._at += size

    def _packet_object(self, depth: int) -> Iterator[None]:
        if self._at + 4 > self._ready:
            yield from self._need(4)
        (type_id,) = _SHORT(self._octets, self._at + 2)
        packet = self._types.packets.get(type_id)
        if packet is None:
            raise self._unknown(type_id, 2, "class type")
        if packet.unmarshall_fields is not Packet.unmarshall_fields:
            yield from self._user_object(depth)
            return
        self._at += 4
        yield from self._string()
        yield from self._length(SMALLEST_ENTRY)
        (count,) = _INT32(self._octets, self._at - 4)
        for _ in range(count):
            if not self._skip_entry(depth + 1):
                yield from self._string()
                yield from self._object(depth + 1)

    def _marshallable(self, depth: int) -> Iterator[None]:
        if self._at + 4 > self._ready:
            yield from self._need(4)
        (type_id,) = _SHORT(self._octets, self._at + 2)
        if type_id == PollingRequest.type_id:
            self._at += 4
        elif type_id == PollingResponse.type_id:
            self._at += 4
            yield from self._length(SMALLEST_MESSAGE)
            (count,) = _INT32(self._octets, self._at - 4)
            for _ in range(count):
                yield from self._object(depth + 1)
        elif type_id in self._types.marshallables:
            yield from self._user_object(depth)
        else:
            raise self._unknown(type_id, 2, "class type")

    def _user_object(self, depth: int) -> Iterator[None]:
        while True:
            decoder = Decoder(bytes(self._octets[self._at : self._ready]), self._types, limit=self.limit, depth=depth)
            try:
                decoder.read_object()
            except TruncatedMessage:
                yield from self._need(decoder.needed)
                continue
            self._at += decoder.offset
            return

    def _skip_entry(self, depth: int) -> bool:
        """Skip a key and its value. Return False, and skip nothing, if they are not simple or incomplete."""
        try:
            end = entry_end(self._octets, self._at, depth)
        except (struct.error, NotSimple):
            return False
        if end > self._ready:
            return False
        self._at = end
        return True

    def _string(self) -> Iterator[None]:
        if self._at + 8 > self._ready:
            yield from self._need(8)
        size, again = _LENGTHS(self._octets, self._at)
        if size != again:
            raise self._invalid(f"the lengths {size} and {again} differ", "bad_length")
        self._at += 4
        yield from self._length(1)
        for _ in range(chunk_count(size)):
            if self._at + 2 > self._ready:
                yield from self._need(2)
            (length,) = _SIZE(self._octets, self._at)
            if self._at + 2 + length > self._ready:
                yield from self._need(2 + length)
            self._at += 2 + length

    def _length(self, smallest: int) -> Iterator[None]:
        """Step over a length that has arrived. Wait for its items only if they cannot fit."""
        if self._at + 4 > self._ready:
            yield from self._need(4)
        (count,) = _INT32(self._octets, self._at)
        if count < 0:
            raise self._invalid(f"the length {count} is negative", "bad_length")
        self._at += 4
        if self._at - self._start + count * smallest > self.limit:
            yield from self._need(count * smallest)

    def _invalid(self, detail: str, reason: str) -> InvalidValue:
        return InvalidValue(detail, offset=self._at - self._start, reason=reason)

    def _unknown(self, type_id: int, after: int, kind: str) -> UnknownType:
        offset = self._at - self._start + after
        detail = f"no type has the {kind} id {type_id}"
        return UnknownType(detail, type_id=type_id, offset=offset)


def object_end(octets: bytes, at: int, types: TypeRegistry = BUILT_IN) -> int:
    """Return the offset after an object.

    Raises:
        WireError: As `PacketScanner.next_packet`; TruncatedMessage, ``truncated``, if the bytes end before.
    """
    end = message_end(octets, at, b"")
    if end is not None and end <= len(octets):
        return end
    scanner = PacketScanner(types, limit=len(octets))
    scanner.receive(octets[at:])
    found = scanner.next_object()
    if found is None:
        raise TruncatedMessage("the bytes end in an object", offset=at, reason="truncated")
    return at + len(found)
