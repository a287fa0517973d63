"""Helpers for landing tests: a scripted receiver, a sink on a new table, and readers of landed frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple

import structlog
from pydantic import BaseModel

from silverfold.conf.model import Commit, Reconnect, Strict, Table
from silverfold.connectors.base import Feed
from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import Boundary, Frame, FrameSink, Kind, Resume
from silverfold.pipelines.landing.bronze_table import SCHEMA
from silverfold.pipelines.landing.sink import BronzeSink
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.store import open_table

LOG = structlog.wrap_logger(structlog.ReturnLogger(), processors=[lambda _logger, _name, event: event])
"""Discards log events."""

AT_ONCE = Commit(interval_ms=1)
BY_HAND = Commit(interval_ms=600_000, max_bytes=1 << 20)
"""Commits by size and by `BronzeSink.flush` only."""

Script = Callable[[FrameSink, Resume], Awaitable[str | None]]


class ScriptedReceiver:
    """Runs one script per epoch; after the last, waits to be stopped."""

    def __init__(self, scripts: Iterable[Script]) -> None:
        self._scripts = list(scripts)

    async def run(self, sink: FrameSink, resume: Resume) -> str | None:
        if not self._scripts:
            await asyncio.Event().wait()
        return await self._scripts.pop(0)(sink, resume)


class ScriptedConnector:
    """The part of a connector that landing needs."""

    name = "scripted"
    address: Address | None = None
    Options = BaseModel
    TableOptions = Table

    def __init__(self, *scripts: Script, continuity: str = "resync") -> None:
        self._receiver = ScriptedReceiver(scripts)
        self.continuity = continuity

    def receiver(self, feed: Feed) -> ScriptedReceiver:
        return self._receiver

    def listens_at(self, feed: Feed) -> Address | None:
        return self.address

    def stream(self, feed: Feed, table: str) -> str:
        return table

    def resume_position(self, landed: Sequence[str]) -> str:
        return landed[-1]


class Landed(NamedTuple):
    """A landed frame, without its receive time."""

    frame_seq: int
    epoch: int
    stream: str | None
    kind: str
    boundary: str
    body: bytes


def feed(*, commit: Commit = AT_ONCE, reconnect: Reconnect | None = None, **options: Any) -> Feed:
    """A feed named market, with almost no delay between epochs."""
    return Feed(
        "market",
        "scripted",
        "127.0.0.1:1",
        options.get("options", Strict()),
        options.get("tables", {"quotes": Table(source="Quotes")}),
        commit,
        reconnect or Reconnect(first=0.001, longest=0.002),
    )


def update(body: bytes = b"body", count: int = 1) -> list[Frame]:
    """Frames that each are a complete update."""
    return [Frame(body, Kind.DATA, Boundary.WHOLE, "quotes")] * count


@asynccontextmanager
async def sink_at(place: Place, settings: Commit = AT_ONCE, **options: Any) -> AsyncIterator[BronzeSink]:
    """A sink of the feed market on the real table at the place. Its clock counts calls."""
    ticks = iter(range(1 << 40))
    gear: dict[str, Any] = {"clock": lambda: next(ticks), "rng": Random(1), "log": LOG} | options
    writer = BronzeWriter.open(place, "market", token=gear.pop("token", "a"))
    async with BronzeSink(writer, place, settings, **gear) as sink:
        sink.begin_epoch()
        yield sink


def landed(place: Place | Places) -> list[Landed]:
    """All frames in bronze, in order; empty if there is no table yet."""
    at = place.bronze("market") if isinstance(place, Places) else place
    table = open_table(at)
    if table is None:
        return []
    frames = table.to_pyarrow_dataset().to_table().select(SCHEMA.names).sort_by("frame_seq").to_pylist()
    return [Landed(*(frame[name] for name in Landed._fields)) for frame in frames]


def marks(place: Place | Places, name: str = "") -> list[dict[str, Any]]:
    """Details of the marks with this name, or of all marks, in order."""
    found = [json.loads(frame.body) for frame in landed(place) if frame.kind == "mark"]
    return [details for details in found if name in ("", details["mark"])]
