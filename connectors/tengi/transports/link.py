"""One connection at the level of packets. A receiver lands what it yields; `connection` builds listeners on it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.tengi.protocol.connection import Connection as Protocol
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, MessageReceived, Transport
from silverfold.connectors.tengi.protocol.heads import encode_message
from silverfold.connectors.tengi.protocol.values import Identifier, Message
from silverfold.connectors.tengi.transports.configuration import Configuration

LinkEvent: TypeAlias = MessageReceived | BadFrame | Closed

MAX_HANDSHAKE: Final = 64 << 10
"""Bytes of a handshake: a peer that is not known yet must not take memory."""


class Outbox:
    """A bounded queue of what is to be sent, in the order given.

    Args:
        limit: Bytes; a larger item is taken when the queue is empty.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[bytes] = deque()
        self._size = 0
        self._turn = asyncio.Lock()  # fair: those that wait for room keep their order
        self._room, self._filled = asyncio.Event(), asyncio.Event()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._items)

    async def put(self, item: bytes) -> None:
        """Queue an item, waiting for room. Cancelled, it is not queued. Raises SourceUnavailable after `close`."""
        async with self._turn:
            while not self.is_closed and not self._has_room(item):
                self._room.clear()
                await self._room.wait()
            if self.is_closed:
                raise SourceUnavailable("the connection has ended")
            self._append(item)

    def offer(self, item: bytes) -> bool:
        """Queue an item if there is room at once; return whether it was queued."""
        if self.is_closed or self._turn.locked() or not self._has_room(item):
            return False
        self._append(item)
        return True

    async def filled(self) -> None:
        """Wait for an item, or for `close`."""
        await self._filled.wait()

    def take(self, most: int) -> list[bytes]:
        """Return items of up to so many bytes, without waiting; one at least if there is any."""
        taken: list[bytes] = []
        size = 0
        while self._items and (not taken or size + len(self._items[0]) <= most):
            taken.append(self._items.popleft())
            size += len(taken[-1])
        self._resize(-size)
        return taken

    def put_back(self, items: Iterable[bytes]) -> None:
        """Return items that were not sent to the front."""
        for item in reversed(list(items)):
            self._items.appendleft(item)
            self._resize(len(item))

    def close(self, *, drop: bool = False) -> None:
        """Take no more items. With ``drop`` forget those that are queued."""
        self.is_closed = True
        if drop:
            self._items.clear()
            self._size = 0
        self._filled.set()
        self._room.set()

    def _has_room(self, item: bytes) -> bool:
        return not self._items or self._size + len(item) <= self._limit

    def _append(self, item: bytes) -> None:
        self._items.append(item)
        self._resize(len(item))

    def _resize(self, change: int) -> None:
        self._size += change
        self._room.set()
        if self._items or self.is_closed:
            self._filled.set()
        else:
            self._filled.clear()


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
        """Time, of the event loop's clock, when the last bytes of the peer came; an empty answer to a poll counts."""

    @property
    def connection_id(self) -> Identifier:
        """The connection's id."""
        assert self._protocol.connection_id is not None
        return self._protocol.connection_id

    @property
    def transport(self) -> Transport:
        """What carries the packets."""
        return self._protocol.transport

    @abstractmethod
    async def next_event(self) -> LinkEvent:
        """Return the next message or bad frame, or at the end Closed. Cancelling loses nothing.

        Nothing more is read from the peer than until the next event: who reads slowly slows the peer down.

        Raises:
            SourceUnavailable: The connection broke.
            RemoteProtocolError: The peer violated the protocol.
            WireError: The final error of an earlier BadFrame.
        """

    async def send(self, message: Message) -> None:
        """Queue a message, waiting for room. Messages are written in the order given.

        Raises:
            SourceUnavailable: The connection has ended.
            OversizedMessage: The peer would not take it.
            WireError: The body cannot be written.
        """
        await self.send_encoded(encode_message(message, self._settings.types))

    async def send_encoded(self, message: bytes) -> None:
        """Queue a message that ``encode_message`` made. Raises as `send`."""
        if self._outbox.is_closed:
            raise SourceUnavailable("the connection has ended")
        await self._outbox.put(self._outgoing(message))

    def offer_encoded(self, message: bytes) -> bool:
        """Queue a message if there is room at once; return whether it was queued.

        Raises:
            OversizedMessage: The peer would not take it.
        """
        return not self._outbox.is_closed and self._outbox.offer(self._outgoing(message))

    @abstractmethod
    async def close(self) -> None:
        """Send what is queued, for up to ``close_timeout``, and end the connection. Safe to repeat."""

    @abstractmethod
    async def abort(self) -> None:
        """End the connection at once, whatever is queued. Safe to repeat, and with `close`."""

    @abstractmethod
    def _outgoing(self, message: bytes) -> bytes:
        """Return a message as it is queued. Raises as `send`."""

    def _received(self) -> None:
        self.last_received = asyncio.get_running_loop().time()


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and return once they have ended, whatever their results."""
    others = {task for task in tasks if task is not None and task is not asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
