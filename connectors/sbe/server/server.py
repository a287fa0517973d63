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
from contextlib import closing
from typing import Final, Self

from silverfold.connectors.common.server_thread import Server, listen
from silverfold.connectors.sbe.protocol.schemas import BUILTIN, feed_schema
from silverfold.connectors.sbe.server.market import Market
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.connectors.wire.sbe.schema.model import Schema

MOST_UNSENT: Final = 4 << 20
"""Maximum number of unsent bytes before a client is dropped because it does not read."""


class MarketServer(Server[tuple[asyncio.StreamWriter, FrameWriter]]):
    """A running server and context manager. All methods may be called from any thread."""

    def __init__(self, listening: socket.socket, market: Market, schema: Schema, framing: Framing) -> None:
        super().__init__(listening, name="sbe")
        self._market, self._schema, self._framing = market, schema, framing

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

    def change(self) -> int:
        """Generate one message and send it to every client; return its number of changes."""

        async def changed() -> int:
            update = self._market.change()
            for client, writer in list(self._connections.values()):
                self._send(client, writer.write([update.body]))
            return update.changes

        return self._wait_for(changed())

    def _break_off(self, connection: tuple[asyncio.StreamWriter, FrameWriter]) -> None:
        connection[0].transport.abort()

    async def _shut(self) -> None:
        self._accepting[0].close()
        for client, _ in self._connections.values():
            client.close()  # buffered data is still sent

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameWriter(self._framing, byte_order=self._schema.byte_order)
        with self._serving((writer, frames), writer.get_extra_info("peername")), closing(writer):
            self._send(writer, frames.write(list(self._market.greeting())))
            while await reader.read(1 << 12):  # data from clients is ignored
                pass

    def _send(self, client: asyncio.StreamWriter, octets: bytes) -> None:
        client.write(octets)
        if client.transport.get_write_buffer_size() > MOST_UNSENT:
            self._log.warning("client_dropped", reason="it does not read")
            client.transport.abort()
