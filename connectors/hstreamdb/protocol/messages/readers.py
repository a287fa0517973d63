"""Shard readers: reading by offset, without acknowledgement."""

from collections.abc import Sequence

from google.protobuf.message import Message

from silverfold.connectors.hstreamdb.protocol.messages.batches import HStreamRecord, ReceivedRecord, RecordId
from silverfold.connectors.hstreamdb.protocol.messages.declaration import UInt32, UInt64, field, message
from silverfold.connectors.hstreamdb.protocol.messages.offsets import ShardOffset, StreamOffset


@message
class CreateShardReaderRequest(Message):
    """Request of CreateShardReader."""

    stream_name: str = field(1)
    shard_id: UInt64 = field(2)
    shard_offset: ShardOffset = field(3)
    reader_id: str = field(4)
    timeout: UInt32 = field(5)


@message
class CreateShardReaderResponse(Message):
    """Answer of CreateShardReader."""

    stream_name: str = field(1)
    shard_id: UInt64 = field(2)
    shard_offset: ShardOffset = field(3)
    reader_id: str = field(4)
    timeout: UInt32 = field(5)


@message
class ReadShardRequest(Message):
    """Request of ReadShard."""

    reader_id: str = field(1)
    max_records: UInt32 = field(2)


@message
class ReadShardResponse(Message):
    """Answer of ReadShard."""

    received_records: Sequence[ReceivedRecord] = field(1)


@message
class ListShardReadersRequest(Message):
    """Request of ListShardReaders."""


@message
class ListShardReadersResponse(Message):
    """Answer of ListShardReaders."""

    reader_id: Sequence[str] = field(1)


@message
class DeleteShardReaderRequest(Message):
    """Request of DeleteShardReader."""

    reader_id: str = field(1)


@message
class ReadShardStreamRequest(Message):
    """Request of ReadShardStream."""

    reader_id: str = field(1)
    shard_id: UInt64 = field(2)
    from_: ShardOffset = field(3)
    max_read_batches: UInt64 = field(4)
    until: ShardOffset = field(5)
    stream_name: str = field(6)


@message
class ReadShardStreamResponse(Message):
    """Answer of ReadShardStream."""

    received_records: Sequence[ReceivedRecord] = field(1)


@message
class ReadStreamRequest(Message):
    """Request of ReadStream."""

    reader_id: str = field(1)
    stream_name: str = field(2)
    from_: StreamOffset = field(3)
    until: StreamOffset = field(4)
    max_read_batches: UInt64 = field(5)


@message
class ReadStreamResponse(Message):
    """Answer of ReadStream."""

    received_records: Sequence[ReceivedRecord] = field(1)


@message
class ReadSingleShardStreamRequest(Message):
    """Request of ReadSingleShardStream."""

    reader_id: str = field(1)
    stream_name: str = field(2)
    from_: ShardOffset = field(3)
    until: ShardOffset = field(4)
    max_read_batches: UInt64 = field(5)


@message
class ReadSingleShardStreamResponse(Message):
    """Answer of ReadSingleShardStream."""

    received_records: Sequence[ReceivedRecord] = field(1)


@message
class ReadStreamByKeyRequest(Message):
    """Request of ReadStreamByKey."""

    reader_id: str = field(1)
    stream_name: str = field(2)
    key: str = field(3)
    from_: ShardOffset = field(4)
    until: ShardOffset = field(5)
    read_record_count: UInt64 = field(6)


@message
class ReadStreamByKeyResponse(Message):
    """Answer of ReadStreamByKey."""

    record_ids: Sequence[RecordId] = field(1)
    received_records: Sequence[HStreamRecord] = field(2)
