"""Streams and their shards."""

from collections.abc import Mapping, Sequence

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.connectors.hstreamdb.protocol.messages.batches import RecordId
from silverfold.connectors.hstreamdb.protocol.messages.declaration import UInt32, UInt64, field, message
from silverfold.connectors.hstreamdb.protocol.messages.offsets import ShardOffset, StreamOffset


@message
class Stream(Message):
    """A stream; ``backlog_duration`` is its retention in seconds, 0 for no limit."""

    stream_name: str = field(1)
    replication_factor: UInt32 = field(2)
    backlog_duration: UInt32 = field(3)
    shard_count: UInt32 = field(4)
    creation_time: Timestamp = field(5)


@message
class Shard(Message):
    """A shard. Its range of keys is decimal, both ends inclusive."""

    stream_name: str = field(1)
    shard_id: UInt64 = field(2)
    start_hash_range_key: str = field(3)
    end_hash_range_key: str = field(4)
    epoch: UInt64 = field(5)
    is_active: bool = field(6)


@message
class DeleteStreamRequest(Message):
    """Request of DeleteStream."""

    stream_name: str = field(1)
    ignore_non_exist: bool = field(2)
    force: bool = field(3)


@message
class GetStreamRequest(Message):
    """Request of GetStream."""

    name: str = field(1)


@message
class GetStreamResponse(Message):
    """Answer of GetStream."""

    stream: Stream = field(1)


@message
class ListStreamsRequest(Message):
    """Request of ListStreams."""


@message
class ListStreamsResponse(Message):
    """Answer of ListStreams."""

    streams: Sequence[Stream] = field(1)


@message
class ListStreamsWithPrefixRequest(Message):
    """Request of ListStreamsWithPrefix."""

    prefix: str = field(1)


@message
class ListShardsRequest(Message):
    """Request of ListShards."""

    stream_name: str = field(1)


@message
class ListShardsResponse(Message):
    """Answer of ListShards."""

    shards: Sequence[Shard] = field(1)


@message
class GetTailRecordIdRequest(Message):
    """Request of GetTailRecordId."""

    stream_name: str = field(1)
    shard_id: UInt64 = field(2)


@message
class GetTailRecordIdResponse(Message):
    """Answer of GetTailRecordId."""

    tail_record_id: RecordId = field(1)


@message
class TrimStreamRequest(Message):
    """Request of TrimStream."""

    stream_name: str = field(1)
    trim_point: StreamOffset = field(2)


@message
class TrimShardRequest(Message):
    """Request of TrimShard."""

    stream_name: str = field(1)
    shard_id: UInt64 = field(2)
    trim_point: ShardOffset = field(3)


@message
class TrimShardsRequest(Message):
    """Request of TrimShards."""

    stream_name: str = field(1)
    record_ids: Sequence[str] = field(2)


@message
class TrimShardsResponse(Message):
    """Answer of TrimShards."""

    trim_points: Mapping[UInt64, str] = field(1)
