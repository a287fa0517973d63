"""Helpers for client tests: run a client against a scripted server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from silverfold.connectors.sqlitecloud.client.client import connect
from silverfold.connectors.sqlitecloud.protocol.encode import encode_chunk
from silverfold.connectors.sqlitecloud.protocol.messages import Column, RowsetChunk
from tests.support.sqlitecloud.scsp_peer import scripted

CHUNKS_END = b"/6 0 0 0 "


def chunk(index, *rows, version=1):
    columns = (Column("id"), Column("name")) if index == 1 else None
    return encode_chunk(RowsetChunk(index, version, columns, 2, list(rows)))


def run(peer, use, *, tls=None, query="", timeout=10, **limits):
    """Connect to the peer; return the result of ``use(client)``."""

    async def running():
        async with scripted(peer, tls=tls, timeout=timeout) as url, await connect(url + query, **limits) as db:
            return await asyncio.wait_for(use(db), 60)

    return asyncio.run(running())


async def take(db, count):
    taken = []
    async with aclosing(db.notifications()) as notifications:
        async for notification in notifications:
            taken.append(notification)
            if len(taken) == count:
                return taken
    raise AssertionError("notifications end with an error only")


def writing(*writes, pause=None):
    """Return a coroutine function that writes these bytes to the pub/sub connection."""

    async def say(writer):
        for octets in writes:
            writer.write(octets)
            if pause is not None:
                await asyncio.sleep(pause)
            await writer.drain()

    return say
