"""HTTP/1.1 without a socket, as far as tengi needs it: heads, and bodies of an announced length.

Written by hand: libraries refuse requests without Host, and Java's client sends such. A head has at most `MAX_HEAD`
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from silverfold.conf.errors import RemoteProtocolError

MAX_HEAD: Final = 8 << 10
CONTENT_TYPE: Final = "application/tengi"
CHANNEL: Final = "/channel"
"""Path of long polling."""
SOCKET: Final = "/wss"
"""Path of WebSocket."""
_DIGITS: Final = 15
"""Most digits of a length: Python refuses to read thousands."""


class Head(NamedTuple):
    """The start line, and the headers by name in lower case."""

    start: tuple[str, str, str]
    """Method, path and version of a request; version, status and text of an answer."""
    headers: Mapping[str, str]

    @property
    def status(self) -> int:
        """Status of an answer. Raises RemoteProtocolError if it is no number of three digits."""
        if not (self.start[1].isascii() and self.start[1].isdigit() and len(self.start[1]) == 3):
            raise _bad("no status")
        return int(self.start[1])

    @property
    def content_length(self) -> int | None:
        """Announced length of the body; None without one. Raises RemoteProtocolError if it is invalid, or chunked."""
        text = self.headers.get("content-length")
        if "transfer-encoding" in self.headers:
            raise _bad("a transfer encoding, such as of a proxy: a content-length is needed instead")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            raise _bad("a length that is no number")
        if len(text) > _DIGITS:
            raise _bad(f"a length of more than {_DIGITS} digits")
        return int(text)

    @property
    def is_upgrade(self) -> bool:
        """Whether it requests or grants an upgrade to WebSocket."""
        return self.headers.get("upgrade", "").lower() == "websocket"

    @property
    def prefers_minimal(self) -> bool:
        """Whether a request prefers an answer without content: RFC 7240, section 4.2."""
        return "return=minimal" in (each.strip().lower() for each in self.headers.get("prefer", "").split(","))

    @property
    def closes(self) -> bool:
        """Whether the connection ends after this exchange."""
        return self.headers.get("connection", "").lower() == "close"


class HttpReader:
    """Reads heads and bodies. Feed with `receive`. The caller bounds the bodies."""

    def __init__(self, octets: bytes = b"") -> None:
        self._octets = bytearray(octets)

    @property
    def held(self) -> int:
        """Number of bytes received but not taken."""
        return len(self._octets)

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they arrived."""
        self._octets += chunk

    def next_head(self) -> Head | None:
        """Return the next head; None if more bytes are needed. Raises RemoteProtocolError."""
        end = self._octets.find(b"\r\n\r\n", 0, MAX_HEAD)
        if end < 0:
            if len(self._octets) >= MAX_HEAD:
                raise _bad(f"a head of more than {MAX_HEAD} bytes")
            return None
        start, *lines = self.take(end + 4)[:-4].decode("latin-1").split("\r\n")
        parts = start.split(" ", 2)
        if len(parts) < 3 and not start.startswith("HTTP/"):
            raise _bad("no start line")
        return Head((parts[0], parts[1] if len(parts) > 1 else "", parts[2] if len(parts) > 2 else ""), _headers(lines))

    def peek(self, size: int) -> bytes:
        """Return up to so many bytes without taking them."""
        return bytes(self._octets[:size])

    def take(self, size: int) -> bytes:
        """Take up to so many bytes."""
        taken = bytes(self._octets[:size])
        del self._octets[:size]
        return taken


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip():
            raise _bad("a line that is no header")
        if name == "content-length" and headers.get(name, text.strip()) != text.strip():
            raise _bad("two lengths")
        headers[name] = text.strip()
    return headers


def request_error(head: Head, *, max_body: int) -> HTTPStatus | None:
    """Return the status that refuses a request without a packet, as Java's server does; None if it has a packet."""
    if head.start[0] != "POST":
        return HTTPStatus.METHOD_NOT_ALLOWED
    if head.start[1] != CHANNEL:
        return HTTPStatus.FORBIDDEN
    if head.headers.get("content-type") != CONTENT_TYPE:
        return HTTPStatus.NOT_ACCEPTABLE
    if "transfer-encoding" in head.headers or head.content_length is None:
        return HTTPStatus.LENGTH_REQUIRED
    return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if head.content_length > max_body else None


def encode_post(body: bytes, *, host: str, closes: bool, prefers_minimal: bool = False) -> bytes:
    """Return the request that carries a packet."""
    lines = [
        f"POST {CHANNEL} HTTP/1.1",
        f"Host: {host}",
        f"Content-Type: {CONTENT_TYPE}",
        f"Content-Length: {len(body)}",
        *(["Prefer: return=minimal"] if prefers_minimal else []),
        *(["Connection: close"] if closes else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def encode_answer(status: HTTPStatus, body: bytes = b"", *, closes: bool = True) -> bytes:
    """Return an answer. With 200 the body is a packet."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    if status is HTTPStatus.OK:
        lines.append(f"content-type: {CONTENT_TYPE}")
    if status is not HTTPStatus.NO_CONTENT:
        lines.append(f"content-length: {len(body)}")
    if closes:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _bad(detail: str) -> RemoteProtocolError:
    return RemoteProtocolError(detail, reason="bad_http")
