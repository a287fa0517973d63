"""A poster of webhooks, one request each on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from silverfold.connectors.common.transport import Address, parse_address
from silverfold.connectors.frames import Frame, FrameSink
from tests.support.golden_source import GoldenSource, Turns, cut, running
from tests.support.memory import MemorySink
from tests.support.polling import tries
from tests.support.sqlitecloud.webhooks import feed, free_port, vectors


class WebhookSource(GoldenSource):
    """Posts bodies; each turn is one."""

    awaits_commits = True

    def land(self, turns: Turns) -> list[Frame]:
        async def run() -> list[Frame]:
            sink, address = MemorySink(), f"127.0.0.1:{free_port()}"
            with running(replace(self.feed, address=address), sink) as task:
                await _post(parse_address(address), turns)
            await asyncio.wait([task])
            return sink.frames

        return asyncio.run(run())

    @asynccontextmanager
    async def received(self, sink: FrameSink, sent: asyncio.Event) -> AsyncIterator[asyncio.Task[str | None]]:
        address = f"127.0.0.1:{free_port()}"
        with running(replace(self.feed, address=address), sink) as task:
            await _post(parse_address(address), (cut(turn, 64) for turn in self.turns))
            sent.set()
            yield task
        await asyncio.wait([task])


async def _post(address: Address, turns: Iterable[Iterable[bytes]]) -> None:
    """Post a body for each turn; wait for each answer."""
    reader, writer = await _connected(address)
    for turn in turns:
        chunks = list(turn)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % sum(map(len, chunks)))
        for chunk in chunks:
            writer.write(chunk)
            await asyncio.sleep(0)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(size.partition(b":")[2]))
    writer.close()
    await writer.wait_closed()


async def _connected(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    for _ in tries("the receiver to listen"):
        try:
            return await asyncio.open_connection(*address)
        except OSError:
            await asyncio.sleep(0.001)
    raise AssertionError


SOURCE = WebhookSource(feed(), tuple(vector["body"] for vector in vectors("webhooks")))
