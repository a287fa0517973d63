"""Times in messages, which a server may set to anything that their fields can hold."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.protocol.frames import encode_batch, encode_entry
from silverfold.connectors.hstreamdb.protocol.messages.batches import (
    CompressionType,
    ReceivedRecord,
    StreamingFetchResponse,
)
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Subscription
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RecordId
from silverfold.connectors.hstreamdb.protocol.times import creation_of

TIMES = [(1_700_000_000, 5_999_999, 1_700_000_000_005), (1_700_000_000, -1, 0), (1 << 62, 0, 0), (-(1 << 62), 0, 0)]


@pytest.mark.parametrize(("seconds", "nanos", "published_ms"), TIMES)
def test_a_frame_is_read_whatever_the_time_of_its_append(seconds: int, nanos: int, published_ms: int) -> None:
    batch = encode_batch([encode_entry(HRecord({"id": 1}), "k")], CompressionType.NONE)
    batch.publish_time.CopyFrom(Timestamp(seconds=seconds, nanos=nanos))
    received = ReceivedRecord(record_ids=[RecordId(7, 9, 0).to_message()], record=batch)
    frame = FetchedFrame.of(StreamingFetchResponse(received_records=received).SerializeToString())
    assert (frame.ids, frame.error, frame.published_ms) == ([RecordId(7, 9, 0)], None, published_ms)
    found = frame.decode()
    assert ([each.record for each in found.records], found.published_ms) == ([HRecord({"id": 1})], published_ms)


def test_subscriptions_differ_by_their_creation_whether_or_not_that_is_a_time() -> None:
    times = [Timestamp(seconds=1_700_000_000, nanos=nanos) for nanos in (5, -5)]
    found = [creation_of(Subscription(creation_time=time)) for time in times]
    assert found == ["1700000000000000005", "1699999999999999995"]
