"""A proxy that hands bytes on in pieces, both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.common.transport import Address, Connection, connect


@asynccontextmanager
async def in_pieces(port: int, size: int) -> AsyncIterator[int]:
    """Yield the port of a proxy of a server on loopback; every piece has so many bytes at most."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(near: Connection) -> None:
        far = await connect(Address("127.0.0.1", port), timeout=10)
        try:
            await until_first_ends(_hand_on(near, far, size), _hand_on(far, near, size))
            await near.finish(5)
            await far.finish(5)
        finally:
            await asyncio.gather(near.close(), far.close())

    class Near(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            tasks.add(asyncio.create_task(serve(self)))

    server = await asyncio.get_running_loop().create_server(Near, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hand_on(source: Connection, target: Connection, size: int) -> None:
    while chunk := await source.read():
        for start in range(0, len(chunk), size):
            await target.send(chunk[start : start + size])
            await asyncio.sleep(0)
