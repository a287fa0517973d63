"""A session with a server: the main connection, the second one for notifications, and what ends both.

The end of either connection is the end of the session: the other one is closed, and whoever asks or hears from then on
is told why. What had arrived before is handed out first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from conf.errors import LocalProtocolError, RemoteProtocolError, SilverfoldError, SourceUnavailable, StatementRefused
from connectors.sqlitecloud.main_connection import Answer, MainConnection
from connectors.sqlitecloud.messages import (
    BadFrame,
    Listen,
    Notification,
    PubSubTicket,
    Request,
    Statement,
)
from connectors.sqlitecloud.protocol import MainStream, PubSubStream
from connectors.sqlitecloud.pubsub_connection import PubSubConnection
from connectors.sqlitecloud.settings import ConnectionSettings
from connectors.sqlitecloud.tls import tls_context
from connectors.transport import Address, Connection, connect

_OVER = (SourceUnavailable, RemoteProtocolError)


class Session:
    """One session.

    Args:
        max_frame_bytes: Longest frame to accept, as announced and as expanded.
        frame_timeout: Seconds within which a frame that has begun must be there.
    """

    def __init__(self, settings: ConnectionSettings, *, max_frame_bytes: int, frame_timeout: float) -> None:
        self._settings, self._max_frame_bytes, self._frame_timeout = settings, max_frame_bytes, frame_timeout
        self._tls = None if settings.tls is None else tls_context(settings.tls)
        self._main: Connection | None = None
        self._asking: MainConnection | None = None
        self._hearing: PubSubConnection | None = None
        self.uuid: str | None = None
        """The session's own name, known once it listens."""
        self._opening = asyncio.Lock()
        self._pubsub_only = False
        self._lost: SilverfoldError | None = None

    async def open(self) -> None:
        """Connect, and log in.

        Raises:
            SourceUnavailable, RemoteProtocolError: There is no server, or none that answers.
            UntrustedSource: Its certificate is not one to trust.
            StatementRefused: It does not accept the login.
        """
        self._main = await self._connect()
        stream = MainStream(max_frame_bytes=self._max_frame_bytes)
        self._asking = MainConnection(self._main, stream, frame_timeout=self._frame_timeout)
        self._main.ended.add_done_callback(self._main_ended)
        try:
            await self.answer(self._settings.login, self._settings.timeout)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End both connections, whatever is on its way. Safe to repeat."""
        self._lose(SourceUnavailable("the session was closed here"))
        for connection in self._connections():
            await connection.close()

    @property
    def bad_frames(self) -> list[BadFrame]:
        """What could not be read, where that ended the session."""
        return [line.bad for line in (self._asking, self._hearing) if line is not None and line.bad is not None]

    async def answers(self, request: Request, patience: float | None) -> AsyncGenerator[Answer, None]:
        """Send a request and yield its answer; see `MainConnection.answers`. Raises why the session is over, if it is."""
        asking = self._check()
        try:
            async with aclosing(asking.answers(request, patience)) as answers:
                async for answer in answers:
                    yield answer
        except _OVER as error:
            raise self._lose(error) from error

    async def answer(self, request: Request, patience: float | None) -> Answer:
        """Send a request, and return the last event of its answer; the only one unless it has chunks."""
        async with aclosing(self.answers(request, patience)) as answers:
            async for answer in answers:
                last = answer
        return last

    async def listen(self, request: Listen) -> None:
        """Ask for notifications. The first time, connect a second time for them.

        Raises:
            StatementRefused: The server said no.
            SourceUnavailable: It did not accept the second connection, which may be another node: the session is over.
        """
        async with self._opening:
            await self.answer(request, self._settings.timeout)
            if self._hearing is None and self._asking is not None and self._asking.ticket is not None:
                await self._open_second(self._asking.ticket)

    async def hear(self) -> list[Notification]:
        """Return the notifications since the last call, at least one; see `PubSubConnection.hear`."""
        if self._hearing is None:
            raise self._lost or LocalProtocolError("nothing was listened to")
        try:
            return await self._hearing.hear()
        except _OVER as error:
            raise self._lose(error) from error

    def arrived(self) -> list[Notification]:
        """Return the notifications that have arrived and were not heard, without waiting."""
        return [] if self._hearing is None else self._hearing.arrived()

    async def pubsub_only(self) -> None:
        """Keep the connection for notifications alone. Nothing can be asked any more."""
        if self._hearing is None:
            raise LocalProtocolError("nothing was listened to")
        await self.answer(Statement("PUBSUB ONLY;"), self._settings.timeout)
        self._pubsub_only = True
        assert self._main is not None
        await self._main.close()

    def _check(self) -> MainConnection:
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if self._pubsub_only or self._asking is None:
            raise LocalProtocolError("there is no main connection")
        return self._asking

    async def _connect(self) -> Connection:
        settings = self._settings
        return await connect(Address(settings.host, settings.port), timeout=settings.timeout, tls=self._tls)

    async def _open_second(self, ticket: PubSubTicket) -> None:
        """Connect for notifications. Without, the session hears nothing of what it listens to: it is over."""
        self.uuid = ticket.uuid
        try:
            connection = await self._connect()
            secrets = self._settings.login.secrets
            stream = PubSubStream(max_frame_bytes=self._max_frame_bytes, secrets=secrets)
            self._hearing = PubSubConnection(connection, stream, frame_timeout=self._frame_timeout)
            await self._hearing.open(ticket, self._settings.timeout)
        except StatementRefused as refused:
            raise self._lose(SourceUnavailable(f"the pub/sub connection was refused: {refused}")) from refused
        except SilverfoldError as error:
            raise self._lose(error) from error
        except BaseException:
            self._lose(SourceUnavailable("the pub/sub connection was not opened"))
            raise
        connection.ended.add_done_callback(self._second_ended)

    def _connections(self) -> list[Connection]:
        second = None if self._hearing is None else self._hearing.connection
        return [connection for connection in (self._main, second) if connection is not None]

    def _main_ended(self, _ended: object) -> None:
        if not self._pubsub_only:
            self._lose(SourceUnavailable("the server closed the main connection"))

    def _second_ended(self, _ended: object) -> None:
        self._lose(SourceUnavailable("the server closed the pub/sub connection"))

    def _lose(self, error: SilverfoldError) -> SilverfoldError:
        """End the session, and return why it ended: the first reason stays."""
        if self._lost is None:
            self._lost = error
            for connection in self._connections():
                connection.abort()
        return self._lost.with_traceback(None)
