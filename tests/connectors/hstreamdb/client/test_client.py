"""The client against a cluster: streams and subscriptions, and records that survive nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from silverfold.conf.errors import ConfigError, SourceRefused, SourceUnavailable
from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RawRecord, RecordId
from silverfold.connectors.hstreamdb.protocol.streams import find_shard, key_hash, key_ranges
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, DescribeLayout, ServerTls
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from tests.support.certificates import AUTHORITY, trusted_file
from tests.support.hstreamdb.receiving import QUICK
from tests.support.hstreamdb.vectors import vectors

Use = Callable[[Client, HStreamServer], Awaitable[Any]]


def run(use: Use, **options: Any) -> Any:
    """Run a client against a cluster of three nodes, whose waits are short."""

    async def work(cluster: HStreamServer) -> Any:
        async with await connect(cluster.address) as client:
            return await use(client, cluster)

    with HStreamServer.start(ClusterOptions(ticks=QUICK, **options)) as cluster:
        return asyncio.run(work(cluster))


@pytest.mark.parametrize("json_statuses", [True, False])
def test_streams_are_created_once_listed_and_deleted(json_statuses: bool) -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        created = await client.create_stream("orders", shard_count=3)
        assert (created.replication_factor, created.shard_count, created.backlog_duration) == (1, 3, 604_800)
        assert await client.create_stream("orders", shard_count=3) == created
        with pytest.raises(ConfigError, match="stream orders: shard_count: found 3, allowed: 2"):
            await client.create_stream("orders", shard_count=2)
        await client.create_stream("other")
        assert [each.stream_name for each in await client.list_streams()] == ["orders", "other"]
        assert [each.stream_name for each in await client.list_streams("ot")] == ["other"]
        assert await client.get_stream("orders") == created
        assert len(await client.list_shards("orders")) == 3
        await client.create_subscription("f", "orders")
        with pytest.raises(SourceRefused, match="subscription"):
            await client.delete_stream("orders")
        await client.delete_stream("orders", force=True)
        with pytest.raises(SourceRefused, match="StreamNotFound"):
            await client.delete_stream("orders")
        await client.delete_stream("orders", ignore_non_exist=True)
        with pytest.raises(SourceRefused, match="StreamNotFound"):
            await client.list_shards("orders")

    run(use, json_statuses=json_statuses)


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"shard_count": 0}, "205|ShardCount"), ({"replication_factor": 0}, "203|Replica"), ({"name": "1"}, "Identifier")],
)
def test_a_stream_with_wrong_settings_is_refused(settings: dict[str, Any], match: str) -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        with pytest.raises(SourceRefused, match=match):
            await client.create_stream(**{"name": "orders", **settings})

    run(use, nodes=1)


@pytest.mark.parametrize("found", [-1, 1 << 32])
@pytest.mark.parametrize("key", ["shard_count", "replication_factor", "backlog_duration"])
def test_a_number_that_no_message_holds_is_a_mistake_of_settings(key: str, found: int) -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        with pytest.raises(ConfigError, match=f"stream orders: {key}: found {found}, allowed: 0 to 4,294,967,295"):
            await client.create_stream("orders", **{key: found})

    run(use, nodes=1)


@pytest.mark.parametrize("json_statuses", [True, False])
def test_subscriptions_are_created_once_with_our_defaults_listed_and_deleted_at_their_node(json_statuses: bool) -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        await client.create_stream("orders")
        for name in ("f", "g", "h", "i"):
            made = await client.create_subscription(name, "orders")
            assert (made.ack_timeout_seconds, made.max_unacked_records, made.offset) == (60, 100_000, 0)
        assert await client.create_subscription("i", "orders") == made
        with pytest.raises(ConfigError, match="subscription i: offset: found 'earliest', allowed: 'latest'"):
            await client.create_subscription("i", "orders", offset=SpecialOffset.LATEST)
        with pytest.raises(ConfigError, match="ack_timeout_seconds: found 0, allowed: 1 to 35,999"):
            await client.create_subscription("j", "orders", ack_timeout_seconds=0)
        with pytest.raises(SourceRefused, match="NonExistentStream"):
            await client.create_subscription("j", "none")
        assert [each.subscription_id for each in await client.list_subscriptions()] == ["f", "g", "h", "i"]
        assert [each.subscription_id for each in await client.list_subscriptions("h")] == ["h"]
        assert (await client.get_subscription("g")).subscription.stream_name == "orders"
        for name in ("f", "g", "h", "i"):
            async with await client.open_fetch(name) as fetch:
                while not (consumers := await client.list_consumers(name)):
                    await asyncio.sleep(0.01)
                assert [each.name for each in consumers] == [fetch.consumer]
                assert consumers[0].user_agent.startswith("silverfold")
                with pytest.raises(SourceRefused, match="FoundActiveConsumers"):
                    await client.delete_subscription(name)
            await client.delete_subscription(name, force=True)
            assert not await client.has_subscription(name)
        with pytest.raises(SourceRefused, match="SubscriptionNotFound"):
            await client.delete_subscription("f")

    run(use, json_statuses=json_statuses)


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize("layout", ["new", "old"])
def test_what_is_produced_is_consumed_whole_each_key_in_its_order(compression: Any, layout: str) -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        await client.create_stream("orders", shard_count=3)
        await client.create_subscription("f", "orders")
        appended = {}
        async with client.producer("orders", compression=compression, max_records=7) as producer:
            for number in range(200):
                record = HRecord({"n": number}, {"a": "b"}) if number % 2 else RawRecord(b"%d" % number)
                appended[number] = await producer.submit(record, key=f"key {number % 5}")
        numbers: dict[str, list[int]] = {}
        ranges = key_ranges(await client.list_shards("orders"))
        async with aclosing(client.fetch("f")) as records:
            for _ in range(200):
                each = await anext(records)
                record = each.record
                assert record is not None
                number = int(record.fields["n"]) if isinstance(record, HRecord) else int(record.payload)
                assert record.attributes == ({"a": "b"} if number % 2 else {})
                assert await appended[number] == each.id
                assert each.id.shard_id == find_shard(ranges, key_hash(each.key))
                assert each.published_ms > 1_600_000_000_000
                numbers.setdefault(each.key, []).append(number)
                await each.ack()
        assert numbers == {f"key {key}": list(range(key, 200, 5)) for key in range(5)}
        offsets = {each.shard_id: each.batch_id for each in (await client.get_subscription("f")).offsets}
        for shard, last in offsets.items():
            assert last == 0 or (await client.tail("orders", shard)).batch_id == last

    run(use, describe_layout=DescribeLayout(layout))


def test_shards_are_read_by_offset_and_trimmed() -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        await client.create_stream("orders")
        (shard,) = [each.shard_id for each in await client.list_shards("orders")]
        assert [each async for each in client.read_shard("orders", shard)] == []
        ids = [await client.append("orders", b"%d" % number) for number in range(10)]

        async def read(*offsets: Any) -> list[RecordId]:
            frames = [each async for each in client.read_shard("orders", shard, *offsets)]
            return [record.id for each in frames for record in each.decode().records]

        assert await client.tail("orders", shard) == ids[-1]
        assert await read() == ids
        assert await read(ids[3], ids[5]) == ids[3:6]
        await client.trim_shard("orders", shard, ids[1])
        assert await read() == ids[2:]
        assert await client.trim_shards("orders", [ids[4], ids[5]]) == {shard: str(ids[4])}
        assert await read() == ids[4:]
        await client.trim_stream("orders", SpecialOffset.LATEST)
        assert await read() == []
        with pytest.raises(SourceRefused, match="Shard"):
            await read(RecordId(shard + 1, 1, 0))

    run(use)


def test_what_is_not_acknowledged_comes_again() -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        await client.create_stream("orders")
        await client.create_subscription("f", "orders", ack_timeout_seconds=1)
        async with client.producer("orders", max_records=4) as producer:
            for number in range(4):
                await producer.submit(b"%d" % number)
        seen = Counter[bytes]()
        async with aclosing(client.fetch("f")) as records:
            async for each in records:
                assert isinstance(each.record, RawRecord)
                seen[each.record.payload] += 1
                if each.id.batch_index != 2 or seen[each.record.payload] == 2:
                    await each.ack()
                if seen.total() == 5:
                    break
        assert seen == {b"0": 1, b"1": 1, b"2": 2, b"3": 1}

    run(use)


def test_a_slow_consumer_with_little_room_gets_every_record_in_the_end() -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        await client.create_stream("orders")
        await client.create_subscription("f", "orders", ack_timeout_seconds=1)
        async with client.producer("orders", max_records=10) as producer:
            for number in range(500):
                await producer.submit(b"%d" % number)
        received = set()
        async with asyncio.timeout(60), aclosing(client.fetch("f", max_buffered_bytes=5_000)) as records:
            async for each in records:
                assert isinstance(each.record, RawRecord)
                received.add(int(each.record.payload))
                if each.id.batch_index == 0:
                    await asyncio.sleep(0.02)
                await each.ack()
                if len(received) == 500:
                    break

    run(use)


def test_records_survive_nodes_that_die_under_appends_and_fetches() -> None:
    async def use(client: Client, cluster: HStreamServer) -> None:
        await client.create_stream("orders", shard_count=3)
        await client.create_subscription("f", "orders", ack_timeout_seconds=1)
        received: set[int] = set()

        async def consume() -> None:
            async with aclosing(client.fetch("f", rng=Random(1))) as records:
                async for each in records:
                    assert isinstance(each.record, RawRecord)
                    received.add(int(each.record.payload))
                    await each.ack()
                    if len(received) == 3_000:
                        break

        async def produce() -> None:
            async with client.producer("orders", max_records=10, rng=Random(2)) as producer:
                for number in range(3_000):
                    await producer.submit(b"%d" % number, key=str(number % 17))
                    if number % 50 == 0:
                        await asyncio.sleep(0.01)

        async def disturb() -> None:
            for node in (1, 2, 3):
                await asyncio.sleep(0.15)
                await asyncio.to_thread(cluster.kill, node)
                await asyncio.sleep(0.1)
                await asyncio.to_thread(cluster.restart, node)
            await asyncio.to_thread(cluster.disconnect, 1)

        async with asyncio.timeout(60):
            await asyncio.gather(consume(), produce(), disturb())
        assert received == set(range(3_000))

    run(use, member_delay=0.1)


def test_half_of_the_nodes_gone_is_no_error_and_all_gone_is_one() -> None:
    async def use(client: Client, cluster: HStreamServer) -> None:
        await client.create_stream("orders", shard_count=4)
        for node in (1, 2):
            await asyncio.to_thread(cluster.kill, node)
        for number in range(20):
            await client.append("orders", b"x", key=str(number))
        assert len(await client.list_streams()) == 1
        for node in (3, 4):
            await asyncio.to_thread(cluster.kill, node)
        with pytest.raises(SourceUnavailable):
            await client.list_streams()
        async with client.producer("orders", max_tries=2) as producer:
            with pytest.raises(SourceUnavailable):
                await producer.append(b"x")

    run(use, nodes=4)


def test_a_subscription_deleted_under_the_fetch_ends_it() -> None:
    async def use(client: Client, _cluster: HStreamServer) -> None:
        await client.create_stream("orders")
        await client.create_subscription("f", "orders")
        await client.append("orders", b"x")
        async with aclosing(client.fetch("f")) as records:
            await anext(records)
            following = asyncio.ensure_future(anext(records))
            await client.delete_subscription("f", force=True)
            with pytest.raises(SourceRefused, match="SubscriptionNotFound"):
                await following

    run(use)


def test_an_advertised_host_that_cannot_be_reached_is_mapped() -> None:
    with HStreamServer.start(ClusterOptions(nodes=2, advertised_host="Node.invalid")) as cluster:
        url = "hstream://" + ",".join(f"127.0.0.1:{port}" for port in cluster.ports)

        async def wrong() -> None:
            async with await connect(url) as client:
                await client.create_stream("orders")

        async def mapped() -> RecordId:
            advertised = {f"node.invalid:{port}": f"127.0.0.1:{port}" for port in cluster.ports}
            async with await connect(url, advertised=advertised) as client:
                await client.create_stream("orders")
                return await client.append("orders", b"x")

        with pytest.raises(SourceUnavailable, match="`advertised` maps"):
            asyncio.run(wrong())
        assert asyncio.run(mapped()).batch_index == 0


def test_a_cluster_with_tls_and_tokens_lets_in_who_has_one(tmp_path: Path) -> None:
    issued = AUTHORITY.issue_cert("127.0.0.1")
    files = tmp_path / "node.pem", tmp_path / "node.key"
    issued.cert_chain_pems[0].write_to_path(str(files[0]))
    issued.private_key_pem.write_to_path(str(files[1]))
    (token,) = vectors("token")
    options = ClusterOptions(ticks=QUICK, tls=ServerTls(*files), tokens=[token["token"]])

    async def use(url: str, given: str) -> None:
        tls = {"root_certificate": trusted_file(tmp_path)}
        async with await connect(url, tls=tls, token=given) as client:
            await client.create_stream("orders")
            await client.create_subscription("f", "orders")
            await client.append("orders", b"x")
            await anext(client.fetch("f"))

    with HStreamServer.start(options) as cluster:
        asyncio.run(use(cluster.address, token["token"]))
        with pytest.raises(SourceRefused, match="Invalid token") as refused:
            asyncio.run(use(cluster.address, "d3Jvbmc6d3Jvbmc="))
        assert "d3Jvbmc6d3Jvbmc=" not in str(refused.value)
