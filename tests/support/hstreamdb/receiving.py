"""A receiver of HStreamDB against a cluster in this process, and a sink that counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from silverfold.conf.model import Commit
from silverfold.connectors.frames import Frame, Kind, Resume
from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.hstreamdb.options import HStreamFeed, HStreamOptions
from silverfold.connectors.hstreamdb.protocol.frames import decode_frame
from silverfold.connectors.hstreamdb.receiver.receiver import HStreamReceiver
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, Ticks
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from tests.support.epochs import in_background
from tests.support.hstreamdb.landed import STREAM, feed_of
from tests.support.memory import MemorySink

QUICK = Ticks(start_delay=0.001, resend=0.05, assign=0.05, read_wait=0.05)


FIRST = Resume(1)


class CountingSink(MemorySink):
    """Remembers how many frames were there at each commit; commits only while ``is_open``."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[int] = []
        self.is_open = True
        self.looks = 0
        """At the subscription: each ends with waiting for room."""

    async def land(self, frames: Sequence[Frame]) -> None:
        self.take(frames)

    async def wait_for_room(self) -> None:
        self.looks += 1
        await super().wait_for_room()

    async def looked(self) -> None:
        """Wait for two more looks; the second one has begun after the call."""
        before = self.looks
        await until(lambda: self.looks >= before + 2)

    async def flush(self) -> int:
        while not self.is_open:
            await asyncio.sleep(0.01)
        self.committed.append(len(self.frames))
        return len(self.frames) - 1

    @property
    def data(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind is Kind.DATA]

    @property
    def control(self) -> list[bytes]:
        return [frame.body for frame in self.frames if frame.kind is Kind.CONTROL]

    def marks(self, name: str) -> list[dict[str, Any]]:
        return [details for _, details in self.mark_details() if details["mark"] == name]

    def values(self) -> list[int]:
        """Return the numbers in all records that landed."""
        records = [each for frame in self.data for each in decode_frame(frame.body).records]
        return [int(each.record.fields["id"]) for each in records]  # type: ignore[union-attr,arg-type]  # all are HRecords of ints


def feed(address: str, *, quick_looks: bool = False, **settings: Any) -> HStreamFeed:
    """Return a feed; with ``quick_looks``, and the fixture of that name, it looks more often than settings allow."""
    found = feed_of()
    options = HStreamOptions(**{"stream": STREAM, "subscription": "feed", **settings})
    if quick_looks:
        options = options.model_copy(update={"committed_seconds": 0.1})
    return replace(found, address=address, options=options, commit=Commit(interval_ms=20))


@asynccontextmanager
async def received(
    settings: HStreamFeed, sink: CountingSink, resume: Resume = FIRST
) -> AsyncIterator[asyncio.Task[None]]:
    async with in_background(HStreamReceiver(settings, {}).run(sink, resume)) as task:
        yield task


def resume_of(*sinks: CountingSink) -> Resume:
    """Return where a receiver goes on that has landed all of this."""
    frames = [frame for sink in sinks for frame in sink.frames]
    positions = [frame.source_position for frame in frames if frame.source_position is not None]
    return Resume(2, {STREAM: CONNECTOR.resume_position(positions)}, sinks[-1].control[-1])


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def append(client: Client, numbers: Sequence[int], key: str | None = None) -> None:
    async with client.producer(STREAM) as producer:
        for number in numbers:
            await producer.submit({"id": number}, key if key is not None else str(number))


@asynccontextmanager
async def cluster(shards: int = 1, nodes: int = 1, **options: Any) -> AsyncIterator[tuple[HStreamServer, Client]]:
    with HStreamServer.start(ClusterOptions(nodes=nodes, ticks=QUICK, **options)) as server:
        async with await connect(server.address) as client:
            await client.create_stream(STREAM, shard_count=shards)
            yield server, client
