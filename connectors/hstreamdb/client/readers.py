"""Reading of a shard by offset, without a subscription: for replay and repair."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.client.channels import MAX_TRIES, may_pass, waits
from silverfold.connectors.hstreamdb.client.cluster import Cluster
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.batches import StreamingFetchResponse
from silverfold.connectors.hstreamdb.protocol.messages.offsets import ShardOffset, SpecialOffset, TimestampOffset
from silverfold.connectors.hstreamdb.protocol.messages.readers import ReadShardStreamRequest
from silverfold.connectors.hstreamdb.protocol.messages.streams import GetTailRecordIdRequest
from silverfold.connectors.hstreamdb.protocol.methods import GET_TAIL_RECORD_ID, READ_SHARD_STREAM
from silverfold.connectors.hstreamdb.protocol.records import RecordId, batch_number
from silverfold.connectors.hstreamdb.protocol.status import Status

Offset: TypeAlias = SpecialOffset | RecordId | TimestampOffset
"""The oldest record or the end; the batch of a record; or a time of append."""


def shard_offset(offset: Offset) -> ShardOffset:
    """Return an offset's message. Raises InvalidValue for anything else."""
    match offset:
        case SpecialOffset():
            return ShardOffset(special_offset=offset)
        case RecordId():
            return ShardOffset(record_offset=offset.to_message())
        case TimestampOffset():
            return ShardOffset(timestamp_offset=offset)
    text = f"an offset is a SpecialOffset, RecordId or TimestampOffset, no {type(offset).__name__}"
    raise InvalidValue(text, reason="wrong_type")  # callers may be untyped


async def log_end(cluster: Cluster, stream: str, shard_id: int) -> RecordId:
    """Return the last batch of a shard, with the index 0; if its log's epoch has none yet, the batch number is 0."""
    request = GetTailRecordIdRequest(stream_name=stream, shard_id=shard_id)
    return RecordId.of((await cluster.call(GET_TAIL_RECORD_ID, request)).tail_record_id)


async def tail(cluster: Cluster, stream: str, shard_id: int) -> RecordId | None:
    """Return the last batch of a shard, with the index 0; None if its log's epoch has none yet."""
    found = await log_end(cluster, stream, shard_id)
    return found if batch_number(found.batch_id) else None


async def read_shard(
    cluster: Cluster, stream: str, shard_id: int, start: Offset, until: Offset | None, *, max_batches: int = 0
) -> AsyncGenerator[FetchedFrame, None]:
    """Yield the batches of a shard in order, each once, as the frames that a subscription would have.

    The server skips what was trimmed or lost. A read that breaks goes on after the last batch.

    Args:
        start, until: Both inclusive; a record's id means its whole batch. ``LATEST`` is behind the last record there is
            now as the start, and that record as the end. Without an end, the read goes on for ever.
        max_batches: Most batches to read; 0 for all.

    Raises:
        SourceUnavailable: No node sent a further batch, in all tries.
        SourceRefused: The shard is unknown, or an offset is not of it.
    """
    backoff = waits(Random())  # noqa: S311 - spreads retries, no secret
    last, count, tries = 0, 0, 0
    if start == SpecialOffset.LATEST:  # asked for now: a read that breaks before the first batch must begin there too
        start, last = SpecialOffset.EARLIEST, (await log_end(cluster, stream, shard_id)).batch_id
    while True:
        request = ReadShardStreamRequest(
            reader_id=f"silverfold-{uuid.uuid4().hex}",
            stream_name=stream,
            shard_id=shard_id,
            from_=shard_offset(RecordId(shard_id, last, 0) if last else start),
        )
        if max_batches:  # with the last one again after a break
            request.max_read_batches = max_batches - count + bool(last)
        if until is not None:
            request.until.CopyFrom(shard_offset(until))
        target = await cluster.any_node()
        status = Status("OK", "")
        async with aclosing(cluster.channels.answers(target, READ_SHARD_STREAM, request)) as answers:
            async for answer in answers:
                if isinstance(answer, Status):
                    status = answer
                    break
                for each in answer.received_records:
                    frame = FetchedFrame.of(StreamingFetchResponse(received_records=each).SerializeToString())
                    batch_id = frame.ids[0].batch_id if frame.ids else None
                    if batch_id is not None and batch_id <= last:  # the first one after a break
                        continue
                    last = batch_id or last
                    count += 1
                    tries = 0
                    backoff.reset()
                    yield frame
                    if count == max_batches:
                        return
        if status.grpc_code == "OK":
            return
        tries += 1
        if not may_pass(status) or tries == MAX_TRIES:
            raise cluster.error(status, f"ReadShardStream of {stream}, shard {shard_id}", target)
        cluster.forget()
        await asyncio.sleep(backoff.next_wait())
