"""Helpers for SBE receiver tests: market messages, a sink, and a receiver with a short polling interval."""

from __future__ import annotations

import asyncio

from silverfold.conf.model import Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Resume
from silverfold.connectors.sbe.protocol.schemas import feed_schema, read_schema
from silverfold.connectors.sbe.receiver.receiver import SbeReceiver
from silverfold.connectors.sbe.server.market import Market
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from tests.support.memory import MemorySink
from tests.support.sbe.feed import options, table

MARKET = feed_schema("builtin")
SECURITIES = list(Market(MARKET, seed=0, clock=lambda: 0).greeting())
STREAM = FrameWriter(FRAMINGS["sofh"]).write(SECURITIES)
TEXT = read_schema("builtin").text


class Sink(MemorySink):
    """In-memory sink."""

    @property
    def bodies(self):
        return [frame.body for frame in self.frames if frame.kind == "data"]

    @property
    def marks(self):
        return [details["mark"] for _, details in self.mark_details()]

    def resume(self, epoch):
        """Return the resume point of a restarted receiver."""
        reached = {frame.stream: frame.source_position for frame in self.frames if frame.source_position}
        controls = [frame.body for frame in self.frames if frame.kind == "control"]
        return Resume(epoch, reached, controls[-1] if controls else None)


def feed_of(address, *, framing="sofh", schema="builtin"):
    reconnect = Reconnect(first=0.01, longest=0.02, connect_timeout=5)
    return Feed("stream", "sbe", str(address), options(schema, framing), {"Security": table()}, reconnect=reconnect)


def receiver(address, **settings):
    return SbeReceiver(feed_of(address, **settings), look=0.01)


def epoch(one, sink, number=1, resume=None):
    asyncio.run(one.run(sink, resume or Resume(number)))
