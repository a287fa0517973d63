"""The client: opens connections over the first of its transports that connects."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

import structlog

from silverfold.conf.errors import ConfigError, SourceUnavailable
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.connection import Connection, OnConnect, end_all
from silverfold.connectors.tengi.transports.dialing import open_first_link
from silverfold.connectors.tengi.transports.listeners import ConnectionListener

_STOPPED: Final = "the client was stopped"


class Client:
    """A client, in one event loop. As an async context manager it stops on exit."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._connections: set[Connection] = set()
        self._connecting: dict[Connection, asyncio.Timeout] = {}
        """Those whose ``on_connect`` runs, and what ends it."""
        self._stops = 0
        self._log = structlog.get_logger("tengi.client")

    @classmethod
    def create(cls, configuration: Configuration) -> Self:
        """Return a client. Nothing is connected yet."""
        return cls(configuration)

    async def connect(self, host: str, on_connect: OnConnect | None = None) -> Connection:
        """Connect to a server, call ``on_connect(connection)``, and return the connection.

        Transports are tried in the order of the configuration, each at its port.

        Raises:
            SourceUnavailable: No transport connects, or the client was stopped before ``on_connect`` returned.
            UntrustedSource: The certificate is not trusted.
            RemoteProtocolError: The server's answer is no handshake. Among several transports that is one reason why
                none connects.
            WireError: A value of our handshake cannot be written, or it is too large for every transport.
            ConfigError: A file for TLS cannot be used, or the host is no text.
            Exception: As ``on_connect``. The connection is closed then.
        """
        if not isinstance(host, str):
            raise ConfigError(file="connect", key="host", found=host, allowed="a host's name or address, as text")
        stops = self._stops
        link = await open_first_link(host, self._configuration, self._log)
        if self._stops != stops:
            await link.abort()
            raise SourceUnavailable(_STOPPED)
        connection = Connection(link, self._log)
        self._connections.add(connection)
        connection.add_connection_listener(_Forget(self._connections))
        try:
            await self._start(connection, on_connect)
            if self._stops != stops:
                raise SourceUnavailable(_STOPPED)
        except BaseException:
            await connection.abort()
            raise
        self._log.info("connected", server=link.peer_address, transport=link.transport.value)
        return connection

    async def stop(self) -> None:
        """Send what connections have queued, and end them. Calls of `connect` that are under way fail.

        An ``on_connect`` that still runs is cancelled then, unless it is the one that stops the client. If `stop` is
        cancelled, what is still queued is dropped; connections end, and their listeners know, all the same.
        """
        self._stops += 1
        try:
            await end_all(self._connections)
        finally:
            for connection in [each for each in self._connecting if not each.is_in_listener]:
                self._connecting.pop(connection).reschedule(0)

    async def _start(self, connection: Connection, on_connect: OnConnect | None) -> None:
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._connecting[connection] = scope
                try:
                    await connection.start(on_connect)
                finally:
                    self._connecting.pop(connection, None)
        except TimeoutError:
            if not scope.expired():
                raise
            raise SourceUnavailable(_STOPPED) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class _Forget(ConnectionListener):
    """Removes a connection from a set when it has ended."""

    def __init__(self, connections: set[Connection]) -> None:
        self._connections = connections

    def on_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
