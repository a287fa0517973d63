"""Looks at a source that contradicts itself, or of which a part is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Subscription
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.times import creation_of
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import LandedBatches
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue
from tests.support.hstreamdb.landed import STREAM, feed_of
from tests.support.hstreamdb.looks import NEW, OLD, Looks, Source
from tests.support.hstreamdb.receiving import until

pytestmark = pytest.mark.usefixtures("looks_at_once")


@pytest.mark.parametrize("landed", [{}, {7: OLD + 3}])
@pytest.mark.parametrize("too_far", [20, 1 << 40])
def test_one_wrong_answer_to_where_a_shard_ends_is_not_believed(landed: dict[int, int], too_far: int) -> None:
    async def run() -> None:
        source = Source({7: []}, {7: OLD + 3})
        source.lies["end"] = [OLD + too_far]
        looks = Looks(source, landed)
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
            source.batches[7], source.ends[7] = [OLD + 6], OLD + 6
            looks.take(7, [OLD + 6])
            await until(lambda: bool(looks.sink.marks("expired")))
        assert [each["shards"] for each in looks.sink.marks("expired")] == [{"7": f"2 batches behind {OLD + 3}"}]

    asyncio.run(run())


def test_one_wrong_answer_to_what_a_shard_has_is_not_believed() -> None:
    async def run() -> None:
        source = Source({7: range(OLD + 1, OLD + 10)})
        source.lies["read"] = [OLD + 8]
        looks = Looks(source)
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
        assert looks.control.skipped == {7: OLD}

    asyncio.run(run())


def test_one_wrong_checkpoint_closes_no_gap_and_is_no_floor() -> None:
    async def run() -> None:
        source = Source({7: range(OLD + 1, OLD + 10)})
        source.checkpoints[7], source.lies["checkpoint"] = OLD + 2, [OLD + 6]
        looks = Looks(source, {7: OLD + 3})
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
        assert json.loads(looks.sink.control[-1])["offsets"] == {"7": str(OLD + 2)}
        assert looks.sink.marks("acknowledged elsewhere") == []

    asyncio.run(run())


@pytest.mark.parametrize("guessed", [(), {7}])
def test_a_batch_of_which_a_part_comes_first_is_a_warning_though_the_tail_was_guessed(guessed: Collection[int]) -> None:
    looks = Looks(Source({}), {7: OLD + 9} if guessed else {}, guessed=guessed)
    looks.control.skipped[7] = OLD + 9
    looks.sink.take(looks.progress.frames(FetchedFrame(b"", [RecordId(7, OLD + 4, 5)]), "consumer"))
    assert [each["shards"] for each in looks.sink.marks("not delivered")] == [{"7": f"of batch {OLD + 4}"}]


def test_what_others_acknowledged_of_a_batch_is_known_until_it_comes_whole() -> None:
    looks = Looks(Source({}), {7: OLD})
    rest, whole = ([RecordId(7, OLD + 1, index) for index in indexes] for indexes in (range(5, 10), range(10)))
    for ids, expected in ((rest, [(OLD, OLD + 2)]), (rest, [(OLD, OLD + 2)]), (whole, [])):
        looks.progress.frames(FetchedFrame(b"", ids), "consumer")
        assert looks.epoch.shards[7].elsewhere == expected


def test_gaps_of_a_shard_that_the_stream_has_no_more_are_lost() -> None:
    async def run() -> None:
        source = Source({8: [OLD + 1]})
        looks = Looks(source, {7: OLD + 9, 8: OLD})
        looks.epoch.shards[7].gaps.append((OLD + 3, OLD + 6))
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
            await asyncio.sleep(0.05)
        assert [each["shards"] for each in looks.sink.marks("expired")] == [["7"]]
        assert "missing" not in json.loads(looks.sink.control[-1])
        assert looks.sink.marks("look fails") == []

    asyncio.run(run())


def test_a_shard_that_no_list_names_is_looked_at_as_long_as_batches_of_it_are_missing() -> None:
    async def run() -> None:
        source = Source({7: [OLD + 5]})
        source.unlisted.add(7)
        looks = Looks(source, {7: OLD + 3})
        looks.take(7, [OLD + 5])
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("expired")))
        assert looks.sink.marks("expired")[0]["shards"] == {"7": f"1 batches behind {OLD + 3}"}

    asyncio.run(run())


def test_a_call_that_fails_in_each_of_many_short_connections_is_a_warning() -> None:
    source, overdue = Source({7: [OLD + 1]}), Overdue()
    source.broken[7] = "end"

    async def warnings_of_a_connection() -> int:
        looks = Looks(source, {7: OLD}, overdue=overdue)
        await looks.progress._tails({7})
        return len(looks.progress._calls.failing())

    assert [asyncio.run(warnings_of_a_connection()) for _ in range(4)] == [0, 0, 1, 0]


def test_a_shard_starves_though_its_tail_is_not_always_answered() -> None:
    looks = Looks(Source({}), {7: OLD, 8: OLD})
    marks = []
    for minute in range(9):
        looks.now = 60.0 * minute
        answered = {8: OLD} if minute % 2 else {7: OLD + 1, 8: OLD}
        marks += looks.progress._lag.starved(answered)
    assert len(marks) == 1


def test_a_checkpoint_above_a_gap_waits_for_a_look_that_has_read_it() -> None:
    """At the first look of a shard only its beginning is found out; here the log has begun a new epoch behind it."""

    async def run() -> None:
        source = Source({7: [OLD + 1, OLD + 2, NEW + 1]})
        source.checkpoints[7] = NEW + 1
        looks = Looks(source)
        looks.take(7, [OLD + 1, OLD + 2, NEW + 1])
        async with looks.run():
            await until(lambda: str(NEW + 1).encode() in b"".join(looks.sink.control[-1:]))
        assert looks.sink.marks("acknowledged elsewhere") == []

    asyncio.run(run())


def test_a_subscription_that_is_made_anew_under_a_look_ends_the_epoch() -> None:
    """Its next epoch reads the control frame of the former one: what others had acknowledged is missing then."""
    source = Source({7: [OLD + 1]})
    source.subscription = Subscription(stream_name=STREAM, creation_time=Timestamp(seconds=2))
    looks = Looks(source, {7: OLD})
    with pytest.raises(SourceUnavailable, match="made anew"):
        asyncio.run(asyncio.wait_for(looks.progress.run(looks.sink, lambda: 0), 5))
    assert looks.sink.control == []


def test_what_is_gone_is_told_once_of_a_subscription_from_the_end_though_processes_follow_each_other() -> None:
    skipped = {"created": "1", "subscription": "feed", "offsets": {}, "skipped": {"7": str(OLD + 9)}}
    same = Subscription(creation_time=Timestamp(seconds=1), offset=SpecialOffset.LATEST)
    control = ControlFrames(feed_of().options, same, json.dumps(skipped | {"created": creation_of(same)}).encode())
    shard = control.expected({7: LandedBatches(OLD + 3)})[7]
    assert (shard.newest, shard.is_guess) == (OLD + 9, False)


def test_the_first_batches_of_a_log_that_were_seen_and_are_gone_behind_its_next_epoch_are_lost() -> None:
    async def run() -> None:
        source = Source({7: [OLD + 1, NEW + 1]})
        looks = Looks(source, {7: OLD})
        looks.take(7, [NEW + 1])
        async with looks.run():
            await until(lambda: bool(looks.sink.marks("progress")))
            source.batches[7] = [NEW + 1]
            await until(lambda: bool(looks.sink.marks("expired")))
        found = f"an unknown number of batches behind {OLD}"
        assert [each["shards"] for each in looks.sink.marks("expired")] == [{"7": found}]

    asyncio.run(run())
