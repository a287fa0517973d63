"""Looks at a scripted source: what each call that fails costs, and what a look finds out of shards."""

from __future__ import annotations

import asyncio
import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.frames import Kind
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    GetSubscriptionResponse,
    Subscription,
    SubscriptionOffset,
)
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.receiver.epoch import LandedBatches
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue
from tests.support.hstreamdb.looks import LATEST, NEW, OLD, Looks, Source
from tests.support.hstreamdb.receiving import until

pytestmark = pytest.mark.usefixtures("looks_at_once")


@pytest.mark.parametrize("call", ["end", "read", "silence"])
def test_a_shard_whose_calls_fail_hides_no_loss_of_another_and_is_a_warning(call: str) -> None:
    async def run() -> None:
        source = Source({shard: [OLD + 5] for shard in (1, 2, 3)})
        looks = Looks(source, dict.fromkeys((1, 2, 3), OLD + 1))
        for shard in (1, 2, 3):
            looks.take(shard, [OLD + 5])
        source.broken[1] = call
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("look fails")))
            assert [sorted(each["shards"]) for each in looks.sink.marks("expired")] == [["2", "3"]]
            source.broken.clear()
            await until(lambda: len(looks.sink.marks("expired")) == 2)
        assert looks.sink.marks("expired")[1]["shards"] == {"1": f"3 batches behind {OLD + 1}"}
        (failing,) = looks.sink.marks("look fails")
        assert (failing["level"], [name.endswith("shard 1") for name in failing["calls"]]) == ("warning", [True])

    asyncio.run(run())


def test_what_a_look_has_told_is_not_told_again_though_its_other_calls_fail() -> None:
    async def run() -> None:
        source = Source({7: [OLD + 5]})
        looks = Looks(source, {7: OLD + 1})
        looks.sink.take(looks.control.next_frames(await source.get_subscription("feed"), looks.epoch))
        looks.take(7, [OLD + 5])
        source.subscription = None
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("expired")))
        last = json.loads(looks.sink.control[-1])
        assert (last["skipped"], "missing" in last) == ({"7": str(OLD + 4)}, False)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("has", "expected"),
    [
        ([NEW + 1], [f"an unknown number of batches behind {OLD + 3}"]),
        ([NEW + 3], [f"an unknown number of batches and 2 batches behind {OLD + 3}"]),
        ([OLD + 2, NEW + 1], []),
        ([OLD + 4, NEW + 1], []),
    ],
    ids=["all of the old epoch are gone", "some of the new one too", "none are gone", "it is still to come"],
)
@pytest.mark.parametrize("is_looked_first", [False, True])
def test_batches_lost_at_the_end_of_a_log_s_epoch_are_a_warning(
    has: list[int], expected: list[str], *, is_looked_first: bool
) -> None:
    async def run() -> None:
        looks = Looks(Source({7: has}), {7: OLD + 3})
        looks.take(7, [] if is_looked_first else [has[-1]])
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
            await asyncio.sleep(0.05)
        assert [each["shards"]["7"] for each in looks.sink.marks("expired")] == expected

    asyncio.run(run())


def test_what_was_gone_before_the_feed_is_no_loss_though_the_log_begins_a_new_epoch() -> None:
    async def run() -> None:
        looks = Looks(Source({7: [OLD + 4, OLD + 5]}, {7: NEW}))
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
            begun = dict(looks.control.skipped)
            looks.take(7, [OLD + 4, OLD + 5])
            await asyncio.sleep(0.05)
        assert looks.sink.marks("expired") == []
        assert begun == {7: OLD + 3}

    asyncio.run(run())


def test_a_checkpoint_that_only_shows_a_new_epoch_of_the_log_closes_no_gap() -> None:
    looks = Looks(Source({}), {7: OLD + 3})
    offsets = [SubscriptionOffset(shard_id=7, batch_id=NEW)]
    found = GetSubscriptionResponse(subscription=Subscription(), offsets=offsets)
    frames = looks.control.next_frames(found, looks.epoch, {7: NEW + 1})
    assert [frame.kind for frame in frames] == [Kind.CONTROL]
    looks.take(7, [NEW + 1])
    assert looks.epoch.shards[7].gaps == [(OLD + 3, NEW + 1)]


def test_a_batch_of_which_some_records_do_not_come_is_a_warning_once() -> None:
    looks = Looks(Source({}), {7: OLD})
    for batch, indexes in ((OLD + 1, [0, 1]), (OLD + 2, [5, 6]), (OLD + 3, [1]), (OLD + 2, [1])):
        ids = [RecordId(7, batch, index) for index in indexes]
        looks.sink.take(looks.progress.frames(FetchedFrame(b"", ids), "consumer"))
    (found,) = looks.sink.marks("not delivered")
    assert (found["level"], found["shards"]) == ("warning", {"7": f"of batch {OLD + 2}"})


