"""What the two connections of a session have in common: frames in, events out, and errors that are final."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from conf.errors import LocalProtocolError, ProtocolError, RemoteProtocolError, StatementRefused, WireError
from connectors.sqlitecloud.frames import MAX_FRAME_BYTES, FrameCutter, RawFrame, parse
from connectors.sqlitecloud.messages import BadFrame, ConnectionEnded, Message, RequestRefused, ServerError

_Event = TypeVar("_Event")
_TICKET: Final = b"|"
_OFFER: Final = re.compile(rb"(PAUTH [!-~]{36} )[!-~]{8,36}")
_TELLING: Final = 8
"""Letters of a secret that tell too much of it."""
_SHORTEST: Final = 4
"""Letters of a secret that is looked for in what is no answer: a shorter one is in anything."""


class Stream(ABC, Generic[_Event]):
    """What both connections have in common: frames in, events out, errors final.

    Args:
        max_frame_bytes: Longest frame to accept, as announced and as expanded.
        secrets: What the server was told elsewhere, and no event is to repeat; what it is told here comes to it.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES, secrets: Iterable[str] = ()) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._cutter = FrameCutter(max_frame_bytes=max_frame_bytes)
        self._eof = self._ended = False
        self._error: WireError | ProtocolError | None = None
        self._secrets = tuple(secrets)

    @property
    def held(self) -> int:
        """Bytes received that are not part of an event yet: the beginning of a frame, once all events are pulled."""
        return self._cutter.held

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived. Chunk boundaries carry no meaning."""
        self._cutter.receive(chunk)

    def receive_eof(self) -> None:
        """Take note that no bytes follow: part of a frame is wrong then."""
        self._eof = True
        self._cutter.receive_eof()

    def next_event(self) -> _Event | BadFrame | ConnectionEnded | None:
        """Return what comes next; None when more bytes are needed, and after `ConnectionEnded`.

        Raises:
            WireError: As `BadFrame` told before.
            ProtocolError: As `BadFrame` told before.
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
            shown = _hidden(frame, (secret for secret in self._secrets if len(secret) >= _SHORTEST))
            hidden = RemoteProtocolError("what came repeats a secret, and is not shown", reason="repeats_secret")
            self._error = error if shown == frame else hidden  # an error may show a part of the frame
            return BadFrame(self._error, _without_ticket(shown))
        if not self._eof or self._ended:
            return None
        self._ended = True
        return ConnectionEnded()

    @abstractmethod
    def _take(self, raw: RawFrame) -> _Event:
        """Return what a frame means now. Raises WireError or ProtocolError."""

    def _parse(self, raw: RawFrame) -> Message:
        return parse(raw, max_frame_bytes=self._max_frame_bytes)

    def _refusal(self, message: ServerError, raw: RawFrame) -> RequestRefused:
        """Return what the server said, without the secrets that it was sent."""
        text = _hidden(message.text.encode(), self._secrets).decode(errors="replace")  # a letter may be cut in two
        offset = None if message.offset < 0 else message.offset
        error = StatementRefused(code=str(message.code), text=text, extended=message.extended, offset=offset)
        return RequestRefused(error, _hidden(raw.octets, self._secrets))

    def _check_open(self) -> None:
        if self._error is not None or self._eof:
            raise LocalProtocolError("the connection is over")


def _hidden(octets: bytes, secrets: Iterable[str]) -> bytes:
    """Return the bytes without secrets, and their beginnings, however a server may have written them."""
    for spelling in (found for secret in secrets if secret for found in _spellings(secret)):
        octets = _without(octets, spelling.encode().lower())
    return _OFFER.sub(rb"\1(hidden)", octets)


def _without(octets: bytes, secret: bytes) -> bytes:
    """Return the bytes with what begins as a secret, in any letter case, hidden as far as it is the secret."""
    small, kept, at = octets.lower(), [], 0
    while (found := small.find(secret[:_TELLING], at)) >= 0:
        kept += [octets[at:found], b"(hidden)"]
        both = zip(small[found:], secret, strict=False)
        at = found + sum(1 for _ in takewhile(lambda letters: letters[0] == letters[1], both))
    return b"".join([*kept, octets[at:]])


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as a server might write it: in hexadecimal, base64, percent signs, by escapes."""
    octets = secret.encode()
    yield from (secret, octets.hex(), quote(secret, safe=""), "".join(f"\\u{ord(letter):04x}" for letter in secret))
    yield from (encode(octets).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode))


def _without_ticket(octets: bytes) -> bytes:
    """Return the bytes, or only the header where they begin with a frame that holds a secret."""
    return octets[: octets.find(b" ") + 1 or 1] if octets.startswith(_TICKET) else octets
