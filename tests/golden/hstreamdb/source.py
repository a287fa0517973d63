"""A node that sends batches of golden change records, by whatever compression, to one fetch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio

from silverfold.connectors.frames import Frame
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType, Flag
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    DescribeClusterResponse,
    LookupSubscriptionResponse,
    ServerNode,
)
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import GetSubscriptionResponse, Subscription
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch
from tests.support.golden_source import GoldenSource, Turns
from tests.support.hstreamdb.landed import STREAM, entry, feed_of, frame_of, table_of
from tests.support.hstreamdb.vectors import vectors

_TABLE = {"keys": ["id"], "columns": {"id": "bigint", "name": "string", "age": "int"}, "layout": "auto"}
_MOVES_PARTIALLY = "operation_update_moves_the_key"
_ARRIVES = 0.2
"""Seconds until the client has what was sent: gRPC reads in a thread of its own."""


def _records(flag: str) -> list[bytes]:
    """Return the golden changes of one table, encoded."""
    return [
        entry(bytes.fromhex(each["record"]["payload"]), Flag[flag], each["record"]["key"])
        for each in vectors("cdc")
        if each["table"] == _TABLE and each.get("changes") and each["name"] != _MOVES_PARTIALLY
        if each["record"]["flag"] == flag
    ]


class HStreamSource(GoldenSource):
    """A cluster of one node; each turn is a frame."""

    def land(self, turns: Turns) -> list[Frame]:
        epoch, frames = Epoch(STREAM), list[Frame]()
        for turn in turns:
            found = FetchedFrame.of(b"".join(turn))
            frames += epoch.frames(found.body, found.ids, found.error)
        return frames

    @asynccontextmanager
    async def sending(self, sent: asyncio.Event) -> AsyncIterator[str]:
        async def fetch(requests: Any, context: Any) -> None:
            for turn in self.turns:
                await context.write(turn)
            await asyncio.sleep(_ARRIVES)
            sent.set()
            async for _ in requests:  # ends with the half-close, as a server does: the client waits for that
                pass

        server = aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        server.add_generic_rpc_handlers((_Node(port, fetch),))
        await server.start()
        try:
            yield f"hstream://127.0.0.1:{port}"
        finally:
            await server.stop(None)


class _Node(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Answers the calls before a fetch."""

    def __init__(self, port: int, fetch: Callable[[Any, Any], Awaitable[None]]) -> None:
        node = ServerNode(id=1, host="127.0.0.1", port=port)
        subscription = Subscription(subscription_id="feed", stream_name=STREAM, creation_time=Timestamp(seconds=1))
        self._fetch = fetch
        self._answers = {
            "DescribeCluster": DescribeClusterResponse(protocol_version="0.1.0", server_nodes=[node]),
            "CreateSubscription": subscription,
            "LookupSubscription": LookupSubscriptionResponse(subscription_id="feed", server_node=node),
            "GetSubscription": GetSubscriptionResponse(subscription=subscription),
        }

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]
        if method == "StreamingFetch":
            return grpc.stream_stream_rpc_method_handler(self._fetch)

        async def answer(_request: bytes, _context: Any) -> bytes:
            return self._answers[method].SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)


SOURCE = HStreamSource(
    feed_of(orders=table_of(_TABLE)),
    (
        frame_of(_records("JSON"), batch=1),
        frame_of(_records("RAW"), batch=2, compression=CompressionType.GZIP),
        frame_of(_records("JSON"), batch=3, compression=CompressionType.ZSTD),
    ),
)
