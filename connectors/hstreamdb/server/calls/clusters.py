"""Calls about the cluster: its description, and which node has what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.empty_pb2 import Empty

from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    EchoRequest,
    EchoResponse,
    LookupKeyRequest,
    LookupResourceRequest,
    LookupShardReaderRequest,
    LookupShardReaderResponse,
    LookupShardRequest,
    LookupShardResponse,
    LookupSubscriptionRequest,
    LookupSubscriptionResponse,
    ResourceType,
    ServerNode,
)
from silverfold.connectors.hstreamdb.protocol.methods import Method
from silverfold.connectors.hstreamdb.server.node import Node

SUBSCRIPTION: Final = ResourceType.SUBSCRIPTION.name
READER: Final = ResourceType.SHARD_READER.name


async def echo(_node: Node, request: EchoRequest) -> EchoResponse:
    """Return the text."""
    return EchoResponse(msg=request.msg)


async def describe_cluster(node: Node, _request: Empty) -> bytes:
    """Return the nodes and their states."""
    return node.members.describe(node.member)


async def lookup_shard(node: Node, request: LookupShardRequest) -> LookupShardResponse:
    """Return the node to append at, for any shard id, even an unknown one."""
    return LookupShardResponse(shard_id=request.shard_id, server_node=node.members.node_of(f"{request.shard_id}"))


async def lookup_subscription(node: Node, request: LookupSubscriptionRequest) -> LookupSubscriptionResponse:
    """Return the node of a subscription, which need not exist."""
    owner = node.members.allocated(SUBSCRIPTION, request.subscription_id)
    return LookupSubscriptionResponse(subscription_id=request.subscription_id, server_node=node.members.message(owner))


async def lookup_shard_reader(node: Node, request: LookupShardReaderRequest) -> LookupShardReaderResponse:
    """Return the node of a reader."""
    owner = node.members.allocated(READER, request.reader_id)
    return LookupShardReaderResponse(reader_id=request.reader_id, server_node=node.members.message(owner))


async def lookup_resource(node: Node, request: LookupResourceRequest) -> ServerNode:
    """Return the node that owns a resource."""
    known = request.res_type in list(ResourceType)
    kind = ResourceType(request.res_type).name if known else str(request.res_type)
    return node.members.message(node.members.allocated(kind, request.res_id))


async def lookup_key(node: Node, request: LookupKeyRequest) -> ServerNode:
    """Return a node by a partition key."""
    return node.members.node_of(request.partition_key)


CALLS: Final[dict[Method[Any, Any], Callable[[Node, Any], Awaitable[Any]]]] = {
    methods.ECHO: echo,
    methods.DESCRIBE_CLUSTER: describe_cluster,
    methods.LOOKUP_SHARD: lookup_shard,
    methods.LOOKUP_SUBSCRIPTION: lookup_subscription,
    methods.LOOKUP_SHARD_READER: lookup_shard_reader,
    methods.LOOKUP_RESOURCE: lookup_resource,
    methods.LOOKUP_KEY: lookup_key,
}
