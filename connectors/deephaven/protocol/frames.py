"""Cuts a byte stream into messages, and adds the length prefix to messages.

On the wire, repeated until the peer closes::

    offset  size  field
    0       4     length, uint32, little-endian whatever the schema's byte order
    4       n     message: header, root block, groups, data

What the length counts is not documented; the first frame shows it (`connectors.deephaven.protocol.handshake`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from silverfold.conf.errors import OversizedMessage, TruncatedMessage, WireError

PREFIX_SIZE = 4
SLACK = 4
"""Bytes allowed beyond the announced buffer size: whether the buffer holds the prefix is not documented."""

_PREFIX = struct.Struct("<I")


class PrefixCounts(StrEnum):
    """What the length prefix counts."""

    MESSAGE = "message"
    """Header and body."""
    MESSAGE_AND_PREFIX = "message+prefix"
    """Header, body and the prefix's own four bytes."""
    BODY = "body"
    """Only the bytes after the header."""

    def added(self, header_size: int) -> int:
        """Return how many bytes the length counts beyond the message; negative where it counts fewer."""
        return {PrefixCounts.MESSAGE: 0, PrefixCounts.MESSAGE_AND_PREFIX: PREFIX_SIZE}.get(self, -header_size)


def frame(body: bytes, counts: PrefixCounts = PrefixCounts.MESSAGE, *, header_size: int = 8) -> bytes:
    """Return a message with its length prefix."""
    return _PREFIX.pack(len(body) + counts.added(header_size)) + body


class Gate(Protocol):
    """Decides whether messages of a known kind may pass."""

    open: bool


_Gate = TypeVar("_Gate", bound=Gate)


@dataclass(frozen=True, slots=True)
class Known(Generic[_Gate]):
    """What is known of all messages that begin with the same bytes.

    Args:
        min_size: Minimum length in bytes.
        gate: Whether they may arrive now.
    """

    min_size: int
    gate: _Gate


class FrameCutter:
    """Turns arbitrary chunks of bytes into complete messages.

    Feed with `receive`, then pull with `next_body` until it returns None. The two are separate so that a bad frame
    never costs the good ones before it. Bytes are kept, not copied, until a frame is complete.

    Args:
        header_size: Size of the message header, which is the smallest message.
        counts: What the length counts.
        largest: Longest message to accept, in bytes, header included.
    """

    def __init__(self, *, header_size: int, counts: PrefixCounts, largest: int) -> None:
        self._header_size = header_size
        self._parts: list[bytes] = []
        self._chunk = b""
        self._at = 0
        self._received = 0
        self._needed = PREFIX_SIZE
        self._error: WireError | None = None
        self.accept(counts=counts, largest=largest)

    def accept(self, *, counts: PrefixCounts, largest: int) -> None:
        """Change the rules from the next frame on. Allowed only between frames."""
        assert self._needed == PREFIX_SIZE
        self._added = counts.added(self._header_size)
        self._largest = largest

    @property
    def held(self) -> int:
        """Number of bytes received and not yet cut."""
        return self._received

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived. Chunk boundaries carry no meaning."""
        if chunk:
            self._parts.append(chunk)
            self._received += len(chunk)

    def next_body(self) -> bytes | None:
        """Return the next complete message, or None when more bytes are needed.

        Raises:
            OversizedMessage: The announced length exceeds ``largest``; raised from the length alone.
            TruncatedMessage: The announced length is below a header's. After either, every later call raises the same.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._received < self._needed:
            return None
        self._join()
        if self._needed == PREFIX_SIZE:
            self._needed += self._read_size()
            if self._received < self._needed:
                return None
        end = self._at + self._needed
        body = self._chunk[self._at + PREFIX_SIZE : end]
        self._at, self._received, self._needed = end, self._received - self._needed, PREFIX_SIZE
        return body

    def next_known(self, heads: Mapping[bytes, Known[_Gate]], head_size: int) -> list[tuple[bytes, _Gate]]:
        """Return the next messages, as long as they are complete, begin with known bytes and have an open gate.

        Equivalent to repeated calls of `next_body`, at a fraction of the cost. The first other message, and any error
        in it, is left to `next_body`.
        """
        found: list[tuple[bytes, _Gate]] = []
        if self._error is not None or self._needed != PREFIX_SIZE:
            return found
        self._join()
        chunk, at, known = self._chunk, self._at, heads.get
        begin = struct.Struct(f"<I{head_size}s")
        size_and_head, received, added, largest = begin.unpack_from, len(chunk), self._added, self._largest
        last = received - begin.size
        while at <= last:
            length, head = size_and_head(chunk, at)
            kind = known(head)
            size = length - added
            start = at + PREFIX_SIZE
            end = start + size
            if kind is None or not kind.gate.open or not kind.min_size <= size <= largest or end > received:
                break
            found.append((chunk[start:end], kind.gate))
            at = end
        self._received -= at - self._at
        self._at = at
        return found

    def peek(self, size: int) -> bytes:
        """Return up to ``size`` bytes that were received and not yet cut, the length prefix included."""
        self._join()
        return self._chunk[self._at : self._at + size]

    def _join(self) -> None:
        if self._parts:
            self._chunk = b"".join((self._chunk[self._at :], *self._parts))
            self._at = 0
            self._parts.clear()

    def _read_size(self) -> int:
        (length,) = _PREFIX.unpack_from(self._chunk, self._at)
        size: int = length - self._added
        if size > self._largest:
            detail = f"a message of {size} bytes is announced, {self._largest} are allowed"
            self._error = OversizedMessage(detail, offset=0, reason="frame-too-large")
        elif size < self._header_size:
            detail = f"a message of {size} bytes is announced, its header alone has {self._header_size}"
            self._error = TruncatedMessage(detail, offset=0, reason="short-frame")
        if self._error is not None:
            raise self._error
        return size
