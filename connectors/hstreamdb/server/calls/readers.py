"""Calls that read by offset, without acknowledgement."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from silverfold.conf.errors import WireError
from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.compression import decompress
from silverfold.connectors.hstreamdb.protocol.frames import MAX_PLAIN_BYTES
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchHStreamRecords, HStreamRecord, ReceivedRecord
from silverfold.connectors.hstreamdb.protocol.messages.offsets import ShardOffset, StreamOffset
from silverfold.connectors.hstreamdb.protocol.messages.readers import (
    CreateShardReaderRequest,
    CreateShardReaderResponse,
    DeleteShardReaderRequest,
    ListShardReadersRequest,
    ListShardReadersResponse,
    ReadShardRequest,
    ReadShardResponse,
    ReadShardStreamRequest,
    ReadShardStreamResponse,
    ReadSingleShardStreamRequest,
    ReadSingleShardStreamResponse,
    ReadStreamByKeyRequest,
    ReadStreamByKeyResponse,
    ReadStreamRequest,
    ReadStreamResponse,
)
from silverfold.connectors.hstreamdb.protocol.methods import Method
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import ErrorCode
from silverfold.connectors.hstreamdb.protocol.streams import key_hash
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.calls.clusters import READER
from silverfold.connectors.hstreamdb.server.calls.streams import check_name
from silverfold.connectors.hstreamdb.server.node import Node
from silverfold.connectors.hstreamdb.server.reading.cursors import LogCursor, all_batches, next_batches
from silverfold.connectors.hstreamdb.server.store.log import ShardLog
from silverfold.connectors.hstreamdb.server.store.offsets import end_lsn, start_lsn
from silverfold.connectors.hstreamdb.server.store.store import StoredReader

_MOST_BATCHES: Final = 100
"""Of one answer of ReadShard, whatever it asks for."""


async def create_shard_reader(node: Node, request: CreateShardReaderRequest) -> CreateShardReaderResponse:
    """Store a reader; return its settings."""
    check_name(request.reader_id, ErrorCode.INVALID_READER_NAME)
    check_name(request.stream_name)
    if request.shard_offset.WhichOneof("offset") is None:
        raise refusals.invalid_offset(extra="no offset is given")
    if request.reader_id in node.store.readers:
        raise refusals.reader_exists(extra=request.reader_id)
    log = node.store.shard(request.shard_id)
    start_lsn(log, request.shard_offset)
    reader = StoredReader(log, request.shard_offset, request.timeout)
    node.store.readers[request.reader_id] = reader
    return CreateShardReaderResponse.FromString(request.SerializeToString())  # the same fields


async def list_shard_readers(node: Node, _request: ListShardReadersRequest) -> ListShardReadersResponse:
    """Return the ids of all readers."""
    return ListShardReadersResponse(reader_id=list(node.store.readers))


async def read_shard(node: Node, request: ReadShardRequest) -> ReadShardResponse:
    """Return the next batches; none if there is none before the reader's timeout. Raises Refusal at a lost batch."""
    reader = node.store.readers.get(request.reader_id)
    if reader is None:
        raise refusals.no_reader(extra=request.reader_id)
    if request.reader_id not in node.reader_cursors:
        node.reader_cursors[request.reader_id] = LogCursor(
            reader.log, start_lsn(reader.log, reader.offset), stops_at_loss=True
        )
    cursor = node.reader_cursors[request.reader_id]
    if (loss := cursor.log.loss_at(cursor.next)) is not None:
        cursor.next = loss + 1
        raise refusals.data_loss(extra=str(loss))
    most = min(request.max_records, _MOST_BATCHES)
    found = await next_batches(node.store, [cursor], most, reader.timeout_ms / 1000) if most else []
    return ReadShardResponse(received_records=found)


async def delete_shard_reader(node: Node, request: DeleteShardReaderRequest) -> Empty:
    """Delete a reader."""
    if node.members.allocated(READER, request.reader_id) is not node.member:
        raise refusals.wrong_server(extra="ShardReader is bound to a different node")
    if node.store.readers.pop(request.reader_id, None) is None:
        raise refusals.no_reader(extra=request.reader_id)
    node.reader_cursors.pop(request.reader_id, None)
    return Empty()


