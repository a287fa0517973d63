"""Common base of a session's two protocol streams: frames in, events out, errors final."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from silverfold.conf.errors import LocalProtocolError, ProtocolError, RemoteProtocolError, StatementRefused, WireError
from silverfold.connectors.sqlitecloud.protocol.frames import MAX_FRAME_BYTES, FrameCutter, RawFrame, parse
from silverfold.connectors.sqlitecloud.protocol.messages import (
    BadFrame,
    ConnectionEnded,
    Message,
    RequestRefused,
    ServerError,
)

_Event = TypeVar("_Event")
_TICKET: Final = b"|"
_OFFER: Final = re.compile(rb"(PAUTH [!-~]{36} )[!-~]{8,36}")
_REVEALING: Final = 8
"""Prefix of a secret, in letters, that reveals too much and is hidden."""
_SHORTEST: Final = 4
"""Shortest secret hidden in input that is not an error reply: shorter ones occur in any data."""


class Stream(ABC, Generic[_Event]):
    """Common base of both streams: frames in, events out, errors final.

    Args:
        max_frame_bytes: Longest frame to accept, as announced and after expansion.
        secrets: Secrets sent elsewhere that no event may repeat; those sent on this stream are added.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES, secrets: Iterable[str] = ()) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._cutter = FrameCutter(max_frame_bytes=max_frame_bytes)
        self._eof = self._ended = False
        self._error: WireError | ProtocolError | None = None
        self._secrets = tuple(secrets)

    @property
    def held(self) -> int:
        """Bytes received that are not yet part of an event: an incomplete frame, once all events are pulled."""
        return self._cutter.held

    def receive(self, chunk: bytes) -> None:
        """Add received bytes. Chunk boundaries carry no meaning."""
        self._cutter.receive(chunk)

    def receive_eof(self) -> None:
        """Record that no bytes follow: an incomplete frame becomes an error."""
        self._eof = True
        self._cutter.receive_eof()

    def next_event(self) -> _Event | BadFrame | ConnectionEnded | None:
        """Return the next event; None when more bytes are needed, and after `ConnectionEnded`.

        Raises:
            WireError: The error of an earlier `BadFrame`.
            ProtocolError: The error of an earlier `BadFrame`.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        raw = None
        try:
            raw = self._cutter.next_frame()
            if raw is not None:
                return self._take(raw)
        except (WireError, ProtocolError) as error:
            frame = (raw.octets if raw else b"") + self._cutter.left()
            shown = _redact(frame, (secret for secret in self._secrets if len(secret) >= _SHORTEST))
            self._error = error if shown == frame else _without_frame(error)
            return BadFrame(self._error, _without_ticket(shown))
        if not self._eof or self._ended:
            return None
        self._ended = True
        return ConnectionEnded()

    @abstractmethod
    def _take(self, raw: RawFrame) -> _Event:
        """Return the event of a frame in the current state. Raise WireError or ProtocolError."""

    def _parse(self, raw: RawFrame) -> Message:
        return parse(raw, max_frame_bytes=self._max_frame_bytes)

    def _refusal(self, message: ServerError, raw: RawFrame) -> RequestRefused:
        """Return the server's error without the secrets sent to it."""
        text = _redact(message.text.encode(), self._secrets).decode(errors="replace")  # a character may be cut in two
        offset = None if message.offset < 0 else message.offset
        error = StatementRefused(code=str(message.code), text=text, extended=message.extended, offset=offset)
        return RequestRefused(error, _redact(raw.octets, self._secrets))

    def _check_open(self) -> None:
        if self._error is not None or self._eof:
            raise LocalProtocolError("the connection is over")


def _without_frame(error: WireError | ProtocolError) -> ProtocolError:
    """Return an error that shows no part of a frame with a secret in it: those of the protocol never do."""
    if isinstance(error, ProtocolError):
        return error
    wrong = error.reason or error.error_class.lower()
    return RemoteProtocolError(f"what came is wrong ({wrong}) and has a secret: it is hidden", reason="repeats_secret")


def _redact(octets: bytes, secrets: Iterable[str]) -> bytes:
    """Return the bytes without secrets and prefixes of them, in any encoding a server may use."""
    for encoding in (found for secret in secrets if secret for found in _encodings(secret)):
        octets = _redact_one(octets, encoding.encode().lower())
    return _OFFER.sub(rb"\1(hidden)", octets)


def _redact_one(octets: bytes, secret: bytes) -> bytes:
    """Return the bytes with the secret, and prefixes from `_REVEALING` letters on, hidden in any letter case."""
    small, pieces, at = octets.lower(), [], 0
    while (found := small.find(secret[:_REVEALING], at)) >= 0:
        pieces += [octets[at:found], b"(hidden)"]
        both = zip(small[found:], secret, strict=False)
        at = found + sum(1 for _ in takewhile(lambda letters: letters[0] == letters[1], both))
    return b"".join([*pieces, octets[at:]])


def _encodings(secret: str) -> Iterator[str]:
    """Yield a secret verbatim, and in hexadecimal, base64, percent encoding and JSON escapes."""
    octets = secret.encode()
    yield from (secret, octets.hex(), quote(secret, safe=""), "".join(f"\\u{ord(letter):04x}" for letter in secret))
    yield from (encode(octets).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode))


def _without_ticket(octets: bytes) -> bytes:
    """Return the bytes, or only the header if they begin with a frame that contains a secret."""
    return octets[: octets.find(b" ") + 1 or 1] if octets.startswith(_TICKET) else octets