def test_where_a_shard_begins_that_was_guessed_lands_with_the_frame_that_tells() -> None:
    looks = Looks(Source({}), {7: OLD + 9}, guessed={7})
    looks.control.skipped[7] = OLD + 9
    looks.control.next_frames(GetSubscriptionResponse(subscription=Subscription()), looks.epoch)
    assert looks.epoch.landed == {}
    looks.take(7, [OLD + 5, OLD + 8])
    first, second = map(json.loads, looks.sink.control)
    assert (first["skipped"], "missing" in first) == ({"7": str(OLD + 4)}, False)
    assert second["missing"] == {"7": [[str(OLD + 5), str(OLD + 8)]]}
    assert looks.epoch.landed == {7: LandedBatches(OLD + 8, ((OLD + 5, OLD + 8),))}


def test_a_shard_of_which_nothing_comes_is_starved_though_others_flow() -> None:
    async def run() -> None:
        source = Source({1: [OLD + 1], 2: [OLD + 1, OLD + 2]})
        looks = Looks(source, {1: OLD, 2: OLD})
        async with looks.run():
            looks.take(1, [OLD + 1])
            await until(lambda: bool(looks.sink.marks("progress")))
            looks.now = 61.0
            looks.take(1, [OLD + 1])
            await until(lambda: bool(looks.sink.marks("starved")))
            await asyncio.sleep(0.05)
        assert [each["shards"] for each in looks.sink.marks("starved")] == [["2"]]
        assert looks.sink.marks("progress")[-1]["parts"]["shard 2"] == {"batches_behind": 2, "records_redelivered": 0}

    asyncio.run(run())


def test_batches_that_stay_in_the_shard_and_do_not_come_are_a_warning_once_a_gap() -> None:
    async def run() -> None:
        looks = Looks(Source({7: range(OLD + 1, OLD + 10)}), {7: OLD + 1})
        looks.take(7, [OLD + 5])
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
            looks.now = 119.0
            await asyncio.sleep(0.05)
            assert looks.sink.marks("not delivered") == []
            looks.now = 120.0
            await until(lambda: bool(looks.sink.marks("not delivered")))
            await asyncio.sleep(0.05)
            assert len(looks.sink.marks("not delivered")) == 1
            looks.take(7, [OLD + 9])
            await asyncio.sleep(0.05)
            looks.now = 240.0
            await until(lambda: len(looks.sink.marks("not delivered")) > 1)
        found, later = looks.sink.marks("not delivered")
        assert (found["level"], found["shards"]) == ("warning", {"7": f"behind {OLD + 1}"})
        assert later["shards"] == {"7": f"behind {OLD + 5}"}
        assert looks.sink.marks("expired") == []

    asyncio.run(run())


def test_patience_with_a_gap_does_not_begin_anew_with_each_connection() -> None:
    source, overdue = Source({7: range(OLD + 1, OLD + 10)}), Overdue()

    async def marks_at(seconds: float) -> int:
        looks = Looks(source, {7: OLD + 1}, overdue=overdue)
        looks.now = seconds
        looks.take(7, [OLD + 5])
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
        return len(looks.sink.marks("not delivered"))

    assert [asyncio.run(marks_at(seconds)) for seconds in (0.0, 119.0, 121.0, 300.0)] == [0, 0, 1, 0]


def test_a_subscription_whose_stream_was_deleted_ends_the_epoch_and_says_so() -> None:
    async def run() -> None:
        source = Source({7: [OLD + 1]})
        source.subscription = Subscription(stream_name="__deleted_stream__", creation_time=Timestamp(seconds=1))
        looks = Looks(source)
        with pytest.raises(SourceRefused, match="is of __deleted_stream__, not of orders"):
            await asyncio.wait_for(looks.progress.run(looks.sink, lambda: 0), 5)

    asyncio.run(run())


def test_a_feed_from_the_end_whose_records_came_before_its_first_look_has_them_once() -> None:
    async def run() -> None:
        looks = Looks(Source({7: range(OLD + 1, OLD + 10)}), subscription=LATEST)
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
            assert json.loads(looks.sink.control[-1])["guessed"] == {"7": str(OLD + 9)}
            looks.take(7, [OLD + 3, OLD + 4])
            await until(lambda: looks.control.skipped == {7: OLD + 2})
            await until(lambda: len(looks.sink.marks("progress")) > 1)
        lag = looks.sink.marks("progress")[-1]["parts"]["shard 7"]
        assert (lag["batches_behind"], lag["records_redelivered"]) == (5, 0)

    asyncio.run(run())
