"""Where offsets point in a log: as a start, and as an end, which is inclusive."""

from __future__ import annotations

from silverfold.connectors.hstreamdb.protocol.messages.offsets import ShardOffset, SpecialOffset, StreamOffset
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.store.log import ShardLog

OLDEST = 1
"""The oldest LSN possible."""


def start_lsn(log: ShardLog, offset: ShardOffset | StreamOffset) -> int:
    """Return the first LSN to read. Raises Refusal."""
    match offset.WhichOneof("offset"):
        case "special_offset":
            return log.tail + 1 if _is_latest(offset) else OLDEST
        case "timestamp_offset":
            return log.at_time(offset.timestamp_offset.timestamp_in_ms)
    return _record_lsn(log, offset)


def end_lsn(log: ShardLog, offset: ShardOffset | StreamOffset) -> int:
    """Return the last LSN to read, or to trim. Raises Refusal."""
    match offset.WhichOneof("offset"):
        case "special_offset":
            return log.tail if _is_latest(offset) else OLDEST
        case "timestamp_offset":
            return log.at_time(offset.timestamp_offset.timestamp_in_ms + 1) - 1
    return _record_lsn(log, offset)


def _is_latest(offset: ShardOffset | StreamOffset) -> bool:
    if offset.special_offset not in list(SpecialOffset):
        raise refusals.invalid_offset(extra=str(offset.special_offset))
    return offset.special_offset == SpecialOffset.LATEST


def _record_lsn(log: ShardLog, offset: ShardOffset | StreamOffset) -> int:
    if not isinstance(offset, ShardOffset) or not offset.HasField("record_offset"):
        raise refusals.invalid_offset(extra="no offset is given")
    if offset.record_offset.shard_id != log.shard_id:
        raise refusals.conflicting_offset(extra=f"the offset is of shard {offset.record_offset.shard_id}")
    return offset.record_offset.batch_id
