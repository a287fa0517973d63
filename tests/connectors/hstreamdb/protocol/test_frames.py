"""Batches and frames: every golden payload and malformed frame, both ways, within bounds."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import OversizedMessage, RemoteProtocolError, WireError
from silverfold.connectors.hstreamdb.protocol.compression import compress, decompress
from silverfold.connectors.hstreamdb.protocol.frames import (
    KeyedRecord,
    appended_ids,
    decode_batch,
    decode_frame,
    encode_batch,
    encode_entry,
    encode_fetch_request,
)
from silverfold.connectors.hstreamdb.protocol.messages.batches import (
    AppendResponse,
    BatchHStreamRecords,
    CompressionType,
    Flag,
    ReceivedRecord,
    StreamingFetchRequest,
)
from silverfold.connectors.hstreamdb.protocol.messages.batches import RecordId as WireId
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RawRecord, RecordId, decode_record, encode_record
from tests.support.hstreamdb.vectors import names, vectors

LIMIT = 1 << 20
MALFORMED = {each["name"]: each for each in vectors("malformed")}
TOLERATED = [name for name, each in MALFORMED.items() if each["error"] is None]
BAD_FRAMES = [name for name, each in MALFORMED.items() if each["error"] and each["level"] == "frame"]
BAD_RECORDS = [name for name, each in MALFORMED.items() if each["level"] == "record"]


def frame_of(name: str) -> bytes:
    return bytes.fromhex(MALFORMED[name]["hex"])


def as_record(vector: dict[str, Any]) -> tuple[str, HRecord | RawRecord]:
    found = encode_record(RawRecord(bytes.fromhex(vector["payload"])), vector["key"])
    found.header.flag = Flag[vector["flag"]]
    return decode_record(found)


@pytest.mark.parametrize("vector", vectors("payload"), ids=names("payload"))
def test_payloads_of_every_producer_are_read(vector: dict[str, Any]) -> None:
    kind = CompressionType[vector["compression"].upper()]
    expanded = decompress(bytes.fromhex(vector["payload"]), kind, limit=LIMIT)
    found = [decode_record(each) for each in BatchHStreamRecords.FromString(expanded).records]
    assert found == [as_record(each) for each in vector["records"]]
    assert decompress(compress(expanded, kind), kind, limit=len(expanded)) == expanded


@pytest.mark.parametrize("name", TOLERATED)
def test_frames_of_lenient_producers_are_read(name: str) -> None:
    found = [(each.key, each.record) for each in decode_frame(frame_of(name), limit=LIMIT).records]
    assert found == [as_record(each) for each in MALFORMED[name]["records"]]


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_is_refused_with_its_kind(name: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_frame(frame_of(name), limit=MALFORMED[name].get("max_decompressed", LIMIT))
    allowed = {MALFORMED[name]["error"]} | ({"count_mismatch"} if name == "gzip_cut_inside_the_data" else set())
    assert refused.value.reason in allowed


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_bad_record_costs_no_other(name: str) -> None:
    (found,) = decode_frame(frame_of(name)).records
    assert found.record is None
    assert found.error is not None
    assert found.error.reason == MALFORMED[name]["error"]


@pytest.mark.parametrize("kind", CompressionType)
def test_a_batch_comes_back_with_ids_keys_and_the_time_of_its_append(kind: CompressionType) -> None:
    records = [HRecord({"id": 1}), RawRecord(b"\0")]
    batch = encode_batch([encode_entry(each, "k") for each in records], kind)
    batch.publish_time.FromMilliseconds(1_700_000_000_005)
    ids = [RecordId(7, 9, 0), RecordId(7, 9, 1)]
    found = decode_batch(ReceivedRecord(record_ids=[each.to_message() for each in ids], record=batch))
    assert found.records == [KeyedRecord(ids[0], "k", records[0]), KeyedRecord(ids[1], "k", records[1])]
    assert found.published_ms == 1_700_000_000_005


def test_a_batch_is_its_entries_joined_without_a_time() -> None:
    records = [HRecord({"id": 1}), RawRecord(b"hi")]
    whole = BatchHStreamRecords(records=[encode_record(each, "k") for each in records])
    batch = encode_batch([encode_entry(each, "k") for each in records], CompressionType.NONE)
    assert BatchHStreamRecords.FromString(batch.payload) == whole
    assert batch.batch_size == 2
    assert not batch.HasField("publish_time")


@pytest.mark.parametrize("kind", CompressionType)
def test_what_is_decompressed_is_bounded(kind: CompressionType) -> None:
    bomb = compress(bytes(1 << 24), kind)
    with pytest.raises(OversizedMessage):
        decompress(bomb, kind, limit=1 << 16)
    assert len(decompress(bomb, kind, limit=1 << 24)) == 1 << 24


def test_zstd_frames_have_their_content_size() -> None:
    descriptor = compress(b"x" * 100, CompressionType.ZSTD)[4]
    assert descriptor & 0x20  # a single segment, which always has its size: RFC 8878, section 3.1.1.1


def wire_error_of(frame: bytes) -> WireError | None:
    """None if the bytes are a frame. Any other error would be a bug."""
    try:
        decode_frame(frame, limit=LIMIT)
    except WireError as error:
        return error
    return None


@given(frame=st.binary(max_size=80))
def test_any_bytes_give_a_batch_or_a_wire_error_with_its_kind(frame: bytes) -> None:
    error = wire_error_of(frame)
    assert error is None or error.reason


@given(position=st.integers(0, 70), value=st.integers(0, 255), name=st.sampled_from(TOLERATED))
def test_a_changed_byte_gives_a_batch_or_a_wire_error_with_its_kind(position: int, value: int, name: str) -> None:
    frame = bytearray(frame_of(name))
    frame[position % len(frame)] = value
    error = wire_error_of(bytes(frame))
    assert error is None or error.reason


def test_an_append_is_answered_with_an_id_for_each_record() -> None:
    answer = AppendResponse(record_ids=[WireId(shard_id=7, batch_id=9), WireId(shard_id=7, batch_id=9, batch_index=1)])
    assert appended_ids(answer, 2) == [RecordId(7, 9, 0), RecordId(7, 9, 1)]
    with pytest.raises(RemoteProtocolError, match="count_mismatch"):
        appended_ids(answer, 3)


def test_the_bytes_of_acknowledgements_are_as_measured() -> None:
    for each in vectors("ack_sizes")["ids"]:
        shard, batch, index = map(int, each["id"])
        assert RecordId(shard, batch, index).to_message().ByteSize() == each["record_id_bytes"]


@given(
    st.lists(
        st.builds(
            RecordId,
            st.sampled_from([1, 1 << 55, (1 << 63) - 1]),
            st.sampled_from([1, 1 << 33, (1 << 64) - 1]),
            st.integers(0, (1 << 32) - 1) | st.integers(0, 300),
        )
    )
)
def test_a_request_of_a_fetch_has_the_bytes_that_messages_make(ids: list[RecordId]) -> None:
    message = StreamingFetchRequest(subscription_id="f", consumer_name="c", ack_ids=[each.to_message() for each in ids])
    assert encode_fetch_request("f", "c", ids) == message.SerializeToString()
