"""The official clients of HStreamDB work with our cluster, unmodified: they produce, consume and read.

Kept away from, because of their defects: with Python, empty payloads, zstd, TLS and the compression of its producer;
with Go, the new layout of the cluster's description.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from silverfold.connectors.hstreamdb.protocol.frames import decode_frame, encode_batch, encode_entry
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType, StreamingFetchResponse
from silverfold.connectors.hstreamdb.protocol.records import HRecord, Json, RawRecord, RecordId
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, DescribeLayout
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from tests.interop.hstreamdb_client import HERE, python_client
from tests.interop.sqlitecloud_clients import Missing, OfficialClient, fetch
from tests.support.hstreamdb.batches import numbered
from tests.support.hstreamdb.peer import Peer, until

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("hstreamdb")]


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> OfficialClient:
    folder = tmp_path_factory.mktemp("hstreamdb")
    try:
        return python_client(folder)
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> OfficialClient:
    if shutil.which("go") is None:
        pytest.skip("the official Go client needs go")
    folder = tmp_path_factory.mktemp("hstreamdb-go")
    for each in ("go.mod", "client.go"):
        shutil.copy(HERE / each, folder)
    try:
        fetch(["go", "mod", "tidy"], folder)
        fetch(["go", "build", "-o", "client", "."], folder)
    except Missing as reason:
        pytest.skip(str(reason))
    return OfficialClient([folder / "client"], folder)


@pytest.fixture
def cluster() -> Iterator[HStreamServer]:
    with HStreamServer.start() as cluster:
        yield cluster


@pytest.fixture
def older_cluster() -> Iterator[HStreamServer]:
    with HStreamServer.start(ClusterOptions(describe_layout=DescribeLayout.OLD)) as cluster:
        yield cluster


def address(cluster: HStreamServer) -> str:
    return f"127.0.0.1:{cluster.ports[0]}"


def test_it_produces_what_we_consume(official: OfficialClient, cluster: HStreamServer) -> None:
    saw = official.run("produce", address(cluster))
    assert saw["streams"] == ["official"]
    found: dict[RecordId, tuple[str, bytes | Json]] = {}
    compressions = set()
    with Peer(cluster) as peer:
        peer.subscribe(stream="official")
        with peer.fetch() as fetch_:
            while len(found) < 3 * 3 + 2 + 10:
                frame = fetch_.frame()
                compressions.add(StreamingFetchResponse.FromString(frame).received_records.record.compression_type)
                for each in decode_frame(frame).records:
                    assert each.record is not None
                    is_raw = isinstance(each.record, RawRecord)
                    found[each.id] = each.key, each.record.payload if is_raw else each.record.fields  # type: ignore[union-attr]  # an HRecord
                fetch_.ack(found)
    by_id = {str(list(record_id)): payload for record_id, (_, payload) in found.items()}
    appended = {str(record_id): payload for payload, record_id in saw["appended"].items()}
    assert {by_id[str(saw["appended"][each])] for each in ("raw", "text")} == {b"raw", b"text"}
    assert appended.keys() < by_id.keys()
    objects = sorted(payload["n"] for payload in by_id.values() if isinstance(payload, dict))
    assert objects == sorted([0, 1, 2, 10, 11, 12, 20, 21, 22, *saw["buffered"]])
    assert sorted(saw["buffered"]) == list(range(100, 110))
    assert {key for key, _ in found.values()} == {"", *(f"k{number}" for number in range(10))}
    assert compressions == {CompressionType.NONE, CompressionType.GZIP}


def test_it_consumes_what_we_produce_and_again_what_it_did_not_acknowledge(
    official: OfficialClient, cluster: HStreamServer
) -> None:
    sent: dict[str, Json] = {}
    with Peer(cluster) as peer:
        shards = peer.create_stream("ours", shards=3)
        for batch in range(10):
            kind = (CompressionType.NONE, CompressionType.GZIP)[batch % 2]
            records = [HRecord({"n": batch * 3 + index, "nested": {"list": [1, "x", None]}}) for index in range(3)]
            ids = peer.append(
                shards[batch % 3], encode_batch([encode_entry(each, "") for each in records], kind), "ours"
            )
            sent |= {str(list(record_id)): each.fields for record_id, each in zip(ids, records, strict=True)}
    saw = official.run("consume", address(cluster))
    assert saw["seen"] == sent
    assert saw["again"] >= 3
    assert (saw["subscriptions"], saw["exists"], saw["left"]) == (["of-the-official"], True, [])


def test_it_reads_a_shard_by_offset(official: OfficialClient, cluster: HStreamServer) -> None:
    with Peer(cluster) as peer:
        (shard,) = peer.create_stream("ours")
        ids = [peer.append(shard, numbered([number]), "ours")[0] for number in range(5)]
    saw = official.run("read", address(cluster))
    assert (saw["first"], saw["rest"]) == ([list(each) for each in ids[:2]], [list(each) for each in ids[2:]])
    assert saw["streams"] == []


def test_go_produces_what_we_consume_with_every_compression(go: OfficialClient, older_cluster: HStreamServer) -> None:
    appended = go.run("produce", address(older_cluster))
    found: dict[str, int] = {}
    compressions = set()
    with Peer(older_cluster) as peer:
        peer.subscribe(stream="official")
        with peer.fetch() as fetch_:
            while len(found) < len(appended):
                frame = fetch_.frame()
                compressions.add(StreamingFetchResponse.FromString(frame).received_records.record.compression_type)
                for each in decode_frame(frame).records:
                    match each.record:
                        case HRecord(fields):
                            found[str(each.id)] = int(str(fields["n"]))
                        case RawRecord(payload):
                            found[str(each.id)] = int(payload)
    assert {number: record_id for record_id, number in found.items()} == {
        int(number): record_id for number, record_id in appended.items()
    }
    assert compressions == set(CompressionType)


def test_go_consumes_what_we_produce_with_every_compression(go: OfficialClient, older_cluster: HStreamServer) -> None:
    sent: dict[str, int] = {}
    with Peer(older_cluster) as peer:
        shards = peer.create_stream("ours", shards=3)
        for batch in range(10):
            numbers = range(batch * 3, batch * 3 + 3)
            ids = peer.append(shards[batch % 3], numbered(numbers, list(CompressionType)[batch % 3]), "ours")
            sent |= {str(record_id): number for record_id, number in zip(ids, numbers, strict=True)}
        saw = go.run("consume", address(older_cluster))
        assert {record_id: payload["n"] for record_id, payload in saw.items()} == sent
        until(lambda: all(peer.checkpoints("of-the-official").values()))
