"""An SCSP server for SQLite files, with pub/sub: commits of any session are sent to its listening sessions.

It runs in its own thread, independent of the caller::

    with SqliteCloudServer.start({"shop.db": Path("shop.db")}) as server:
        ...  # clients use sqlitecloud://127.0.0.1:{server.port}/shop.db?insecure=1

Each client has its own bounded queue of notifications. Database work runs in one thread per session. No other process
may write the files meanwhile: its changes would not be notified.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlencode

from silverfold.conf.errors import ConfigError
from silverfold.connectors.common.server_thread import Server, listen
from silverfold.connectors.common.transport import Address, server_context
from silverfold.connectors.sqlitecloud.server.connection import Connection, Sessions, serve_client
from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.served_databases import Databases
from silverfold.connectors.sqlitecloud.server.state import Credentials, Served, ServedSession


class SqliteCloudServer(Server[Connection]):
    """A running server. Thread-safe; a context manager that closes on exit."""

    def __init__(
        self, listening: Sequence[socket.socket], served: Served, files: ExitStack, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(*listening, name="sqlitecloud", tls=tls)
        self._served, self._files = served, files
        self._sessions = Sessions(served, encrypted=tls is not None)

    @classmethod
    def start(
        cls,
        files: Mapping[str, Path],
        port: int = 0,
        *,
        host: str | Sequence[str] = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        options: ServerOptions | None = None,
    ) -> Self:
        """Return a server that listens on a TCP port, 0 for any free one.

        Args:
            files: SQLite files by the database names that clients use.
            host: Address to listen on, or several; the default serves this machine only.
            tls: TLS configuration; see `tls_context`. None disables encryption.
            credentials: Accepted credentials; None accepts everybody.
            options: Behaviour of the server, and faults; the default suits the official clients.

        Raises:
            ConfigError: A file does not exist, is not an SQLite database, or is not writable.
            SourceUnavailable: The port cannot be listened on.
        """
        with ExitStack() as opened:
            hosts = [host] if isinstance(host, str) else host
            served = Served(opened.enter_context(Databases(dict(files))), options or ServerOptions(), credentials)
            listening = [opened.enter_context(closing(listen(hosts[0], port)))]
            listening += [opened.enter_context(closing(listen(each, _port(listening[0])))) for each in hosts[1:]]
            server = cls(listening, served, opened.pop_all(), tls)
        return server._start()

    @property
    def listening_count(self) -> int:
        """The number of pub/sub connections."""
        return sum(connection.listens for connection in list(self._connections.values()))

    def address(self, database: str, *, apikey: str | None = None) -> str:
        """Return the connection string for clients; without credentials, unless given."""
        host = self._listening[0].getsockname()[0]
        keys = {"insecure": "1" if self._tls is None else None, "apikey": apikey}
        query = urlencode({name: value for name, value in keys.items() if value is not None}, quote_via=quote)
        where = f"sqlitecloud://{Address(host, self.port)}/{quote(database, safe='')}"
        return f"{where}?{query}" if query else where

    def own_session(self, database: str) -> ServedSession:
        """Return a session of the server itself, whose changes have the sender 0. It closes with the server.

        Raises:
            SourceRefused: There is no database of that name.
        """
        session = ServedSession(self._served, own=True)
        session.use(database)
        self._files.callback(session.close)
        return session

    def disconnect_listeners(self) -> None:
        """Break only the pub/sub connections and wait until that is done."""
        self._wait_for(self._disconnect(lambda connection: connection.listens))

    def close(self) -> None:
        """End all connections and the server; leave single files behind. Idempotent."""
        super().close()
        self._files.close()

    def _break_off(self, connection: Connection) -> None:
        connection.break_off()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        connection = Connection(reader, writer, ServedSession(self._served, ip=peer[0]))
        with self._serving(connection, peer, session=connection.session.uuid) as log, closing(writer):
            await serve_client(self._sessions, connection, log)


def _port(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def tls_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """Return the server's TLS context for a certificate.

    Args:
        certificate: PEM file of the certificate and those that sign it.
        key: PEM file of its private key; None if it is in the same file.

    Raises:
        ConfigError: A file does not exist or has other content.
    """
    try:
        return server_context(certificate, key)
    except OSError as error:  # SSLError is an OSError
        allowed = "PEM files of a certificate and its key"
        raise ConfigError(file=str(certificate), key="certificate", found=str(error), allowed=allowed) from error
