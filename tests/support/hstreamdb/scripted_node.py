"""Node of HStreamDB that answers as a test scripts it; all else as a cluster of one node with one stream."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio

from silverfold.connectors.hstreamdb.client.client import Client, open_client
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings
from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.compression import decompress
from silverfold.connectors.hstreamdb.protocol.description import ClusterDescription, encode_description
from silverfold.connectors.hstreamdb.protocol.frames import MAX_PLAIN_BYTES, encode_batch, encode_entry
from silverfold.connectors.hstreamdb.protocol.messages.batches import (
    AppendRequest,
    AppendResponse,
    BatchHStreamRecords,
    ReceivedRecord,
    StreamingFetchResponse,
)
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    LookupShardResponse,
    LookupSubscriptionResponse,
    ServerNode,
)
from silverfold.connectors.hstreamdb.protocol.messages.streams import ListShardsResponse, Shard
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import CheckSubscriptionExistResponse
from silverfold.connectors.hstreamdb.protocol.records import RawRecord, RecordId
from silverfold.connectors.hstreamdb.protocol.streams import even_ranges

SHARD = 7
_ANSWERED = {each.name: each for each in vars(methods).values() if isinstance(each, methods.Method)}


class Requests:
    """The requests of a fetch."""

    def __init__(self, context: aio.ServicerContext) -> None:
        self._context = context

    async def next(self) -> Any:
        """The next one; None once the client has half-closed."""
        found = await self._context.read()
        return None if found is aio.EOF else found

    async def all_ids(self) -> list[RecordId]:
        """Read to the end; return all acknowledged ids."""
        found = []
        while (request := await self.next()) is not None:
            found += [RecordId.of(each) for each in request.ack_ids]
        return found


class ScriptedNode:
    """A node on loopback.

    Args:
        script: By method. A unary one is a coroutine function of request and context; a streaming one gets `Requests`
            (or the request) and the context, to which it writes bytes.
        advertised: Host and port that it gives for itself.
        shards: Number of the stream's shards; their ids begin with `SHARD`.
    """

    def __init__(
        self, script: dict[str, Any], *, advertised: tuple[str, int] | None = None, shards: int = 1, port: int = 0
    ) -> None:
        self.calls: defaultdict[str, int] = defaultdict(int)
        self.appended: list[tuple[int, list[bytes]]] = []
        """Shard and payloads of each append."""
        self.metadata: list[tuple[str, str]] = []
        self._script, self._shards, self._batch = script, shards, 0
        self._server = aio.server(options=[("grpc.so_reuseport", 0)])
        self.port = port
        self._advertised = advertised

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, credentials: Any = None) -> None:
        handlers = {name: self._handler(method) for name, method in _ANSWERED.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(methods.SERVICE, handlers),))
        if credentials is None:
            self.port = self._server.add_insecure_port(self.target)
        else:
            self.port = self._server.add_secure_port(self.target, credentials)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def _handler(self, method: Any) -> Any:
        if method.name == "StreamingFetch":
            return grpc.stream_stream_rpc_method_handler(self._fetch, method.request.FromString, bytes)
        if method.name == "ReadShardStream":
            return grpc.unary_stream_rpc_method_handler(self._read, method.request.FromString, bytes)

        async def answer(request: Any, context: aio.ServicerContext) -> bytes:
            self.calls[method.name] += 1
            self.metadata += [(each.key, each.value) for each in context.invocation_metadata()]
            if method.name in self._script:
                found = await self._script[method.name](request, context)
            else:
                found = self._answer(method.name, request)
            return found if isinstance(found, bytes) else found.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer, method.request.FromString, bytes)

    async def _fetch(self, _requests: Any, context: aio.ServicerContext) -> None:
        self.calls["StreamingFetch"] += 1
        await self._script["StreamingFetch"](Requests(context), context)

    async def _read(self, request: Any, context: aio.ServicerContext) -> None:
        self.calls["ReadShardStream"] += 1
        await self._script["ReadShardStream"](request, context)

    def _answer(self, name: str, request: Any) -> Any:
        host, port = self._advertised or ("127.0.0.1", self.port)
        node = ServerNode(id=1, host=host, port=port)
        match name:
            case "DescribeCluster":
                return encode_description(ClusterDescription("0.1.0", "", [node], [], 1), old_layout=False)
            case "LookupShard":
                return LookupShardResponse(shard_id=request.shard_id, server_node=node)
            case "LookupSubscription":
                return LookupSubscriptionResponse(subscription_id=request.subscription_id, server_node=node)
            case "CheckSubscriptionExist":
                return CheckSubscriptionExistResponse(exists=True)
            case "ListShards":
                return ListShardsResponse(shards=list(self._shard_list()))
            case "Append":
                return self.append(request)
        raise AssertionError(f"{name} is not scripted")

    def append(self, request: AppendRequest) -> AppendResponse:
        """Store an append, and return its answer."""
        self._batch += 1
        expanded = decompress(request.records.payload, request.records.compression_type, limit=MAX_PLAIN_BYTES)
        records = BatchHStreamRecords.FromString(expanded).records
        self.appended.append((request.shard_id, [each.payload for each in records]))
        ids = [RecordId(request.shard_id, self._batch, index).to_message() for index in range(len(records))]
        return AppendResponse(stream_name=request.stream_name, shard_id=request.shard_id, record_ids=ids)

    def _shard_list(self) -> Iterator[Shard]:
        for number, (start, end) in enumerate(even_ranges(self._shards), start=SHARD):
            yield Shard(shard_id=number, start_hash_range_key=str(start), end_hash_range_key=str(end))


def received(batch: int, *payloads: bytes, indexes: list[int] | None = None) -> ReceivedRecord:
    """A batch of raw records of shard `SHARD`."""
    entries = [encode_entry(RawRecord(each), "k") for each in payloads]
    ids = [RecordId(SHARD, batch, index).to_message() for index in indexes or range(len(payloads))]
    return ReceivedRecord(record_ids=ids, record=encode_batch(entries, 0))


def frame(batch: int, *payloads: bytes, indexes: list[int] | None = None) -> bytes:
    """The frame of such a batch."""
    return StreamingFetchResponse(received_records=received(batch, *payloads, indexes=indexes)).SerializeToString()


async def never(*_: Any) -> Any:
    """A call that is never answered."""
    await asyncio.Event().wait()


def refusing(code: str, text: str = "") -> Any:
    """A call that ends with a status."""

    async def refuse(_request: Any, context: aio.ServicerContext) -> None:
        await context.abort(grpc.StatusCode[code], text)

    return refuse


@asynccontextmanager
async def scripted(script: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[ScriptedNode]:
    node = ScriptedNode(script or {}, **options)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def connected(
    script: dict[str, Any] | None = None, *, timeout: float = 5.0, **options: Any
) -> AsyncIterator[tuple[ScriptedNode, Client]]:
    """A scripted node and a client of it."""
    async with (
        scripted(script, **options) as node,
        await open_client(ConnectionSettings(url=f"hstream://{node.target}", timeout=timeout)) as client,
    ):
        yield node, client
