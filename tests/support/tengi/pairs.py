"""Client and server in one event loop, on free ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from silverfold.connectors.tengi.client import Client, Connection
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.server import ConfigurationBuilder, Server

TRANSPORTS = ("tcp", "websocket", "http")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine, and check that no task of its outlives it."""

    async def checked() -> Any:
        result = await asyncio.wait_for(work, 60)
        for _ in range(10):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(checked(), debug=False)


@asynccontextmanager
async def serving(on_connect: Any = None, *transports: str, **settings: Any) -> AsyncIterator[Server]:
    """Run a server on one free port that all its transports share."""
    configuration = ConfigurationBuilder().add_transport(*(transports or TRANSPORTS), port=0).set(**settings).build()
    async with Server.create(configuration) as server:
        await server.start(on_connect)
        yield server


def port_of(server: Server) -> int:
    """Return the port of a server that has one."""
    (port,) = set(server.ports.values())
    return port


@asynccontextmanager
async def connected(
    server: Server, transport: str, on_connect: Any = None, **settings: Any
) -> AsyncIterator[Connection]:
    """Connect a client to a server."""
    configuration = ConfigurationBuilder().add_transport(transport, port=port_of(server)).set(**settings).build()
    async with Client.create(configuration) as client:
        yield await client.connect("127.0.0.1", on_connect)


class Inbox:
    """Collects a connection's messages; ``await inbox.get()`` returns the next one's body."""

    def __init__(self, connection: Connection) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self.registration = connection.add_message_listener(lambda _, message: self._messages.put_nowait(message))

    async def get(self) -> Any:
        return (await self._messages.get()).body

    async def take(self, count: int) -> list[Any]:
        return [await self.get() for _ in range(count)]
