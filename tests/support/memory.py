"""A sink for tests of receivers: keeps in memory what lands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from silverfold.connectors.base import Frame, Kind


class MemorySink:
    """A `connectors.base.FrameSink`. Once ``is_full``, it waits for room that never comes: its store is down."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self.frames = list(frames)
        self.is_full = False

    def take(self, frames: Sequence[Frame]) -> None:
        self.frames += frames

    async def land(self, frames: Sequence[Frame]) -> None:
        self.take(frames)
        if self.is_full:
            await asyncio.Event().wait()

    async def flush(self) -> int:
        return len(self.frames) - 1

    def told(self) -> Iterator[tuple[str | None, dict[str, Any]]]:
        """Of each mark its stream and its details, in order."""
        return ((frame.stream, json.loads(frame.body)) for frame in self.frames if frame.kind is Kind.MARK)
