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
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from silverfold.connectors.wire.framing import cutter as framing
from silverfold.connectors.wire.framing.framings import FRAMINGS

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


class FrameCutter(framing.FrameCutter):
    """Turns arbitrary chunks of bytes into complete messages: the general cutter, and many known messages at a time.

    Offsets of errors are in bytes from the start of the message.

    Args:
        header_size: Size of the message header, which is the smallest message.
        counts: What the length counts.
        largest: Longest message to accept, in bytes, header included.
    """

    def __init__(self, *, header_size: int, counts: PrefixCounts, largest: int) -> None:
        super().__init__(FRAMINGS["deephaven"], smallest=header_size)
        self._header_size = header_size
        self.accept(counts=counts, largest=largest)

    def accept(self, *, counts: PrefixCounts, largest: int) -> None:
        """Change the rules from the next frame on. Allowed only between frames."""
        assert self._needed <= PREFIX_SIZE
        self._framing = replace(self._framing, length_counts=counts.added(self._header_size), largest=largest)

    def next_body(self) -> bytes | None:
        """Return the message of `next_frame`, which raises the same errors."""
        frame = self.next_frame()
        return None if frame is None else frame.body

    def next_known(self, heads: Mapping[bytes, Known[_Gate]], head_size: int) -> list[tuple[bytes, _Gate]]:
        """Return the next messages, as long as they are complete, begin with known bytes and have an open gate.

        Equivalent to repeated calls of `next_body`, at a fraction of the cost. The first other message, and any error
        in it, is left to `next_body`.
        """
        found: list[tuple[bytes, _Gate]] = []
        if self._error is not None or not self._has_needed():
            return found
        self._join()
        chunk, at, known = self._chunk, self._at, heads.get
        begin = struct.Struct(f"<I{head_size}s")
        size_and_head, received = begin.unpack_from, len(chunk)
        added, largest = self._framing.length_counts, self._framing.largest
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
        if found:
            self._consume(at - self._at)
        return found

    @property
    def _error_offset(self) -> int:
        return 0
