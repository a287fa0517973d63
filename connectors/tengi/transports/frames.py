"""WebSocket without a socket (RFC 6455): the upgrade's key, and frames. A packet is one unfragmented binary frame.

Written by hand: peers use one kind of frame without extensions, the server can imitate Java's faults, and a port may be
shared with TCP and HTTP long polling, so the first bytes are already read when the transport is known.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from silverfold.conf.errors import RemoteProtocolError

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SMALL: Final = 125
CLOSE_CODES: Final = {"bad_frame": 1002, "not_binary": 1003, "too_large": 1009}
"""Close codes, by the reason of the error."""


class Opcode(IntEnum):
    """Kinds of frames."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Frame(NamedTuple):
    """A frame, unmasked."""

    opcode: Opcode
    payload: bytes


def accept_key(key: str) -> str:
    """Return the server's ``Sec-WebSocket-Accept`` for a client's key."""
    digest = hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def encode_frame(opcode: Opcode, payload: bytes, *, mask: bytes | None = None) -> bytes:
    """Return an unfragmented frame. A client must give a mask of 4 bytes."""
    size, masked = len(payload), 0 if mask is None else 0x80
    if size <= _SMALL:
        head = bytes((0x80 | opcode, masked | size))
    elif size < 1 << 16:
        head = struct.pack(">BBH", 0x80 | opcode, masked | 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, masked | 127, size)
    return head + payload if mask is None else head + mask + _masked(payload, mask)


def close_frame(code: int, *, mask: bytes | None = None) -> bytes:
    """Return a frame that closes the connection."""
    return encode_frame(Opcode.CLOSE, struct.pack(">H", code), mask=mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    """XOR all bytes at once, as numbers: 16 MiB take 30 ms; a loop over bytes would take seconds."""
    size = len(payload)
    pattern = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(pattern)).to_bytes(size)


class FrameReader:
    """Cuts a stream into frames. Feed with `receive`, then pull with `next_frame` until it returns None.

    Args:
        is_server: A server's reader requires masks, a client's refuses them.
        limit: Most bytes of a payload.
    """

    def __init__(self, *, is_server: bool, limit: int) -> None:
        self.limit = limit
        self._is_server = is_server
        self._octets = bytearray()

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived."""
        self._octets += chunk

    def next_frame(self) -> Frame | None:
        """Return the next whole frame; None if more bytes are needed.

        Raises:
            RemoteProtocolError: ``bad_frame``, ``not_binary`` for a fragment, or ``too_large`` as soon as the frame's
                head has arrived.
        """
        octets = self._octets
        if len(octets) < 2:
            return None
        opcode, size, at = self._opcode(octets[0]), octets[1] & 0x7F, 2
        if size > _SMALL:
            if opcode >= Opcode.CLOSE:
                raise _bad("a control frame has more than 125 bytes")
            at += 2 if size == _SMALL + 1 else 8
            if len(octets) < at:
                return None
            size = int.from_bytes(octets[2:at])
        if (octets[1] >= 0x80) != self._is_server:
            raise _bad("a mask is due" if self._is_server else "a server's frame has a mask")
        if size > self.limit:
            detail = f"a frame of {size} bytes, {self.limit} are allowed (`max_packet`)"
            raise RemoteProtocolError(detail, reason="too_large")
        start = at + 4 if self._is_server else at
        if len(octets) < start + size:
            return None
        payload = bytes(octets[start : start + size])
        if self._is_server:
            payload = _masked(payload, bytes(octets[at:start]))
        del octets[: start + size]
        return Frame(opcode, payload)

    def _opcode(self, first: int) -> Opcode:
        if first & 0x70:
            raise _bad("a reserved bit is set")
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError:
            raise _bad(f"an unknown kind of frame: {first & 0x0F}") from None
        if not first & 0x80 or opcode is Opcode.CONTINUATION:
            if opcode >= Opcode.CLOSE:
                raise _bad("a fragmented control frame")
            raise RemoteProtocolError("a packet is not fragmented", reason="not_binary")
        return opcode


def _bad(detail: str) -> RemoteProtocolError:
    return RemoteProtocolError(detail, reason="bad_frame")
