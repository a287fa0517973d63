"""Looks at a subscription: lag, starvation, and consumers that are not ours."""

from __future__ import annotations

import asyncio

import pytest

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.frames import Resume
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.options import HStreamOptions
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Consumer, Subscription
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue
from silverfold.connectors.hstreamdb.receiver.progress import Progress
from silverfold.connectors.hstreamdb.server.options import Fault
from tests.support.epochs import in_background
from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.receiving import CountingSink, append, cluster, feed, received, until


def looking(
    client: Client,
    options: HStreamOptions,
    found: Subscription,
    now: list[float],
    epoch: Epoch | None = None,
    *,
    control: ControlFrames | None = None,
) -> Progress:
    return Progress(
        client,
        options,
        epoch or Epoch(STREAM),
        control or ControlFrames(options, found, None),
        subscription=found,
        overdue=Overdue(),
        feed="feed",
        ours="feed-11111111-",
        clock=lambda: now[0],
    )


def test_a_shard_that_another_consumer_owns_starves_the_feed_and_says_who_has_it() -> None:
    async def run() -> None:
        sink, now = CountingSink(), [0.0]
        async with cluster() as (server, client):
            options = feed(server.address, quick_looks=True).options
            found = await client.create_subscription("feed", STREAM)
            await append(client, [1])
            async with await client.open_fetch("feed", consumer_prefix="stranger") as fetch:
                await fetch.next_frame()
                progress = looking(client, options, found, now)
                task = asyncio.create_task(progress.run(sink, lambda: 0))
                await until(lambda: bool(sink.marks("progress")))
                now[0] = 61.0
                await until(lambda: bool(sink.marks("starved")))
                await sink.looked()
                task.cancel()
                (shard,) = await client.list_shards(STREAM)
                (starved,) = sink.marks("starved")
                assert starved["shards"] == [str(shard.shard_id)]
                assert starved["consumers"] == [fetch.consumer]
                assert [each["consumers"] for each in sink.marks("shared subscription")] == [[fetch.consumer]]

    asyncio.run(run())


