"""The nodes of a cluster: discovery, calls that any node answers, and lookups of the node that owns something."""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf.empty_pb2 import Empty

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceRefused, WireError
from silverfold.connectors.common.transport import Address
from silverfold.connectors.hstreamdb.client.channels import UNREACHABLE, Channels, may_pass, status_error
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings
from silverfold.connectors.hstreamdb.protocol.description import ClusterDescription, decode_description
from silverfold.connectors.hstreamdb.protocol.messages.cluster import (
    LookupShardRequest,
    LookupSubscriptionRequest,
    ServerNode,
)
from silverfold.connectors.hstreamdb.protocol.methods import (
    DESCRIBE_CLUSTER,
    LOOKUP_SHARD,
    LOOKUP_SUBSCRIPTION,
    Answer,
    Method,
    Request,
)
from silverfold.connectors.hstreamdb.protocol.status import Action, Status

_REFRESH_SECONDS: Final = 30.0
_OWNER_TRIES: Final = 3
"""Lookups for one call. For a moment they still name a node that died, or gave the subscription away."""


class Cluster:
    """The nodes that a client knows. Addresses are gRPC's targets, after the map of advertised addresses."""

    def __init__(self, settings: ConnectionSettings, channels: Channels) -> None:
        self._seeds, self._advertised = settings.seeds, settings.advertised
        self._is_encrypted, self._timeout = settings.is_encrypted, settings.timeout
        self.channels = channels
        self._known: list[str] = []
        self._described_at: float | None = None
        """Of the loop's clock; None if the description is known to be out of date."""

    async def describe(self) -> ClusterDescription:
        """Ask the first node that answers for a description, and use its nodes from then on.

        Raises:
            SourceUnavailable: None answers.
            SourceRefused: One refuses, such as for a wrong token.
        """
        found = await self._discover()
        if isinstance(found, Status):
            raise self.error(found, DESCRIBE_CLUSTER.name)
        return found

    async def call(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Return the answer of any node. Raises SourceUnavailable, SourceRefused or RemoteProtocolError."""
        found = await self.attempt(method, request)
        if isinstance(found, Status):
            raise self.error(found, method.name)
        return found

    async def any_node(self) -> str:
        """Return the address of a node, for a call that streams answers."""
        await self._refresh()
        return (self._known or self._seeds)[0]

    async def attempt(self, method: Method[Request, Answer], request: Request) -> Answer | Status:
        """Return the answer of any node, or how the last call ended. Each node is asked once."""
        await self._refresh()
        asked: set[str] = set()
        found: Answer | Status = Status("UNAVAILABLE", "no node of the cluster is known")
        while targets := [each for each in self._known or self._seeds if each not in asked]:
            for target in targets:
                asked.add(target)
                found = await self.channels.attempt(target, method, request)
                if not (isinstance(found, Status) and may_pass(found)):
                    return found
            await self._discover()
        return found

    async def call_owner(self, subscription_id: str, method: Method[Request, Answer], request: Request) -> Answer:
        """Return the answer of the node that owns a subscription. Raises as `call`."""
        tries = _OWNER_TRIES
        while True:
            target = await self.subscription_owner(subscription_id)
            found = await self.channels.attempt(target, method, request)
            if not isinstance(found, Status):
                return found
            tries -= 1
            if not tries or not (may_pass(found) or found.action is Action.LOOKUP_AND_REPEAT):
                raise self.error(found, method.name, target)
            self.forget()

    async def subscription_owner(self, subscription_id: str) -> str:
        """Return the address of the node that serves a subscription now; never cache it. Raises as `call`."""
        request = LookupSubscriptionRequest(subscription_id=subscription_id)
        return self._target((await self.call(LOOKUP_SUBSCRIPTION, request)).server_node)

    async def shard_owner(self, shard_id: int) -> str | Status:
        """Return the address of the node to append at, or how the lookup ended. It may be cached until an error."""
        found = await self.attempt(LOOKUP_SHARD, LookupShardRequest(shard_id=shard_id))
        return found if isinstance(found, Status) else self._target(found.server_node)

    def forget(self) -> None:
        """Mark the description as out of date, since a node does not answer: the next call asks for a new one."""
        self._described_at = None

    def error(self, status: Status, what: str, target: str | None = None) -> SilverfoldError:
        """Return the error to raise for the end of a call; of an unreachable advertised address, with a hint."""
        if status.grpc_code == "CANCELLED" and not status.text and not self._is_encrypted:
            text = "cancelled by the node, as servers without TLS do if a token is missing or wrong"
            return SourceRefused(code="CANCELLED", text=text, stream=what)
        where = f"{what} at {target}" if target else what
        strange = sorted({target} if target else set(self._known).difference(self._seeds))
        if status.grpc_code in UNREACHABLE and strange and target not in self._seeds:
            where += f" ({', '.join(strange)}: as the cluster advertises; `advertised` maps what cannot be reached)"
        if status.grpc_code == "DEADLINE_EXCEEDED":
            where += f", not answered within {self._timeout:g} s (`timeout`)"
        return status_error(status, where)

    async def _refresh(self) -> None:
        """Describe the cluster anew if the description is old. If no node answers, the known ones stay."""
        if self._described_at is None or self._now() > self._described_at + _REFRESH_SECONDS:
            await self._discover()

    async def _discover(self) -> ClusterDescription | Status:
        status = Status("UNAVAILABLE", "no address is known")
        for target in dict.fromkeys([*self._known, *self._seeds]):
            found = await self.channels.attempt_bytes(target, DESCRIBE_CLUSTER, Empty())
            if isinstance(found, Status):
                status = found
                if may_pass(status):
                    continue
                break
            try:
                description = decode_description(found)
            except WireError as error:
                raise RemoteProtocolError(f"DescribeCluster at {target}: {error}", reason="bad_response") from error
            self._known = [self._mapped(each) for each in description.running] or [target]
            self._described_at = self._now()
            return description
        return status

    def _target(self, node: ServerNode) -> str:
        if not node.host or not 0 < node.port < 1 << 16:
            raise RemoteProtocolError(f"a lookup names no node, but {node.host!r}:{node.port}", reason="bad_node")
        return self._mapped(node)

    def _mapped(self, node: ServerNode) -> str:
        advertised = str(Address(node.host, node.port))
        return self._advertised.get(advertised.lower(), advertised)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
