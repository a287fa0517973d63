"""A cluster of HStreamDB nodes, each on a port of its own, in one process::

    with HStreamServer.start(ClusterOptions(nodes=3)) as cluster:
        ...  # clients use cluster.address: hstream://127.0.0.1:40001,127.0.0.1:40002,127.0.0.1:40003

The nodes share one store in memory, which outlives them but not the cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Self, TypeVar

from silverfold.connectors.common.server_thread import ServerThread
from silverfold.connectors.common.transport import Address
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord
from silverfold.connectors.hstreamdb.protocol.messages.streams import Stream
from silverfold.connectors.hstreamdb.protocol.streams import KeyRange
from silverfold.connectors.hstreamdb.server.calls.clusters import SUBSCRIPTION
from silverfold.connectors.hstreamdb.server.dispatch import handlers
from silverfold.connectors.hstreamdb.server.faults import Faults
from silverfold.connectors.hstreamdb.server.members import Member, MemberList
from silverfold.connectors.hstreamdb.server.node import Node
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, Fault
from silverfold.connectors.hstreamdb.server.store.store import Store

_T = TypeVar("_T")


class HStreamServer(ServerThread):
    """A running cluster. Nodes are numbered from 1. Thread-safe; a context manager that closes on exit."""

    def __init__(self, options: ClusterOptions) -> None:
        super().__init__("hstreamdb")
        self._options = options
        self._store = Store(options.limits, clock=options.clock, chance=Random())  # noqa: S311 - ids, not secrets
        self._faults = Faults(options.faults)
        self._members = MemberList(self._store, options)
        host = options.advertised_host or options.host
        ports = [options.port + number if options.port else 0 for number in range(options.nodes)]
        self._members.all = [Member(number, host, port) for number, port in enumerate(ports, start=1)]
        self._nodes = [Node(each, self._members, self._store, options, self._faults) for each in self._members.all]

    @classmethod
    def start(cls, options: ClusterOptions | None = None) -> Self:
        """Return a cluster that serves.

        Raises:
            ConfigError: A file of TLS cannot be read.
            SourceUnavailable: A port cannot be listened on.
        """
        server = cls(options or ClusterOptions())
        try:
            return server._start()
        except BaseException:
            server.close()
            raise

    @property
    def client_count(self) -> int:
        """Number of open fetches."""
        return sum(each.fetch_count for each in self._nodes)

    @property
    def ports(self) -> Sequence[int]:
        """The port of each node."""
        return [each.member.port for each in self._nodes]

    @property
    def address(self) -> str:
        """The URL of the cluster, with all its nodes as advertised."""
        scheme = "hstream" if self._options.tls is None else "hstreams"
        nodes = ",".join(str(Address(each.member.host, each.member.port)) for each in self._nodes)
        return f"{scheme}://{nodes}"

    def kill(self, node: int) -> None:
        """Stop a node as if it died: its connections break, and it forgets what was acknowledged but not stored."""
        self._wait_for(self._nodes[node - 1].kill(time.monotonic()))

    def restart(self, node: int) -> None:
        """Start a node that was killed, at its port."""
        self._wait_for(self._start_node(self._nodes[node - 1]))

    def disconnect(self, node: int) -> None:
        """Break all connections of a node; it goes on serving, and forgets nothing."""
        self._wait_for(self._reconnect(self._nodes[node - 1]))

    def add_fault(self, fault: Fault) -> None:
        """Let calls fail from now on. They are counted from the cluster's start."""
        self._faults.faults.append(fault)

    def owner(self, subscription: str) -> int:
        """Return the number of the node that lookups name for a subscription."""
        return self._run_in_loop(lambda: self._members.allocated(SUBSCRIPTION, subscription).id)

    def create_stream(self, name: str, shards: int = 1) -> list[KeyRange]:
        """Create a stream without limit of time; return its shards, by their start. Raises Refusal."""
        wanted = Stream(stream_name=name, replication_factor=1, shard_count=shards)
        logs = self._run_in_loop(lambda: self._store.create_stream(wanted).logs)
        return [KeyRange(*log.key_range, shard) for shard, log in logs.items()]

    def append(self, shard: int, batch: BatchedRecord) -> int:
        """Append a batch without a client; return its id. Raises Refusal."""
        return self._run_in_loop(lambda: self._store.append(shard, batch))

    def begin_epoch(self, shard: int) -> None:
        """Let the shard's next batch begin a new epoch, which leaves a gap. Raises Refusal."""
        self._run_in_loop(self._store.shard(shard).begin_epoch)

    def lose_batch(self, shard: int, batch: int) -> None:
        """Lose a batch: readers see a gap. Raises Refusal."""
        self._run_in_loop(lambda: self._store.shard(shard).lose(batch))

    def make_unreadable(self, shard: int, batch: int) -> None:
        """Let a batch be delivered once, and never again. Raises Refusal."""
        self._run_in_loop(lambda: self._store.shard(shard).make_unreadable(batch))

    def _run_in_loop(self, work: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return work()

        return self._wait_for(run())

    async def _open(self) -> None:
        for each in self._nodes:
            await self._start_node(each)

    async def _shut(self) -> None:
        await asyncio.gather(*(each.kill(time.monotonic()) for each in self._nodes))

    async def _reconnect(self, node: Node) -> None:
        await node.disconnect()
        await self._start_node(node)

    async def _start_node(self, node: Node) -> None:
        await node.start(handlers(node))
