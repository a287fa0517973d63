"""Nodes of the cluster, and which of them serves what."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated

from google.protobuf.message import Message

from silverfold.connectors.hstreamdb.protocol.messages.declaration import UInt32, UInt64, field, message


class NodeState(IntEnum):
    """State of a node."""

    STARTING = 0
    RUNNING = 1
    UNAVAILABLE = 2
    DEAD = 3


class ResourceType(IntEnum):
    """Kind of a resource that a node owns."""

    STREAM = 0
    SUBSCRIPTION = 1
    SHARD = 2
    SHARD_READER = 3
    CONNECTOR = 4
    QUERY = 5
    VIEW = 6


@message
class HStreamVersion(Message):
    """Version of a server."""

    version: str = field(1)
    commit: str = field(2)


@message
class ServerNode(Message):
    """A node, at its advertised address."""

    id: UInt32 = field(1)
    host: str = field(2)
    port: UInt32 = field(3)
    version: HStreamVersion = field(4)


@message
class ServerNodeStatus(Message):
    """A node and its state."""

    node: ServerNode = field(1)
    state: Annotated[int, NodeState] = field(2)


@message
class DescribeClusterResponse(Message):
    """Answer of DescribeCluster, from server 0.15.2 on."""

    protocol_version: str = field(1)
    server_nodes: Sequence[ServerNode] = field(2)
    server_nodes_status: Sequence[ServerNodeStatus] = field(3)
    cluster_up_time: UInt64 = field(4)


@message
class OldDescribeClusterResponse(Message):
    """Answer of DescribeCluster, up to server 0.15.1."""

    protocol_version: str = field(1)
    server_version: str = field(2)
    server_nodes: Sequence[ServerNode] = field(3)
    server_nodes_status: Sequence[ServerNodeStatus] = field(4)
    cluster_up_time: UInt64 = field(5)


@message
class EchoRequest(Message):
    """Request of Echo."""

    msg: str = field(1)


@message
class EchoResponse(Message):
    """Answer of Echo."""

    msg: str = field(1)


@message
class LookupShardRequest(Message):
    """Request of LookupShard."""

    shard_id: UInt64 = field(1)


@message
class LookupShardResponse(Message):
    """Answer of LookupShard."""

    shard_id: UInt64 = field(1)
    server_node: ServerNode = field(2)


@message
class LookupSubscriptionRequest(Message):
    """Request of LookupSubscription."""

    subscription_id: str = field(1)


@message
class LookupSubscriptionResponse(Message):
    """Answer of LookupSubscription."""

    subscription_id: str = field(1)
    server_node: ServerNode = field(2)


@message
class LookupShardReaderRequest(Message):
    """Request of LookupShardReader."""

    reader_id: str = field(1)


@message
class LookupShardReaderResponse(Message):
    """Answer of LookupShardReader."""

    reader_id: str = field(1)
    server_node: ServerNode = field(2)


@message
class LookupResourceRequest(Message):
    """Request of LookupResource."""

    res_type: Annotated[int, ResourceType] = field(1)
    res_id: str = field(2)


@message
class LookupKeyRequest(Message):
    """Request of LookupKey."""

    partition_key: str = field(1)
