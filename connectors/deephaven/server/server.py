"""A table server: exports live tables by name over TCP, as a server inside a Deephaven worker does.

Runs in its own thread, beside whatever the caller does::

    with TableServer.start(7777) as server:
        server.export_table("Quotes", quotes)
        ...

Each client has its own bounded queue. A client that does not drain it in time is dropped, without effect on others.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from silverfold.conf.errors import LocalProtocolError, WireError
from silverfold.connectors.common.server_thread import Server, listen
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.control import encode_connection_response
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.schemas import load_transport_schema
from silverfold.connectors.deephaven.server.connection import Limits, ServedClient, TooSlow
from silverfold.connectors.deephaven.server.session import SMALLEST_BUFFER, ServerSession
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.wire.sbe.schema.model import Schema

_ENCODERS = 2
_ACCEPT_RETRY_SECONDS = 0.1


class TableServer(Server[ServedClient]):
    """A running server. All methods may be called from any thread. Closes itself as a context manager."""

    def __init__(
        self, listening: socket.socket, roles: Roles, limits: Limits, max_clients: int, prefix_counts: PrefixCounts
    ) -> None:
        super().__init__(listening, name="deephaven")
        self._roles = roles
        self._limits = limits
        self._max_clients = max_clients
        self._prefix_counts = prefix_counts
        self._exports: dict[str, LiveTable] = {}
        self._dropped = 0
        self._encoders = ThreadPoolExecutor(_ENCODERS, thread_name_prefix="deephaven-encoder")

    @classmethod
    def start(
        cls,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        msg_queue_size: int = 1000,
        msg_buffer_size: int = 65_536,
        send_wait_time_millis: int = 5000,
        max_clients: int = 1000,
        schema: Schema | None = None,
        prefix_counts: PrefixCounts = PrefixCounts.MESSAGE,
    ) -> Self:
        """Return a server that listens on a TCP port, 0 for any free one.

        Args:
            port: See `port` for the one taken.
            host: Address to listen on; the default serves this machine only. There is no authentication.
            msg_queue_size: Frames queued per client.
            msg_buffer_size: Longest message in bytes, announced to clients first.
            send_wait_time_millis: How long to wait for room in a full queue before its client is dropped. One for which
                updates of twice as many bytes as may wait come meanwhile, 32 MiB at least, is dropped at once.
            max_clients: Maximum number of clients served at once; further ones are turned away.
            schema: The transport's schema; None for our reconstruction. Errors and ends of subscriptions for which it
                has no message are not answered.
            prefix_counts: What the length prefix of each message counts.

        Raises:
            SourceUnavailable: The port cannot be listened on.
            LocalProtocolError: A size is too small to serve anything, or larger than the schema can announce.
            SchemaError: The schema lacks a part of the transport.
        """
        if msg_queue_size < 1 or msg_buffer_size < SMALLEST_BUFFER or send_wait_time_millis < 0:
            raise LocalProtocolError(f"a queue has at least 1 frame, a buffer {SMALLEST_BUFFER} bytes, a wait 0 ms")
        roles = bind(schema or load_transport_schema())
        try:
            encode_connection_response(roles, msg_buffer_size)
        except WireError as error:
            detail = f"the schema cannot announce a buffer of {msg_buffer_size} bytes, choose a smaller one: {error}"
            raise LocalProtocolError(detail) from None
        limits = Limits(msg_queue_size, msg_buffer_size, send_wait_time_millis)
        return cls(listen(host, port), roles, limits, max_clients, prefix_counts)._start()

    @property
    def dropped_count(self) -> int:
        """Number of clients dropped because they were too slow."""
        return self._dropped

    def export_table(self, name: str, table: LiveTable) -> None:
        """Export the table under this name, replacing any other."""
        self._exports[name] = table

    def unexport_table(self, name: str) -> None:
        """Stop exporting this name. Existing subscriptions continue."""
        self._exports.pop(name, None)

    async def _open(self) -> None:
        self._accept_task = self._loop.create_task(self._accept())

    async def _shut(self) -> None:
        self._accept_task.cancel()
        await asyncio.gather(self._accept_task, return_exceptions=True)
        await super()._shut()
        self._encoders.shutdown()

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._listening[0])
            except OSError as error:  # out of descriptors, for example: connected clients continue
                self._log.warning("accept_failed", reason=str(error))
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            if self.client_count >= self._max_clients:
                self._log.warning("client_turned_away", client=f"{address[0]}:{address[1]}", clients=self.client_count)
                connection.close()
                continue
            client = ServedClient(connection, self._session(), self._limits, self._encoders)
            self._connections[self._loop.create_task(self._serve_client(client, address))] = client

    def _session(self) -> ServerSession:
        return ServerSession(
            self._roles,
            self._exports,
            message_buffer_size=self._limits.msg_buffer_size,
            prefix_counts=self._prefix_counts,
        )

    async def _serve_client(self, client: ServedClient, address: tuple[Any, ...]) -> None:
        with self._serving(client, address):
            try:
                await client.serve()
            except TooSlow:
                self._dropped += 1
                raise

    def _break_off(self, connection: ServedClient) -> None:
        connection.disconnect()
