"""One open fetch, as its context sees it: a bounded buffer of frames that its call writes."""

from __future__ import annotations

import asyncio
from collections import deque


class Consumer:
    """A consumer of a subscription.

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
        self._is_open = True

    async def write(self, frame: bytes) -> bool:
        """Add a frame once there is room; return whether it was added. If not, the call has ended."""
        while len(self._frames) >= self._buffer and self._is_open:
            await self._change()
        if self._is_open:
            self._frames.append(frame)
            self._changed.set()
        return self._is_open

    async def next_frame(self) -> bytes:
        """Return the next frame, once there is one."""
        while not self._frames:
            await self._change()
        self._changed.set()
        return self._frames.popleft()

    def close(self) -> None:
        """Refuse all further frames."""
        self._is_open = False
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
