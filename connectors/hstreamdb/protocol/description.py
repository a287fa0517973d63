"""The answer of DescribeCluster, in the layout from server 0.15.2 on and the one before it.

The layouts number their fields differently, and only the bytes tell which it is. Field 3 has nodes in the old layout
and statuses in the new one, which begin with fields of different wire types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    DescribeClusterResponse,
    NodeState,
    OldDescribeClusterResponse,
    ServerNode,
    ServerNodeStatus,
)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """What a node knows of its cluster; ``server_version`` is empty in the new layout."""

    protocol_version: str
    server_version: str
    nodes: Sequence[ServerNode]
    statuses: Sequence[ServerNodeStatus]
    up_time_s: int

    @property
    def running(self) -> list[ServerNode]:
        """The nodes that serve, as advertised: all but those with another state."""
        states = {each.node.id: each.state for each in self.statuses}
        return [each for each in self.nodes if states.get(each.id, NodeState.RUNNING) == NodeState.RUNNING]


def decode_description(answer: bytes) -> ClusterDescription:
    """Return the description in either layout. Raises InvalidValue."""
    try:
        if _is_old(answer):
            old = OldDescribeClusterResponse.FromString(answer)
            nodes, statuses = old.server_nodes, old.server_nodes_status
            return ClusterDescription(old.protocol_version, old.server_version, nodes, statuses, old.cluster_up_time)
        new = DescribeClusterResponse.FromString(answer)
    except DecodeError as error:
        raise InvalidValue("the description of the cluster is in neither layout", reason="bad_response") from error
    return ClusterDescription(new.protocol_version, "", new.server_nodes, new.server_nodes_status, new.cluster_up_time)


def encode_description(description: ClusterDescription, *, old_layout: bool) -> bytes:
    """Return the answer in one of the layouts."""
    if old_layout:
        return OldDescribeClusterResponse(
            protocol_version=description.protocol_version,
            server_version=description.server_version,
            server_nodes=description.nodes,
            server_nodes_status=description.statuses,
            cluster_up_time=description.up_time_s,
        ).SerializeToString()
    return DescribeClusterResponse(
        protocol_version=description.protocol_version,
        server_nodes=description.nodes,
        server_nodes_status=description.statuses,
        cluster_up_time=description.up_time_s,
    ).SerializeToString()


def _is_old(answer: bytes) -> bool:
    """Return whether field 3 has nodes: a node has its id or its host, which are other wire types in a status."""
    try:
        entries = OldDescribeClusterResponse.FromString(answer).server_nodes
    except DecodeError:  # field 2 has nodes, which are no UTF-8, or field 4 is a number
        return False
    return bool(entries) and bool(entries[0].id or entries[0].host)
