"""Splitting of a byte stream into SCSP frames, and parsing of each.

Frames follow one another on the wire without separators::

    TYPE VALUE SP           integer, float, null
    TYPE LEN SP body        all others; LEN counts the bytes of the body

Frames are split by length, never by search: a body may contain any bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from silverfold.conf.errors import InvalidValue, OversizedMessage, TruncatedMessage, WireError
from silverfold.connectors.sqlitecloud.protocol.cells import read_count, read_values
from silverfold.connectors.sqlitecloud.protocol.messages import (
    Array,
    Command,
    JsonText,
    Message,
    PubSubOffer,
    Reconnect,
    ServerError,
    Single,
)
from silverfold.connectors.sqlitecloud.protocol.rowsets import read_chunk, read_compressed, read_rowset

MAX_FRAME_BYTES: Final = 1 << 26
"""Default limit of a frame's length, as announced and after expansion: 64 MiB."""

HEADER: Final = 64
"""Bytes within which a header must end."""

_VALUES: Final = frozenset(b":,_")
_SIZED: Final = frozenset(b"+!-$#*/=%|^@")
_MAY_BE_EMPTY: Final = frozenset(b"+$")
_DIGITS: Final = re.compile(rb"[0-9]{1,19}")
_CODES: Final = re.compile(rb"(-?[0-9]{1,19})(?::(-?[0-9]{1,19})(?::(-?[0-9]{1,19}))?)? ")


class RawFrame(NamedTuple):
    """One complete frame."""

    kind: str
    """Its first byte, as a character."""
    octets: bytes
    body: int
    """Offset of the first byte behind the header; behind the type if there is no length."""


class FrameCutter:
    """Splits arbitrary chunks of bytes into complete frames, in time proportional to the bytes.

    Feed with `receive`, then pull with `next_frame` until it returns None. They are separate so that a bad frame never
    costs the good ones before it. Frame contents are not inspected.

    Args:
        max_frame_bytes: Longest body to accept.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit = max_frame_bytes
        self._buffer = bytearray()
        self._at = 0
        self._body = self._end = 0  # in the buffer, of the frame that begins at _at; 0 until its header is read
        self._eof = False
        self._error: WireError | None = None

    @property
    def held(self) -> int:
        """Bytes received but not yet split off."""
        return len(self._buffer) - self._at

    def left(self) -> bytes:
        """Return the bytes received but not yet split off. After an error they begin with the bad frame."""
        return bytes(self._buffer[self._at :])

    def receive(self, chunk: bytes) -> None:
        """Add received bytes. Chunk boundaries carry no meaning."""
        if self._at:
            del self._buffer[: self._at]
            self._at = self._end = 0
        self._buffer += chunk

    def receive_eof(self) -> None:
        """Record that no bytes follow: an incomplete frame becomes an error."""
        self._eof = True

    def next_frame(self) -> RawFrame | None:
        """Return the next complete frame, or None when more bytes are needed.

        Raises:
            InvalidValue: ``bad_type``, ``bad_length``, ``header_too_long`` or ``zero_length``.
            OversizedMessage: ``too_large``, detected from the header alone.
            TruncatedMessage: ``truncated``: the stream ended inside a frame. After any error, every later call raises
                the same one.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        buffer, at = self._buffer, self._at
        if not self._end:
            space = buffer.find(b" ", at, at + HEADER)
            if space < 0 or buffer[at] not in _SIZED:
                return self._without_length(at, space)
            self._body, self._end = space + 1, space + 1 + self._length(at, space)
        if len(buffer) < self._end:
            return self._unfinished()
        return self._cut(self._body - at)

    def _cut(self, body: int) -> RawFrame:
        octets = bytes(self._buffer[self._at : self._end])
        self._at, self._end = self._end, 0
        return RawFrame(chr(octets[0]), octets, body)

    def _without_length(self, at: int, space: int) -> RawFrame | None:
        buffer = self._buffer
        if at == len(buffer):
            return None
        if buffer[at] not in _VALUES and buffer[at] not in _SIZED:
            raise self._wrong(f"no frame begins with byte {buffer[at]:#04x}", "bad_type")
        if space >= 0:
            self._end = space + 1
            return self._cut(1)
        if len(buffer) - at >= HEADER:
            raise self._wrong(f"no space within the {HEADER} bytes of a header", "header_too_long")
        return self._unfinished()

    def _length(self, at: int, space: int) -> int:
        found = bytes(self._buffer[at + 1 : space])
        if not _DIGITS.fullmatch(found):
            raise self._wrong(f"the length is {found!r}, not 1 to 19 digits", "bad_length")
        length = int(found)
        if length == 0 and self._buffer[at] not in _MAY_BE_EMPTY:
            raise self._wrong(f"a frame {chr(self._buffer[at])} cannot be empty", "zero_length")
        if length > self._limit:
            detail = f"a frame of {length} bytes is announced, {self._limit} are allowed"
            self._error = OversizedMessage(detail, offset=0, reason="too_large")
            raise self._error
        return length

    def _unfinished(self) -> RawFrame | None:
        if not self._eof:
            return None
        detail = f"the stream ends {self.held} bytes into a frame"
        self._error = TruncatedMessage(detail, offset=self.held, reason="truncated")
        raise self._error

    def _wrong(self, detail: str, reason: str) -> WireError:
        self._error = InvalidValue(detail, offset=0, reason=reason)
        return self._error


def parse(raw: RawFrame, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> Message:
    """Parse a frame.

    Args:
        max_frame_bytes: Maximum bytes of a compressed frame after expansion.

    Raises:
        InvalidValue: ``bad_number``, ``missing_nul``, ``bad_error``, ``bad_array``, ``bad_rowset`` or
            ``bad_compression``. The offset counts from the first byte of the frame.
        OversizedMessage: ``too_large``: a compressed frame announces more than is allowed.
    """
    if raw.kind == "%":
        return read_compressed(raw.octets, raw.body, max_frame_bytes)
    return _READERS[raw.kind](raw.octets, raw.body)


def _single(octets: bytes, body: int) -> Single:
    return Single(read_values(octets, 0, 1, "bad_number")[0][0])


def _error(octets: bytes, body: int) -> ServerError:
    codes = _CODES.match(octets, body)
    if codes is None:
        raise InvalidValue("an error begins with CODE[:EXTENDED[:OFFSET]] and a space", offset=body, reason="bad_error")
    code, extended, offset = codes.groups()
    text = octets[codes.end() :].decode("utf-8", "backslashreplace")
    return ServerError(int(code), int(extended or 0), int(offset or -1), text)


def _array(octets: bytes, body: int) -> Array:
    count, at = read_count(octets, body, "bad_array")
    if 2 * count > len(octets) - at:
        raise InvalidValue(f"{count} items cannot be in {len(octets) - at} bytes", offset=body, reason="bad_array")
    items, end = read_values(octets, at, count, "bad_array")
    if end != len(octets):
        raise InvalidValue(f"{len(octets) - end} bytes follow the last item", offset=end, reason="bad_array")
    return Array(tuple(items))


_READERS: Final[dict[str, Callable[[bytes, int], Message]]] = {
    **dict.fromkeys("+!:,_$", _single),
    "-": _error,
    "#": lambda octets, body: JsonText(octets[body:]),
    "=": _array,
    "*": read_rowset,
    "/": read_chunk,
    "|": lambda octets, body: PubSubOffer(octets[body:]),
    "^": lambda octets, body: Command(octets[body:]),
    "@": lambda octets, body: Reconnect(octets[body:]),
}
