"""The client's side of a session, without a socket: one object for each of its two connections.

Feed with ``receive``, pull with ``next_event`` until it returns None. They are separate so that a bad frame never costs
the good ones before it. Events do not depend on chunk boundaries. A violation yields one `BadFrame` and is final: every
later ``next_event`` raises its error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn

from silverfold.conf.errors import InvalidValue, LocalProtocolError, RemoteProtocolError
from silverfold.connectors.sqlitecloud.protocol.encode import encode_statement, encode_text
from silverfold.connectors.sqlitecloud.protocol.frames import MAX_FRAME_BYTES, RawFrame
from silverfold.connectors.sqlitecloud.protocol.messages import (
    Array,
    ChunkReceived,
    ChunksEnd,
    ChunksEnded,
    Command,
    EchoRequested,
    JsonText,
    Listen,
    ListenAccepted,
    Login,
    MainEvent,
    Message,
    Notification,
    PauthAccepted,
    PubSubEvent,
    PubSubOffer,
    PubSubTicket,
    Reconnect,
    ReplyReceived,
    Request,
    Rowset,
    RowsetChunk,
    ServerError,
    Single,
    Statement,
    TicketReceived,
)
from silverfold.connectors.sqlitecloud.protocol.streams import Stream

_PAUTH: Final = re.compile(rb"PAUTH ([!-~]{36}) ([!-~]{36})")
_NOTIFICATIONS: Final = frozenset("#+!")


class MainState(Enum):
    """The state of the main connection: what it expects next."""

    LOGIN = auto()
    """Our first request, a `Login`."""
    READY = auto()
    """Our next request. No input may arrive."""
    WAITING = auto()
    """The reply."""
    CHUNKS = auto()
    """The rest of the reply."""
    REFUSED = auto()
    """Nothing: the server refused the login."""


class MainStream(Stream[MainEvent]):
    """The connection that takes requests, one at a time."""

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        super().__init__(max_frame_bytes=max_frame_bytes)
        self._state = MainState.LOGIN
        self._request: Request = Statement("")
        self._has_ticket = False
        self._last: _ChunkHeader | None = None

    @property
    def state(self) -> MainState:
        """The state of the connection."""
        return self._state

    def send(self, request: Request) -> bytes:
        """Return the bytes of a request.

        Raises:
            LocalProtocolError: The first request is not a `Login`, or a later one is; the last one is not answered yet;
                the connection is over.
            InvalidValue: The request cannot be encoded, such as a text with a NUL. The state is unchanged.
        """
        self._check_open()
        expected = MainState.LOGIN if isinstance(request, Login) else MainState.READY
        if self._state is not expected:
            raise LocalProtocolError(f"a {type(request).__name__} cannot be sent in the state {self._state.name}")
        octets = _encode(request)
        self._state, self._request = MainState.WAITING, request
        self._secrets += tuple(request.secrets) if isinstance(request, Login) else ()
        return octets

    def _take(self, raw: RawFrame) -> MainEvent:
        if self._state not in (MainState.WAITING, MainState.CHUNKS):
            _unexpected(raw, "nothing was asked")
        message = self._parse(raw)
        if isinstance(message, Reconnect):
            raise RemoteProtocolError("the server wants us to connect elsewhere", reason="reconnect")
        if isinstance(message, ServerError):
            return self._refused(message, raw)
        if self._state is MainState.CHUNKS:
            return self._chunk(message, raw)
        if isinstance(self._request, Login):
            return self._login_reply(message, raw)
        if isinstance(message, Command):
            return EchoRequested(encode_text(message.octets), raw.octets)
        return self._listen_reply(message, raw) if isinstance(self._request, Listen) else self._reply(message, raw)

    def _refused(self, message: ServerError, raw: RawFrame) -> MainEvent:
        self._state, self._last = MainState.REFUSED if isinstance(self._request, Login) else MainState.READY, None
        return self._refusal(message, raw)

    def _login_reply(self, message: Message, raw: RawFrame) -> MainEvent:
        if not (isinstance(message, Single) and message.is_ok):
            _unexpected(raw, "a login is answered with OK or an error")
        self._state = MainState.READY
        return ReplyReceived(message, raw.octets)

    def _listen_reply(self, message: Message, raw: RawFrame) -> MainEvent:
        offered = isinstance(message, PubSubOffer)
        if not offered and not (self._has_ticket and isinstance(message, Single) and message.is_ok):
            _unexpected(raw, "the first LISTEN is answered with PAUTH or an error, a later one also with OK")
        ticket = None if self._has_ticket else _ticket(message)
        event = ListenAccepted() if ticket is None else TicketReceived(ticket)
        self._secrets += () if ticket is None else (ticket.secret,)
        self._state, self._has_ticket = MainState.READY, True
        return event

    def _reply(self, message: Message, raw: RawFrame) -> MainEvent:
        if isinstance(message, RowsetChunk | ChunksEnd):
            return self._chunk(message, raw)
        if not isinstance(message, Single | JsonText | Array | Rowset):
            _unexpected(raw, "this is no answer to a statement")
        self._state = MainState.READY
        return ReplyReceived(message, raw.octets)

    def _chunk(self, message: Message, raw: RawFrame) -> MainEvent:
        last, self._state = self._last, MainState.CHUNKS
        if isinstance(message, ChunksEnd) and last is not None:
            self._state, self._last = MainState.READY, None
            return ChunksEnded(raw.octets)
        expected = (0 if last is None else last.number) + 1
        if not isinstance(message, RowsetChunk) or message.index != expected:
            raise RemoteProtocolError(f"a frame {raw.kind} comes instead of chunk {expected}", reason="chunk_order")
        header = _ChunkHeader(message.index, message.width)
        if last is not None and header.width != last.width:
            raise RemoteProtocolError(f"chunk {expected} has other columns than the first", reason="chunk_order")
        self._last = header
        return ChunkReceived(message, raw.octets)


class PubSubStream(Stream[PubSubEvent]):
    """The connection that delivers notifications. Its only request is the ticket from the first LISTEN."""

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES, secrets: Iterable[str] = ()) -> None:
        super().__init__(max_frame_bytes=max_frame_bytes, secrets=secrets)
        self._ticket: PubSubTicket | None = None
        self._refused = self._accepted = False

    def send(self, request: PubSubTicket) -> bytes:
        """Return the bytes that open the stream. Raise LocalProtocolError if it was opened before, or is over."""
        self._check_open()
        if self._ticket is not None:
            raise LocalProtocolError("the pub/sub connection takes one request")
        self._ticket = request
        self._secrets += (request.secret,)
        return encode_text(request.command)

    def _take(self, raw: RawFrame) -> PubSubEvent:
        if self._accepted:
            return _notification(raw)
        if self._ticket is None or self._refused:
            _unexpected(raw, "nothing was asked")
        message = self._parse(raw)
        if isinstance(message, ServerError):
            self._refused = True
            return self._refusal(message, raw)
        if not (isinstance(message, Single) and message.is_ok):
            _unexpected(raw, "PAUTH is answered with OK or an error")
        self._accepted = True
        return PauthAccepted(raw.octets)


class _ChunkHeader(NamedTuple):
    """The last chunk's position and width, which the next one must continue. The first alone has names to version."""

    number: int
    width: int


def _notification(raw: RawFrame) -> Notification:
    if raw.kind not in _NOTIFICATIONS:
        _unexpected(raw, "only notifications may come")
    if raw.kind == "!" and not raw.octets.endswith(b"\0"):
        raise InvalidValue("a zero-terminated text does not end with a zero byte", reason="missing_nul")
    end = len(raw.octets) - (raw.kind == "!")
    return Notification(raw.octets[raw.body : end], raw.octets)


def _ticket(message: Message) -> PubSubTicket:
    """Parse the ticket for the second connection: nothing else is ever sent there."""
    found = _PAUTH.fullmatch(message.octets) if isinstance(message, PubSubOffer) else None
    if found is None:
        raise RemoteProtocolError(
            "the answer to LISTEN is not PAUTH and two words of 36 characters", reason="bad_pauth"
        )
    return PubSubTicket(found[1].decode(), found[2].decode())


def _encode(request: Request) -> bytes:
    if isinstance(request, Login):
        return encode_text(request.text)
    return encode_statement(request.statement if isinstance(request, Listen) else request)


def _unexpected(raw: RawFrame, why: str) -> NoReturn:
    raise RemoteProtocolError(f"a frame {raw.kind} came, but {why}", reason="unexpected_frame")
