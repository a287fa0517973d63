"""In-memory sink for receiver tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from silverfold.connectors.frames import Frame, Kind


class MemorySink:
    """A `connectors.frames.FrameSink`. Once ``is_full``, `land` and `wait_for_room` never return."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self.frames = list(frames)
        self.is_full = False

    def take(self, frames: Sequence[Frame]) -> None:
        self.frames += frames

    async def land(self, frames: Sequence[Frame]) -> None:
        self.take(frames)
        await self.wait_for_room()

    async def wait_for_room(self) -> None:
        if self.is_full:
            await asyncio.Event().wait()

    async def flush(self) -> int:
        return len(self.frames) - 1

    def mark_details(self) -> Iterator[tuple[str | None, dict[str, Any]]]:
        """Stream and details of each mark, in order."""
        return ((frame.stream, json.loads(frame.body)) for frame in self.frames if frame.kind is Kind.MARK)
