"""Measures fetching, landing and acknowledging, against a bare gRPC reader and the official client."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from uuid import uuid4

from grpc import aio

from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.protocol.messages.batches import (
    CompressionType,
    StreamingFetchRequest,
    StreamingFetchResponse,
)
from silverfold.connectors.hstreamdb.protocol.methods import STREAMING_FETCH
from silverfold.connectors.hstreamdb.receiver.receiver import HStreamReceiver
from silverfold.jobs.receive import collect_rarely
from silverfold.pipelines.places import Place
from tests.bench.hstreamdb.source import STREAM, Stored, cluster, feed_at
from tests.bench.sqlitecloud.landing import Spent, landing_at, median, now, since
from tests.interop.sqlitecloud_clients import OfficialClient

LONGEST = 600.0
"""Timeout of a measurement, in seconds."""


def landing(stored: Stored, runs: int, official: OfficialClient | None) -> dict[str, object]:
    """Land, read and let the official client read, alternating; return the line to print."""
    spent: dict[str, list[Spent]] = {"landed": [], "bare": [], "official": []}
    peer = official if stored.compression is not CompressionType.ZSTD else None
    collect_rarely()  # as the receive command does
    with cluster(stored) as address:
        for _ in range(runs):
            spent["bare"].append(asyncio.run(acknowledged(address, stored, read_bare)))
            spent["landed"].append(asyncio.run(acknowledged(address, stored, land)))
            if peer is not None:
                spent["official"].append(spent_by_official(address, stored, peer))
    found = {name: median(each) for name, each in spent.items() if each}
    ours = found["landed"]
    line = {
        "bench": "hstreamdb-landing",
        "records": stored.records,
        "batch": stored.batch,
        "compression": stored.compression.name.lower(),
        **{f"{name}_per_second": round(stored.records / each.seconds) for name, each in found.items()},
        "processor_microseconds": {
            name: round(1e6 * each.processor / stored.records, 2) for name, each in found.items()
        },
        "ratio": round(found["bare"].seconds / ours.seconds, 2),
        "processor_ratio": round(found["bare"].processor / ours.processor, 2),
        "aim": 0.6,
        "runs": runs,
    }
    if "official" in found:
        their = found["official"]
        line |= {"official_ratio": round(their.seconds / ours.seconds, 1), "official_aim": 5}
        line |= {"official_processor_ratio": round(their.processor / ours.processor, 1)}
    return line


Reading = Callable[[str, str, int, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Reads an address's subscription of so many records; awaits its last argument once it has them all."""


async def acknowledged(address: str, stored: Stored, reading: Reading) -> Spent:
    """Return the time until the checkpoint of a new subscription is the last record."""
    subscription = f"bench-{uuid4().hex}"
    await subscribe(address, subscription, stored.records)
    async with await connect(address) as client:
        began = now()
        await reading(address, subscription, stored.records, lambda: checkpoint(client, subscription))
        return since(began)


async def checkpoint(client: Client, subscription: str) -> None:
    """Wait until everything is acknowledged."""
    (shard,) = await client.list_shards(STREAM)
    tail = await client.tail(STREAM, shard.shard_id)
    async with asyncio.timeout(LONGEST):
        while all(each.batch_id != tail.batch_id for each in (await client.get_subscription(subscription)).offsets):
            await asyncio.sleep(0.005)


async def read_bare(address: str, subscription: str, records: int, done: Callable[[], Awaitable[None]]) -> None:
    """Read frames, count and acknowledge their ids, as plainly as gRPC allows."""
    async with aio.insecure_channel(address.removeprefix("hstream://")) as channel:
        call = channel.stream_stream(
            STREAMING_FETCH.path,
            request_serializer=StreamingFetchRequest.SerializeToString,
            response_deserializer=StreamingFetchResponse.FromString,
        )()
        await call.write(StreamingFetchRequest(subscription_id=subscription, consumer_name="bare"))
        seen = 0
        while seen < records:
            ids = (await call.read()).received_records.record_ids
            seen += len(ids)
            await call.write(
                StreamingFetchRequest(subscription_id=subscription, consumer_name="bare", ack_ids=list(ids))
            )
        await done()
        await call.done_writing()
        while await call.read() is not aio.EOF:
            pass


async def land(address: str, subscription: str, records: int, done: Callable[[], Awaitable[None]]) -> None:
    """Land frames in a new bronze table, as the receiver does."""
    del records
    with tempfile.TemporaryDirectory(prefix="landing-") as folder:
        receiver = HStreamReceiver(feed_at(address, subscription), {})
        async with landing_at(Place(f"{folder}/bronze"), receiver):
            await done()


def spent_by_official(address: str, stored: Stored, client: OfficialClient) -> Spent:
    """Return the time in which the official client gets all records and has sent their acknowledgements."""
    subscription = f"official-{uuid4().hex}"
    asyncio.run(subscribe(address, subscription, stored.records))
    node = address.removeprefix("hstream://")
    return Spent(*client.run("consume", node, subscription, str(stored.records)))


async def subscribe(address: str, subscription: str, records: int) -> None:
    """Create a subscription whose window is larger than the stream: else it is what is measured."""
    async with await connect(address) as client:
        await client.create_subscription(subscription, STREAM, max_unacked_records=records + 1)
