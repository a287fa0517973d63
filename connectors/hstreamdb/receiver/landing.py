"""Takes the frames of fetches, and acknowledges them once they have landed.

Acknowledging is a loop of its own: reading never waits for a commit, only for room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.frames import FrameSink
from silverfold.connectors.hstreamdb.client.fetch import AckQueue, Fetch, FetchedFrame
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.receiver.progress import Progress

_LAST_COMMIT: Final = 10.0
"""Seconds that a stop waits for the commit whose records it still acknowledges."""


class Acknowledgements:
    """The ids of frames that the sink has taken and not committed yet, by fetch.

    Args:
        queues: The fetches' own: ids to send.
        most: Number of ids at which to commit at once: else the source may wait for us, and we for time.
        interval: Seconds to gather ids for one commit.
    """

    def __init__(self, sink: FrameSink, queues: Sequence[AckQueue], *, most: int, interval: float) -> None:
        self._sink, self._queues, self._most, self._interval = sink, queues, most, interval
        self._taken: list[list[RecordId]] = [[] for _ in queues]
        self._begun, self._due = asyncio.Event(), asyncio.Event()

    @property
    def pending(self) -> int:
        """Number of records that were taken and whose acknowledgement was not sent."""
        return sum(map(len, self._taken)) + sum(map(len, self._queues))

    def taken(self, fetch: int, ids: Iterable[RecordId]) -> None:
        """Note the ids of a frame that the sink has just taken, by the number of its fetch."""
        self._taken[fetch] += ids
        self._begun.set()
        if sum(map(len, self._taken)) >= self._most:
            self._due.set()

    async def run(self) -> None:
        """Commit and acknowledge, for ever. Safe to cancel."""
        while True:
            await self._begun.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._due.wait()
            await self.flush()

    async def flush(self) -> None:
        """Commit what was taken, and queue its ids. Raises what `FrameSink.flush` raises; nothing is lost then."""
        counts = list(map(len, self._taken))
        self._begun.clear()
        self._due.clear()
        await self._sink.flush()
        for queue, ids, count in zip(self._queues, self._taken, counts, strict=True):
            queue.add(ids[:count])
            del ids[:count]


class Landing:
    """Lands frames of fetches."""

    def __init__(self, acknowledgements: Acknowledgements, progress: Progress, sink: FrameSink) -> None:
        self._acknowledgements, self._progress, self._sink = acknowledgements, progress, sink

    async def land_fetch(self, number: int, fetch: Fetch) -> None:
        """Take all frames of a fetch until it ends with an error."""
        while True:
            self._take(number, fetch, await fetch.next_frames())
            await self._sink.wait_for_room()

    def _take(self, number: int, fetch: Fetch, received: Sequence[FetchedFrame]) -> None:
        for frame in received:
            self._sink.take(self._progress.frames(frame, fetch.consumer))
            self._acknowledgements.taken(number, frame.ids)

    async def end(self, fetches: Sequence[Fetch]) -> None:
        """Land what has arrived, commit it, and queue its acknowledgements: closing the fetches sends them."""
        with suppress(SilverfoldError, TimeoutError):  # the epoch ends with its own error
            for number, fetch in enumerate(fetches):
                with suppress(SilverfoldError, TimeoutError):
                    async with asyncio.timeout(0):
                        self._take(number, fetch, await fetch.next_frames())
            async with asyncio.timeout(_LAST_COMMIT):
                await self._acknowledgements.flush()
