"""Calls that trim shards."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.empty_pb2 import Empty

from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.messages.streams import (
    TrimShardRequest,
    TrimShardsRequest,
    TrimShardsResponse,
    TrimStreamRequest,
)
from silverfold.connectors.hstreamdb.protocol.methods import Method
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.calls.streams import check_name
from silverfold.connectors.hstreamdb.server.node import Node
from silverfold.connectors.hstreamdb.server.store.offsets import end_lsn

_RECORD_ID: Final = re.compile("([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,10})", re.ASCII)


async def trim_stream(node: Node, request: TrimStreamRequest) -> Empty:
    """Trim all shards of a stream, up to an offset and with it."""
    check_name(request.stream_name)
    for log in node.store.logs_of(request.stream_name):
        log.trim(end_lsn(log, request.trim_point))
    return Empty()


async def trim_shard(node: Node, request: TrimShardRequest) -> Empty:
    """Trim a shard, up to an offset and with it."""
    log = node.store.shard(request.shard_id)
    log.trim(end_lsn(log, request.trim_point))
    return Empty()


async def trim_shards(node: Node, request: TrimShardsRequest) -> TrimShardsResponse:
    """Trim each shard before the smallest of its ids; return these."""
    check_name(request.stream_name)
    logs = node.store.stream(request.stream_name).logs
    ids = sorted(each for each in map(_record_id, request.record_ids) if each.batch_id)
    for each in ids:
        if each.shard_id not in logs:
            raise refusals.shard_not_exists(extra=str(each.shard_id))
    points = {each.shard_id: each for each in reversed(ids)}
    for shard, point in points.items():
        logs[shard].trim(point.batch_id - 1)
    return TrimShardsResponse(trim_points={shard: str(point) for shard, point in points.items()})


def _record_id(text: str) -> RecordId:
    found = _RECORD_ID.fullmatch(text)
    if found is None:
        raise refusals.invalid_record_id(extra=text)
    shard, batch, index = map(int, found.groups())
    return RecordId(shard, batch, index)


CALLS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[Any]]]] = {
    methods.TRIM_STREAM: trim_stream,
    methods.TRIM_SHARD: trim_shard,
    methods.TRIM_SHARDS: trim_shards,
}