@pytest.mark.parametrize(("listed", "is_over"), [([1, 0, 0], True), ([1, 0, 1, 0], False), ([0, 0, 0], False)])
def test_a_cluster_that_forgets_our_consumers_ends_the_epoch_at_the_second_look(
    listed: list[int], is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [[Consumer(name="feed-11111111-x")] * count for count in listed]

    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            found = await client.create_subscription("feed", STREAM)

            async def list_consumers(_subscription_id: str) -> list[Consumer]:
                if answers:
                    return answers.pop(0)
                return await asyncio.Future()

            monkeypatch.setattr(client, "list_consumers", list_consumers)
            progress = looking(client, feed(server.address, quick_looks=True).options, found, [0.0])
            task = asyncio.create_task(progress.run(sink, lambda: 0))
            if is_over:
                with pytest.raises(SourceUnavailable, match="feed: the cluster does not list our consumers any more"):
                    await task
            else:
                await until(lambda: not answers)
                await asyncio.sleep(0.1)
                assert not task.done()
                task.cancel()
            assert sink.marks("starved") == []

    asyncio.run(run())


def test_a_receiver_of_another_warehouse_by_the_same_feed_name_is_noticed_at_the_second_look() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            options = feed(server.address, quick_looks=True).options
            found = await client.create_subscription("feed", STREAM)
            async with (
                await client.open_fetch("feed", consumer_prefix="feed-11111111"),
                await client.open_fetch("feed", consumer_prefix="feed-22222222") as other,
            ):
                await until(lambda: server.client_count == 2)
                task = asyncio.create_task(looking(client, options, found, [0.0]).run(sink, lambda: 0))
                await until(lambda: bool(sink.marks("progress")))
                assert sink.marks("shared subscription") == []
                await until(lambda: bool(sink.marks("shared subscription")))
                task.cancel()
            assert [each["consumers"] for each in sink.marks("shared subscription")] == [[other.consumer]]

    asyncio.run(run())


@pytest.mark.parametrize("offset", ["earliest", "latest"])
def test_a_feed_without_records_to_come_is_not_starved(offset: str) -> None:
    async def run() -> None:
        sink, now = CountingSink(), [0.0]
        async with cluster() as (server, client):
            options = feed(server.address, quick_looks=True, offset=offset).options
            if offset == "latest":
                await append(client, [1])
            found = await client.create_subscription("feed", STREAM, offset=SpecialOffset[offset.upper()])
            progress = looking(client, options, found, now)
            task = asyncio.create_task(progress.run(sink, lambda: 0))
            await sink.looked()
            now[0] = 61.0
            await sink.looked()
            task.cancel()
            assert not sink.marks("starved")

    asyncio.run(run())


@pytest.mark.parametrize(
    "fault",
    [
        Fault("ReadShardStream", range(1_000), None, delay=1_000),
        Fault("ListConsumers", range(1_000), "UNIMPLEMENTED", "unknown method"),
    ],
)
def test_a_call_that_fails_or_is_never_answered_costs_no_other_part_of_a_look(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silverfold.connectors.hstreamdb.receiver.gaps._READ_SECONDS", 0.1)

    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            await append(client, [1])
            found = await client.create_subscription("feed", STREAM)
            server.add_fault(fault)
            progress = looking(client, feed(server.address).options, found, [0.0])
            async with in_background(progress.run(sink, lambda: 0)):
                await until(lambda: bool(sink.control) and bool(sink.marks("progress")), 4.0)

    asyncio.run(run())


def test_a_look_that_is_cut_off_has_landed_what_it_found() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            found = await client.create_subscription("feed", STREAM)
            server.add_fault(Fault("ListConsumers", range(1_000), None, delay=1_000))
            options = feed(server.address).options
            control = ControlFrames(options, found, None)
            async with in_background(looking(client, options, found, [0.0], control=control).run(sink, lambda: 0)):
                await until(lambda: control.last is not None)
        assert sink.control == [control.last]

    asyncio.run(run())


def test_a_gap_is_looked_up_before_the_next_look_is_due() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            found = await client.create_subscription("feed", STREAM)
            ids = [await client.append(STREAM, {"id": number}) for number in range(3)]
            server.lose_batch(ids[1].shard_id, ids[1].batch_id)
            progress = looking(client, feed(server.address, committed_seconds=3_600).options, found, [0.0])
            async with in_background(progress.run(sink, lambda: 0)):
                await until(lambda: bool(sink.marks("progress")))
                for each in (ids[0], ids[2]):
                    progress.frames(FetchedFrame(b"", [each]), "consumer")
                await until(lambda: bool(sink.marks("expired")))

    asyncio.run(run())


def test_frames_that_come_after_the_first_look_are_not_behind_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silverfold.connectors.hstreamdb.receiver.progress._FIRST_SECONDS", 1.1)

    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            found = await client.create_subscription("feed", STREAM)
            last = await client.append(STREAM, {"id": 1})
            progress = looking(client, feed(server.address, committed_seconds=3_600).options, found, [0.0])
            async with in_background(progress.run(sink, lambda: 0)):
                await until(lambda: bool(sink.marks("progress")))
                progress.frames(FetchedFrame(b"", [last]), "consumer")
                await until(lambda: len(sink.marks("progress")) == 2)
        shard = f"shard {last.shard_id}"
        assert [each["parts"][shard]["batches_behind"] for each in sink.marks("progress")] == [1, 0]

    asyncio.run(run())


def test_a_feed_from_the_end_is_behind_by_what_came_while_it_was_away() -> None:
    async def run() -> None:
        first, second = CountingSink(), CountingSink()
        async with cluster() as (server, client):
            settings = feed(server.address, offset="latest")
            await append(client, [0])
            async with received(settings, first):
                await until(lambda: bool(first.marks("progress")))
            async with await client.open_fetch("feed"):
                for number in range(3):
                    await append(client, [number])
                async with received(settings, second, Resume(2, last_control=first.control[-1])):
                    await until(lambda: bool(second.marks("progress")))
        behind = [
            next(iter(each["parts"].values()))["batches_behind"]
            for sink in (first, second)
            for each in sink.marks("progress")
        ]
        assert behind == [0, 3]

    asyncio.run(run())


def test_lag_and_what_is_not_acknowledged_and_what_came_again_are_reported_when_they_change() -> None:
    async def run() -> None:
        sink, epoch = CountingSink(), Epoch(STREAM)
        async with cluster() as (server, client):
            options = feed(server.address, quick_looks=True).options
            found = await client.create_subscription("feed", STREAM)
            for numbers in (range(10), range(10, 20), range(20, 30)):
                await append(client, numbers)
            (shard,) = await client.list_shards(STREAM)
            frames = [each async for each in client.read_shard(STREAM, shard.shard_id)]
            progress = looking(client, options, found, [0.0], epoch)
            await asyncio.sleep(0.2)
            task = asyncio.create_task(progress.run(sink, lambda: 7))
            await until(lambda: bool(sink.marks("progress")))
            for each in (frames[0], frames[1], frames[0]):
                epoch.frames(each.body, each.ids, published_ms=each.published_ms)
            await until(lambda: len(sink.marks("progress")) == 2)
            epoch.frames(frames[2].body, frames[2].ids, published_ms=frames[2].published_ms)
            await until(lambda: len(sink.marks("progress")) == 3)
            await sink.looked()
            task.cancel()
        nothing, first, second = (each["parts"] for each in sink.marks("progress"))
        name = f"shard {shard.shard_id}"
        assert nothing[name]["batches_behind"] == 3
        assert 0 < first[name].pop("seconds_behind") < 60
        assert first == {
            name: {"batches_behind": 1, "records_behind_about": 10, "records_redelivered": 10},
            "subscription": {"records_unacknowledged": 7},
        }
        assert second[name] == {
            "batches_behind": 0,
            "records_behind_about": 0,
            "seconds_behind": 0,
            "records_redelivered": 10,
        }

    asyncio.run(run())
