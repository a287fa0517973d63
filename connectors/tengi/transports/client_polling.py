"""The client's link over HTTP long polling: one task polls while events are wanted, another posts queued packets.

There is one poll at a time. A sent poll is only abandoned at the end, for the server empties its queue to answer it.

While no events are wanted, a third task shows that the client is there, or the server would take it for gone: it polls
with the preference for no messages. A server that does not know the preference may answer with messages. They wait, and
until they are taken, there is no other such poll: what is read ahead is bounded.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceUnavailable
from silverfold.connectors.common.transport import Address, Connection, connect
from silverfold.connectors.tengi.protocol.connection import ClientConnection
from silverfold.connectors.tengi.protocol.events import (
    BadFrame,
    Closed,
    HandshakeReceived,
    MessageReceived,
    Peer,
    PollAnswered,
)
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.exchanges import read_answer
from silverfold.connectors.tengi.transports.link import Link, LinkEvent, cancel_and_wait, closed_early
from silverfold.connectors.tengi.transports.requests import CONTENT_TYPE, MAX_HEAD, Head, encode_post

_CLOSED: Final = Closed("end of the connection")
_SHORTEST_POLL: Final = 0.1
"""Least seconds between polls that bring no message, or want none: some servers answer at once."""


class ClientPollingLink(Link):
    """A client's connection over HTTP.

    Args:
        tls: Context for encryption; None for plain text.
    """

    def __init__(
        self,
        address: Address,
        tls: ssl.SSLContext | None,
        protocol: ClientConnection,
        settings: Configuration,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        super().__init__(protocol, settings, peer_address=str(address), log=log)
        self._address, self._tls, self._client = address, tls, protocol
        self._is_java = settings.peer is Peer.JAVA
        self._events: deque[LinkEvent] = deque()
        self._polling: asyncio.Task[None] | None = None
        self._posting: asyncio.Task[None] | None = None
        self._showing: asyncio.Task[None] | None = None
        self._is_ahead = False
        """Whether the last poll brought events that nobody wanted yet."""
        self._post_socket: Connection | None = None
        self._has_ended = False

    async def shake_hands(self, handshake: bytes) -> None:
        """Exchange handshakes: post ours, and take the answer.

        Raises:
            SourceUnavailable: The server cannot be reached, or closed the connection without a handshake.
            RemoteProtocolError, WireError: The answer is no handshake.
        """
        body = await self._exchange(handshake)
        if body is None:
            raise closed_early(self.peer_address)
        self._client.receive(body)
        event = self._client.next_event()
        if not isinstance(event, HandshakeReceived):
            raise getattr(event, "error", RemoteProtocolError("the answer is no handshake", reason="no_handshake"))
        self.handshake = event.values

    def start(self) -> None:
        """Start posting queued packets, after the handshakes."""
        self._posting = asyncio.create_task(self._post_queued())
        self._showing = asyncio.create_task(self._show_presence())

    async def next_event(self) -> LinkEvent:
        """See `Link.next_event`."""
        while not self._events:
            if self._has_ended or self._posting is None:
                return _CLOSED
            if self._polling is None:
                self._polling = asyncio.create_task(self._poll())
            await asyncio.wait([self._polling, self._posting], return_when=asyncio.FIRST_COMPLETED)
            if not self._events:  # else an error comes behind them
                self._check_tasks(self._polling, self._posting)
        return self._events.popleft()

    def _check_tasks(self, polling: asyncio.Task[None], posting: asyncio.Task[None]) -> None:
        """Take the results of the tasks that have ended. Raise their error."""
        try:
            if polling.done():
                self._polling = None
                if not polling.cancelled():
                    polling.result()
            if posting.done():
                self._has_ended = True
                if not posting.cancelled():
                    posting.result()
        except SilverfoldError:
            self._end()
            raise

    async def close(self) -> None:
        """See `Link.close`."""
        self._outbox.close()
        if self._posting is not None and not self._posting.done():
            await asyncio.wait([self._posting], timeout=self._settings.close_timeout)
        await self.abort()

    async def abort(self) -> None:
        """See `Link.abort`."""
        self._end()
        tasks = [each for each in (self._polling, self._posting, self._showing) if each is not None]
        await cancel_and_wait(*tasks)
        for each in tasks:
            if not each.cancelled():
                each.exception()  # retrieved: nobody asks for it any more
        if self._post_socket is not None:
            await self._post_socket.close()

    def _outgoing(self, message: bytes) -> bytes:
        return self._client.send_encoded(message)

    def _end(self) -> None:
        self._has_ended = True
        self._outbox.close(drop=True)

    async def _show_presence(self) -> None:
        while not self._has_ended:
            await asyncio.sleep(max(self._settings.presence_interval, _SHORTEST_POLL))
            polling = self._polling
            is_idle = polling is None or (polling.done() and not polling.cancelled() and polling.exception() is None)
            if is_idle and not self._is_ahead and not self._has_ended:
                self._polling = asyncio.create_task(self._poll(wants_messages=False))

    async def _poll(self, *, wants_messages: bool = True) -> None:
        again_at = asyncio.get_running_loop().time() + _SHORTEST_POLL
        body = await self._exchange(self._client.send_poll(), prefers_minimal=not wants_messages)
        if body is None:
            raise SourceUnavailable("the server closed the connection without an answer to a poll")
        self._received()
        self._client.receive(body)
        event = self._client.next_event()
        if isinstance(event, BadFrame):  # whoever gives no answer to a poll would give none to the next
            self._events.append(event)
            raise event.error
        held = len(self._events)
        while event is not None:
            if isinstance(event, PollAnswered):
                self._events += event.messages
            else:
                self._events.append(event)  # type: ignore[arg-type]  # a bad frame: handshakes and polls are over
            event = self._client.next_event()
        self._is_ahead = not wants_messages and len(self._events) > held
        if wants_messages and not any(isinstance(each, MessageReceived) for each in self._events):
            await asyncio.sleep(again_at - asyncio.get_running_loop().time())

    async def _post_queued(self) -> None:
        while True:
            await self._outbox.filled()
            packets = self._outbox.take(0)
            if not packets:
                return
            try:
                await self._post(packets[0])
            except SilverfoldError:
                self._outbox.close(drop=True)
                raise

    async def _post(self, packet: bytes) -> None:
        """Post a packet. The answer 204 means that it was taken; Java gives none.

        A busy server may take long, as over TCP. The polls notice meanwhile if it is gone.

        Raises:
            SourceUnavailable: The server, or a proxy, closed the connection without an answer.
            RemoteProtocolError: Another answer.
        """
        socket = self._post_socket
        if socket is None or socket.ended.done():
            if socket is not None:
                await socket.close()
            socket = self._post_socket = await self._connect()
        await socket.send(encode_post(packet, host=str(self._address), closes=self._is_java))
        if self._is_java:
            self._post_socket = None
            await socket.finish(self._settings.close_timeout)
            return
        head, _ = await self._read_answer(socket, MAX_HEAD) or (None, b"")
        if head is None:
            raise SourceUnavailable(
                'the connection ended under a post, which may be lost; Java answers none: for it, peer is "java"'
            )
        if head.status != HTTPStatus.NO_CONTENT:
            raise RemoteProtocolError(f"status {head.status} to a post", reason="bad_status")
        if head.closes:
            self._post_socket = None
            await socket.close()

    async def _connect(self) -> Connection:
        return await connect(self._address, timeout=self._settings.connect_timeout, tls=self._tls)

    async def _exchange(self, packet: bytes, *, prefers_minimal: bool = False) -> bytes | None:
        """Return the body of the answer to a handshake or a poll; None if the server closed without one."""
        socket = await self._connect()
        try:
            async with asyncio.timeout(self._settings.request_timeout) as limit:

                def received() -> None:
                    self._received()
                    limit.reschedule(self.last_received + self._settings.request_timeout)

                post = encode_post(packet, host=str(self._address), closes=True, prefers_minimal=prefers_minimal)
                await socket.send(post)
                answer = await self._read_answer(socket, self._settings.max_answer, received)
        except TimeoutError:
            raise SourceUnavailable("no answer to a request in time") from None
        finally:
            await socket.close()
        if answer is None:
            return None
        head, body = answer
        if head.status != HTTPStatus.OK or head.headers.get("content-type") != CONTENT_TYPE:
            detail = f"status {head.status} with content of {head.headers.get('content-type', 'no type')!r}"
            ended = (
                ": it does not know the connection, which may have ended there"
                if head.status == HTTPStatus.FORBIDDEN
                else ""
            )
            raise RemoteProtocolError(f"{self.peer_address} answers with {detail}{ended}", reason="bad_status")
        if not body:
            found = "no content-length" if head.content_length is None else "a content-length of 0"
            detail = f"{self.peer_address} answers with status 200 and {found}, where a packet and its length are due"
            raise RemoteProtocolError(f"{detail}: a proxy may answer in its place", reason="no_packet")
        return body

    async def _read_answer(
        self, socket: Connection, max_body: int, received: Callable[[], None] = lambda: None
    ) -> tuple[Head, bytes] | None:
        """Read an answer as `exchanges.read_answer`; its errors of HTTP name the server."""
        try:
            return await read_answer(socket, max_body, received)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self.peer_address}: {error.detail}", reason=error.reason) from error
