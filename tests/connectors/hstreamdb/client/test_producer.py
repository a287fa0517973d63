"""Producers: order, batches, bounded memory and errors, with nodes that are slow, gone, or refuse."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from silverfold.conf.errors import (
    ConfigError,
    InvalidValue,
    RemoteProtocolError,
    SourceRefused,
    SourceUnavailable,
)
from silverfold.connectors.hstreamdb.client.lanes import ENTRY_COST
from silverfold.connectors.hstreamdb.protocol.messages.batches import AppendRequest, AppendResponse
from silverfold.connectors.hstreamdb.protocol.messages.streams import ListShardsResponse, Shard
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RawRecord, RecordId
from silverfold.connectors.hstreamdb.protocol.status import status_text
from tests.support.hstreamdb.appends import FailingFirst, Gate, sent
from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.receiving import cluster
from tests.support.hstreamdb.scripted_node import SHARD, ScriptedNode, connected, refusing
from tests.support.polling import until


def test_append_returns_the_id_that_the_server_gave() -> None:
    async def scenario() -> None:
        async with connected() as (node, client), client.producer("orders", max_age=0) as producer:
            assert await producer.append(b"one") == RecordId(SHARD, 1, 0)
            assert await producer.append({"n": 2}) == RecordId(SHARD, 2, 0)
            assert sent(node)[0] == [b"one"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_records": 2}, [[b"aaa", b"bbb"], [b"ccc", b"ddd"], [b"e"]]),
        ({"max_bytes": 33}, [[b"aaa", b"bbb", b"ccc"], [b"ddd", b"e"]]),  # 11 bytes a record, with its header
        ({"max_bytes": 1}, [[b"aaa"], [b"bbb"], [b"ccc"], [b"ddd"], [b"e"]]),
    ],
)
def test_a_batch_ends_by_its_records_or_its_bytes(limits: dict[str, int], expected: list[list[bytes]]) -> None:
    async def scenario() -> list[list[bytes]]:
        async with connected() as (node, client):
            async with client.producer("orders", **limits) as producer:
                for each in (b"aaa", b"bbb", b"ccc", b"ddd", b"e"):
                    await producer.submit(each)
            return sent(node)

    assert asyncio.run(scenario()) == expected


def test_a_batch_ends_by_its_age() -> None:
    async def scenario() -> None:
        async with connected() as (node, client), client.producer("orders", max_age=0.05) as producer:
            first, second = [await producer.submit(each) for each in (b"a", b"b")]
            assert sent(node) == []
            assert [await first, await second] == [RecordId(SHARD, 1, 0), RecordId(SHARD, 1, 1)]

    asyncio.run(scenario())


def test_a_shard_has_one_append_under_way_and_shards_run_side_by_side() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected({"Append": gate.append}, shards=4) as (node, client):
            gate.node = node
            async with client.producer("orders", max_records=5) as producer:
                for number in range(200):
                    await producer.submit(b"%d" % number, key=str(number))
                await until(lambda: len(gate.under_way) == 4, "an append to each shard")
                gate.open.set()
            assert gate.most_under_way == 1
            assert {shard for shard, _ in node.appended} == {SHARD, SHARD + 1, SHARD + 2, SHARD + 3}
            for shard in gate.under_way:
                of_shard = [int(each) for at, payloads in node.appended if at == shard for each in payloads]
                assert of_shard == sorted(of_shard)

    asyncio.run(scenario())


def test_buffered_by_key_a_slow_key_delays_no_other_and_keys_keep_their_order() -> None:
    slow = asyncio.Event()

    async def scenario() -> None:
        async def append(request: AppendRequest, _context: Any) -> AppendResponse:
            if b"slow-0" in request.records.payload:
                await slow.wait()
            return nodes[0].append(request)

        nodes: list[ScriptedNode] = []
        async with connected({"Append": append}) as (node, client):
            nodes.append(node)
            async with client.producer("orders", buffer_by="key", max_records=1) as producer:
                first = await producer.submit(b"slow-0", "slow")
                second = await producer.submit(b"slow-1", "slow")
                await producer.append(b"quick", "quick")
                assert not first.done()
                slow.set()
                assert await first < await second
            assert sent(node) == [[b"quick"], [b"slow-0"], [b"slow-1"]]

    asyncio.run(scenario())


def test_retries_keep_the_order_and_look_up_shards_and_nodes_again() -> None:
    async def scenario() -> None:
        append = FailingFirst(3, "UNAVAILABLE")
        async with connected({"Append": append}) as (node, client):
            append.node = node
            async with client.producer("orders", max_records=1, rng=Random(1)) as producer:
                for number in range(5):
                    await producer.submit(b"%d" % number)
            assert sent(node) == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"]]
            assert node.calls["LookupShard"] == 4
            async with client.producer("orders") as producer:
                await producer.append(b"5")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("failures", "code", "is_stored"),
    [
        (1, "FAILED_PRECONDITION", True),
        (2, "FAILED_PRECONDITION", False),
        (2, "DEADLINE_EXCEEDED", True),
        (2, "CANCELLED", True),  # by a node that stops
    ],
)
def test_a_misdirected_append_is_repeated_once_and_others_more_often(failures: int, code: str, is_stored: bool) -> None:
    async def scenario() -> None:
        append = FailingFirst(failures, code, status_text(800, "WrongServer", None) if "FAILED" in code else "stopped")
        async with connected({"Append": append}) as (node, client), client.producer("orders") as producer:
            append.node = node
            if is_stored:
                await producer.append(b"x")
            else:
                with pytest.raises(SourceUnavailable, match="WrongServer"):
                    await producer.append(b"x")

    asyncio.run(scenario())


def test_a_cancellation_without_a_text_may_be_a_refused_token_and_is_not_repeated() -> None:
    async def scenario() -> None:
        async with (
            connected({"Append": refusing("CANCELLED")}) as (node, client),
            client.producer("orders") as producer,
        ):
            with pytest.raises(SourceRefused, match="a token is missing or wrong"):
                await producer.append(b"x")
            assert node.calls["Append"] == 1

    asyncio.run(scenario())


def test_lookup_always_asks_before_every_append() -> None:
    async def scenario() -> None:
        async with connected() as (node, client):
            for lookup, expected in (("error", 1), ("always", 4)):
                async with client.producer("orders", max_age=0, lookup=lookup) as producer:
                    for _ in range(3):
                        await producer.append(b"x")
                assert node.calls["LookupShard"] == expected

    asyncio.run(scenario())


def test_unavailable_for_ever_fails_the_record_and_says_where() -> None:
    async def scenario() -> None:
        async with connected({"Append": refusing("UNAVAILABLE", "down")}) as (node, client):
            async with client.producer("orders", max_tries=3) as producer:
                with pytest.raises(SourceUnavailable, match=f"Append to orders at {node.target}: UNAVAILABLE: down"):
                    await producer.append(b"x")
            assert node.calls["Append"] == 3
            assert producer.outstanding_bytes == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(("stop", "stored"), [(False, [[b"c"]]), (True, [])])
def test_a_refused_batch_fails_alone_or_with_all_after_it(stop: bool, stored: list[list[bytes]]) -> None:
    async def scenario() -> None:
        append = FailingFirst(1, "INVALID_ARGUMENT", status_text(206, "BatchedRecord shouldn't be Nothing", None))
        async with connected({"Append": append}) as (node, client):
            append.node = node
            with pytest.raises(SourceRefused, match="BatchedRecord"):
                async with client.producer("orders", max_records=2, stop_on_error=stop) as producer:
                    futures = [await producer.submit(each) for each in (b"a", b"b", b"c")]
            ends = await asyncio.gather(*futures, return_exceptions=True)
            assert [isinstance(each, SourceRefused) for each in ends] == [True, True, stop]
            assert sent(node) == stored

    asyncio.run(scenario())


def test_a_wrong_number_of_ids_fails_the_batch() -> None:
    async def append(request: AppendRequest, _context: Any) -> AppendResponse:
        return AppendResponse(record_ids=[RecordId(SHARD, 1, 0).to_message()] * 3)

    async def scenario() -> None:
        async with connected({"Append": append}) as (_, client), client.producer("orders") as producer:
            with pytest.raises(RemoteProtocolError, match="count_mismatch"):
                await producer.append(b"x")

    asyncio.run(scenario())


def test_flush_waits_for_what_was_taken_and_raises_the_first_error_once() -> None:
    async def scenario() -> None:
        append = FailingFirst(1, "INTERNAL", "disk")
        async with connected({"Append": append}) as (node, client):
            append.node = node
            async with client.producer("orders", max_age=60) as producer:
                await producer.flush()
                future = await producer.submit(b"x")
                with pytest.raises(SourceUnavailable, match="INTERNAL: disk"):
                    await producer.flush()
                assert future.done()
                await producer.submit(b"y")
                await producer.flush()
                assert sent(node) == [[b"y"]]

    asyncio.run(scenario())


def test_a_full_buffer_makes_who_appends_wait_in_turn_and_stays_bounded() -> None:
    async def scenario() -> None:
        gate = Gate()
        room = 10 * (ENTRY_COST + 1_010)
        async with connected({"Append": gate.append}) as (node, client):
            gate.node = node
            async with client.producer("orders", max_outstanding_bytes=room) as producer:
                tasks = [asyncio.create_task(producer.append(b"%04d" % each + bytes(990))) for each in range(50)]
                await until(lambda: gate.under_way[SHARD], "the first append")
                assert room - 2_000 < producer.outstanding_bytes <= room
                gate.open.set()
                await asyncio.gather(*tasks)
                assert producer.outstanding_bytes == 0
            assert [int(each[:4]) for payloads in sent(node) for each in payloads] == list(range(50))

    asyncio.run(scenario())


def test_a_hundred_thousand_records_pass_through_little_memory() -> None:
    most = 0

    async def scenario() -> int:
        nonlocal most
        async with connected(shards=2) as (node, client):
            async with client.producer("orders", max_outstanding_bytes=1 << 20, max_records=1_000) as producer:
                for number in range(100_000):
                    await producer.submit(RawRecord(b"%d" % number), key=str(number % 10))
                    most = max(most, producer.outstanding_bytes)
            for shard in (SHARD, SHARD + 1):
                of_shard = [int(each) for at, payloads in node.appended if at == shard for each in payloads]
                assert all(earlier < later for earlier, later in pairwise(of_shard))
            return sum(map(len, sent(node)))

    assert asyncio.run(scenario()) == 100_000
    assert most <= 1 << 20


def test_a_record_too_large_for_a_server_fails_alone_and_a_large_batch_is_halved() -> None:
    async def scenario() -> None:
        async with connected() as (node, client):
            async with client.producer("orders", max_bytes=8 << 20, max_age=60) as producer:
                large = [await producer.submit(bytes(400_000)) for _ in range(4)]
                too_large = await producer.submit(bytes(1 << 20))
                with pytest.raises(InvalidValue, match="oversized"):
                    await producer.flush()
                assert isinstance(too_large.exception(), InvalidValue)
                ids = [await each for each in large]
            assert ids == [RecordId(SHARD, *each) for each in ((1, 0), (1, 1), (2, 0), (3, 0))]
            assert [len(each) for each in sent(node)] == [2, 1, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_compressed_batch_counts_by_its_compressed_size(compression: Any) -> None:
    sizes = []

    async def append(request: AppendRequest, _context: Any) -> AppendResponse:
        sizes.append((request.records.compression_type, len(request.records.payload)))
        return AppendResponse(record_ids=[RecordId(SHARD, 1, 0).to_message()])

    async def scenario() -> None:
        async with (
            connected({"Append": append}) as (_, client),
            client.producer("orders", compression=compression) as producer,
        ):
            await producer.append(bytes(3 << 20))

    asyncio.run(scenario())
    assert sizes[0][0] == (1 if compression == "gzip" else 2)
    assert sizes[0][1] < 10_000


def test_what_cannot_be_sent_is_refused_at_once_and_costs_nothing() -> None:
    async def scenario() -> None:
        async with connected() as (node, client), client.producer("orders") as producer:
            with pytest.raises(InvalidValue, match="integer_not_exact"):
                await producer.append({"n": 1 << 53})
            assert producer.outstanding_bytes == 0
            assert node.calls["Append"] == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_records", 0),
        ("max_records", "10"),
        ("max_tries", 2.5),
        ("max_age", None),
        ("compression", ["gzip"]),
        ("max_bytes", 64 << 20),
    ],
)
def test_an_option_of_another_value_or_type_is_a_wrong_setting(key: str, value: Any) -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            client.producer("orders", **{key: value})

    with pytest.raises(ConfigError, match=f"producer of orders: {key}: found "):
        asyncio.run(scenario())


def test_a_key_without_a_shard_is_an_error() -> None:
    async def half(*_: Any) -> ListShardsResponse:
        return ListShardsResponse(shards=[Shard(shard_id=1, start_hash_range_key="0", end_hash_range_key="1")])

    async def scenario() -> None:
        async with connected({"ListShards": half}) as (_, client), client.producer("orders") as producer:
            with pytest.raises(RemoteProtocolError, match="no_shard"):
                await producer.append(b"x", "k")

    asyncio.run(scenario())


def test_an_unknown_stream_is_told_from_a_node_that_is_down() -> None:
    unknown = refusing("NOT_FOUND", status_text(200, "StreamNotFound", "orders"))
    script = {"ListShards": refusing("UNAVAILABLE", "no such log"), "GetStream": unknown}

    async def scenario() -> None:
        async with connected(script) as (_, client):
            with pytest.raises(SourceRefused, match="StreamNotFound"):
                await client.append("orders", b"x")

    asyncio.run(scenario())


@pytest.mark.parametrize("buffer_by", ["shard", "key"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_stream_made_anew_gets_what_is_under_way_once_and_each_key_in_its_order(buffer_by: Any, shards: int) -> None:
    async def scenario() -> None:
        async with cluster(shards=3) as (_, client), client.producer(STREAM, buffer_by=buffer_by) as producer:
            await producer.append({"id": -1}, key="0")
            await client.delete_stream(STREAM)
            await client.create_stream(STREAM, shard_count=shards)
            for number in range(300):
                await producer.submit({"id": number}, key=str(number % 7))
                if number % 50 == 0:
                    await asyncio.sleep(0.05)  # some are taken after the first failure
            await producer.flush()
            stored: dict[str, list[Any]] = {}
            for shard in await client.list_shards(STREAM):
                async for frame in client.read_shard(STREAM, shard.shard_id):
                    for each in frame.decode().records:
                        assert isinstance(each.record, HRecord)
                        stored.setdefault(each.key, []).append(each.record.fields["id"])
            assert stored == {str(key): list(range(key, 300, 7)) for key in range(7)}

    asyncio.run(scenario())


def test_an_append_to_a_stream_that_was_deleted_says_so() -> None:
    async def scenario() -> None:
        async with cluster() as (_, client), client.producer(STREAM) as producer:
            await producer.append({"id": 1})
            await client.delete_stream(STREAM)
            with pytest.raises(SourceRefused, match="StreamNotFound"):
                await producer.append({"id": 2})

    asyncio.run(scenario())
