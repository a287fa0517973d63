"""Producers that are closed, cancelled or left: what was not answered fails, and nothing hangs."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from silverfold.conf.errors import (
    LocalProtocolError,
    SourceUnavailable,
)
from silverfold.connectors.hstreamdb.protocol.messages.streams import ListShardsResponse, Shard
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.streams import LAST_KEY
from tests.support.hstreamdb.appends import Gate, sent
from tests.support.hstreamdb.scripted_node import SHARD, connected, never, refusing
from tests.support.polling import until


def test_a_cancelled_append_fails_nobody_else_and_its_record_may_still_be_stored() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected({"Append": gate.append}) as (node, client):
            gate.node = node
            async with client.producer("orders", max_age=0) as producer:
                first, second = (asyncio.create_task(producer.append(each)) for each in (b"a", b"b"))
                await until(lambda: gate.under_way[SHARD], "the first append")
                first.cancel()
                gate.open.set()
                await second
                assert first.cancelled()
            assert [each for payloads in sent(node) for each in payloads] == [b"a", b"b"]

    asyncio.run(scenario())


def test_who_waits_for_room_may_be_cancelled_and_the_next_one_gets_it() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected({"Append": gate.append}) as (node, client):
            gate.node = node
            async with client.producer("orders", max_outstanding_bytes=1, max_age=0) as producer:
                tasks = [asyncio.create_task(producer.append(each)) for each in (b"a", b"b", b"c")]
                await until(lambda: gate.under_way[SHARD], "the first append")
                tasks[1].cancel()
                gate.open.set()
                await asyncio.gather(tasks[0], tasks[2])
            assert sent(node) == [[b"a"], [b"c"]]

    asyncio.run(scenario())


def test_an_exception_inside_the_block_fails_what_was_not_answered() -> None:
    futures = []

    async def scenario() -> None:
        async with connected({"Append": never}) as (_, client), client.producer("orders", max_age=0) as producer:
            futures.append(await producer.submit(b"under way"))
            await asyncio.sleep(0.05)
            futures.append(await producer.submit(b"taken"))
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(scenario())
    assert [type(each.exception()) for each in futures] == [SourceUnavailable, SourceUnavailable]


def test_a_closed_producer_takes_nothing() -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            producer = client.producer("orders")
            await producer.close()
            await producer.close()
            with pytest.raises(LocalProtocolError, match="closed"):
                await producer.submit(b"c")

    asyncio.run(scenario())


def test_close_releases_who_waits_for_room_and_cancelling_it_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with connected({"Append": never}, timeout=60) as (_, client):
            producer = client.producer("orders", max_outstanding_bytes=1, max_age=0)
            first = await producer.submit(b"a")
            second = asyncio.create_task(producer.append(b"b"))
            await asyncio.sleep(0.05)
            closing = asyncio.create_task(producer.close())
            with pytest.raises(LocalProtocolError, match="closed"):
                await second
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert isinstance(first.exception(), SourceUnavailable)
            assert producer.outstanding_bytes == 0

    asyncio.run(scenario())


def test_the_node_dies_under_an_append_and_nothing_hangs() -> None:
    async def scenario() -> None:
        async with connected({"Append": never}) as (node, client):
            producer = client.producer("orders", max_tries=2, max_age=0)
            future = await producer.submit(b"a")
            await until(lambda: node.calls["Append"], "the append")
            await node.stop()
            with pytest.raises(SourceUnavailable):
                await producer.close()
            assert isinstance(future.exception(), SourceUnavailable)

    asyncio.run(scenario())


def test_tries_are_counted_also_where_a_stream_has_other_shards_each_time() -> None:
    numbers = count(SHARD)

    async def shards(_request: Any, _context: Any) -> ListShardsResponse:
        whole = Shard(shard_id=next(numbers), start_hash_range_key="0", end_hash_range_key=str(LAST_KEY))
        return ListShardsResponse(shards=[whole])

    async def scenario() -> None:
        async with connected({"ListShards": shards, "Append": refusing("UNAVAILABLE", "down")}) as (node, client):
            async with client.producer("orders", max_tries=3) as producer:
                with pytest.raises(SourceUnavailable, match="UNAVAILABLE: down"):
                    await asyncio.wait_for(producer.append(b"x"), 20)
            assert node.calls["Append"] == 3
            assert producer.outstanding_bytes == 0

    asyncio.run(scenario())


def test_closing_the_client_sends_what_its_producers_have() -> None:
    async def scenario() -> list[list[bytes]]:
        async with connected() as (node, client):
            await client.producer("orders", max_age=60).submit(b"a")
            assert await client.append("orders", b"now") == RecordId(SHARD, 1, 0)
            await client.close()
            return sent(node)

    assert asyncio.run(scenario()) == [[b"now"], [b"a"]]


def test_what_waits_for_further_records_is_sent_once_there_is_no_room_for_any() -> None:
    async def scenario() -> None:
        async with connected() as (node, client):
            producer = client.producer("orders", max_age=3_600, max_outstanding_bytes=1)
            async with asyncio.timeout(30):
                futures = [await producer.submit({"id": number}, key="k") for number in range(3)]
                await producer.flush()
            assert [each.done() for each in futures] == [True] * 3
            assert node.calls["Append"] == 3

    asyncio.run(scenario())
