"""What each connector's golden folder has beside its vectors: a source that sends them, for the conformance suite."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import ClassVar

from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Frame, FrameSink, Resume
from silverfold.connectors.registry import find_connector
from tests.support.peers import serving

Turns = Iterable[Iterable[bytes]]
"""Chunks of each turn of a source."""


@dataclass(frozen=True, repr=False)
class GoldenSource(ABC):
    """One golden connection.

    Args:
        turns: What the source sends; it awaits the receiver's requests between two of them.
    """

    feed: Feed
    turns: tuple[bytes, ...]
    awaits_commits: ClassVar[bool] = False
    """It sends nothing more while something is not committed."""

    @abstractmethod
    def land(self, turns: Turns) -> list[Frame]:
        """Return what lands, by the same code as in the receiver, of a connection that sends these chunks."""

    @asynccontextmanager
    async def sending(self, sent: asyncio.Event) -> AsyncIterator[str]:
        """Serve one receiver, at the address yielded; set ``sent`` once all has been sent."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for number, turn in enumerate(self.turns):
                if number:
                    await self.requests(reader)
                for chunk in cut(turn, 64):
                    writer.write(chunk)
                    await asyncio.sleep(0)
            sent.set()
            await asyncio.Event().wait()

        async with serving(serve) as address:
            yield str(address)

    async def requests(self, reader: asyncio.StreamReader) -> None:  # noqa: B027 - most are asked for nothing
        """Read what the receiver asks for before the next turn."""

    @asynccontextmanager
    async def received(self, sink: FrameSink, sent: asyncio.Event) -> AsyncIterator[asyncio.Task[str | None]]:
        """Run the connector's receiver against the source; yield its task."""
        async with self.sending(sent) as address:
            with running(replace(self.feed, address=address), sink) as task:
                yield task
            await asyncio.wait([task])


@contextmanager
def running(feed: Feed, sink: FrameSink) -> Iterator[asyncio.Task[str | None]]:
    """Run an epoch of a feed until the block ends."""
    task = asyncio.create_task(find_connector(feed.connector).receiver(feed).run(sink, Resume(1)))
    try:
        yield task
    finally:
        task.cancel()


def cut(octets: bytes, size: int) -> Sequence[bytes]:
    """Return chunks of a size."""
    return [octets[start : start + size] for start in range(0, len(octets), size)]


def golden_source(connector: str) -> GoldenSource:
    """Return a connector's golden source, from its folder of golden vectors."""
    source: GoldenSource = import_module(f"tests.golden.{connector}.source").SOURCE
    return source
