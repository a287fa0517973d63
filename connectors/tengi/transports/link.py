"""One connection at the level of packets. A receiver lands what it yields; `connection` builds listeners on it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.tengi.protocol.connection import Connection as Protocol
from silverfold.connectors.tengi.protocol.connection import State
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, MessageReceived, Transport
from silverfold.connectors.tengi.protocol.heads import encode_message
from silverfold.connectors.tengi.protocol.values import Identifier, Message
from silverfold.connectors.tengi.transports.configuration import Configuration
from silverfold.connectors.tengi.transports.queues import Outbox

LinkEvent: TypeAlias = MessageReceived | BadFrame | Closed


def closed_early(peer_address: str) -> SourceUnavailable:
    """Return the error for a peer that closed the connection before its handshake: nothing tells why."""
    why = "it may refuse ours, such as for its token, or have no room, or only one of the two uses TLS"
    return SourceUnavailable(f"{peer_address} closed the connection without a handshake: {why}")


class Link(ABC):
    """An open connection: the handshakes are done. Read by one task; any may send.

    Args:
        protocol: Its state, open.
        peer_address: For logs and marks.
    """

    def __init__(
        self, protocol: Protocol, settings: Configuration, *, peer_address: str, log: FilteringBoundLogger
    ) -> None:
        self._protocol, self._settings, self._log = protocol, settings, log
        self._outbox = Outbox(settings.queue_bytes)
        self.peer_address = peer_address
        self.handshake: Mapping[str, Any] = {}
        """Values of the peer's handshake."""
        self.last_received = asyncio.get_running_loop().time()
        """When the peer's last bytes came, by the event loop's clock. An empty answer to a poll counts."""

    @property
    def connection_id(self) -> Identifier:
        """The connection's id."""
        assert self._protocol.connection_id is not None
        return self._protocol.connection_id

    @property
    def transport(self) -> Transport:
        """The transport that carries the packets."""
        return self._protocol.transport

    @abstractmethod
    async def next_event(self) -> LinkEvent:
        """Return the next message or bad frame, or Closed at the end. Cancelling loses nothing.

        It reads no further than the next event, so a slow reader slows the peer down.

        Raises:
            SourceUnavailable: The connection broke.
            RemoteProtocolError: The peer violated the protocol.
            WireError: The final error of an earlier BadFrame.
        """

    async def send(self, message: Message) -> None:
        """Queue a message, waiting for room. Messages are written in the order given.

        Raises:
            SourceUnavailable: The connection has ended.
            OversizedMessage: The peer would not accept its packet.
            WireError: The body cannot be written.
        """
        await self.send_encoded(encode_message(message, self._settings.types))

    async def send_encoded(self, message: bytes) -> None:
        """Queue an encoded message (``heads.encode_message``). Raises as `send`."""
        self._check_open()
        await self._outbox.put(self._outgoing(message))

    def offer_encoded(self, message: bytes) -> bool:
        """Queue an encoded message if there is room now; return whether it was queued. Raises as `send`."""
        self._check_open()
        return self._outbox.offer(self._outgoing(message))

    @property
    def has_ended(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._outbox.is_closed or self._protocol.state is not State.OPEN  # a violation ends the protocol first

    def check_alive(self, silence: float) -> None:
        """Raise SourceUnavailable if for so many seconds the peer sent nothing, or took nothing of what is queued.

        The two are apart: a peer may answer polls and take no posts.
        """
        now, untaken_since = asyncio.get_running_loop().time(), self._outbox.untaken_since
        if now >= self.last_received + silence:
            raise SourceUnavailable(f"{self.peer_address}: nothing came for {silence:g} s")
        if untaken_since is not None and now >= untaken_since + silence:
            raise SourceUnavailable(f"{self.peer_address}: takes nothing for {silence:g} s")

    def discount(self, seconds: float) -> None:
        """Leave so many seconds out of the peer's silence: nobody read meanwhile, so it had to wait."""
        self.last_received += seconds
        self._outbox.discount(seconds)

    @abstractmethod
    async def close(self) -> None:
        """Send what is queued, for up to ``close_timeout``, and end the connection. Safe to repeat."""

    @abstractmethod
    async def abort(self) -> None:
        """End the connection at once, whatever is queued. Safe to repeat, and with `close`."""

    @abstractmethod
    def _outgoing(self, message: bytes) -> bytes:
        """Return the bytes to queue for a message. Raises as `send`."""

    def _check_open(self) -> None:
        if self.has_ended:
            raise SourceUnavailable("the connection has ended")

    def _received(self) -> None:
        self.last_received = asyncio.get_running_loop().time()


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and return once they have ended, whatever their results."""
    others = {task for task in tasks if task is not None and task is not asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
