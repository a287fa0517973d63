"""The server's link over HTTP long polling: requests on many sockets, one connection.

A post hands over one event. Its request waits, in the order of arrival, until the application has taken the event
before::

    empty ──post: _deliver──▶ holds an event (_arrived is set) ──next_event──▶ empty (_taken is set)
      └──────────────┬────────────────────┘
                   _end ──▶ closed: both events are set; next_event returns the held event, then Closed

A poll takes what is queued for sending, or waits for it. Polls answer one at a time; the newest waits::

    waiting ──a message is queued, or poll_wait is over──▶ answering ──sent──▶ answered (_answered is set)
      │                                                       └──not sent──▶ its messages are queued again, in front
      ├──a newer poll: _superseded──▶ answering, with no messages
      └──_end, or its socket ends──▶ over, without an answer

A poll that wants no messages shows that the client is there: it is answered at once, and changes nothing of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import OversizedMessage, SourceUnavailable
from silverfold.connectors.common.transport import Connection as Socket
from silverfold.connectors.tengi.protocol.connection import ServerConnection, State
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, MessageReceived, Peer, PollReceived
from silverfold.connectors.tengi.protocol.values import Identifier
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.link import Link, LinkEvent
from silverfold.connectors.tengi.transports.requests import encode_answer

_ENVELOPE: Final = 47
"""Bytes of an answer that has no messages."""
_MAX_POSTS: Final = 16
"""Most posts of one connection that wait at a time."""


class ServerPollingLink(Link):
    """A server's connection over HTTP. It expires if no request comes, or is served, for ``expire_after`` seconds.

    Args:
        forget: Called with the link at its end. No request may be handed to it any more.
    """

    def __init__(
        self,
        protocol: ServerConnection,
        settings: Configuration,
        *,
        peer_address: str,
        log: FilteringBoundLogger,
        forget: Callable[[ServerPollingLink], object],
    ) -> None:
        super().__init__(protocol, settings, peer_address=peer_address, log=log)
        self._server, self._forget = protocol, forget
        self._event: LinkEvent | None = None
        """A queue of one. `asyncio.Queue` would not do: its `shutdown`, which wakes both sides, is of Python 3.13."""
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._turn = asyncio.Lock()
        """Of the posts: the lock is fair, so events keep the order of their requests."""
        self._posts = 0
        """Posts that wait, the one whose turn it is included."""
        self._answering = asyncio.Lock()
        """Held while messages are taken and written, so that a second poll cannot overtake them."""
        self._superseded: asyncio.Event | None = None
        """Ends the wait of the newest poll."""
        self._answered = asyncio.Event()
        """Set by each answer, for `close`, which waits until nothing is queued."""
        self._closed: Closed | None = None
        self._served: set[Socket] = set()
        """Of the requests that are being served."""
        self._served_until = self.last_received
        self._expiry = asyncio.get_running_loop().call_later(settings.expire_after, self._expire)

    async def next_event(self) -> LinkEvent:
        """See `Link.next_event`."""
        await self._arrived.wait()
        event, self._event = self._event, None
        if event is None:
            assert self._closed is not None
            return self._closed
        if self._closed is None:
            self._arrived.clear()
        self._taken.set()
        return event

    async def serve(self, body: bytes, socket: Socket, *, wants_messages: bool = True) -> HTTPStatus | None:
        """Serve the body of a request. Return the status to answer with; None if it was a poll, which is answered.

        Args:
            wants_messages: Whether a poll waits for messages and takes them.

        Raises:
            RemoteProtocolError: The packet is not allowed. The connection has ended.
        """
        self._received()
        self._served.add(socket)
        try:
            return await self._serve(body, socket, wants_messages=wants_messages)
        finally:
            self._served.remove(socket)
            self._served_until = asyncio.get_running_loop().time()

    async def _serve(self, body: bytes, socket: Socket, *, wants_messages: bool) -> HTTPStatus | None:
        self._server.receive(body)
        try:
            event = self._server.next_event()
        finally:
            self._end_after_violation()
        if isinstance(event, PollReceived):
            await (self._answer(socket) if wants_messages else self._answer_without_messages(socket))
            return None
        assert isinstance(event, MessageReceived | BadFrame)
        if self._posts >= _MAX_POSTS:
            return HTTPStatus.SERVICE_UNAVAILABLE
        self._posts += 1
        try:
            await self._deliver(event)
        finally:
            self._posts -= 1
        return HTTPStatus.NO_CONTENT if isinstance(event, MessageReceived) else HTTPStatus.BAD_REQUEST

    async def close(self) -> None:
        """See `Link.close`."""
        self._outbox.close()
        try:
            async with asyncio.timeout(self._settings.close_timeout):
                while len(self._outbox) and self._closed is None:
                    self._answered.clear()
                    await self._answered.wait()
                async with self._answering:
                    pass
        except TimeoutError:
            self._log.warning("messages_dropped", count=len(self._outbox))
        await self.abort()

    async def abort(self) -> None:
        """See `Link.abort`."""
        self._end("closed")

    def _outgoing(self, message: bytes) -> bytes:
        self._server.send_encoded(message)
        size, limit = _ENVELOPE + len(message), self._settings.max_poll_answer
        if self._settings.peer is Peer.JAVA and size > limit:
            raise OversizedMessage(f"an answer of {size} bytes, {limit} are allowed", reason="too_large")
        return message

    async def _deliver(self, event: LinkEvent) -> None:
        async with self._turn:
            while self._event is not None and self._closed is None:
                self._taken.clear()
                await self._taken.wait()
            if self._closed is not None:
                raise SourceUnavailable("the connection has ended")
            self._event = event
            self._arrived.set()

    async def _answer(self, socket: Socket) -> None:
        """Answer a poll with the messages that are queued now or in time. A later poll ends this one."""
        if self._superseded is not None:
            self._superseded.set()
        superseded = self._superseded = asyncio.Event()
        await self._wait_for_messages(socket, superseded)
        async with self._answering:
            if self._closed is not None or socket.ended.done():
                return
            taken = [] if superseded.is_set() else self._outbox.take(self._settings.max_poll_answer - _ENVELOPE)
            try:
                answer = self._server.send_poll_answer(Identifier.random(), taken)
                await socket.send(encode_answer(HTTPStatus.OK, answer))
                is_sent = await socket.end_writing(self._settings.request_timeout)
            except BaseException:
                self._outbox.put_back(taken)
                raise
            if not is_sent:
                self._outbox.put_back(taken)
        self._answered.set()
        await socket.finish(self._settings.close_timeout)

    async def _answer_without_messages(self, socket: Socket) -> None:
        await socket.send(encode_answer(HTTPStatus.OK, self._server.send_poll_answer(Identifier.random(), [])))
        await socket.finish(self._settings.close_timeout)

    async def _wait_for_messages(self, socket: Socket, superseded: asyncio.Event) -> None:
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(each) for each in (self._outbox.filled(), superseded.wait())
        ]
        try:
            await asyncio.wait(
                [*tasks, socket.ended], timeout=self._settings.poll_wait, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in tasks:
                each.cancel()

    def _end_after_violation(self) -> None:
        if self._server.state is State.CLOSED:
            self._end("the client violated the protocol")

    def _expire(self) -> None:
        loop, after = asyncio.get_running_loop(), self._settings.expire_after
        is_served = any(not each.ended.done() for each in self._served)
        due = (loop.time() if is_served else max(self.last_received, self._served_until)) + after
        if loop.time() < due:
            self._expiry = loop.call_at(due, self._expire)
            return
        reason = f"no request came for {after:g} s"
        if count := len(self._outbox):
            self._log.warning("messages_dropped", connection=str(self.connection_id), count=count, reason=reason)
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self._closed is not None:
            return
        self._closed = Closed(reason, is_ours=True)
        self._expiry.cancel()
        self._outbox.close(drop=True)
        for each in (self._arrived, self._taken, self._answered, self._superseded):
            if each is not None:
                each.set()
        self._forget(self)