async def read_shard_stream(node: Node, call: Any) -> None:
    """Write the batches of a shard."""
    request: ReadShardStreamRequest = await _only_request(call)
    cursor = _cursor(node.store.shard(request.shard_id), request.from_, _end(request))
    await _write(call, all_batches(node.store, [cursor], request.max_read_batches), ReadShardStreamResponse)


async def read_stream(node: Node, call: Any) -> None:
    """Write the batches of all shards of a stream."""
    request: ReadStreamRequest = await _only_request(call)
    cursors = [_cursor(log, request.from_, _end(request)) for log in node.store.logs_of(request.stream_name)]
    await _write(call, all_batches(node.store, cursors, request.max_read_batches), ReadStreamResponse)


async def read_single_shard_stream(node: Node, call: Any) -> None:
    """Write the batches of a stream with one shard."""
    request: ReadSingleShardStreamRequest = await _only_request(call)
    logs = list(node.store.logs_of(request.stream_name))
    if len(logs) != 1:
        raise refusals.too_many_shards(extra=str(len(logs)))
    cursor = _cursor(logs[0], request.from_, _end(request))
    await _write(call, all_batches(node.store, [cursor], request.max_read_batches), ReadSingleShardStreamResponse)


async def read_stream_by_key(node: Node, call: Any) -> None:
    """Write the records of one key: with each request the next so many."""
    request: ReadStreamByKeyRequest = await _only_request(call)
    hashed = key_hash(request.key)
    logs = node.store.logs_of(request.stream_name)
    (log,) = (each for each in logs if each.key_range[0] <= hashed <= each.key_range[1])
    batches = all_batches(node.store, [_cursor(log, request.from_, _end(request))], 0)
    records = _records_of_key(batches, request.key)
    while request is not grpc.aio.EOF:
        for _ in range(request.read_record_count):
            found = await anext(records, None)
            if found is None:
                return
            await call.write(ReadStreamByKeyResponse(record_ids=[found[0].to_message()], received_records=[found[1]]))
        request = await call.read()


async def _only_request(call: Any) -> Any:
    request = await call.read()
    if request is grpc.aio.EOF:
        raise refusals.invalid_offset(extra="no request")
    return request


def _end(request: Any) -> Any:
    return request.until if request.HasField("until") else None


def _cursor(log: ShardLog, start: ShardOffset | StreamOffset, end: ShardOffset | StreamOffset | None) -> LogCursor:
    return LogCursor(log, start_lsn(log, start), None if end is None else end_lsn(log, end))


async def _write(call: Any, batches: AsyncIterator[list[ReceivedRecord]], answer: Callable[..., Message]) -> None:
    async for found in batches:
        await call.write(answer(received_records=found))


async def _records_of_key(
    batches: AsyncIterator[list[ReceivedRecord]], key: str
) -> AsyncIterator[tuple[RecordId, HStreamRecord]]:
    """Yield the records of a key; a batch that cannot be opened has none."""
    async for several in batches:
        for batch in several:
            try:
                expanded = decompress(batch.record.payload, batch.record.compression_type, limit=MAX_PLAIN_BYTES)
                records = BatchHStreamRecords.FromString(expanded).records
            except (WireError, DecodeError):
                continue
            for found, record in zip(batch.record_ids, records, strict=False):  # a producer may have miscounted
                if record.header.key == key:
                    yield RecordId.of(found), record


CALLS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[Any]]]] = {
    methods.CREATE_SHARD_READER: create_shard_reader,
    methods.LIST_SHARD_READERS: list_shard_readers,
    methods.READ_SHARD: read_shard,
    methods.DELETE_SHARD_READER: delete_shard_reader,
}
STREAMS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[None]]]] = {
    methods.READ_SHARD_STREAM: read_shard_stream,
    methods.READ_STREAM: read_stream,
    methods.READ_SINGLE_SHARD_STREAM: read_single_shard_stream,
    methods.READ_STREAM_BY_KEY: read_stream_by_key,
}
