"""A source in this process, a receiver of it, and what landed folded by both readers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from silverfold.connectors.frames import Boundary, Frame, Kind, Resume
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.options import TengiFeed, TengiOptions
from silverfold.connectors.tengi.protocol.events import Transport
from silverfold.connectors.tengi.server.feed.faults import FeedFaults
from silverfold.connectors.tengi.server.feed.server import FeedServer, new_epoch
from silverfold.connectors.tengi.server.feed.source import FeedOptions, FeedSource
from silverfold.connectors.tengi.server.feed.tables import PartLimits, RowChanges, SourceTable
from silverfold.connectors.tengi.transports.configuration import Configuration, ConfigurationBuilder
from tests.support.epochs import epochs, in_background
from tests.support.memory import MemorySink
from tests.support.tengi.landed import COLUMNS, feed_of
from tests.support.two_readers import TwoReaders

QUICK = {"ack_interval": 0.05, "reorder_wait": 0.1, "subscribe_wait": 1.0, "snapshot_wait": 1.0}


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}", "price": number / 4} for number in range(count)]


def orders(count: int = 5, *, history: int = 10_000, epoch: str | None = None) -> SourceTable:
    return SourceTable("orders", COLUMNS, ["id"], rows(count), epoch=epoch or new_epoch(), history=history)


def serving(
    table: SourceTable,
    transport: str = "tcp",
    *,
    faults: FeedFaults | None = None,
    settings: Mapping[str, Any] | None = None,
    port: int = 0,
    part_rows: int = 1_000,
) -> FeedServer:
    """Return a running source of one table."""
    configuration: Configuration = (
        ConfigurationBuilder().add_transport(transport, port=port).set(poll_wait=0.2, **(settings or {})).build()
    )
    source = FeedSource([table], FeedOptions(part_limits=PartLimits(rows=part_rows)))
    return FeedServer.start(source, configuration, faults=faults)


def feed(server: FeedServer, transport: str = "tcp", **options: Any) -> TengiFeed:
    """Return a feed of the source."""
    address = f"tengi://127.0.0.1:{server.ports[Transport(transport)]}"
    return replace(feed_of(address), options=TengiOptions(transport=transport, **{**QUICK, **options}))


def resume_of(sink: MemorySink, epoch: int = 2) -> Resume:
    """Return what bronze would resume from."""
    controls = {frame.stream: frame.body for frame in sink.frames if frame.stream and frame.kind is Kind.CONTROL}
    return Resume(epoch, landed_positions(sink.frames), stream_controls=controls)


def landed_positions(frames: Iterable[Frame]) -> dict[str, str]:
    """Return the last source position of each stream."""
    return {frame.stream: frame.source_position for frame in frames if frame.stream and frame.source_position}


@asynccontextmanager
async def receiving(
    shop: TengiFeed, sink: MemorySink, resume: Resume | None = None
) -> AsyncIterator[Callable[..., Any]]:
    """Run epochs of a feed, one after another, until the block ends; yield a function that waits for a condition."""
    receiver = CONNECTOR.receiver(shop)

    def begin_at(number: int) -> Resume:
        return resume_of(sink) if number > 1 else resume or Resume(1)

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                if running.done():
                    running.result()
                await asyncio.sleep(0.01)

    async with in_background(epochs(receiver, sink, begin_at)) as running:
        yield until


def newest(sink: MemorySink) -> str | None:
    """Return the newest position that landed."""
    return next((frame.source_position for frame in reversed(sink.frames) if frame.source_position), None)


def position_of(table: SourceTable) -> str:
    return f"{table.epoch}:{table.seq:019d}"


def folded(shop: TengiFeed, frames: list[Frame]) -> list[dict[str, Any]]:
    """Return the rows of the table orders, from its last whole snapshot on, as decoder and reference reader agree."""
    snapshots = [(at, each.boundary) for at, each in enumerate(frames) if each.kind is Kind.SNAPSHOT]
    end = max(at for at, boundary in snapshots if boundary in (Boundary.END, Boundary.WHOLE))
    begin = max(at for at, boundary in snapshots if boundary in (Boundary.BEGIN, Boundary.WHOLE) and at <= end)
    landed = [each for at, each in enumerate(frames) if each.kind is Kind.CONTROL or at >= begin]
    readers = TwoReaders(shop, "orders", landed)
    found, errors = readers.by_decoder()
    assert errors == []
    assert readers.by_reference() == found
    return sorted(map(dict, found.values()), key=lambda row: row["id"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def change_of(number: int) -> RowChanges:
    """Return an update that changes one row, moves one and adds one, of a table that numbers its rows."""
    return RowChanges(modified=[((number % 5,), {"price": float(number)})], added=[rows(1)[0] | {"id": 1_000 + number}])
