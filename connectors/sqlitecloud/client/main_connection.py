"""Requests on the main connection of a session: one at a time, each with its complete reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

from silverfold.conf.errors import LocalProtocolError, RemoteProtocolError, SourceUnavailable
from silverfold.connectors.common.transport import Connection
from silverfold.connectors.sqlitecloud.client.event_reader import EventReader
from silverfold.connectors.sqlitecloud.protocol.connection import MainState, MainStream
from silverfold.connectors.sqlitecloud.protocol.messages import (
    BadFrame,
    ChunkReceived,
    ChunksEnded,
    ConnectionEnded,
    EchoRequested,
    ListenAccepted,
    MainEvent,
    PubSubTicket,
    ReplyReceived,
    Request,
    RequestRefused,
    TicketReceived,
)

Answer: TypeAlias = ReplyReceived | ChunkReceived | ChunksEnded | TicketReceived | ListenAccepted

_REPLY_PENDING = (MainState.WAITING, MainState.CHUNKS)


class MainConnection:
    """The main connection. Any number of tasks may send requests; each waits for its turn.

    The unread rest of an abandoned reply is received and dropped before the next request is sent.
    """

    def __init__(self, connection: Connection, stream: MainStream, *, frame_timeout: float) -> None:
        self._connection, self._stream = connection, stream
        self._reader: EventReader[MainEvent] = EventReader(connection, stream, frame_timeout=frame_timeout)
        self._turn = asyncio.Lock()
        self._holder: asyncio.Task[object] | None = None
        self.bad: BadFrame | None = None
        """The unreadable input, once that has ended the connection."""
        self.ticket: PubSubTicket | None = None
        """The ticket from the reply to a LISTEN, stored even if its request was abandoned."""

    async def answers(self, request: Request, patience: float | None) -> AsyncGenerator[Answer, None]:
        """Send a request and yield its reply: one event, or chunks and their end.

        Args:
            patience: Seconds within which the reply must begin, and each further part must arrive; None waits forever.

        Raises:
            StatementRefused: The server refused the request. The connection remains usable.
            InvalidValue: The request cannot be encoded; nothing was sent.
            LocalProtocolError: This task is still reading another reply.
            SourceUnavailable, RemoteProtocolError, WireError: The connection is over; also if unrequested input has
                arrived, which would be taken for the reply.
        """
        async with self._my_turn():
            while self._stream.state in _REPLY_PENDING:
                await self._next(patience)
            self._check_nothing_arrived()
            await self._connection.send(self._stream.send(request))
            while self._stream.state in _REPLY_PENDING:
                event = await self._next(patience)
                if isinstance(event, RequestRefused):
                    raise event.error
                yield event

    @asynccontextmanager
    async def _my_turn(self) -> AsyncGenerator[None, None]:
        task = asyncio.current_task()
        if self._holder is not None and self._holder is task:
            raise LocalProtocolError("the answer to this task's last request is still being read")
        async with self._turn:
            self._holder = task
            try:
                yield
            finally:
                self._holder = None

    async def _next(self, patience: float | None) -> Answer | RequestRefused:
        """Return the next part of the reply. Echo requests are answered and skipped."""
        started = time.monotonic()
        while isinstance(event := self._check(await self._reader.next_event(patience)), EchoRequested):
            await self._connection.send(event.answer)
            if patience is not None and time.monotonic() - started > patience:
                raise SourceUnavailable(f"no answer within {patience:g} s")
        return event

    def _check_nothing_arrived(self) -> None:
        for event in self._reader.arrived():
            self._check(event)
        if self._stream.held:
            raise RemoteProtocolError("part of a frame came, but nothing was asked", reason="unexpected_frame")

    def _check(self, event: MainEvent) -> Answer | RequestRefused | EchoRequested:
        """Return an event that is part of a reply. Raise if it ends the connection."""
        if isinstance(event, ConnectionEnded):
            raise SourceUnavailable("the server closed the main connection")
        if isinstance(event, BadFrame):
            self.bad = event
            raise broken(event)
        if isinstance(event, TicketReceived):
            self.ticket = event.ticket
        return event


def broken(event: BadFrame) -> RemoteProtocolError:
    """Return the error for a connection that received unreadable input."""
    error = event.error
    return error if isinstance(error, RemoteProtocolError) else RemoteProtocolError(str(error))
