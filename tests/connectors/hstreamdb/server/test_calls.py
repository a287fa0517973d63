"""Calls of a node: what they answer, and how they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from silverfold.connectors.hstreamdb.protocol import methods as m
from silverfold.connectors.hstreamdb.protocol.description import decode_description
from silverfold.connectors.hstreamdb.protocol.frames import decode_batch
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, CompressionType, HStreamRecord
from silverfold.connectors.hstreamdb.protocol.messages.cluster import NodeState, ResourceType
from silverfold.connectors.hstreamdb.protocol.messages.offsets import (
    ShardOffset,
    SpecialOffset,
    StreamOffset,
    TimestampOffset,
)
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.streams import even_ranges, find_shard, key_hash, key_ranges
from silverfold.connectors.hstreamdb.server.options import DescribeLayout
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from silverfold.connectors.hstreamdb.server.store.store import DELETED_STREAM, StoreLimits
from tests.support.hstreamdb.batches import numbered
from tests.support.hstreamdb.peer import Peer, refusal, serving

FIRST = (2 << 32) + 1


@pytest.fixture
def cluster_and_peer() -> Iterator[tuple[HStreamServer, Peer]]:
    with serving(nodes=3, limits=StoreLimits(max_record_size=1000, max_batch_records=50, max_shards=16)) as pair:
        yield pair


@pytest.fixture
def cluster(cluster_and_peer: tuple[HStreamServer, Peer]) -> HStreamServer:
    return cluster_and_peer[0]


@pytest.fixture
def peer(cluster_and_peer: tuple[HStreamServer, Peer]) -> Peer:
    return cluster_and_peer[1]


def test_a_stream_is_created_listed_and_deleted(peer: Peer) -> None:
    peer.create_stream("orders", shards=2, retention=60)
    found = peer.call(m.GET_STREAM, m.GetStreamRequest(name="orders")).stream
    assert (found.replication_factor, found.shard_count, found.backlog_duration) == (1, 2, 60)
    assert found.creation_time.seconds > 1_700_000_000
    assert [each.stream_name for each in peer.call(m.LIST_STREAMS).streams] == ["orders"]
    prefixed = peer.call(m.LIST_STREAMS_WITH_PREFIX, m.ListStreamsWithPrefixRequest(prefix="x"))
    assert list(prefixed.streams) == []
    peer.call(m.DELETE_STREAM, m.DeleteStreamRequest(stream_name="orders"))
    peer.call(m.DELETE_STREAM, m.DeleteStreamRequest(stream_name="orders", ignore_non_exist=True))
    assert list(peer.call(m.LIST_STREAMS).streams) == []


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_the_shards_of_a_stream_share_all_keys(peer: Peer, count: int) -> None:
    ids = peer.create_stream("s", shards=count)
    shards = peer.call(m.LIST_SHARDS, m.ListShardsRequest(stream_name="s"), node=2).shards
    assert [(each.start, each.end) for each in key_ranges(shards)] == even_ranges(count)
    assert find_shard(key_ranges(shards), key_hash("k")) in ids
    assert all(0 < each < 1 << 53 for each in ids)
    assert {each.is_active for each in shards} == {True}


def test_an_append_answers_an_id_for_each_record(peer: Peer) -> None:
    (shard,) = peer.create_stream()
    assert peer.append(shard, numbered([1, 2])) == [(shard, FIRST, 0), (shard, FIRST, 1)]
    assert peer.append(shard, numbered([3])) == [(shard, FIRST + 1, 0)]
    tail = peer.call(m.GET_TAIL_RECORD_ID, m.GetTailRecordIdRequest(stream_name="s", shard_id=shard))
    assert RecordId.of(tail.tail_record_id) == (shard, FIRST + 1, 0)


def a_stream(**given: Any) -> m.Stream:
    return m.Stream(**{"stream_name": "s2", "replication_factor": 1, "shard_count": 1, **given})


def a_batch(**given: Any) -> m.AppendRequest:
    return m.AppendRequest(
        stream_name="s", shard_id=1, records=BatchedRecord(**{"batch_size": 1, "payload": b"x", **given})
    )


REFUSALS: list[tuple[Any, Any, tuple[str, Any, Any, Any]]] = [
    (
        m.CREATE_STREAM,
        a_stream(stream_name="1s"),
        ("INVALID_ARGUMENT", 204, "InvalidObjectIdentifier", "The first character of a name must be a letter"),
    ),
    (
        m.CREATE_STREAM,
        a_stream(replication_factor=0),
        ("INVALID_ARGUMENT", 203, "Stream replicationFactor cannot be zero", None),
    ),
    (m.CREATE_STREAM, a_stream(shard_count=0), ("INVALID_ARGUMENT", 205, "InvalidShardCount", "1 to 16")),
    (m.CREATE_STREAM, a_stream(shard_count=4_294_967_295), ("INVALID_ARGUMENT", 205, "InvalidShardCount", "1 to 16")),
    (m.CREATE_STREAM, a_stream(stream_name="s"), ("ALREADY_EXISTS", 201, "StreamExists", "s")),
    (m.DELETE_STREAM, m.DeleteStreamRequest(stream_name="x"), ("NOT_FOUND", 200, "StreamNotFound", "x")),
    (
        m.DELETE_STREAM,
        m.DeleteStreamRequest(stream_name="s"),
        ("FAILED_PRECONDITION", 202, "Stream still has subscription", None),
    ),
    (m.GET_STREAM, m.GetStreamRequest(name="x"), ("NOT_FOUND", 200, "StreamNotFound", "x")),
    (m.LIST_SHARDS, m.ListShardsRequest(stream_name="x"), ("UNAVAILABLE", None, "stream x has no shards", None)),
    (m.GET_TAIL_RECORD_ID, m.GetTailRecordIdRequest(shard_id=9), ("NOT_FOUND", 0, "ShardNotFound", "9")),
    (m.APPEND, m.AppendRequest(shard_id=1), ("INVALID_ARGUMENT", 206, "BatchedRecord shouldn't be Nothing", None)),
    (m.APPEND, a_batch(batch_size=0), ("INVALID_ARGUMENT", 206, "BatchedRecord shouldn't be Nothing", None)),
    (m.APPEND, a_batch(payload=b""), ("INVALID_ARGUMENT", 206, "BatchedRecord shouldn't be Nothing", None)),
    (
        m.APPEND,
        a_batch(payload=bytes(1000)),
        ("INVALID_ARGUMENT", 207, "Record size exceeds the maximum size limit", 1005),
    ),
    (
        m.APPEND,
        a_batch(batch_size=4_294_967_295),
        ("INVALID_ARGUMENT", 207, "Record size exceeds the maximum size limit", 9),
    ),
    (m.APPEND, a_batch(), ("UNAVAILABLE", None, "shard 1 has no log", None)),
    (
        m.CREATE_SUBSCRIPTION,
        m.Subscription(subscription_id="-", stream_name="s"),
        ("INVALID_ARGUMENT", 304, "InvalidObjectIdentifier", "The first character of a name must be a letter"),
    ),
    (
        m.CREATE_SUBSCRIPTION,
        m.Subscription(subscription_id="n", stream_name="x"),
        ("FAILED_PRECONDITION", 302, "NonExistentStream", "x"),
    ),
    (
        m.CREATE_SUBSCRIPTION,
        m.Subscription(subscription_id="n", stream_name="s", offset=2),
        ("INVALID_ARGUMENT", 303, "InvalidSubscriptionOffset", "2"),
    ),
    (
        m.CREATE_SUBSCRIPTION,
        m.Subscription(subscription_id="sub", stream_name="s"),
        ("ALREADY_EXISTS", 301, "SubscriptionExists", "sub"),
    ),
    (m.TRIM_SHARD, m.TrimShardRequest(shard_id=9), ("NOT_FOUND", 0, "ShardNotFound", "9")),
    (
        m.TRIM_STREAM,
        m.TrimStreamRequest(stream_name="s"),
        ("INVALID_ARGUMENT", 208, "InvalidOffset", "no offset is given"),
    ),
    (
        m.TRIM_SHARDS,
        m.TrimShardsRequest(stream_name="s", record_ids=["1-2"]),
        ("INVALID_ARGUMENT", 209, "InvalidRecordId", "1-2"),
    ),
    (
        m.TRIM_SHARDS,
        m.TrimShardsRequest(stream_name="s", record_ids=["1-2-3"]),
        ("INVALID_ARGUMENT", 210, "ShardNotExists", "1"),
    ),
    (m.READ_SHARD, m.ReadShardRequest(reader_id="r"), ("FAILED_PRECONDITION", 0, "EmptyShardReader", "r")),
]


@pytest.mark.parametrize(("method", "request_", "expected"), REFUSALS)
def test_wrong_calls_are_refused_as_documented(peer: Peer, method: Any, request_: Any, expected: Any) -> None:
    peer.create_stream()
    peer.subscribe()
    assert refusal(lambda: peer.call(method, request_)) == expected


def test_older_servers_send_texts(peer: Peer) -> None:
    with serving(nodes=1, json_statuses=False) as (_, older):
        found = refusal(lambda: older.call(m.GET_STREAM, m.GetStreamRequest(name="x")))
    assert found == ("NOT_FOUND", None, "StreamNotFound: x", None)


def test_a_subscription_has_one_owner_which_answers_for_it(cluster: HStreamServer, peer: Peer) -> None:
    (shard,) = peer.create_stream()
    peer.subscribe()
    answers = [
        peer.call(m.LOOKUP_SUBSCRIPTION, m.LookupSubscriptionRequest(subscription_id="sub"), node=node)
        for node in (1, 2, 3)
    ]
    owner = cluster.owner("sub")
    assert {(each.subscription_id, each.server_node.id) for each in answers} == {("sub", owner)}
    resource = m.LookupResourceRequest(res_type=ResourceType.SUBSCRIPTION, res_id="sub")
    assert peer.call(m.LOOKUP_RESOURCE, resource).port == cluster.ports[owner - 1]
    other = owner % 3 + 1
    calls: list[Callable[[], Any]] = [
        lambda: peer.call(m.GET_SUBSCRIPTION, m.GetSubscriptionRequest(id="sub"), node=other),
        lambda: peer.call(m.LIST_CONSUMERS, m.ListConsumersRequest(subscription_id="sub"), node=other),
        lambda: peer.call(m.DELETE_SUBSCRIPTION, m.DeleteSubscriptionRequest(subscription_id="sub"), node=other),
    ]
    for call in calls:
        found = refusal(call)
        assert found == ("FAILED_PRECONDITION", 800, "WrongServer", "Subscription is bound to a different node")
    assert peer.checkpoints() == {}
    with peer.fetch():
        while not peer.checkpoints():
            pass
        assert peer.checkpoints() == {shard: 0}


def test_a_subscription_is_listed_and_deleted(cluster: HStreamServer, peer: Peer) -> None:
    peer.create_stream()
    peer.subscribe()
    exists = m.CheckSubscriptionExistRequest(subscription_id="sub")
    assert peer.call(m.CHECK_SUBSCRIPTION_EXIST, exists).exists
    (found,) = peer.call(m.LIST_SUBSCRIPTIONS).subscription
    assert (found.stream_name, found.ack_timeout_seconds, found.max_unacked_records) == ("s", 60, 1000)
    listed = peer.call(m.LIST_SUBSCRIPTIONS_WITH_PREFIX, m.ListSubscriptionsWithPrefixRequest(prefix="su"))
    assert len(listed.subscription) == 1
    deleted = m.DeleteSubscriptionRequest(subscription_id="sub")
    peer.call(m.DELETE_SUBSCRIPTION, deleted, node=cluster.owner("sub"))
    assert not peer.call(m.CHECK_SUBSCRIPTION_EXIST, exists).exists
    found = refusal(lambda: peer.call(m.DELETE_SUBSCRIPTION, deleted, node=cluster.owner("sub")))
    assert found == ("NOT_FOUND", 300, "SubscriptionNotFound", "sub")


def test_a_stream_deleted_by_force_is_still_delivered(peer: Peer) -> None:
    (shard,) = peer.create_stream()
    peer.subscribe()
    peer.append(shard, numbered([1]))
    with peer.fetch() as fetch:
        fetch.numbers(1)
        peer.call(m.DELETE_STREAM, m.DeleteStreamRequest(stream_name="s", force=True))
        (found,) = peer.call(m.LIST_SUBSCRIPTIONS).subscription
        assert found.stream_name == DELETED_STREAM
        assert refusal(lambda: peer.append(shard, numbered([2])))[0] == "UNAVAILABLE"
        assert fetch.is_quiet(0.1)


@pytest.mark.parametrize("layout", list(DescribeLayout))
def test_the_cluster_is_described_by_each_node(layout: DescribeLayout) -> None:
    with serving(nodes=3, describe_layout=layout) as (cluster, peer):
        cluster.kill(3)
        raw = m.Method("DescribeCluster", m.Empty, m.Empty)  # keeps the bytes as unknown fields
        found = decode_description(peer.call(raw, node=2).SerializeToString())
        assert [each.id for each in found.nodes] == [2, 1]
        states = {each.node.id: each.state for each in found.statuses}
        assert states == {2: NodeState.RUNNING, 1: NodeState.RUNNING, 3: NodeState.DEAD}
        assert found.server_version == ("0.15.1" if layout is DescribeLayout.OLD else "")
        assert [each.port for each in found.nodes] == [cluster.ports[1], cluster.ports[0]]


def test_a_node_advertises_another_host() -> None:
    with serving(nodes=1, advertised_host="db.example") as (cluster, peer):
        assert peer.call(m.LOOKUP_KEY, m.LookupKeyRequest(partition_key="k")).host == "db.example"
        assert cluster.address == f"hstream://db.example:{cluster.ports[0]}"


@pytest.mark.parametrize("compression", list(CompressionType))
def test_a_shard_is_read_from_any_offset(cluster: HStreamServer, peer: Peer, compression: CompressionType) -> None:
    (shard,) = peer.create_stream()
    for number in range(5):
        peer.append(shard, numbered([number], compression))
    until = ShardOffset(record_offset=RecordId(shard, FIRST + 2, 0).to_message())
    requests = {
        "all": m.ReadShardStreamRequest(shard_id=shard, from_=EARLIEST, until=LATEST),
        "until": m.ReadShardStreamRequest(shard_id=shard, from_=EARLIEST, until=until),
        "from": m.ReadShardStreamRequest(shard_id=shard, from_=until, until=LATEST),
        "some": m.ReadShardStreamRequest(shard_id=shard, from_=EARLIEST, max_read_batches=2),
    }
    found = {
        name: [
            batch_id(each) for answer in peer.stream(m.READ_SHARD_STREAM, request) for each in answer.received_records
        ]
        for name, request in requests.items()
    }
    batches = [FIRST + number for number in range(5)]
    assert found == {"all": batches, "until": batches[:3], "from": batches[2:], "some": batches[:2]}


EARLIEST = ShardOffset(special_offset=SpecialOffset.EARLIEST)
LATEST = ShardOffset(special_offset=SpecialOffset.LATEST)


def batch_id(received: Any) -> int:
    return decode_batch(received).records[0].id.batch_id


def test_a_stream_is_read_whole_and_by_key(peer: Peer) -> None:
    shards = peer.create_stream(shards=2)
    for shard in shards:
        peer.append(shard, numbered([1], key="k"))
        peer.append(shard, numbered([2], key="other"))
    start, end = (StreamOffset(special_offset=each) for each in (SpecialOffset.EARLIEST, SpecialOffset.LATEST))
    whole = m.ReadStreamRequest(stream_name="s", from_=start, until=end)
    ids = [RecordId.of(each.record_ids[0]) for a in peer.stream(m.READ_STREAM, whole) for each in a.received_records]
    assert sorted(ids) == [(shard, batch, 0) for shard in sorted(shards) for batch in (FIRST, FIRST + 1)]
    refused = m.ReadSingleShardStreamRequest(stream_name="s", from_=EARLIEST)
    assert refusal(lambda: list(peer.stream(m.READ_SINGLE_SHARD_STREAM, refused))) == (
        "INVALID_ARGUMENT",
        902,
        "TooManyShards",
        "2",
    )
    by_key = m.ReadStreamByKeyRequest(stream_name="s", key="k", from_=EARLIEST, until=LATEST, read_record_count=10)
    found = list(peer.stream(m.READ_STREAM_BY_KEY, by_key))
    assert [each.received_records[0].header.key for each in found] == ["k"]


def test_a_reader_goes_on_where_it_was_and_reports_a_loss(cluster: HStreamServer, peer: Peer) -> None:
    (shard,) = peer.create_stream()
    reader = m.CreateShardReaderRequest(
        stream_name="s", shard_id=shard, shard_offset=EARLIEST, reader_id="r", timeout=50
    )
    assert peer.call(m.CREATE_SHARD_READER, reader).reader_id == "r"
    assert refusal(lambda: peer.call(m.CREATE_SHARD_READER, reader))[2] == "ShardReaderExists"
    assert list(peer.call(m.LIST_SHARD_READERS).reader_id) == ["r"]
    for number in range(4):
        peer.append(shard, numbered([number]))
    owner = peer.call(m.LOOKUP_SHARD_READER, m.LookupShardReaderRequest(reader_id="r")).server_node.id
    cluster.lose_batch(shard, FIRST + 2)

    def read() -> list[int]:
        answer = peer.call(m.READ_SHARD, m.ReadShardRequest(reader_id="r", max_records=10), node=owner)
        return [batch_id(each) for each in answer.received_records]

    assert read() == [FIRST, FIRST + 1]
    assert refusal(read) == ("DATA_LOSS", 903, "DataLossGap", str(FIRST + 2))
    assert read() == [FIRST + 3]
    assert read() == []
    deleted = m.DeleteShardReaderRequest(reader_id="r")
    assert refusal(lambda: peer.call(m.DELETE_SHARD_READER, deleted, node=owner % 3 + 1))[1] == 800
    peer.call(m.DELETE_SHARD_READER, deleted, node=owner)


def test_a_shard_is_trimmed_with_the_offset_or_before_an_id(peer: Peer) -> None:
    (shard,) = peer.create_stream()
    for number in range(5):
        peer.append(shard, numbered([number]))

    def left() -> list[int]:
        request = m.ReadShardStreamRequest(shard_id=shard, from_=EARLIEST, until=LATEST)
        return [batch_id(each) for a in peer.stream(m.READ_SHARD_STREAM, request) for each in a.received_records]

    point = ShardOffset(record_offset=RecordId(shard, FIRST, 0).to_message())
    peer.call(m.TRIM_SHARD, m.TrimShardRequest(stream_name="s", shard_id=shard, trim_point=point))
    assert left() == [FIRST + number for number in range(1, 5)]
    ids = [f"{shard}-{FIRST + 3}-0", f"{shard}-{FIRST + 2}-7", f"{shard}-0-0"]
    answer = peer.call(m.TRIM_SHARDS, m.TrimShardsRequest(stream_name="s", record_ids=ids))
    assert dict(answer.trim_points) == {shard: f"{shard}-{FIRST + 2}-7"}
    assert left() == [FIRST + number for number in range(2, 5)]
    now = StreamOffset(timestamp_offset=TimestampOffset(timestamp_in_ms=1 << 50))
    peer.call(m.TRIM_STREAM, m.TrimStreamRequest(stream_name="s", trim_point=now))
    assert left() == []


def test_a_fetch_that_ends_before_it_opens_is_cancelled(peer: Peer) -> None:
    found = refusal(lambda: list(peer.stream(m.STREAMING_FETCH)))
    assert found == ("CANCELLED", 0, "StreamReadClose", "Consumer is closed")


def test_a_request_that_is_no_message_ends_its_call(peer: Peer) -> None:
    no_text = m.Method("LookupResource", HStreamRecord, m.ServerNode)
    assert refusal(lambda: peer.call(no_text, HStreamRecord(payload=b"\xff")))[0] == "UNKNOWN"
    assert peer.call(m.ECHO, m.EchoRequest(msg="still there")).msg == "still there"
