"""Batches and frames: encodes records for an append, decodes a received batch into records with their ids.

Protobuf appends to repeated fields: serialized `BatchHStreamRecords` of one record each can be joined to one of all.
So each record is encoded once, as it arrives. A batch is made, or halved, by joining bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from operator import attrgetter, itemgetter, lt
from typing import Final

from google.protobuf.message import DecodeError

from silverfold.conf.errors import InvalidValue, RemoteProtocolError
from silverfold.connectors.hstreamdb.protocol.compression import compress, decompress
from silverfold.connectors.hstreamdb.protocol.messages.batches import (
    AppendResponse,
    BatchedRecord,
    BatchHStreamRecords,
    EncodedRecords,
    ReceivedRecord,
    StreamingFetchRequest,
    StreamingFetchResponse,
)
from silverfold.connectors.hstreamdb.protocol.messages.batches import RecordId as WireId
from silverfold.connectors.hstreamdb.protocol.records import Record, RecordId, decode_record, encode_record
from silverfold.connectors.hstreamdb.protocol.times import published_ms

MAX_PLAIN_BYTES: Final = 64 << 20
"""Most bytes of a batch, decompressed."""
MAX_STORED_BYTES: Final = 1 << 20
"""Most bytes of an encoded `BatchedRecord`: the server's ``max-record-size``."""
_LARGEST_ID: Final = (1 << 63) - 1

_FIELDS: Final = attrgetter("shard_id", "batch_id", "batch_index")
_made: Final = partial(tuple.__new__, RecordId)

_invalid_ids: Final = partial(InvalidValue, reason="bad_ids")


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """A received record with its partition key; ``error`` if only this record is invalid, then ``record`` is None."""

    id: RecordId
    key: str
    record: Record | None
    error: InvalidValue | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A received batch, or the rest of one; ``published_ms`` is the time of its append, since 1970; 0 if unknown."""

    records: Sequence[KeyedRecord]
    published_ms: int


def encode_entry(record: Record, key: str) -> bytes:
    """Return a batch of one record, before compression. Raises InvalidValue."""
    return EncodedRecords(records=[encode_record(record, key).SerializeToString()]).SerializeToString()


def encode_batch(entries: Sequence[bytes], compression: int) -> BatchedRecord:
    """Return the batch of some entries. The time is the server's to set."""
    payload = compress(b"".join(entries), compression)
    return BatchedRecord(compression_type=compression, batch_size=len(entries), payload=payload)


def appended_ids(answer: AppendResponse, count: int) -> list[RecordId]:
    """Return the ids of an append's records, in order. Raises RemoteProtocolError if their number is wrong."""
    if len(answer.record_ids) != count:
        detail = f"{count} records were appended, {len(answer.record_ids)} ids came back"
        raise RemoteProtocolError(detail, reason="count_mismatch")
    return [RecordId.of(each) for each in answer.record_ids]


def encode_fetch_request(subscription_id: str, consumer_name: str, ids: Iterable[RecordId]) -> bytes:
    """Return the bytes of a `StreamingFetchRequest`.

    Ids of one batch differ only in the last field, their index. So what they share is encoded once: 0.3 µs an id, where
    messages take 1.7.
    """
    parts = [StreamingFetchRequest(subscription_id=subscription_id, consumer_name=consumer_name).SerializeToString()]
    for (shard_id, batch_id), batch in groupby(ids, key=itemgetter(0, 1)):
        common = WireId(shard_id=shard_id, batch_id=batch_id).SerializeToString()
        for _, _, batch_index in batch:
            index = _encoded_index(batch_index)
            parts.append(b"\x1a%c%b%b" % (len(common) + len(index), common, index))  # field 3, its length, an id
    return b"".join(parts)


@lru_cache(maxsize=1 << 16)
def _encoded_index(batch_index: int) -> bytes:
    return WireId(batch_index=batch_index).SerializeToString()


def decode_frame(frame: bytes, *, limit: int = MAX_PLAIN_BYTES) -> Batch:
    """Return the batch in the bytes of a `StreamingFetchResponse`.

    Args:
        limit: Most bytes of the batch, decompressed.

    Raises:
        InvalidValue: The frame is invalid; ``reason`` is ``bad_response``, ``empty_frame``, ``id_out_of_range``,
            ``bad_ids``, ``missing_record``, ``unknown_compression``, ``bad_compression``, ``bad_batch`` or
            ``count_mismatch``.
        OversizedMessage: The batch has more than ``limit`` bytes.
    """
    return decode_batch(parse_frame(frame), limit=limit)


def parse_frame(frame: bytes) -> ReceivedRecord:
    """Return what a frame holds. Raises InvalidValue: ``bad_response``."""
    try:
        return StreamingFetchResponse.FromString(frame).received_records
    except DecodeError as error:
        raise InvalidValue("a frame is no StreamingFetchResponse", reason="bad_response") from error


def decode_batch(found: ReceivedRecord, *, limit: int = MAX_PLAIN_BYTES) -> Batch:
    """Return the records of a received batch with their ids. Raises as `decode_frame`."""
    ids = frame_ids(found)
    if not found.HasField("record"):
        raise InvalidValue("a frame has ids and no batch", reason="missing_record")
    batched = found.record
    expanded = decompress(batched.payload, batched.compression_type, limit=limit)
    try:
        records = BatchHStreamRecords.FromString(expanded).records
    except DecodeError as error:
        raise InvalidValue("a batch is no BatchHStreamRecords", reason="bad_batch") from error
    if not len(records) == len(ids) == batched.batch_size:
        detail = f"{len(ids)} ids, {len(records)} records, and a batch size of {batched.batch_size}"
        raise InvalidValue(detail, reason="count_mismatch")
    decoded = []
    for record_id, record in zip(ids, records, strict=True):
        try:
            decoded.append(KeyedRecord(record_id, *decode_record(record)))
        except InvalidValue as error:
            decoded.append(KeyedRecord(record_id, record.header.key, None, error))
    return Batch(decoded, published_ms(batched))


def frame_ids(found: ReceivedRecord) -> list[RecordId]:
    """Return the ids of a frame: of one batch, ascending. Raises InvalidValue.

    They are made and compared by ``map``, in C: 0.5 µs an id, not 0.9.
    """
    ids = list(map(_made, map(_FIELDS, found.record_ids)))
    if not ids:
        raise InvalidValue("a frame has no ids", reason="empty_frame")
    for each in ids[0][:2]:
        if not 1 <= each <= _LARGEST_ID:
            raise InvalidValue(f"{each} is no id of 1 to 2^63 - 1", reason="id_out_of_range")
    if ids[0][:2] != ids[-1][:2]:
        raise _invalid_ids("the ids of a frame are of several batches")
    if not all(map(lt, ids, ids[1:])):  # so those between the first and the last are of their batch
        raise _invalid_ids("the ids of a frame do not ascend")
    return ids
