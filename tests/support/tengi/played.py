"""An epoch of a receiver, played packet by packet: what it lands, and what it asks for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from silverfold.connectors.frames import Frame, Kind
from silverfold.connectors.tengi.options import TengiOptions, TengiTable
from silverfold.connectors.tengi.protocol import Packet
from silverfold.connectors.tengi.protocol.events import MessageReceived
from silverfold.connectors.tengi.protocol.feed.packets import Position, Schema
from silverfold.connectors.tengi.protocol.registry import BUILT_IN
from silverfold.connectors.tengi.receiver.epoch import Epoch
from silverfold.connectors.tengi.receiver.receiver import new_epoch
from tests.support.tengi.landed import CONNECTION, EPOCH, MESSAGE, change, feed_of, frame_of

BODY_AT = 39
"""Offset of the body in the packets of `tests.support.tengi.landed`."""


class Played:
    """An epoch of the table orders, or of several, and what landed of it."""

    def __init__(
        self,
        seq: int | dict[str, str] | None = None,
        schemas: dict[str, Schema] | None = None,
        clock: Callable[[], float] = time.time,
        last_landed: dict[str, Position] | None = None,
        tables: Sequence[str] = ("orders",),
        **options: Any,
    ) -> None:
        settings = TengiOptions(transport="tcp", **options)
        feed = replace(feed_of(), options=settings, tables=dict.fromkeys(tables, TengiTable()))
        positions = {"orders": str(Position(EPOCH, seq))} if isinstance(seq, int) else seq or {}
        seen = {} if schemas is None else schemas
        self.epoch: Epoch = new_epoch(feed, positions, schemas=seen, last_landed=last_landed, clock=clock)
        self.now = 0.0
        self.frames: list[Frame] = self.epoch.begin(self.now)
        self.asked: list[Any] = self.epoch.requests()

    def take(self, *packets: Packet) -> None:
        for packet in packets:
            event = MessageReceived(CONNECTION, MESSAGE, frame_of(packet), BODY_AT, BUILT_IN)
            self.frames += self.epoch.take(event, self.now)
            self.asked += self.epoch.requests()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.frames += self.epoch.due(self.now)
        self.asked += self.epoch.requests()

    @property
    def boundaries(self) -> list[str | None]:
        """Kind and boundary of what landed, without marks, and the seq if it gives a position."""
        return [
            f"{frame.kind} {frame.boundary}" + (f" {int(frame.source_position[21:])}" if frame.source_position else "")
            for frame in self.frames
            if frame.kind is not Kind.MARK
        ]

    @property
    def progress(self) -> list[dict[str, Any]]:
        marks = [json.loads(frame.body) for frame in self.frames if frame.kind is Kind.MARK]
        return [each["parts"] for each in marks if each["mark"] == "progress"]

    @property
    def newest_mark(self) -> dict[str, Any]:
        """The newest frame, which is a mark."""
        found: dict[str, Any] = json.loads(self.frames[-1].body)
        return found

    @property
    def marks(self) -> list[str]:
        return [json.loads(frame.body)["mark"] for frame in self.frames if frame.kind is Kind.MARK]


def changes(*seqs: int) -> list[Packet]:
    return [change(seq, "DELETE", key={"id": seq}) for seq in seqs]
