"""A source of SBE messages over TCP: sends every client what happens in a made-up market, framed as asked for.

Runs in a thread of its own, so that it serves whatever the caller does::

    with MarketServer.start(framing=FRAMINGS["sofh"]) as server:
        server.change()

A client gets the securities and the levels of the books first, then every message. One that does not read is dropped.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import structlog

from conf.errors import SourceUnavailable
from connectors.sbe.market import Market
from connectors.sbe.schemas import BUILTIN, feed_schema
from connectors.wire.framing.settings import Framing
from connectors.wire.framing.writer import FrameWriter
from connectors.wire.sbe.model import Schema

MOST_UNSENT: Final = 4 << 20
"""Bytes that may wait to be sent before a client counts as one that does not read."""


class MarketServer:
    """A running server. All methods may be called from any thread. Closes itself as a context manager."""

    def __init__(self, listening: socket.socket, market: Market, schema: Schema, framing: Framing) -> None:
        self._listening = listening
        self.port: int = listening.getsockname()[1]
        """The TCP port it listens on."""
        self._market, self._schema, self._framing = market, schema, framing
        self._clients: dict[asyncio.StreamWriter, FrameWriter] = {}
        self._log = structlog.get_logger("sbe.server")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sbe-server", daemon=True)

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
            framing: How messages are framed. Each change is one message, and a packet of its own where there are such.
            host: Address to listen on; the default serves this machine only. There is no authentication.
            seed: Same seed, same sequence of messages.
            clock: Nanoseconds since 1970, for the times in messages.

        Raises:
            SourceUnavailable: The port cannot be listened on.
        """
        schema = feed_schema(BUILTIN)
        server = cls(_listen(host, port), Market(schema, seed=seed, clock=clock), schema, framing)
        server._thread.start()
        return server

    @property
    def client_count(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    def change(self) -> int:
        """Let one message happen and send it to every client; return how many changes it tells."""

        async def changed() -> int:
            update = self._market.change()
            for client, writer in list(self._clients.items()):
                self._send(client, writer.write([update.body]))
            return update.changes

        return asyncio.run_coroutine_threadsafe(changed(), self._loop).result()

    def disconnect_all(self) -> None:
        """Break the connection to every client; return when that is done. They may come back."""

        async def disconnected() -> None:
            for client in list(self._clients):
                client.transport.abort()
            while self._clients:
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(disconnected(), self._loop).result()

    def close(self) -> None:
        """End all connections and the server. May be repeated."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listening))
        self._loop.run_forever()  # until `close`
        server.close()
        for client in self._clients:
            client.close()  # what was sent before still goes out
        self._loop.run_until_complete(_ended(self._loop))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        writer = FrameWriter(self._framing, byte_order=self._schema.byte_order)
        peer = client.get_extra_info("peername")
        self._log.info("client_connected", client=f"{peer[0]}:{peer[1]}")
        self._send(client, writer.write(list(self._market.greeting())))
        self._clients[client] = writer
        try:
            while await reader.read(1 << 12):  # clients have nothing to say; what they say is not looked at
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


async def _ended(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the tasks of clients have ended."""
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise SourceUnavailable(f"cannot listen on {host}:{port}: {error}") from error
