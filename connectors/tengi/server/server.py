"""The server: accepts connections over its transports. Names are those of tengi's own Java API."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import structlog

from silverfold.conf.errors import LocalProtocolError
from silverfold.connectors.tengi.protocol.events import Peer, Transport
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.connection import Connection, OnConnect, end_all
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.tengi.transports.listening import Listening


class Server:
    """A server, in one event loop. As an async context manager it stops on exit."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._listening: Listening | None = None
        self._on_connect: OnConnect | None = None
        self._connections: dict[Connection, None] = {}
        self._log = structlog.get_logger("tengi.server")

    @classmethod
    def create(cls, configuration: Configuration) -> Self:
        """Return a server. Nothing listens yet."""
        return cls(configuration)

    @property
    def ports(self) -> Mapping[Transport, int]:
        """Port of each transport while it runs."""
        return {} if self._listening is None else self._listening.ports

    @property
    def connections(self) -> list[Connection]:
        """The open connections, oldest first."""
        return list(self._connections)

    async def start(self, on_connect: OnConnect | None = None) -> None:
        """Start listening, and call ``on_connect(connection)`` for each connection.

        Raises:
            SourceUnavailable: A port cannot be listened on.
            ConfigError: The certificate cannot be used.
            LocalProtocolError: The server runs already.
        """
        if self._listening is not None:
            raise LocalProtocolError("the server runs already")
        if self._configuration.peer is Peer.JAVA and set(self._configuration.transports) != {Transport.HTTP}:
            self._log.warning("java_transport", reason="only http keeps the order and the size of packets")
        self._on_connect = on_connect
        listening = Listening(self._configuration, self._serve, self._log)
        await listening.start()
        self._listening = listening

    async def stop(self) -> None:
        """Send what connections have queued, end them, and stop listening. Safe to repeat.

        The server may be started again.
        """
        listening, self._listening = self._listening, None
        if listening is not None:
            try:
                await end_all(self._connections)
            finally:
                await listening.stop()

    async def _serve(self, link: Link) -> None:
        connection = Connection(link, self._log)
        self._connections[connection] = None
        try:
            await connection.start(self._on_connect)
            await connection.wait_closed()
        finally:
            del self._connections[connection]
            await connection.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
