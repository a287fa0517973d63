"""One node of a cluster: a gRPC server, and the readings of subscriptions it was asked for."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

import grpc

from silverfold.conf.errors import ConfigError, SourceUnavailable
from silverfold.connectors.common.server_thread import listen
from silverfold.connectors.common.transport import Address, load_certificate
from silverfold.connectors.hstreamdb.server.faults import Faults
from silverfold.connectors.hstreamdb.server.members import Member, MemberList
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, ServerTls
from silverfold.connectors.hstreamdb.server.reading.context import ReadingContext
from silverfold.connectors.hstreamdb.server.reading.cursors import LogCursor
from silverfold.connectors.hstreamdb.server.store.store import Store, StoredSubscription

_CHANNEL: Final = (
    ("grpc.so_reuseport", 0),  # a port that is taken is an error
    ("grpc.max_send_message_length", -1),
)


class Node:
    """A node, with everything its calls need.

    Args:
        member: Its entry in the member list; gets its port.
    """

    def __init__(
        self, member: Member, members: MemberList, store: Store, options: ClusterOptions, faults: Faults
    ) -> None:
        self.member, self.members, self.store, self.options, self.faults = member, members, store, options, faults
        self.contexts: dict[str, ReadingContext] = {}
        self.reader_cursors: dict[str, LogCursor] = {}
        """How far each reader has read that this node serves."""
        self.fetch_count = 0
        """Fetches that are open."""
        self._server: Any = None

    async def start(self, handlers: Any) -> None:
        """Serve, at the member's port; 0 gets any free one.

        Args:
            handlers: The generic handler of the calls.

        Raises:
            SourceUnavailable: The port cannot be listened on.
        """
        listen(self.options.host, self.member.port).close()  # says what is wrong; gRPC would only log it
        server = grpc.aio.server(options=_CHANNEL)
        server.add_generic_rpc_handlers((handlers,))
        address = str(Address(self.options.host, self.member.port))
        try:
            if self.options.tls is None:
                self.member.port = server.add_insecure_port(address)
            else:
                self.member.port = server.add_secure_port(address, _credentials(self.options.tls))
        except RuntimeError as error:
            raise SourceUnavailable(f"cannot listen on {address}: {error}") from error
        await server.start()
        self._server, self.member.died_at = server, None

    async def disconnect(self) -> None:
        """Break all connections and stop serving; readings of subscriptions stay."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def kill(self, now: float) -> None:
        """Die: connections break, readings are forgotten."""
        self.member.died_at = now
        contexts, self.contexts = list(self.contexts.values()), {}
        self.reader_cursors = {}
        for each in contexts:
            self.store.listeners.discard(each.notice)
        await asyncio.gather(self.disconnect(), *(each.close() for each in contexts))

    def context(self, subscription: StoredSubscription) -> ReadingContext:
        """Return the reading of a subscription; begins one, whether or not this node owns it."""
        found = self.contexts.get(subscription.id)
        if found is None or found.subscription is not subscription:
            found = self.contexts[subscription.id] = ReadingContext(subscription, self.options)
            self.store.listeners.add(found.notice)
            found.start()
        return found

    async def forget(self, subscription: str) -> None:
        """End the reading of a subscription, and the calls of its consumers first."""
        if context := self.contexts.get(subscription):
            await context.stop()
            self.store.listeners.discard(context.notice)
            self.contexts.pop(subscription, None)


def _credentials(tls: ServerTls) -> Any:
    """Return gRPC's credentials. Raises ConfigError; gRPC itself would only log what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        load_certificate(context, tls.certificate, tls.key)
        if tls.client_authority is not None:
            context.load_verify_locations(tls.client_authority)
    except OSError as error:
        allowed = "PEM files: a certificate and its key, and the authority of the clients if there is one"
        raise ConfigError(
            file=str(error.filename or tls.certificate), key="tls", found=error.strerror, allowed=allowed
        ) from error
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    authority = tls.client_authority.read_bytes() if tls.client_authority else None
    return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=authority is not None)
