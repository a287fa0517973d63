"""Shards of a stream, which of them has a key, and the node to append at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.hstreamdb.client.channels import may_pass
from silverfold.connectors.hstreamdb.client.cluster import Cluster
from silverfold.connectors.hstreamdb.protocol.messages.streams import GetStreamRequest, ListShardsRequest, Shard
from silverfold.connectors.hstreamdb.protocol.methods import GET_STREAM, LIST_SHARDS
from silverfold.connectors.hstreamdb.protocol.status import Status
from silverfold.connectors.hstreamdb.protocol.streams import KeyRange, find_shard, key_hash, key_ranges


async def list_shards(cluster: Cluster, stream: str) -> Sequence[Shard]:
    """Return the shards of a stream, in the order of their keys.

    Servers answer UNAVAILABLE for an unknown stream. GetStream then tells it from a node that is down.
    """
    found = await cluster.attempt(LIST_SHARDS, ListShardsRequest(stream_name=stream))
    if not isinstance(found, Status):
        return found.shards
    if may_pass(found):
        await cluster.call(GET_STREAM, GetStreamRequest(name=stream))
    raise cluster.error(found, f"ListShards of {stream}")


class ShardMap:
    """Cached shards of a stream and their nodes. After `forget` both are asked for again.

    Args:
        lookup: ``always`` asks for the node before every append, ``error`` only after an error.
    """

    def __init__(self, stream: str, cluster: Cluster, *, lookup: Literal["error", "always"]) -> None:
        self._stream, self._cluster, self._always = stream, cluster, lookup == "always"
        self._ranges: list[KeyRange] = []
        self.generation = 0
        """Number of times that a listing had other shards than the one before."""
        self._is_stale = True
        self._owners: dict[int, str] = {}

    async def shard_of(self, key: str) -> int:
        """Return the id of the shard that has a key.

        Raises:
            SourceRefused: There is no such stream.
            SourceUnavailable: No node answers, and the shards were never listed.
            RemoteProtocolError: No shard has the key.
        """
        if self._is_stale:
            await self._refresh()
        return find_shard(self._ranges, key_hash(key))

    async def has(self, shard_id: int) -> bool:
        """Return whether a shard still belongs to the stream, which may have been made anew. Raises as `shard_of`."""
        if self._is_stale:
            await self._refresh()
        return any(each.shard_id == shard_id for each in self._ranges)

    async def owner(self, shard_id: int) -> str | Status:
        """Return the address of the node to append at, or how the lookup ended."""
        if self._always or shard_id not in self._owners:
            found = await self._cluster.shard_owner(shard_id)
            if isinstance(found, Status):
                return found
            self._owners[shard_id] = found
        return self._owners[shard_id]

    def forget(self) -> None:
        """Ask again for shards and nodes before the next use: an append failed."""
        self._owners.clear()
        self._is_stale = True
        self._cluster.forget()

    async def _refresh(self) -> None:
        try:
            found = key_ranges(await list_shards(self._cluster, self._stream))
        except SourceUnavailable:
            if not self._ranges:  # else those known are better than none
                raise
            found = self._ranges
        self.generation += found != self._ranges
        self._ranges, self._is_stale = found, False
