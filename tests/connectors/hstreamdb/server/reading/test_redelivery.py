"""Redelivery: which records come again, in which batch, and when."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from silverfold.connectors.hstreamdb.protocol.compression import compress
from silverfold.connectors.hstreamdb.protocol.frames import decode_frame
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, CompressionType
from silverfold.connectors.hstreamdb.protocol.messages.streams import Stream
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Subscription
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server.options import ClusterOptions
from silverfold.connectors.hstreamdb.server.reading.consumers import ConsumerBuffer
from silverfold.connectors.hstreamdb.server.reading.context import ReadingContext
from silverfold.connectors.hstreamdb.server.reading.delivery_state import DeliveryState
from silverfold.connectors.hstreamdb.server.reading.redelivery import pick_records
from silverfold.connectors.hstreamdb.server.store.store import Store, StoreLimits
from tests.support.hstreamdb.batches import numbered, numbers_in
from tests.support.hstreamdb.vectors import names, vectors
from tests.support.hstreamdb.virtual_time import run_in_virtual_time


@pytest.mark.parametrize("vector", vectors("redelivery"), ids=names("redelivery"))
def test_the_rest_of_a_batch_is_a_batch(vector: dict[str, Any]) -> None:
    shard, batch, size = int(vector["shard"]), int(vector["batch"]), vector["size"]
    stored = numbered(range(size), CompressionType[vector["compression"].upper()])
    stored.publish_time.FromMilliseconds(1_700_000_000_123)
    state = DeliveryState({shard: batch}, max_unacked=10, timeout=0)
    state.windows[shard].read(batch, size)
    state.sent(shard, batch, size)
    state.acknowledge([RecordId(shard, batch, index) for index in vector["acked"]])
    due = state.tick(1.0)
    expected = vector["expect"]
    assert [sorted(each.indexes) for each in due] == ([expected["record_ids"]] if expected else [])
    if expected:
        picked = pick_records(stored, expected["record_ids"])
        assert picked is not None
        assert (picked.batch_size, picked.compression_type) == (expected["batch_size"], stored.compression_type)
        assert picked.publish_time == stored.publish_time
        assert picked.payload == numbered(expected["records"], stored.compression_type).payload


@pytest.mark.parametrize(
    "payload", [b"\xff", compress(b"\x00" * (65 << 20), CompressionType.ZSTD)], ids=["no batch", "a bomb"]
)
def test_a_batch_that_cannot_be_opened_is_not_sent_again(payload: bytes) -> None:
    kind = CompressionType.NONE if payload == b"\xff" else CompressionType.ZSTD
    assert pick_records(BatchedRecord(compression_type=kind, batch_size=1, payload=payload), [0]) is None


def test_a_batch_with_fewer_records_than_its_producer_said_is_not_sent_again() -> None:
    assert pick_records(numbered([1, 2]), [1, 2]) is None


@pytest.mark.parametrize("vector", vectors("redelivery_times"), ids=names("redelivery_times"))
def test_records_come_again_when_they_are_due(vector: dict[str, Any]) -> None:
    frames = run_in_virtual_time(replayed(vector))
    expected = [(at, consumer) for at, what, consumer in vector["events"] if what in {"sent", "resent"}]
    assert [consumer for _, consumer in frames] == [consumer for _, consumer in expected]
    steps = range(1, len(expected) + 1)
    for step, (at, _), (expected_at, _) in zip(steps, frames, expected, strict=True):
        assert at == pytest.approx(expected_at, abs=vector["tolerance_s"] * step)


async def replayed(vector: dict[str, Any]) -> list[tuple[float, str]]:
    """Let consumers come and go at a context with one batch; return when who got a frame."""
    store = Store(StoreLimits(), clock=lambda: 1_700_000_000.0, chance=Random(1))
    stream = store.create_stream(Stream(stream_name="s", replication_factor=1, shard_count=1))
    subscription = store.create_subscription(
        Subscription(
            subscription_id="sub",
            stream_name="s",
            ack_timeout_seconds=vector["ack_timeout_s"],
            max_unacked_records=10,
        )
    )
    (shard,) = stream.logs
    store.append(shard, numbered(range(2)))
    context = ReadingContext(subscription, ClusterOptions())
    context.start()
    loop, found, start = asyncio.get_running_loop(), list[tuple[float, str]](), asyncio.Future[float]()
    tasks: dict[str, asyncio.Task[None]] = {}

    async def consume(consumer: ConsumerBuffer) -> None:
        context.join(consumer)
        try:
            while True:
                frame = await consumer.next_frame()
                assert len(numbers_in(frame)) == decode_frame(frame).records[-1].id.batch_index + 1 == 2
                if not start.done():
                    start.set_result(loop.time())
                found.append((loop.time() - start.result(), consumer.name))
        finally:
            context.leave(consumer)

    def come(name: str) -> None:
        tasks[name] = asyncio.create_task(consume(ConsumerBuffer(name, "", "", buffer=64)))

    come("c1")
    began = await start
    for at, what, name in vector["events"]:
        await asyncio.sleep(began + at - loop.time())
        if what == "joined":
            come(name)
        elif what == "left":
            tasks[name].cancel()
    await asyncio.sleep(0.5)
    for each in tasks.values():
        each.cancel()
    await asyncio.gather(*tasks.values(), context.close(), return_exceptions=True)
    return found
