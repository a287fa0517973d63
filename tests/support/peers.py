"""Peers on loopback that do what a test tells them, and leave nothing behind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from connectors.transport import Address

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    """Run a peer on a free port: ``serve(reader, writer)`` for each connection, closed when it returns."""
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


async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """A peer that accepts and says nothing."""
    await asyncio.Event().wait()
