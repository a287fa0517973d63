"""The two bounded queues of a connection: `Outbox` of packets to send, `Inbox` of messages for the listeners."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.tengi.protocol.values import Message

MAX_UNDELIVERED: Final = 64
"""Most messages that are read ahead of the listeners."""
MAX_AHEAD: Final = 16 << 20
"""Most bytes that are read ahead while a task waits for an answer or for the end, which may be behind them."""


class Outbox:
    """A bounded queue of items to send, in the order given.

    Args:
        limit: Bytes. A larger item has room only when the queue is empty.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[bytes] = deque()
        self._size = 0
        self._turn = asyncio.Lock()  # fair: those that wait for room keep their order
        self._room, self._filled = asyncio.Event(), asyncio.Event()
        self.is_closed = False
        self.untaken_since: float | None = None
        """Since when nothing was taken, by the event loop's clock; None if nothing is queued."""

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
        """Take items of up to so many bytes in all, without waiting; at least one, if there is any."""
        taken: list[bytes] = []
        size = 0
        while self._items and (not taken or size + len(self._items[0]) <= most):
            taken.append(self._items.popleft())
            size += len(taken[-1])
        self.untaken_since = asyncio.get_running_loop().time() if self._items else None
        self._resize(-size)
        return taken

    def put_back(self, items: Iterable[bytes]) -> None:
        """Put unsent items back at the front."""
        for item in reversed(list(items)):
            self._note_first()
            self._items.appendleft(item)
            self._resize(len(item))

    def discount(self, seconds: float) -> None:
        """Leave so many seconds out of `untaken_since`."""
        if self.untaken_since is not None:
            self.untaken_since += seconds

    def close(self, *, drop: bool = False) -> None:
        """Accept no more items. With ``drop``, forget the queued ones."""
        self.is_closed = True
        if drop:
            self._items.clear()
            self._size, self.untaken_since = 0, None
        self._filled.set()
        self._room.set()

    def _has_room(self, item: bytes) -> bool:
        return not self._items or self._size + len(item) <= self._limit

    def _append(self, item: bytes) -> None:
        self._note_first()
        self._items.append(item)
        self._resize(len(item))

    def _note_first(self) -> None:
        if not self._items:
            self.untaken_since = asyncio.get_running_loop().time()

    def _resize(self, change: int) -> None:
        self._size += change
        self._room.set()
        if self._items or self.is_closed:
            self._filled.set()
        else:
            self._filled.clear()


class Inbox:
    """A bounded queue for the listeners: messages, errors, and None for the end. While it is full, the peer waits."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[tuple[Message | Exception | None, int]] = asyncio.Queue()
        self._size = self._expecting = 0
        self._room = asyncio.Event()

    async def put(self, item: Message | Exception | None, size: int = 0) -> None:
        """Add an item of so many bytes, waiting for room."""
        while self._items.qsize() >= MAX_UNDELIVERED and not (self._expecting and self._size < MAX_AHEAD):
            self._room.clear()
            await self._room.wait()
        self._size += size
        self._items.put_nowait((item, size))

    async def get(self) -> Message | Exception | None:
        """Return the next item, waiting for it."""
        item, size = await self._items.get()
        self._size -= size
        self._room.set()
        return item

    @contextlib.contextmanager
    def reading_ahead(self) -> Iterator[None]:
        """Make room for `MAX_AHEAD` bytes inside the block."""
        self._expecting += 1
        self._room.set()
        try:
            yield
        finally:
            self._expecting -= 1
