"""Records, batches and frames, and how they are appended and fetched."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Annotated

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.connectors.hstreamdb.protocol.messages.declaration import UInt32, UInt64, field, message


class CompressionType(IntEnum):
    """Compression of a batch."""

    NONE = 0
    GZIP = 1
    ZSTD = 2


class Flag(IntEnum):
    """Kind of a record: a Struct, or any bytes."""

    JSON = 0
    RAW = 1


@message
class RecordId(Message):
    """Identity of a record: shard, batch (its place in the log), and index in the batch."""

    shard_id: UInt64 = field(1)
    batch_id: UInt64 = field(2)
    batch_index: UInt32 = field(3)


@message
class HStreamRecordHeader(Message):
    """What every record carries beside its payload."""

    flag: Annotated[int, Flag] = field(1)
    attributes: Mapping[str, str] = field(2)
    key: str = field(3)


@message
class HStreamRecord(Message):
    """A record: header and payload."""

    header: HStreamRecordHeader = field(1)
    payload: bytes = field(2)


@message
class BatchHStreamRecords(Message):
    """The records of a batch, before compression."""

    records: Sequence[HStreamRecord] = field(1)


@message
class EncodedRecords(Message):
    """`BatchHStreamRecords` whose records stay bytes."""

    records: Sequence[bytes] = field(1)


@message
class BatchedRecord(Message):
    """A batch as stored and forwarded; ``payload`` is compressed."""

    compression_type: Annotated[int, CompressionType] = field(1)
    publish_time: Timestamp = field(2)
    batch_size: UInt32 = field(3)
    payload: bytes = field(4)


@message
class ReceivedRecord(Message):
    """A batch with the ids of its records."""

    record_ids: Sequence[RecordId] = field(1)
    record: BatchedRecord = field(2)


@message
class StreamingFetchRequest(Message):
    """Opens a fetch, or acknowledges records."""

    subscription_id: str = field(1)
    consumer_name: str = field(2)
    ack_ids: Sequence[RecordId] = field(3)


@message
class StreamingFetchResponse(Message):
    """A frame: one batch, or the rest of one. The name of its field is plural, there is one."""

    received_records: ReceivedRecord = field(1)


@message
class AppendRequest(Message):
    """Request of Append."""

    stream_name: str = field(1)
    shard_id: UInt64 = field(2)
    records: BatchedRecord = field(3)


@message
class AppendResponse(Message):
    """Answer of Append."""

    stream_name: str = field(1)
    shard_id: UInt64 = field(2)
    record_ids: Sequence[RecordId] = field(3)
