"""Records that never come: what tells the receiver so, and lands as a warning."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.connectors.frames import Kind, Resume
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    GetSubscriptionResponse,
    Subscription,
    SubscriptionOffset,
)
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch, LandedBatches, ShardProgress, landed_batches
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue
from silverfold.connectors.hstreamdb.receiver.progress import Progress
from silverfold.connectors.hstreamdb.server.options import Fault
from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.receiving import CountingSink, append, cluster, feed, received, resume_of, until


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
                    if sink is there:
                        await until(lambda: bool(there.marks("acknowledged elsewhere")))
            async with received(settings, again, resume_of(here)):
                await until(lambda: bool(again.marks("subscribed")))
                await append(client, range(40, 60))
                await until(lambda: len(again.values()) == 20 and bool(again.marks("acknowledged elsewhere")))
            async with received(settings, again, resume_of(here, again)):
                await until(lambda: len(again.marks("subscribed")) == 2)
        assert here.marks("acknowledged elsewhere") == []
        for sink in (there, again):
            (found,) = sink.marks("acknowledged elsewhere")
            assert found["level"] == "warning"
            assert len(found["batches"]) == 4

    asyncio.run(run())


@pytest.mark.parametrize("is_followed", [True, False])
def test_records_that_the_stream_drops_before_they_landed_are_a_warning_once(is_followed: bool) -> None:
    async def run() -> None:
        first, second, third, fourth = CountingSink(), CountingSink(), CountingSink(), CountingSink()
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
                await until(lambda: second.values() == [2, 3, 4, 5] and bool(second.marks("progress")))
            for number in (6, 7):
                last = await client.append(STREAM, {"id": number})
            await client.trim_shard(STREAM, ids[0].shard_id, last)
            if is_followed:
                await client.append(STREAM, {"id": 8})
            async with received(settings, third, resume_of(first, second)):
                await until(lambda: bool(third.marks("progress")) and (not is_followed or third.values() == [8]))
                await until(lambda: bool(third.marks("expired")))
            async with received(settings, fourth, resume_of(first, second, third)):
                await until(lambda: bool(fourth.marks("progress")))
        assert second.marks("expired") == fourth.marks("expired") == []
        (found,) = third.marks("expired")
        assert found["level"] == "warning"
        assert found["shards"] == {str(last.shard_id): f"2 batches behind {ids[5].batch_id}"}

    asyncio.run(run())


@pytest.mark.parametrize("offset", ["earliest", "latest"])
def test_records_of_a_shard_of_which_none_had_landed_are_missed_from_its_beginning_on(offset: str) -> None:
    async def run() -> None:
        first, second = CountingSink(), CountingSink()
        async with cluster() as (server, client):
            settings = feed(server.address, offset=offset)
            before = await client.append(STREAM, {"id": 0})
            await client.trim_shard(STREAM, before.shard_id, before)  # not the feed's: it never had a right to it
            async with received(settings, first):
                await until(lambda: bool(first.marks("progress")))
            for number in range(3):
                last = await client.append(STREAM, {"id": number})
            await client.trim_shard(STREAM, last.shard_id, last)
            await client.append(STREAM, {"id": 4})
            async with received(settings, second, Resume(2, last_control=first.control[-1])):
                await until(lambda: second.values() == [4] and bool(second.marks("expired")))
        assert first.marks("expired") == []
        (found,) = second.marks("expired")
        assert found["shards"] == {str(before.shard_id): f"3 batches behind {before.batch_id}"}

    asyncio.run(run())


def test_a_batch_that_the_source_lost_among_others_is_a_warning() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            ids = [await client.append(STREAM, {"id": number}) for number in range(4)]
            server.lose_batch(ids[2].shard_id, ids[2].batch_id)
            async with received(feed(server.address, quick_looks=True), sink):
                await until(lambda: bool(sink.marks("expired")))
                await sink.looked()
        assert sink.values() == [0, 1, 3]
        (found,) = sink.marks("expired")
        assert found["shards"] == {str(ids[2].shard_id): f"1 batches behind {ids[1].batch_id}"}
        assert sink.marks("acknowledged elsewhere") == []

    asyncio.run(run())


def test_what_has_landed_and_is_trimmed_before_the_first_look_that_succeeds_is_no_loss() -> None:
    async def run() -> None:
        first, second, calls = CountingSink(), CountingSink(), list(range(1_000))
        async with cluster() as (server, client):
            settings = feed(server.address, quick_looks=True)
            last = await client.append(STREAM, {"id": 0})
            async with received(settings, first):
                await until(lambda: first.values() == [0])
            for method in ("ListShards", "ReadShardStream", "ListConsumers"):
                server.add_fault(Fault(method, calls, "INTERNAL", "x"))
            for number in range(1, 5):
                last = await client.append(STREAM, {"id": number})
            async with received(settings, second, resume_of(first)):
                await until(lambda: second.values() == [1, 2, 3, 4])
                calls.clear()
                await client.trim_shard(STREAM, last.shard_id, last)
                await client.append(STREAM, {"id": 5})
                await until(lambda: len(second.marks("progress")) >= 1)
        assert second.marks("expired") == []

    asyncio.run(run())


def test_a_gap_that_no_look_has_settled_is_known_to_the_next_receiver() -> None:
    async def run() -> None:
        first, second, third, calls = CountingSink(), CountingSink(), CountingSink(), list(range(1_000))
        async with cluster() as (server, client):
            settings = feed(server.address)
            ids = [await client.append(STREAM, {"id": 0})]
            async with received(settings, first):
                await until(lambda: first.values() == [0])
            ids += [await client.append(STREAM, {"id": number}) for number in range(1, 5)]
            await client.trim_shard(STREAM, ids[0].shard_id, ids[3])
            server.add_fault(Fault("ListShards", calls, None, delay=1_000))
            async with received(settings, second, resume_of(first)):
                await until(lambda: second.values() == [4])
            calls.clear()
            async with received(settings, third, resume_of(first, second)):
                await until(lambda: bool(third.marks("expired")))
        assert second.marks("expired") == []
        (found,) = third.marks("expired")
        assert found["shards"] == {str(ids[0].shard_id): f"3 batches behind {ids[0].batch_id}"}

    asyncio.run(run())


def test_a_gap_lands_with_the_frame_that_shows_it_and_what_lands_later_closes_it() -> None:
    settings, subscription = feed("hstream://h").options, Subscription(creation_time=Timestamp(seconds=1))
    control, epoch = ControlFrames(settings, subscription, None), Epoch(STREAM, {7: ShardProgress(1, has_begun=True)})
    control.next_frames(GetSubscriptionResponse(subscription=subscription), epoch)
    progress = Progress(
        Client(ConnectionSettings(url="hstream://h")),
        settings,
        epoch,
        control,
        subscription=subscription,
        overdue=Overdue(),
        feed="feed",
        ours="feed-1",
        clock=lambda: 0.0,
    )
    frames = [each for batch in (2, 6, 4) for each in progress.frames(FetchedFrame(b"", [RecordId(7, batch, 0)]), "c")]
    assert [each.kind for each in frames] == [Kind.DATA, Kind.CONTROL, Kind.DATA, Kind.DATA]
    assert json.loads(frames[1].body)["missing"] == {"7": [["2", "6"]]}
    landed = landed_batches(["7-1-0", *(each.source_position for each in frames if each.source_position)])
    expected = ControlFrames(settings, subscription, frames[1].body).expected(landed)
    assert {shard: each.landed for shard, each in expected.items()} == {7: LandedBatches(6, ((2, 4), (4, 6)))}
    other = Subscription(creation_time=Timestamp(seconds=2))
    assert (
        ControlFrames(settings, other, frames[1].body).expected(landed) == expected
    )  # whichever sends what is missing


EPOCH = 1 << 32


@pytest.mark.parametrize(
    ("landed", "checkpoint", "expected"),
    [
        ([4, 5], 3, f"{EPOCH + 3}, not {EPOCH + 1}"),  # between this epoch's frames and the one before
        ([3, 2, 4], 4, None),
        ([2], EPOCH, None),  # where the log's next epoch begins
    ],
)
def test_a_checkpoint_above_what_is_missing_tells_that_another_warehouse_had_it(
    landed: list[int], checkpoint: int, expected: str | None
) -> None:
    epoch = Epoch(STREAM, {7: ShardProgress(EPOCH + 1, has_begun=True)})
    subscription = Subscription(subscription_id="feed", stream_name=STREAM, creation_time=Timestamp(seconds=1))
    control = ControlFrames(feed("hstream://h").options, subscription, None)
    sink = CountingSink()
    for batch in landed:
        sink.take(epoch.frames(b"", [RecordId(7, EPOCH + batch, 0)]))
    offsets = [SubscriptionOffset(shard_id=7, batch_id=EPOCH + checkpoint)]
    found = GetSubscriptionResponse(subscription=subscription, offsets=offsets)
    sink.take(control.next_frames(found, epoch, {7: EPOCH + checkpoint}))
    assert [each["batches"] for each in sink.marks("acknowledged elsewhere")] == ([{"7": expected}] if expected else [])


def test_a_checkpoint_above_the_tail_of_its_shard_is_not_believed() -> None:
    epoch, subscription = (
        Epoch(STREAM, {7: ShardProgress(EPOCH + 1, has_begun=True)}),
        Subscription(creation_time=Timestamp(seconds=1)),
    )
    control = ControlFrames(feed("hstream://h").options, subscription, None)
    offsets = [SubscriptionOffset(shard_id=7, batch_id=EPOCH + 9)]
    found = GetSubscriptionResponse(subscription=subscription, offsets=offsets)
    (frame,) = control.next_frames(found, epoch, {7: EPOCH + 8})
    assert (frame.kind, json.loads(frame.body)["offsets"]) == (Kind.CONTROL, {})
    assert control.next_frames(found, epoch) == []
    frames = control.next_frames(found, epoch, {7: EPOCH + 9})
    assert json.loads(frames[0].body)["offsets"] == {"7": str(EPOCH + 9)}


def anew(
    landed: LandedBatches, last: Mapping[str, object], offset: int = SpecialOffset.EARLIEST
) -> tuple[ControlFrames, Epoch]:
    """Return control frames and epoch behind a last control frame, with another subscription of its name."""
    other = Subscription(creation_time=Timestamp(seconds=2), offset=offset)
    control = ControlFrames(feed("hstream://h").options, other, json.dumps({**last, "created": "1"}).encode())
    epoch = Epoch(STREAM, control.expected({7: landed}))
    control.next_frames(GetSubscriptionResponse(subscription=other), epoch)
    return control, epoch


@pytest.mark.parametrize(
    ("landed", "elsewhere", "expected"),
    [
        (LandedBatches(9), {}, {"7": "6"}),
        (LandedBatches(4), {}, {"7": "4"}),  # bronze was restored
        (LandedBatches(9, ((2, 5),)), {}, {"7": "2"}),
        (LandedBatches(9), {"7": [["3", "5"]]}, {"7": "3"}),  # what others had acknowledged may come now
        (LandedBatches(9), {"7": [["0", "5"]]}, {}),  # nor what was before a subscription from the end
    ],
)
def test_floors_of_another_subscription_stay_for_what_had_landed(
    landed: LandedBatches, elsewhere: dict[str, list[list[str]]], expected: dict[str, str]
) -> None:
    """Its records come again: below the floor are no tombstones any more, so they would bring deleted rows back."""
    gaps = {"7": [[str(after), str(before)] for after, before in landed.missing]}
    control, _ = anew(landed, {"offsets": {"7": "6"}, "elsewhere": elsewhere, "missing": gaps})
    assert json.loads(control.last or b"")["offsets"] == expected


def test_a_tail_that_was_taken_for_the_beginning_is_a_guess_also_where_another_subscription_had_landed() -> None:
    control, first = anew(LandedBatches(5), {"offsets": {}}, SpecialOffset.LATEST)
    first.shards[7].begin_at_end(40, 0)
    assert first.landed == {7: LandedBatches(5)}
    (frame,) = control.missing_frames(first)
    same = Subscription(creation_time=Timestamp(seconds=2), offset=SpecialOffset.LATEST)
    epoch = Epoch(STREAM, ControlFrames(feed("hstream://h").options, same, frame.body).expected(first.landed))
    epoch.frames(b"", [RecordId(7, 5, 0)])  # came again
    epoch.frames(b"", [RecordId(7, 20, 0)])
    epoch.frames(b"", [RecordId(7, 25, 0)])
    assert epoch.landed == {7: LandedBatches(25, ((20, 25),))}


def test_what_others_acknowledged_is_missing_again_of_a_subscription_from_the_earliest() -> None:
    control, epoch = anew(LandedBatches(11), {"offsets": {"7": "8"}, "elsewhere": {"7": [["3", "9"]]}})
    assert json.loads(control.last or b"")["offsets"] == {"7": "3"}
    other = Subscription(creation_time=Timestamp(seconds=2))
    found = GetSubscriptionResponse(subscription=other, offsets=[SubscriptionOffset(shard_id=7, batch_id=8)])
    assert control.are_ahead(found.offsets, epoch)
    frames = control.next_frames(found, epoch, {7: 11})
    assert json.loads(frames[0].body)["elsewhere"] == {"7": [["3", "9"]]}
    assert json.loads(frames[1].body)["mark"] == "acknowledged elsewhere"


@pytest.mark.parametrize(
    ("frames", "checkpoint", "newest", "gaps"),
    [
        ([], 0, 20, []),  # the tail, as a guess
        ([5, 6], 0, 6, []),
        ([], 2, 2, []),
        ([16], 2, 16, [(2, 16)]),  # what is in between was the feed's
        ([5, 9], 12, 9, [(5, 9)]),  # others have taken what is in between, behind the beginning
    ],
)
def test_a_subscription_from_the_end_stands_at_its_checkpoint_else_at_its_first_frame_else_maybe_at_the_tail(
    frames: list[int], checkpoint: int, newest: int, gaps: list[tuple[int, int]]
) -> None:
    shard = ShardProgress()
    for batch in frames:
        shard.take(batch, 1, 0)
    begun = shard.begin_at_end(20, checkpoint)
    assert (shard.newest, shard.gaps, shard.elsewhere) == (newest, gaps, [(0, begun + 1)])
    if shard.is_guess:
        assert shard.begin_at_end(30, 0) == 20, "what was appended since then may come"
        for later, expected in ((4, 4), (30, 20)):  # others may have taken what was appended since then
            twin = replace(shard, elsewhere=[])
            assert (twin.begin_at_end(30, later), twin.newest, twin.is_guess) == (expected, expected, False)


def test_what_is_gone_behind_the_newest_batch_closes_no_gap_below_it() -> None:
    shard = ShardProgress(9, has_begun=True, gaps=[(2, 5)])
    assert shard.skip(9, 20)
    assert (shard.newest, shard.gaps) == (19, [(2, 5)])


def test_what_is_missing_above_all_that_landed_comes() -> None:
    _, epoch = anew(LandedBatches(0), {"offsets": {}, "elsewhere": {"7": [["0", "5"]]}})
    for batch in (1, 2, 3, 4, 5):
        epoch.frames(b"", [RecordId(7, batch, 0)])
    assert (epoch.shards[7].gaps, epoch.shards[7].whole_until) == ([], 5)


def test_a_shard_of_which_nothing_has_told_where_it_begins_begins_at_the_next_look() -> None:
    same = Subscription(creation_time=Timestamp(seconds=1), offset=SpecialOffset.LATEST)
    last = {"created": creation_of(same), "offsets": {}, "skipped": {}, "missing": {"7": [["0", "5"]]}}
    control = ControlFrames(feed("hstream://h").options, same, json.dumps(last).encode())
    shard = control.expected({7: LandedBatches(7, ((0, 5),))})[7]
    assert not shard.has_begun
    twin = replace(shard, gaps=[*shard.gaps], elsewhere=[])
    assert (shard.begin_at_end(9, 0), shard.gaps, shard.newest) == (4, [], 7)
    assert (twin.begin_at_end(9, 9), twin.whole_until) == (4, 7), "what others took behind it is a loss"


def test_a_shard_began_before_the_first_batch_that_landed_though_all_before_the_tail_is_gone() -> None:
    shard = ShardProgress(7, gaps=[(0, 5)])
    assert shard.first == 5
    shard.take(3, 1, 0)
    assert shard.first == 3
    shard.begin(2)
    assert shard.gaps == [(3, 5)]
