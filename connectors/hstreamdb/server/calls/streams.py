"""Calls about streams and their shards, and the append."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.empty_pb2 import Empty

from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.messages.batches import AppendRequest, AppendResponse
from silverfold.connectors.hstreamdb.protocol.messages.streams import (
    DeleteStreamRequest,
    GetStreamRequest,
    GetStreamResponse,
    GetTailRecordIdRequest,
    GetTailRecordIdResponse,
    ListShardsRequest,
    ListShardsResponse,
    ListStreamsRequest,
    ListStreamsResponse,
    ListStreamsWithPrefixRequest,
    Shard,
    Stream,
)
from silverfold.connectors.hstreamdb.protocol.methods import Method
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import ErrorCode
from silverfold.connectors.hstreamdb.protocol.streams import name_problem
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.node import Node


async def create_stream(node: Node, request: Stream) -> Stream:
    """Create a stream; return its settings with the time."""
    check_name(request.stream_name)
    return node.store.create_stream(request).settings


async def delete_stream(node: Node, request: DeleteStreamRequest) -> Empty:
    """Delete a stream."""
    check_name(request.stream_name)
    if request.stream_name in node.store.streams or not request.ignore_non_exist:
        node.store.delete_stream(request.stream_name, force=request.force)
    return Empty()


async def get_stream(node: Node, request: GetStreamRequest) -> GetStreamResponse:
    """Return a stream's settings."""
    check_name(request.name)
    return GetStreamResponse(stream=node.store.stream(request.name).settings)


async def list_streams(node: Node, _request: ListStreamsRequest) -> ListStreamsResponse:
    """Return all streams."""
    return ListStreamsResponse(streams=[each.settings for each in node.store.streams.values()])


async def list_streams_with_prefix(node: Node, request: ListStreamsWithPrefixRequest) -> ListStreamsResponse:
    """Return the streams whose name has a prefix."""
    check_name(request.prefix)
    streams = [each.settings for name, each in node.store.streams.items() if name.startswith(request.prefix)]
    return ListStreamsResponse(streams=streams)


async def list_shards(node: Node, request: ListShardsRequest) -> ListShardsResponse:
    """Return a stream's shards, in the order of their keys."""
    check_name(request.stream_name)
    if request.stream_name not in node.store.streams:
        raise refusals.unavailable(f"stream {request.stream_name} has no shards")  # as published
    shards = [
        Shard(
            stream_name=log.stream,
            shard_id=log.shard_id,
            start_hash_range_key=str(log.key_range[0]),
            end_hash_range_key=str(log.key_range[1]),
            epoch=log.epoch,
            is_active=True,
        )
        for log in node.store.logs_of(request.stream_name)
    ]
    return ListShardsResponse(shards=shards)


async def get_tail_record_id(node: Node, request: GetTailRecordIdRequest) -> GetTailRecordIdResponse:
    """Return the id of the last batch of a shard."""
    log = node.store.shard(request.shard_id)
    return GetTailRecordIdResponse(tail_record_id=RecordId(log.shard_id, log.tail, 0).to_message())


async def append(node: Node, request: AppendRequest) -> AppendResponse:
    """Store a batch. Neither the node nor the name of the stream is checked."""
    lsn = node.store.append(request.shard_id, request.records)
    ids = [RecordId(request.shard_id, lsn, each).to_message() for each in range(request.records.batch_size)]
    return AppendResponse(stream_name=request.stream_name, shard_id=request.shard_id, record_ids=ids)


def check_name(name: str, error: ErrorCode = ErrorCode.INVALID_STREAM_NAME) -> None:
    """Raise Refusal for what cannot be a name."""
    if problem := name_problem(name):
        raise refusals.invalid_name(error=error, extra=problem[1])


CALLS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[Any]]]] = {
    methods.CREATE_STREAM: create_stream,
    methods.DELETE_STREAM: delete_stream,
    methods.GET_STREAM: get_stream,
    methods.LIST_STREAMS: list_streams,
    methods.LIST_STREAMS_WITH_PREFIX: list_streams_with_prefix,
    methods.LIST_SHARDS: list_shards,
    methods.GET_TAIL_RECORD_ID: get_tail_record_id,
    methods.APPEND: append,
}
