"""Offsets to read from and to trim at."""

from enum import IntEnum
from typing import Annotated

from google.protobuf.message import Message

from silverfold.connectors.hstreamdb.protocol.messages.batches import RecordId
from silverfold.connectors.hstreamdb.protocol.messages.declaration import Int64, field, message


class SpecialOffset(IntEnum):
    """The oldest record there is, or the end."""

    EARLIEST = 0
    LATEST = 1


@message
class TimestampOffset(Message):
    """An offset by time of append, in milliseconds."""

    timestamp_in_ms: Int64 = field(1)
    strict_accuracy: bool = field(2)


@message
class ShardOffset(Message):
    """An offset in a shard."""

    special_offset: Annotated[int, SpecialOffset] = field(1, oneof="offset")
    record_offset: RecordId = field(2, oneof="offset")
    timestamp_offset: TimestampOffset = field(3, oneof="offset")


@message
class StreamOffset(Message):
    """An offset in all shards of a stream."""

    special_offset: Annotated[int, SpecialOffset] = field(1, oneof="offset")
    timestamp_offset: TimestampOffset = field(2, oneof="offset")
