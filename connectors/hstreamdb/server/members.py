"""The member list: the nodes believed to be alive, and which of them owns a subscription, a reader or a shard."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Final

from silverfold.connectors.hstreamdb.protocol.description import ClusterDescription, encode_description
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    HStreamVersion,
    NodeState,
    ServerNode,
    ServerNodeStatus,
)
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, DescribeLayout
from silverfold.connectors.hstreamdb.server.store.store import Store

PROTOCOL_VERSION: Final = "0.1.0"
VERSIONS: Final = {DescribeLayout.NEW: "0.20.3", DescribeLayout.OLD: "0.15.1"}
"""Of the servers whose behaviour is shown."""


@dataclass
class Member:
    """A node at its advertised address."""

    id: int
    host: str
    port: int
    died_at: float | None = None
    """When it died (`time.monotonic`); None while it serves."""

    def to_message(self, layout: DescribeLayout) -> ServerNode:
        """Return the node for a message."""
        return ServerNode(id=self.id, host=self.host, port=self.port, version=HStreamVersion(version=VERSIONS[layout]))


class MemberList:
    """The member list, the same for all nodes. A node that died stays in it for a while.

    Args:
        store: Has the nodes of subscriptions and readers.
    """

    def __init__(self, store: Store, options: ClusterOptions) -> None:
        self.all: list[Member] = []
        self._store, self._options = store, options
        self._since = time.monotonic()

    @property
    def live(self) -> list[Member]:
        """The members by id, with those that have just died."""
        since = time.monotonic() - self._options.member_delay
        return [each for each in self.all if each.died_at is None or each.died_at > since]

    def node_of(self, text: str) -> ServerNode:
        """Return the node that a text hashes to. Nothing is stored."""
        return self._hashed(text).to_message(self._options.describe_layout)

    def allocated(self, kind: str, name: str) -> Member:
        """Return the node of a subscription or reader: the stored one while it lives, else another, which is stored."""
        key = f"{kind}/{name}"
        stored = self._store.allocations.get(key)
        for each in self.live:
            if each.id == stored:
                return each
        member = self._hashed(key)
        self._store.allocations[key] = member.id
        return member

    def message(self, member: Member) -> ServerNode:
        """Return a member for a message."""
        return member.to_message(self._options.describe_layout)

    def describe(self, answering: Member) -> bytes:
        """Return the description of the cluster; the answering node comes first."""
        live = sorted(self.live, key=lambda each: (each is not answering, each.id))
        dead = [each for each in self.all if each not in live]
        statuses = [ServerNodeStatus(node=self.message(each), state=NodeState.RUNNING) for each in live]
        statuses += [ServerNodeStatus(node=self.message(each), state=NodeState.DEAD) for each in dead]
        layout = self._options.describe_layout
        description = ClusterDescription(
            protocol_version=PROTOCOL_VERSION,
            server_version=VERSIONS[layout],
            nodes=[self.message(each) for each in live],
            statuses=statuses,
            up_time_s=int(time.monotonic() - self._since),
        )
        return encode_description(description, old_layout=layout is DescribeLayout.OLD)

    def _hashed(self, text: str) -> Member:
        live = self.live
        if not live:
            raise refusals.unavailable("no node lives")
        return live[int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()) % len(live)]
