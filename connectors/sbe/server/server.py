"""Simulated source of SBE messages over TCP: sends the changes of a simulated market to every client.

Runs in a thread of its own, independently of the caller::

    with MarketServer.start(framing=FRAMINGS["sofh"]) as server:
        server.change()

A client first receives the securities and the levels of the books, then every message. A client that does not read is
dropped.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final, Self

import structlog

from silverfold.connectors.common.server_thread import Server, listen
from silverfold.connectors.sbe.protocol.schemas import BUILTIN, feed_schema
from silverfold.connectors.sbe.server.market import Market
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.connectors.wire.sbe.schema.model import Schema

MOST_UNSENT: Final = 4 << 20
"""Maximum number of unsent bytes before a client is dropped because it does not read."""


class MarketServer(Server):
    """A running server and context manager. All methods may be called from any thread."""

    def __init__(self, listening: socket.socket, market: Market, schema: Schema, framing: Framing) -> None:
        super().__init__(listening, name="sbe-server")
        self._market, self._schema, self._framing = market, schema, framing
        self._clients: dict[asyncio.StreamWriter, FrameWriter] = {}
        self._log = structlog.get_logger("sbe.server")

    @classmethod
    def start(
        cls,
        port: int = 0,
        *,
        framing: Framing,
        host: str = "127.0.0.1",
        seed: int = 0,
        clock: Callable[[], int] = time.time_ns,
    ) -> Self:
        """Return a server that listens on a TCP port, 0 for any free one.

        Args:
            framing: Framing of messages. Each change is one message, in a packet of its own if the framing has packets.
            host: Address to listen on; the default serves this machine only. There is no authentication.
            seed: Seed of the market: the same seed gives the same sequence of messages.
            clock: Nanoseconds since 1970, for the times in messages.

        Raises:
            SourceUnavailable: The server cannot listen on the port.
        """
        schema = feed_schema(BUILTIN)
        return cls(listen(host, port), Market(schema, seed=seed, clock=clock), schema, framing)._start()

    @property
    def client_count(self) -> int:
        """Number of connected clients."""
        return len(self._clients)

    def change(self) -> int:
        """Generate one message and send it to every client; return its number of changes."""

        async def changed() -> int:
            update = self._market.change()
            for client, writer in list(self._clients.items()):
                self._send(client, writer.write([update.body]))
            return update.changes

        return self._wait_for(changed())

    def disconnect_all(self) -> None:
        """Abort the connections of all clients, and wait until they are closed. Clients may reconnect."""

        async def disconnected() -> None:
            for client in list(self._clients):
                client.transport.abort()
            while self._clients:
                await asyncio.sleep(0)

        self._wait_for(disconnected())

    async def _open(self) -> None:
        self._accepting = await asyncio.start_server(self._serve, sock=self._listening[0])

    async def _shut(self) -> None:
        self._accepting.close()
        for client in self._clients:
            client.close()  # buffered data is still sent

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        writer = FrameWriter(self._framing, byte_order=self._schema.byte_order)
        peer = client.get_extra_info("peername")
        self._log.info("client_connected", client=f"{peer[0]}:{peer[1]}")
        self._send(client, writer.write(list(self._market.greeting())))
        self._clients[client] = writer
        try:
            while await reader.read(1 << 12):  # data from clients is ignored
                pass
        except OSError as error:
            self._log.info("client_broke", client=f"{peer[0]}:{peer[1]}", reason=str(error))
        finally:
            del self._clients[client]
            client.close()

    def _send(self, client: asyncio.StreamWriter, octets: bytes) -> None:
        client.write(octets)
        if client.transport.get_write_buffer_size() > MOST_UNSENT:
            self._log.warning("client_dropped", reason="it does not read")
            client.transport.abort()
