"""The receiver against a true cluster: everything lands as received, and is acknowledged once committed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from silverfold.conf.errors import ConfigError, RemoteProtocolError, SourceRefused, SourceUnavailable
from silverfold.conf.model import Commit
from silverfold.connectors.frames import Boundary, ControlFrame, Frame, Kind, Resume
from silverfold.connectors.hstreamdb.decoder.floors import read_floors
from silverfold.connectors.hstreamdb.protocol.frames import decode_frame
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import status_text
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch
from silverfold.connectors.hstreamdb.receiver.receiver import HStreamReceiver
from silverfold.connectors.hstreamdb.server.options import Fault, RebuiltWindow
from tests.support.epochs import epochs, in_background
from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.receiving import FIRST, CountingSink, append, cluster, feed, received, until

WRONG_SERVER = status_text(800, "WrongServer", "Subscription is bound to a different node")
NOT_FOUND = status_text(300, "SubscriptionNotFound", "feed")


def test_frames_land_whole_and_are_acknowledged_after_their_commit() -> None:
    async def run() -> None:
        sink = CountingSink()
        sink.is_open = False
        async with cluster() as (server, client), received(feed(server.address), sink):
            await append(client, range(250))
            await until(lambda: len(sink.values()) == 250)
            await asyncio.sleep(0.2)
            assert not (await client.get_subscription("feed")).offsets[0].batch_id
            sink.is_open = True
            tail = await client.tail(STREAM, (await client.list_shards(STREAM))[0].shard_id)
            for _ in range(100):
                if (await client.get_subscription("feed")).offsets[0].batch_id == tail.batch_id:
                    break
                await asyncio.sleep(0.02)
            assert (await client.get_subscription("feed")).offsets[0].batch_id == tail.batch_id
        assert sink.values() == list(range(250))
        assert {(frame.boundary, frame.stream) for frame in sink.data} == {(Boundary.WHOLE, STREAM)}
        ids = [decode_frame(frame.body).records[0].id for frame in sink.data]
        assert [frame.source_position for frame in sink.data] == list(map(str, ids))
        assert [each["subscription"] for each in sink.marks("subscribed")] == ["feed"]

    asyncio.run(run())


def test_a_cancelled_receiver_commits_and_acknowledges_what_it_has() -> None:
    async def run() -> None:
        sink, again = CountingSink(), CountingSink()
        async with cluster() as (server, client):
            settings = replace(feed(server.address), commit=Commit(interval_ms=60_000))
            async with received(settings, sink):
                await append(client, range(100))
                await until(lambda: len(sink.values()) == 100)
            assert sink.committed == [len(sink.frames)]
            await until(lambda: server.client_count == 0)
            async with received(settings, again):
                await append(client, [100])
                await until(lambda: bool(again.data))
        assert again.values() == [100]

    asyncio.run(run())


def test_a_source_that_waits_for_acknowledgements_gets_them_before_the_interval_ends() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            settings = replace(feed(server.address, max_unacked_records=20), commit=Commit(interval_ms=60_000))
            async with received(settings, sink):
                for start in range(0, 100, 10):
                    await append(client, range(start, start + 10))
                await until(lambda: len(sink.values()) >= 90)
        assert sink.marks("small window") == [
            {
                "mark": "small window",
                "level": "warning",
                "at_most": "max_unacked_records 20 / 60.25 s to commit and acknowledge = 0 records/s",
            }
        ]
        assert len(sink.marks("short ack timeout")) == 1

    asyncio.run(run())


def test_what_a_receiver_holds_that_cannot_commit_is_at_most_the_window_and_what_a_node_reads_at_once() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            settings = feed(server.address, max_unacked_records=50)
            sink.is_open = False
            async with received(settings, sink):
                await until(lambda: bool(sink.marks("subscribed")))
                for number in range(500):  # each a batch, of which a node reads 100 at once
                    await client.append(STREAM, {"id": number})
                await until(lambda: len(sink.values()) >= 50)
                await asyncio.sleep(0.3)  # several ticks of the cluster, in which it could send more
                held = len(sink.values())
                sink.is_open = True
                await until(lambda: len(set(sink.values())) == 500)
        assert 50 <= held <= 50 + 100

    asyncio.run(run())


def test_several_consumers_share_the_shards() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster(shards=4) as (server, client), received(feed(server.address, consumers=3), sink):
            await until(lambda: server.client_count == 3)
            for start in range(0, 400, 40):
                await append(client, range(start, start + 40))
                await asyncio.sleep(0.02)
            await until(lambda: sorted(set(sink.values())) == list(range(400)))
            (subscribed,) = sink.marks("subscribed")
            found = await client.list_consumers("feed")
            assert sorted(each.name for each in found) == sorted(subscribed["consumers"])

    asyncio.run(run())


def test_an_ended_fetch_ends_the_epoch_and_the_next_one_sends_the_acknowledgements_left() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            receiver = HStreamReceiver(feed(server.address), {})
            task = asyncio.create_task(receiver.run(sink, Resume(1)))
            await append(client, range(10))
            await until(lambda: len(sink.values()) == 10)
            server.disconnect(1)
            with pytest.raises(SourceUnavailable):
                await task
            async with in_background(receiver.run(sink, Resume(2))):
                await append(client, range(10, 20))
                await until(lambda: sorted(set(sink.values())) == list(range(20)))

    asyncio.run(run())


@pytest.mark.parametrize("window", RebuiltWindow)
def test_nothing_is_lost_when_the_node_of_the_subscription_dies(window: RebuiltWindow) -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster(shards=2, nodes=2, rebuilt_window=window) as (server, client):
            receiver = HStreamReceiver(feed(server.address, consumers=2), {})
            async with in_background(epochs(receiver, sink, ends=SourceUnavailable)):
                for start in range(0, 200, 50):
                    await append(client, range(start, start + 50))
                    await until(lambda end=start + 50: set(sink.values()) == {*range(end)})  # type: ignore[misc]  # a default binds it
                    owner = server.owner("feed")
                    server.kill(owner)
                    await asyncio.sleep(0.1)
                    server.restart(owner)
        assert set(sink.values()) == {*range(200)}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        ("DescribeCluster", "CANCELLED", ""),
        ("LookupSubscription", "FAILED_PRECONDITION", WRONG_SERVER),
        ("GetSubscription", "FAILED_PRECONDITION", WRONG_SERVER),
        ("StreamingFetch", "FAILED_PRECONDITION", WRONG_SERVER),
        ("GetSubscription", "NOT_FOUND", NOT_FOUND),
        ("StreamingFetch", "NOT_FOUND", NOT_FOUND),
        ("LookupSubscription", "FAILED_PRECONDITION", status_text(800, "a sentence", None)),
        ("GetSubscription", "FAILED_PRECONDITION", "a sentence of a server before 0.15.0"),
        ("StreamingFetch", "FAILED_PRECONDITION", "a sentence of a server before 0.15.0"),
        ("LookupSubscription", "NOT_FOUND", "feed"),
    ],
)
def test_what_a_cluster_answers_for_a_moment_ends_an_epoch_and_not_the_receiver(
    method: str, code: str, text: str
) -> None:
    async def run() -> None:
        sink, calls = CountingSink(), list(range(1_000))
        async with cluster() as (server, client):
            receiver = HStreamReceiver(feed(server.address), {})
            async with in_background(receiver.run(sink, FIRST)):
                await until(lambda: bool(sink.marks("subscribed")))
            server.add_fault(Fault(method, calls, code, text))
            with pytest.raises(SourceUnavailable):
                await receiver.run(sink, Resume(2))
            calls.clear()
            await append(client, [1])
            async with in_background(receiver.run(sink, Resume(3))):
                await until(lambda: sink.values() == [1])

    asyncio.run(run())


def test_a_cancellation_without_a_text_is_a_refused_token_while_no_node_has_accepted_it() -> None:
    async def run() -> None:
        async with cluster() as (server, _):
            server.add_fault(Fault("DescribeCluster", range(1_000), "CANCELLED"))
            with pytest.raises(SourceRefused, match="a token is missing or wrong"):
                await HStreamReceiver(feed(server.address), {}).run(CountingSink(), FIRST)

    asyncio.run(run())


def test_committed_floors_land_behind_their_records_and_only_when_they_move() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client), received(feed(server.address, quick_looks=True), sink):
            await append(client, range(10))
            await until(
                lambda: any(frame.kind is Kind.CONTROL and b'"offsets": {"' in frame.body for frame in sink.frames)
            )
            await sink.looked()
            first, *_, (at, frame) = [(at, frame) for at, frame in enumerate(sink.frames) if frame.kind is Kind.CONTROL]
            assert json.loads(first[1].body)["offsets"] == {}
            assert all(sink.frames.index(each) > first[0] for each in sink.data)
            shard = (await client.list_shards(STREAM))[0].shard_id
            tail = await client.tail(STREAM, shard)
            assert frame.stream is None
            assert json.loads(frame.body)["offsets"] == {str(shard): str(tail.batch_id)}
            floors = read_floors([ControlFrame(at, 1, None, frame.body)])
            assert [floors.before(shard, at), floors.before(shard, at + 1)] == [0, tail.batch_id]
            assert all(sink.frames.index(each) < at for each in sink.data)

    asyncio.run(run())


def test_floors_that_landed_before_do_not_land_again() -> None:
    async def run() -> None:
        first, second = CountingSink(), CountingSink()
        async with cluster() as (server, client):
            settings = feed(server.address, quick_looks=True)
            async with received(settings, first):
                await append(client, range(10))
                await until(lambda: any(b'"offsets": {"' in each for each in first.control))
            last = first.control[-1]
            async with received(settings, second, Resume(2, last_control=last)):
                await second.looked()
        assert second.control == []

    asyncio.run(run())


def test_a_subscription_with_other_settings_or_of_another_stream_is_refused() -> None:
    async def run() -> None:
        async with cluster() as (server, client):
            await client.create_subscription("feed", STREAM, ack_timeout_seconds=33)
            with pytest.raises(ConfigError) as refused:
                await HStreamReceiver(feed(server.address), {}).run(CountingSink(), Resume(1))
            found = (
                "feeds/orders.toml: options.ack_timeout_seconds: found 60, allowed: 33, as the subscription feed has"
            )
            assert str(refused.value) == f"{found}: it exists already; with create = false, any is taken"
            await client.create_stream("other")
            with pytest.raises(SourceRefused, match="OtherStream"):
                await HStreamReceiver(feed(server.address, stream="other", create=False), {}).run(
                    CountingSink(), Resume(1)
                )
            with pytest.raises(SourceRefused):
                await HStreamReceiver(feed(server.address, subscription="none", create=False), {}).run(
                    CountingSink(), Resume(1)
                )
            with pytest.raises(SourceRefused):
                await HStreamReceiver(feed(server.address, stream="none", subscription="none"), {}).run(
                    CountingSink(), Resume(1)
                )

    asyncio.run(run())


@pytest.mark.parametrize("create", [True, False])
def test_the_subscription_of_a_stream_that_was_made_anew_is_refused_with_the_way_on(create: bool) -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            await client.create_subscription("feed", STREAM)
            await client.delete_stream(STREAM, force=True)
            await client.create_stream(STREAM)
            await append(client, [1])
            receiver = HStreamReceiver(feed(server.address, create=create), {})
            with pytest.raises(
                ConfigError if create else SourceRefused, match="delete the subscription to make it anew"
            ):
                await receiver.run(sink, FIRST)
            await client.delete_subscription("feed")
            await client.create_subscription("feed", STREAM)
            async with received(feed(server.address, create=create), sink):
                await until(lambda: sink.values() == [1])

    asyncio.run(run())


def test_a_subscription_deleted_under_the_fetch_ends_the_epoch_and_is_created_anew() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster() as (server, client):
            receiver = HStreamReceiver(feed(server.address, quick_looks=True), {})
            task = asyncio.create_task(receiver.run(sink, Resume(1)))
            await append(client, range(10))
            await until(lambda: len(sink.values()) == 10)
            await client.delete_subscription("feed", force=True)
            with pytest.raises(SourceUnavailable):
                await task
            async with in_background(receiver.run(sink, Resume(2))):
                await until(lambda: len(sink.values()) == 20)
        assert len({json.loads(each)["created"] for each in sink.control}) == 2

    asyncio.run(run())


def test_a_subscription_made_anew_after_frames_landed_begins_at_the_earliest_and_stays_accepted() -> None:
    async def run() -> None:
        sink, again = CountingSink(), CountingSink()
        landed = Resume(2, source_positions={STREAM: "7-1-0"})
        async with cluster() as (server, client):
            settings = feed(server.address, offset="latest")
            await append(client, [1])
            async with received(settings, sink):
                await until(lambda: server.client_count == 1)
                await append(client, [2])
                await until(lambda: sink.values() == [2])
            await client.delete_subscription("feed", force=True)
            await append(client, [3])
            async with received(settings, sink, landed):
                await until(lambda: sink.values() == [2, 1, 2, 3])
            await append(client, [4])
            async with received(settings, again, landed):
                await until(lambda: again.values() == [4])

    asyncio.run(run())


def test_frames_whose_ids_cannot_be_read_land_as_marks_and_end_the_epoch_at_the_third_time() -> None:
    async def run() -> None:
        sink = CountingSink()
        async with cluster(inserted_frames=dict.fromkeys((1, 2, 3), b"\xff")) as (server, client):
            await append(client, [1], key="k")
            await append(client, [2], key="k")
            await append(client, [3], key="k")
            with pytest.raises(RemoteProtocolError, match="keeps coming"):
                await asyncio.wait_for(HStreamReceiver(feed(server.address), {}).run(sink, FIRST), 10)
        assert [each["error_class"] for each in sink.marks("bad_frame")] == ["INVALID_VALUE"] * 2
        assert sink.values()[:2] == [1, 2]

    asyncio.run(run())


def test_a_shard_that_moves_to_another_of_our_fetches_is_marked_once() -> None:
    epoch, ids = Epoch(STREAM), [RecordId(7, 1, 0)]
    assert [each.kind for each in epoch.frames(b"1", ids, consumer="a")] == [Kind.DATA]
    moved, frame = epoch.frames(b"2", ids, consumer="b")
    assert moved.stream is None, "it would take the place of the stream's warnings in status"
    assert json.loads(moved.body) == {"mark": "reassigned", "shard": "7", "before": "a", "now": "b"}
    assert frame == Frame(b"2", Kind.DATA, Boundary.WHOLE, STREAM, "7-1-0")
    assert [each.kind for each in epoch.frames(b"3", ids, consumer="b")] == [Kind.DATA]
