"""Our client consumes what the official Python client produced, and the official one consumes what ours produced."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RawRecord
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from tests.interop.sqlitecloud_clients import OfficialClient
from tests.interop.test_hstreamdb_clients import address, official  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("hstreamdb")]

PRODUCED = 3 * 3 + 2 + 10


def test_ours_consumes_what_the_official_client_produced(official: OfficialClient) -> None:  # noqa: F811 - the fixture
    async def consume(url: str) -> tuple[dict[str, str], set[str]]:
        found, keys = {}, set()
        async with await connect(url) as client:
            await client.create_subscription("f", "official")
            async with aclosing(client.fetch("f")) as records:
                for _ in range(PRODUCED):
                    each = await anext(records)
                    keys.add(each.key)
                    await each.ack()
                    match each.record:
                        case HRecord(fields):
                            found[str(list(each.id))] = json.dumps(fields)
                        case RawRecord(payload):
                            found[str(list(each.id))] = payload.decode()
            offsets = {each.shard_id: each.batch_id for each in (await client.get_subscription("f")).offsets}
            for shard, last in offsets.items():
                assert (await client.tail("official", shard)).batch_id == last
        return found, keys

    with HStreamServer.start() as cluster:
        saw = official.run("produce", address(cluster))
        found, keys = asyncio.run(consume(cluster.address))
    appended = {str(record_id): text for text, record_id in saw["appended"].items()}
    buffered = {json.dumps({"n": number}) for number in saw["buffered"]}
    assert {each: found[each] for each in appended} == appended
    assert {text for each, text in found.items() if each not in appended} == buffered
    assert keys == {"", *(f"k{number}" for number in range(10))}


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_official_client_consumes_what_ours_produced(
    official: OfficialClient,  # noqa: F811 - the fixture
    compression: Any,
) -> None:
    async def produce(url: str) -> dict[str, Any]:
        records = [{"n": number, "nested": {"list": [1, "x", None]}} for number in range(30)]
        async with await connect(url) as client:
            await client.create_stream("ours", shard_count=3)
            async with client.producer("ours", compression=compression, max_records=3) as producer:
                futures = [await producer.submit(each, key=str(each["n"])) for each in records]
            return {str(list(await each)): record for each, record in zip(futures, records, strict=True)}

    with HStreamServer.start() as cluster:
        sent = asyncio.run(produce(cluster.address))
        saw = official.run("consume", address(cluster))
    assert saw["seen"] == sent
    assert saw["again"]
