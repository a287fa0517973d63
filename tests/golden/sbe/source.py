"""A stream of one message in four versions of its schema."""

from __future__ import annotations

import json
from pathlib import Path

from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Frame
from silverfold.connectors.sbe.protocol.schemas import read_schema
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.receiver.landing import Landing
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from tests.support.golden_source import GoldenSource, Turns
from tests.support.sbe.feed import options, table

_EVOLUTION = Path(__file__).parent / "evolution"
_ORDERS = json.loads((_EVOLUTION / "order.json").read_text("utf-8"))["messages"]


class SbeSource(GoldenSource):
    """Sends, and takes nothing."""

    def land(self, turns: Turns) -> list[Frame]:
        read = read_schema(self.feed.options.schema_)
        schema = read.load()
        landing = Landing(schema, Session(schema, self.feed.options.framing), has_positions=False, reported=set())
        frames = landing.begin(read.text, None)
        for turn in turns:
            for chunk in turn:
                frames += landing.receive(chunk)
        return frames + landing.receive_eof()


SOURCE = SbeSource(
    Feed("orders", "sbe", "", options(str(_EVOLUTION / "order-v3.xml")), {"Order": table()}),
    (FrameWriter(FRAMINGS["sofh"]).write([bytes.fromhex(each) for each in _ORDERS]),),
)
