"""Operations cancelled after any number of steps: the client stays usable, and nothing is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.protocol.messages.readers import ReadShardStreamResponse
from tests.support.hstreamdb.scripted_node import SHARD, Requests, connected, frame, received

STEPS = range(0, 120, 3)


async def serve(requests: Requests, context: Any) -> None:
    await requests.next()
    for batch in range(1, 4):
        await context.write(frame(batch, b"x"))
    await requests.all_ids()


async def read(_request: Any, context: Any) -> None:
    for batch in range(1, 4):
        await context.write(ReadShardStreamResponse(received_records=[received(batch, b"x")]).SerializeToString())


async def append(client: Client) -> None:
    await client.append("orders", b"x")


async def produce(client: Client) -> None:
    async with client.producer("orders", max_records=2, compression="gzip", max_outstanding_bytes=2_000) as producer:
        for _ in range(10):
            await producer.submit(b"x")
        await producer.flush()


async def consume(client: Client) -> None:
    async with aclosing(client.fetch("f")) as records:
        for _ in range(3):
            await (await anext(records)).ack()


async def fetch_frames(client: Client) -> None:
    async with await client.open_fetch("f") as fetch:
        fetch.ack((await fetch.next_frame()).ids)


async def read_shard(client: Client) -> None:
    assert len([each async for each in client.read_shard("orders", SHARD)]) == 3


@pytest.mark.parametrize("operation", [append, produce, consume, fetch_frames, read_shard])
def test_an_operation_may_be_cancelled_at_any_step(operation: Callable[[Client], Awaitable[None]]) -> None:
    async def scenario() -> tuple[int, int]:
        cancelled = completed = 0
        async with connected({"StreamingFetch": serve, "ReadShardStream": read}) as (_, client):
            await operation(client)
            before = len(asyncio.all_tasks())
            for steps in STEPS:
                task = asyncio.ensure_future(operation(client))
                for _ in range(steps):
                    await asyncio.sleep(0.0001 if steps > 60 else 0)
                task.cancel()
                async with asyncio.timeout(10):
                    (end,) = await asyncio.gather(task, return_exceptions=True)
                cancelled += isinstance(end, asyncio.CancelledError)
                completed += end is None
            async with asyncio.timeout(10):
                await operation(client)
                while len(asyncio.all_tasks()) > before:
                    await asyncio.sleep(0.01)
        return cancelled, completed

    cancelled, completed = asyncio.run(scenario())
    assert cancelled + completed == len(STEPS)
    assert cancelled
