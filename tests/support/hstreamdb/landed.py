"""Landed frames of HStreamDB, made of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from silverfold.connectors.base import Cut, Feed
from silverfold.connectors.hstreamdb.decoder.changes import ChangeReader
from silverfold.connectors.hstreamdb.decoder.floors import Floors
from silverfold.connectors.hstreamdb.options import HStreamFeed, HStreamOptions, HStreamTable
from silverfold.connectors.hstreamdb.protocol.frames import encode_batch, encode_entry
from silverfold.connectors.hstreamdb.protocol.messages.batches import (
    BatchHStreamRecords,
    CompressionType,
    Flag,
    HStreamRecord,
    HStreamRecordHeader,
    ReceivedRecord,
    StreamingFetchResponse,
)
from silverfold.connectors.hstreamdb.protocol.records import Json, RecordId, to_record

STREAM = "orders"
NONE = Floors()


def frame_of(
    entries: Sequence[bytes],
    *,
    shard: int = 7,
    batch: int = 1,
    indexes: Iterable[int] | None = None,
    compression: int = CompressionType.NONE,
) -> bytes:
    """Return a frame of encoded records (`entry`, `protocol.frames.encode_entry`)."""
    ids = [RecordId(shard, batch, at).to_message() for at in (range(len(entries)) if indexes is None else indexes)]
    record = encode_batch(entries, compression)
    received = ReceivedRecord(record_ids=ids, record=record)
    return StreamingFetchResponse(received_records=received).SerializeToString()


def entry(payload: bytes, flag: Flag = Flag.RAW, key: str = "") -> bytes:
    """Return an encoded record of any payload."""
    record = HStreamRecord(header=HStreamRecordHeader(flag=flag, key=key), payload=payload)
    return BatchHStreamRecords(records=[record]).SerializeToString()


def objects(*records: Mapping[str, Json] | bytes) -> list[bytes]:
    """Return encoded records: HRecords of objects, raw ones of bytes."""
    return [encode_entry(to_record(each), "") for each in records]


def table_of(settings: Mapping[str, Any]) -> HStreamTable:
    """Return the table of a vector."""
    settings = dict(settings)
    operation = settings.pop("operation", None)
    if operation is not None:
        settings |= {"operation_member": operation["member"], "operation_form": operation["form"]}
    return HStreamTable.model_validate(settings)


def feed_of(**tables: HStreamTable) -> HStreamFeed:
    """Return a feed of the stream."""
    options = HStreamOptions(stream=STREAM, subscription="feed")
    return Feed("orders", "hstreamdb", "hstream://127.0.0.1:6570", options, tables)


def cut_of(first: int, last: int) -> Cut:
    """Return a cut of all frames of some positions."""
    each = tuple(range(first, last + 1))
    return Cut(STREAM, 1, first - 1, last, ((first, last),), each, each, replaces=False)


def changes_of(
    table: HStreamTable, frames: Mapping[int, bytes], floors: Floors = NONE, *, limit: int = 1 << 19
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the change rows of frames by position, in the order of their sequence, and the rows with an error."""
    reader = ChangeReader(table, floors, limit)
    found = pa.Table.from_batches(reader.read(list(frames), list(frames.values())), reader.type).to_pylist()
    changes = [each for each in found if each["error"] is None]
    return sorted(changes, key=lambda each: str(each["sequence"])), [each for each in found if each["error"]]
