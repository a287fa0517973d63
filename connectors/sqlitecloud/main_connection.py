"""Asks a server on the main connection of a session: one request at a time, each with its whole answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

from conf.errors import LocalProtocolError, RemoteProtocolError, SourceUnavailable
from connectors.sqlitecloud.event_reader import EventReader
from connectors.sqlitecloud.messages import (
    BadFrame,
    ChunkReceived,
    ChunksEnded,
    ConnectionEnded,
    EchoAsked,
    ListenAccepted,
    MainEvent,
    PubSubTicket,
    ReplyReceived,
    Request,
    RequestRefused,
    TicketReceived,
)
from connectors.sqlitecloud.protocol import MainState, MainStream
from connectors.transport import Connection

Answer: TypeAlias = ReplyReceived | ChunkReceived | ChunksEnded | TicketReceived | ListenAccepted

_OWED = (MainState.WAITING, MainState.CHUNKS)


class MainConnection:
    """The main connection. Any number of tasks may ask; each waits for its turn.

    What is left of an answer that nobody waits for any more is read, and dropped, before the next request is sent.
    """

    def __init__(self, connection: Connection, stream: MainStream, *, frame_timeout: float) -> None:
        self._connection, self._stream = connection, stream
        self._line: EventReader[MainEvent] = EventReader(connection, stream, frame_timeout=frame_timeout)
        self._turn = asyncio.Lock()
        self._holder: asyncio.Task[object] | None = None
        self.bad: BadFrame | None = None
        """What could not be read, once that ended the connection."""
        self.ticket: PubSubTicket | None = None
        """What a LISTEN was answered with, also where nobody waited for the answer any more."""

    async def answers(self, request: Request, patience: float | None) -> AsyncGenerator[Answer, None]:
        """Send a request and yield its answer: one event, or chunks and their end.

        Args:
            patience: Seconds in which the answer must begin, and go on; None waits for ever.

        Raises:
            StatementRefused: The server said no. The connection goes on.
            InvalidValue: The request cannot be written; nothing was sent.
            LocalProtocolError: This task is still reading another answer.
            SourceUnavailable, RemoteProtocolError, WireError: The connection is over; also when something has come that
                was not asked for, and would be taken for the answer.
        """
        async with self._my_turn():
            while self._stream.state in _OWED:
                await self._next(patience)
            self._check_nothing_came()
            await self._connection.send(self._stream.send(request))
            while self._stream.state in _OWED:
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
        """Return the next part of the answer. A text that the server wants back is sent, and is no part of it."""
        begun = time.monotonic()
        while isinstance(event := self._check(await self._line.next_event(patience)), EchoAsked):
            await self._connection.send(event.answer)
            if patience is not None and time.monotonic() - begun > patience:
                raise SourceUnavailable(f"no answer within {patience:g} s")
        return event

    def _check_nothing_came(self) -> None:
        for event in self._line.arrived():
            self._check(event)
        if self._stream.held:
            raise RemoteProtocolError("part of a frame came, but nothing was asked", reason="unexpected_frame")

    def _check(self, event: MainEvent) -> Answer | RequestRefused | EchoAsked:
        """Return an event that is part of an answer. Raises why the connection is over, if it tells that."""
        if isinstance(event, ConnectionEnded):
            raise SourceUnavailable("the server closed the main connection")
        if isinstance(event, BadFrame):
            self.bad = event
            raise broken(event)
        if isinstance(event, TicketReceived):
            self.ticket = event.ticket
        return event


def broken(event: BadFrame) -> RemoteProtocolError:
    """Return why a connection is over on which something came that cannot be read."""
    error = event.error
    return error if isinstance(error, RemoteProtocolError) else RemoteProtocolError(str(error))
