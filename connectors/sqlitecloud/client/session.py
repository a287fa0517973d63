"""A session with a server: its main connection, its pub/sub connection, and the end of both.

The end of either connection ends the session: the other one is closed, and all later calls raise the reason. Data that
arrived before is delivered first.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing

from silverfold.conf.errors import (
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    SilverfoldError,
    SourceUnavailable,
    StatementRefused,
)
from silverfold.connectors.common.transport import (
    Address,
    Connection,
    client_context,
    connect,
    load_certificate,
    usable_file,
)
from silverfold.connectors.sqlitecloud.client.main_connection import Answer, MainConnection
from silverfold.connectors.sqlitecloud.client.pubsub_connection import PubSubConnection
from silverfold.connectors.sqlitecloud.client.settings import ConnectionSettings, Tls
from silverfold.connectors.sqlitecloud.protocol.connection import MainStream, PubSubStream
from silverfold.connectors.sqlitecloud.protocol.messages import (
    BadFrame,
    Listen,
    Notification,
    PubSubTicket,
    Request,
    Statement,
)


def tls_context(settings: Tls) -> ssl.SSLContext:
    """Return the TLS context: trust and client certificate. Both connections of a session share it.

    Raises:
        ConfigError: A certificate file is missing, or contains none.
    """
    try:
        context = client_context(settings.root_certificate, verify=settings.verify)
    except OSError as error:
        raise _unusable("root_certificate", settings.root_certificate, error) from error
    if settings.client_certificate is not None:
        try:
            load_certificate(context, settings.client_certificate, settings.client_certificate_key)
        except OSError as error:
            raise _unusable("client_certificate", settings.client_certificate, error) from error
    return context


def _unusable(key: str, path: str | None, error: OSError) -> ConfigError:
    return ConfigError(file="connection string", key=key, found=path, allowed=usable_file(error))


_OVER = (SourceUnavailable, RemoteProtocolError)


class Session:
    """One session.

    Args:
        max_frame_bytes: Longest frame to accept, as announced and after expansion.
        frame_timeout: Seconds within which a started frame must be complete.
    """

    def __init__(self, settings: ConnectionSettings, *, max_frame_bytes: int, frame_timeout: float) -> None:
        self._settings, self._max_frame_bytes, self._frame_timeout = settings, max_frame_bytes, frame_timeout
        self._tls = None if settings.tls is None else tls_context(settings.tls)
        self._main: Connection | None = None
        self._main_connection: MainConnection | None = None
        self._pubsub_connection: PubSubConnection | None = None
        self.uuid: str | None = None
        """The session's uuid, known once it listens."""
        self._opening = asyncio.Lock()
        self._pubsub_only = False
        self._lost: SilverfoldError | None = None

    async def open(self) -> None:
        """Connect, and log in.

        Raises:
            SourceUnavailable, RemoteProtocolError: The server is unreachable or violates the protocol.
            UntrustedSource: The server's certificate is not trusted.
            StatementRefused: The server refuses the login.
        """
        self._main = await self._connect()
        stream = MainStream(max_frame_bytes=self._max_frame_bytes)
        self._main_connection = MainConnection(self._main, stream, frame_timeout=self._frame_timeout)
        self._main.ended.add_done_callback(self._main_ended)
        try:
            await self.answer(self._settings.login, self._settings.timeout)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End both connections immediately. Idempotent."""
        self.lose(SourceUnavailable("the session was closed here"))
        for connection in self._connections():
            await connection.close()

    @property
    def bad_frames(self) -> list[BadFrame]:
        """The unreadable input that ended the session."""
        return [
            connection.bad
            for connection in (self._main_connection, self._pubsub_connection)
            if connection is not None and connection.bad is not None
        ]

    async def answers(self, request: Request, patience: float | None) -> AsyncGenerator[Answer, None]:
        """Send a request and yield its reply; see `MainConnection.answers`. Raise the reason if the session is over."""
        main_connection = self._check()
        try:
            async with aclosing(main_connection.answers(request, patience)) as answers:
                async for answer in answers:
                    yield answer
        except _OVER as error:
            raise self.lose(error) from error

    async def answer(self, request: Request, patience: float | None) -> Answer:
        """Send a request, and return the last event of its reply; the only one unless it is chunked."""
        async with aclosing(self.answers(request, patience)) as answers:
            async for answer in answers:
                last = answer
        return last

    async def listen(self, request: Listen) -> None:
        """Send a LISTEN. The first time, open the second connection.

        Raises:
            StatementRefused: The server refused the request.
            SourceUnavailable: The second connection, possibly to another node, was refused: the session is over.
        """
        async with self._opening:
            await self.answer(request, self._settings.timeout)
            if (
                self._pubsub_connection is None
                and self._main_connection is not None
                and self._main_connection.ticket is not None
            ):
                await self._open_second(self._main_connection.ticket)

    async def next_notifications(self) -> list[Notification]:
        """Return all notifications since the last call, waiting for at least one. Cancelling loses none."""
        if self._pubsub_connection is None:
            raise self._lost or LocalProtocolError("nothing was listened to")
        try:
            return await self._pubsub_connection.next_notifications()
        except _OVER as error:
            raise self.lose(error) from error

    def arrived(self) -> list[Notification]:
        """Return the arrived, undelivered notifications without waiting."""
        return [] if self._pubsub_connection is None else self._pubsub_connection.arrived()

    async def pubsub_only(self) -> None:
        """Keep only the connection for notifications. Requests are no longer possible."""
        if self._pubsub_connection is None:
            raise LocalProtocolError("nothing was listened to")
        await self.answer(Statement("PUBSUB ONLY;"), self._settings.timeout)
        self._pubsub_only = True
        assert self._main is not None
        await self._main.close()

    def _check(self) -> MainConnection:
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if self._pubsub_only or self._main_connection is None:
            raise LocalProtocolError("there is no main connection")
        return self._main_connection

    async def _connect(self) -> Connection:
        settings = self._settings
        return await connect(Address(settings.host, settings.port), timeout=settings.timeout, tls=self._tls)

    async def _open_second(self, ticket: PubSubTicket) -> None:
        """Connect for notifications. Failure ends the session, which could not receive any."""
        self.uuid = ticket.uuid
        try:
            connection = await self._connect()
            secrets = self._settings.login.secrets
            stream = PubSubStream(max_frame_bytes=self._max_frame_bytes, secrets=secrets)
            self._pubsub_connection = PubSubConnection(connection, stream, frame_timeout=self._frame_timeout)
            await self._pubsub_connection.open(ticket, self._settings.timeout)
        except StatementRefused as refused:
            raise self.lose(SourceUnavailable(f"the pub/sub connection was refused: {refused}")) from refused
        except SilverfoldError as error:
            raise self.lose(error) from error
        except BaseException:
            self.lose(SourceUnavailable("the pub/sub connection was not opened"))
            raise
        connection.ended.add_done_callback(self._second_ended)

    def _connections(self) -> list[Connection]:
        second = None if self._pubsub_connection is None else self._pubsub_connection.connection
        return [connection for connection in (self._main, second) if connection is not None]

    def _main_ended(self, _ended: object) -> None:
        if not self._pubsub_only:
            self.lose(SourceUnavailable("the server closed the main connection"))

    def _second_ended(self, _ended: object) -> None:
        self.lose(SourceUnavailable("the server closed the pub/sub connection"))

    def lose(self, error: SilverfoldError) -> SilverfoldError:
        """End the session, and return its first reason."""
        if self._lost is None:
            self._lost = error
            for connection in self._connections():
                connection.abort()
        return self._lost.with_traceback(None)
