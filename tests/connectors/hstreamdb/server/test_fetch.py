"""Fetches, as promised to consumers: nothing is lost, and what is not acknowledged comes again."""

from __future__ import annotations

import time
from random import Random

import pytest

from silverfold.connectors.hstreamdb.protocol import methods as m
from silverfold.connectors.hstreamdb.protocol.frames import decode_frame
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from tests.support.hstreamdb.batches import numbered, numbers_in
from tests.support.hstreamdb.peer import refusal, serving, until
from tests.support.hstreamdb.vectors import names, vectors

FIRST = (2 << 32) + 1


def test_frames_are_the_stored_batches_with_their_ids_and_time() -> None:
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        batch = numbered([1, 2], CompressionType.ZSTD)
        peer.append(shard, batch)
        with peer.fetch() as fetch:
            frame = fetch.frame()
    found = m.StreamingFetchResponse.FromString(frame).received_records
    assert [RecordId.of(each) for each in found.record_ids] == [(shard, FIRST, 0), (shard, FIRST, 1)]
    assert (found.record.payload, found.record.compression_type) == (batch.payload, CompressionType.ZSTD)
    assert abs(found.record.publish_time.ToSeconds() - time.time()) < 60


def test_the_latest_records_are_those_after_the_subscription() -> None:
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.append(shard, numbered([1]))
        peer.subscribe(offset=SpecialOffset.LATEST)
        peer.append(shard, numbered([2]))
        with peer.fetch() as fetch:
            assert list(fetch.numbers(1).values()) == [2]


@pytest.mark.parametrize("compression", list(CompressionType))
def test_the_rest_of_a_batch_comes_again_after_the_timeout(compression: CompressionType) -> None:
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe(timeout=1)
        ids = peer.append(shard, numbered(range(5), compression))
        with peer.fetch() as fetch:
            first = decode_frame(fetch.frame())
            fetch.ack([ids[1], ids[3]])
            frame = fetch.frame()
    assert numbers_in(frame) == {ids[0]: 0, ids[2]: 2, ids[4]: 4}
    assert decode_frame(frame).published_ms == first.published_ms


def test_exactly_the_records_whose_acks_were_dropped_come_again() -> None:
    chance, count = Random(7), 200
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe(timeout=1)
        for start in range(0, count, 10):
            peer.append(shard, numbered(range(start, start + 10), CompressionType.GZIP))
        with peer.fetch() as fetch:
            found = fetch.numbers(count)
            dropped = {each: number for each, number in found.items() if chance.random() < 0.3}
            fetch.ack(found.keys() - dropped.keys())
            assert fetch.numbers(len(dropped), ack=True) == dropped
            assert fetch.is_quiet(1.3)
            assert peer.checkpoints() == {shard: FIRST + 19}


def test_requests_on_the_list_do_not_count() -> None:
    with serving(dropped_acks={2}) as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe(timeout=1)
        peer.append(shard, numbered([1]))
        with peer.fetch() as fetch:
            fetch.numbers(1, ack=True)
            fetch.numbers(1, ack=True)
            until(lambda: peer.checkpoints() == {shard: FIRST})


def test_a_consumer_without_acks_is_replaced_by_one_that_gets_everything() -> None:
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe(timeout=1)
        for number in range(20):
            peer.append(shard, numbered([number]))
        with peer.fetch("first") as fetch:
            fetch.numbers(20)
        with peer.fetch("second") as fetch:
            assert sorted(fetch.numbers(20, ack=True).values()) == list(range(20))


def test_consumers_that_come_and_go_over_ten_shards_lose_nothing() -> None:
    chance, count, found = Random(3), 300, dict[RecordId, int]()
    with serving() as (_, peer):
        shards = peer.create_stream(shards=10)
        peer.subscribe(timeout=1)
        for number in range(count):
            peer.append(chance.choice(shards), numbered([number]))
        with peer.fetch("a") as a:
            found |= a.numbers(50, ack=True)
            with peer.fetch("b") as b, peer.fetch("c") as c:
                while not (b.is_quiet(0.2) or c.is_quiet(0.2)):
                    pass
        with peer.fetch("d") as d:
            while len(found) < count:
                found |= d.numbers(1, ack=True)
    assert sorted(found.values()) == list(range(count))


