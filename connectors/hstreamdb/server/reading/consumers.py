"""The consumers of a subscription on one node: their buffers of frames, and which of them has which shard."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable


class ConsumerBuffer:
    """One open fetch, as its context sees it: a bounded buffer of frames that its call writes.

    Args:
        name: Its name, unique in the context.
        uri: Address of its client.
        user_agent: Program of its client.
        buffer: Most frames that are not written yet.
    """

    def __init__(self, name: str, uri: str, user_agent: str, *, buffer: int) -> None:
        self.name, self.uri, self.user_agent = name, uri, user_agent
        self._frames = deque[bytes]()
        self._buffer = buffer
        self._changed = asyncio.Event()
        self.is_open = True
        """Whether it takes frames; if not, its call is over."""

    async def write(self, frame: bytes) -> bool:
        """Add a frame once there is room; return whether it was added. If not, the call has ended."""
        while len(self._frames) >= self._buffer and self.is_open:
            await self._change()
        if self.is_open:
            self._frames.append(frame)
            self._changed.set()
        return self.is_open

    async def next_frame(self) -> bytes:
        """Return the next frame, once there is one."""
        while not self._frames:
            await self._change()
        self._changed.set()
        return self._frames.popleft()

    def close(self) -> None:
        """Refuse all further frames."""
        self.is_open = False
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Assignment:
    """Assigns shards to consumers. A shard has at most one owner.

    Args:
        shards: The ids of its shards, in the order in which they are assigned.
    """

    def __init__(self, shards: Iterable[int]) -> None:
        self._unassigned, self._orphaned = list(shards), list[int]()
        self._owned: dict[str, list[int]] = {}
        """Shards of each consumer that has some."""
        self.idle: list[str] = []
        """Consumers that wait for a shard, in the order of their coming."""
        self.owners: dict[int, str] = {}

    def join(self, consumer: str) -> None:
        """Add a consumer. It gets a shard at the next `balance` or `assign`."""
        self.idle.append(consumer)

    def leave(self, consumer: str) -> None:
        """Remove a consumer; its shards go to others at the next `assign`."""
        if consumer in self.idle:
            self.idle.remove(consumer)
        for shard in sorted(self._owned.pop(consumer, [])):
            self._orphaned.append(shard)
            del self.owners[shard]

    def balance(self) -> None:
        """Give each idle consumer the largest shard of the most loaded one, while that has several."""
        while self.idle and self._owned:
            loaded = max(self._owned, key=self._load)
            if len(self._owned[loaded]) < 2:
                return
            shard = max(self._owned[loaded])
            self._owned[loaded].remove(shard)
            self._give(shard, self.idle.pop(0))

    def assign(self) -> None:
        """Give shards without owner to idle consumers, then to the least loaded ones."""
        for shards in (self._unassigned, self._orphaned):
            while shards and (self.idle or self._owned):
                consumer = self.idle.pop(0) if self.idle else min(self._owned, key=self._load)
                self._give(shards.pop(0), consumer)

    def _load(self, consumer: str) -> tuple[int, str]:
        return len(self._owned[consumer]), consumer

    def _give(self, shard: int, consumer: str) -> None:
        self._owned.setdefault(consumer, []).append(shard)
        self.owners[shard] = consumer
