"""A table server with two subscriptions, one of which ends inside an update."""

from __future__ import annotations

import asyncio

from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.frames import Frame
from tests.support.deephaven.epoch import begun
from tests.support.deephaven.vectors import VECTORS
from tests.support.golden_source import GoldenSource, Turns

_OCTETS = VECTORS["stream-two-subscriptions-torn-update"].octets
_GREETING = 16


class DeephavenSource(GoldenSource):
    """Greets, is asked for its tables, and sends them."""

    def land(self, turns: Turns) -> list[Frame]:
        epoch, frames = begun(self.feed.tables), list[Frame]()
        for turn in turns:
            for chunk in turn:
                frames += epoch.receive(chunk)
            frames += epoch.requests()[1]
        return frames + epoch.receive_eof()

    async def requests(self, reader: asyncio.StreamReader) -> None:
        for _ in self.feed.tables:
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "little"))


SOURCE = DeephavenSource(
    Feed("market", "deephaven", "", DeephavenOptions(), {name: DeephavenTable(source=name) for name in ("one", "two")}),
    (_OCTETS[:_GREETING], _OCTETS[_GREETING:]),
)