def test_of_two_consumers_of_one_shard_one_is_fed() -> None:
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        with peer.fetch("a") as a:
            peer.append(shard, numbered([1]))
            a.numbers(1)
            with peer.fetch("b") as b:
                peer.append(shard, numbered([2]))
                a.numbers(1)
                assert b.is_quiet(0.2)
                a.half_close()
                assert a.status.grpc_code == "OK"
                peer.append(shard, numbered([3]))
                assert list(b.numbers(1).values()) == [3]


def test_acks_after_a_reconnect_count_in_the_living_context() -> None:
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        peer.append(shard, numbered([1, 2]))
        with peer.fetch("a") as fetch:
            ids = fetch.numbers(2)
        with peer.fetch("b") as fetch:
            fetch.ack(ids)
            until(lambda: peer.checkpoints() == {shard: FIRST})
            assert fetch.is_quiet(0.1)


def test_a_broken_connection_ends_the_calls_and_the_context_goes_on() -> None:
    with serving() as (cluster, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        peer.append(shard, numbered([1]))
        with peer.fetch("a") as fetch:
            ids = fetch.numbers(1)
            cluster.disconnect(cluster.owner("sub"))
            assert fetch.status.grpc_code == "UNAVAILABLE"
        assert peer.call(m.ECHO, node=cluster.owner("sub")).msg == ""
        with peer.fetch("a") as fetch:
            fetch.ack(ids)
            until(lambda: peer.checkpoints() == {shard: FIRST})


def test_a_name_that_is_taken_is_refused() -> None:
    with serving() as (cluster, peer):
        peer.create_stream()
        peer.subscribe()
        owner = cluster.owner("sub")
        with peer.fetch("a"), peer.fetch("b"):
            request = m.ListConsumersRequest(subscription_id="sub")
            until(lambda: len(peer.call(m.LIST_CONSUMERS, request, node=owner).consumers) == 2)
            found = peer.call(m.LIST_CONSUMERS, request, node=owner).consumers
            assert [each.name for each in found] == ["a", "b"]
            assert found[0].uri.startswith("ipv4:127.0.0.1")
            assert "grpc-python" in found[0].user_agent
            assert cluster.client_count == 2
            with peer.fetch("a") as third:
                assert third.status.details == {"error": 0, "message": "ConsumerExists", "extra": "a"}


def test_an_unknown_subscription_is_refused() -> None:
    with serving() as (_, peer), peer.fetch("a", subscription="none") as fetch:
        assert fetch.status.details == {"error": 300, "message": "SubscriptionNotFound", "extra": "none"}


def test_a_subscription_with_consumers_is_deleted_by_force_only() -> None:
    with serving() as (cluster, peer):
        peer.create_stream()
        peer.subscribe()
        owner = cluster.owner("sub")
        with peer.fetch() as fetch:
            until(lambda: cluster.client_count == 1)
            request = m.DeleteSubscriptionRequest(subscription_id="sub")
            assert refusal(lambda: peer.call(m.DELETE_SUBSCRIPTION, request, node=owner))[1] == 305
            request.force = True
            peer.call(m.DELETE_SUBSCRIPTION, request, node=owner)
            assert fetch.status.details == {"error": 0, "message": "SubscriptionIsDeleting", "extra": '"sub"'}
            assert list(peer.call(m.LIST_SUBSCRIPTIONS).subscription) == []


def test_an_ack_of_an_unknown_shard_ends_the_call_and_keeps_the_name_taken() -> None:
    with serving() as (cluster, peer):
        peer.create_stream()
        peer.subscribe()
        with peer.fetch("a") as fetch:
            fetch.ack([RecordId(1, 1, 0)])
            assert fetch.status.grpc_code == "UNKNOWN"
            assert fetch.status.text.startswith("UnKnown exception: ")
        with peer.fetch("a") as fetch:
            assert fetch.status.name == "ConsumerExists"
        request = m.DeleteSubscriptionRequest(subscription_id="sub", force=True)
        peer.call(m.DELETE_SUBSCRIPTION, request, node=cluster.owner("sub"))


def test_a_fetch_on_another_node_delivers_everything_a_second_time() -> None:
    with serving() as (cluster, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        ids = peer.append(shard, numbered([1]))
        owner = cluster.owner("sub")
        with peer.fetch("a") as right, peer.fetch("a", node=owner % 3 + 1) as wrong:
            assert right.numbers(1) == wrong.numbers(1) == {ids[0]: 1}


def test_no_more_is_delivered_than_the_limit_allows() -> None:
    with serving() as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe(limit=3)
        with peer.fetch() as fetch:
            for number in range(6):
                peer.append(shard, numbered([number]))
                if number < 3:
                    fetch.numbers(1)
            assert fetch.is_quiet(0.2)
            fetch.ack([RecordId(shard, FIRST, 0)])
            assert fetch.numbers(3).keys() == {(shard, FIRST + number, 0) for number in (3, 4, 5)}


def test_a_gap_is_skipped_and_committed() -> None:
    with serving() as (cluster, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        peer.append(shard, numbered([1]))
        peer.append(shard, numbered([2]))
        cluster.lose_batch(shard, FIRST + 1)
        cluster.begin_epoch(shard)
        peer.append(shard, numbered([3]))
        with peer.fetch() as fetch:
            found = fetch.numbers(2, ack=True)
            assert found == {(shard, FIRST, 0): 1, (shard, (3 << 32) + 1, 0): 3}
            until(lambda: peer.checkpoints() == {shard: (3 << 32) + 1})


def test_batches_that_are_too_old_are_not_delivered() -> None:
    now = 1_700_000_000.0
    with serving(clock=lambda: now) as (_, peer):
        (shard,) = peer.create_stream(retention=10)
        peer.subscribe()
        peer.append(shard, numbered([1]))
        now += 11
        peer.append(shard, numbered([2]))
        with peer.fetch() as fetch:
            assert list(fetch.numbers(1).values()) == [2]


def test_a_batch_that_cannot_be_read_again_never_comes_again() -> None:
    with serving() as (cluster, peer):
        (shard,) = peer.create_stream()
        peer.subscribe(timeout=1)
        peer.append(shard, numbered([1]))
        cluster.make_unreadable(shard, FIRST)
        with peer.fetch() as fetch:
            fetch.numbers(1)
            assert fetch.is_quiet(1.5)


def test_a_consumer_that_is_stalled_blocks_the_others() -> None:
    with serving(stall_after_frames=1, frame_buffer=2) as (_, peer):
        shards = peer.create_stream(shards=2)
        peer.subscribe()
        with peer.fetch("a") as a, peer.fetch("b") as b:
            for number in range(10):
                for shard in shards:
                    peer.append(shard, numbered([number]))
            assert len(a.numbers(1)) == len(b.numbers(1)) == 1
            assert a.is_quiet(0.2)
            assert b.is_quiet(0.0)


def test_a_fetch_is_cut_after_some_frames() -> None:
    with serving(cut_after_frames=2) as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        for number in range(3):
            peer.append(shard, numbered([number]))
        with peer.fetch() as fetch:
            fetch.numbers(2)
            assert fetch.is_quiet(1)
            assert fetch.status.grpc_code == "UNAVAILABLE"


@pytest.mark.parametrize("vector", vectors("malformed"), ids=names("malformed"))
def test_malformed_frames_are_sent_as_they_are(vector: dict[str, str]) -> None:
    bad = bytes.fromhex(vector["hex"])
    with serving(nodes=1, inserted_frames={1: bad}) as (_, peer):
        (shard,) = peer.create_stream()
        peer.subscribe()
        peer.append(shard, numbered([1]))
        with peer.fetch() as fetch:
            assert fetch.frame() == bad
            assert len(fetch.numbers(1)) == 1
