"""Scripted peers on loopback, cleaned up after use."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from silverfold.connectors.common.transport import Address, Connection, connect

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    """Run a peer on a free port: calls ``serve(reader, writer)`` for each connection, and closes it on return."""
    tasks: set[asyncio.Task[None]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            end = writer.transport.abort if task.cancelling() else writer.close
            end()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, ssl=tls)
    try:
        yield Address(*server.sockets[0].getsockname())
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()
        await asyncio.sleep(0)  # let aborted transports close their sockets


@asynccontextmanager
async def connected(serve: Serve, *, served: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[Connection]:
    """Connect to a peer that runs ``serve(reader, writer)``, over TLS if ``served`` is given."""
    async with serving(serve, tls=served) as address:
        connection = await connect(address, timeout=10, **options)
        try:
            yield connection
        finally:
            await connection.close()


async def read_all(connection: Connection) -> bytes:
    """Read to the end."""
    chunks = []
    while chunk := await connection.read():
        chunks.append(chunk)
    return b"".join(chunks)


@contextmanager
def nobody() -> Iterator[Address]:
    """Yield an address without a listener."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield Address(*unused.getsockname())


async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """A peer that accepts connections and sends nothing."""
    await asyncio.Event().wait()


@contextmanager
def peer(talk: Callable[[socket.socket], Any]) -> Iterator[int]:
    """Run a peer of one connection in a thread: calls ``talk`` with its socket, and closes it; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()
