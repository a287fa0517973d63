"""Records that never come: what tells the receiver so, and lands as a warning."""

from __future__ import annotations

import asyncio

import pytest

from silverfold.connectors.frames import Resume
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.receiving import CountingSink, append, cluster, feed, received, until


def resume_of(*sinks: CountingSink) -> Resume:
    """Return where a receiver goes on that has landed all of this."""
    frames = [frame for sink in sinks for frame in sink.frames]
    positions = [frame.source_position for frame in frames if frame.source_position is not None]
    return Resume(2, {STREAM: CONNECTOR.resume_position(positions)}, sinks[-1].control[-1])


def test_a_subscription_that_somebody_else_made_anew_at_the_end_is_a_warning() -> None:
    async def run() -> None:
        first, second = CountingSink(), CountingSink()
        async with cluster() as (server, client):
            settings = feed(server.address, offset="latest")
            async with received(settings, first):  # which ends before anything is recorded as acknowledged
                await until(lambda: bool(first.marks("subscribed")))
            await client.delete_subscription("feed", force=True)
            await client.create_subscription("feed", STREAM, offset=SpecialOffset.LATEST)
            async with received(settings, second, Resume(2, last_control=first.control[-1])):
                await until(lambda: bool(second.marks("subscribed")))
        assert first.marks("begun at the end") == []
        (found,) = second.marks("begun at the end")
        assert found["level"] == "warning"

    asyncio.run(run())


def test_what_another_warehouse_acknowledged_is_a_warning_once() -> None:
    async def run() -> None:
        here, there, again = CountingSink(), CountingSink(), CountingSink()
        async with cluster(shards=4) as (server, client):
            settings = feed(server.address)
            for sink, numbers in ((here, range(20)), (there, range(20, 40))):
                async with received(settings, sink):
                    await append(client, numbers)
                    await until(lambda sink=sink: len(sink.values()) == 20)  # type: ignore[misc]  # a default binds it
            async with received(settings, again, resume_of(here)):
                await until(lambda: bool(again.marks("subscribed")))
                await append(client, range(40, 60))
                await until(lambda: len(again.values()) == 20)
            async with received(settings, again, resume_of(here, again)):
                await until(lambda: len(again.marks("subscribed")) == 2)
        assert here.marks("acknowledged elsewhere") == []
        for sink in (there, again):
            (found,) = sink.marks("acknowledged elsewhere")
            assert found["level"] == "warning"
            assert len(found["batches"]) == 4

    asyncio.run(run())


@pytest.mark.parametrize("is_followed", [True, False])
def test_records_that_the_stream_drops_before_they_landed_are_a_warning(is_followed: bool) -> None:
    async def run() -> None:
        first, second, third = CountingSink(), CountingSink(), CountingSink()
        async with cluster() as (server, client):
            settings = feed(server.address)
            ids = []
            for number in range(6):
                ids.append(await client.append(STREAM, {"id": number}))
                if number == 1:
                    async with received(settings, first):
                        await until(lambda: first.values() == [0, 1])
            await client.trim_shard(STREAM, ids[0].shard_id, ids[1])
            async with received(settings, second, resume_of(first)):
                await until(lambda: bool(second.values()) and bool(second.marks("progress")))
            last = await client.append(STREAM, {"id": 6})
            await client.trim_shard(STREAM, ids[0].shard_id, last)
            if is_followed:
                await client.append(STREAM, {"id": 7})
            async with received(settings, third, resume_of(first)):
                await until(lambda: bool(third.marks("progress")) and (not is_followed or third.values() == [7]))
                await until(lambda: bool(third.marks("expired")))
        assert second.marks("expired") == []
        (found,) = third.marks("expired")
        assert found["level"] == "warning"
        assert found["shards"] == {str(last.shard_id): f"5 batches behind {ids[1].batch_id}"}

    asyncio.run(run())


def test_records_that_came_again_last_are_no_sign_of_another_warehouse() -> None:
    assert CONNECTOR.resume_position(["7-9-0", "8-3-0", "7-5-0"]) == "7-9,8-3"
    assert CONNECTOR.resume_position(["7-9,8-3", "8-4-0"]) == "7-9,8-4"
