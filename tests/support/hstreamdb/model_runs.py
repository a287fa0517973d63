"""Runs of a receiver at a modeled source: processes one after another, which stop or die, and what happens to both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

from silverfold.connectors.frames import Frame, Resume
from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.receiver import receiver
from tests.support.epochs import epochs, in_background
from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.model_client import CALLS, ModelClient
from tests.support.hstreamdb.receiving import CountingSink, feed
from tests.support.hstreamdb.source_model import ACK_SECONDS, SHARDS, SourceModel
from tests.support.hstreamdb.virtual_time import run_in_virtual_time


@dataclass(frozen=True)
class Conditions:
    """What may happen besides appends, trims, lost connections, restarts, failing calls, and deaths of any process."""

    offset: SpecialOffset = SpecialOffset.EARLIEST
    """Of the subscription that the feed's settings make. If it is the latest, users make one anew from either end."""
    has_thieves: bool = False
    """Whether other consumers acknowledge batches."""
    is_recreated: bool = False
    """Whether the subscription is deleted, and made anew by the receiver or a user."""
    has_epochs: bool = False
    """Whether logs begin new epochs."""
    wrong: str | None = None
    """Kind of answer that is wrong once, before the last process; see `SourceModel`."""
    is_repaired: bool = False
    """Whether at last the subscription is deleted, as one does for all that the stream has to come again."""


class SlowSink(CountingSink):
    """A sink whose commits take time. Remembers what was taken together, which lands together."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._ends = [0]

    def take(self, frames: Sequence[Frame]) -> None:
        super().take(frames)
        self._ends.append(len(self.frames))

    async def flush(self) -> int:
        count = len(self.frames)
        await asyncio.sleep(self._rng.choice([0.01, 0.2]))
        self.committed.append(count)
        return count - 1

    def landed_at_death(self) -> list[Frame]:
        """Return what bronze has if the process dies now: all that is committed, and maybe more."""
        least = max(self.committed, default=0)
        return self.frames[: self._rng.choice([end for end in self._ends if end >= least])]


class Run:
    """A run: several processes, of which the last one has time for all that is still to come."""

    def __init__(self, seed: int, conditions: Conditions) -> None:
        self._rng = Random(seed)
        self._conditions = conditions
        self.source = SourceModel(self._rng, conditions.wrong)
        self.sinks: list[SlowSink] = []
        """What landed of each process."""

    @classmethod
    def of(cls, seed: int, conditions: Conditions) -> Run:
        """Return the run of a seed, done."""
        run = cls(seed, conditions)
        run_in_virtual_time(run._play())
        return run

    async def _play(self) -> None:
        rng, source = self._rng, self.source

        async def opened(*_: object) -> ModelClient:
            return ModelClient(source)

        source.append(rng.randrange(8))
        if rng.random() < 0.5:
            source.subscribe(self._conditions.offset)
        with patch.object(receiver, "open_feed_client", opened):
            async with in_background(self._serve()):
                for _ in range(rng.randint(2, 4)):
                    await self._first_process()
                await self._last_process()
                if self._conditions.is_repaired:
                    await self._repair()
                    await self._last_process()

    async def _serve(self) -> None:
        while True:
            await asyncio.sleep(self._rng.choice([0.05, 0.3, 1.0]))
            self.source.deliver_some()

    async def _first_process(self) -> None:
        """Run a process to which things happen, and which stops or dies."""
        rng, source = self._rng, self.source
        for _ in range(rng.randrange(4)):
            await self._happen()
        source.failing = rng.choice(CALLS) if rng.random() < 0.5 else None
        source.delivers = rng.random() < 0.7
        source.events.append(f"a process begins; {source.failing} fails, delivers {source.delivers}")
        sink = SlowSink(rng)
        landed = None
        async with in_background(self._receive(sink)):
            for _ in range(rng.randint(1, 4)):
                await asyncio.sleep(rng.choice([0.3, 1.2, 3, 12]))
                source.delivers = source.delivers or rng.random() < 0.3
                if rng.random() < 0.7:
                    await self._happen()
            await asyncio.sleep(rng.choice([0.1, 0.6, 2]))
            if rng.random() < 0.6:
                landed = sink.landed_at_death()
                source.disconnect()
        if landed is not None:
            sink.frames = landed
        source.events.append(f"it {'stops' if landed is None else 'dies'}, {len(sink.data)} frames landed")

    async def _last_process(self) -> None:
        source = self.source
        source.failing, source.delivers, source.wrong = None, True, None
        async with in_background(self._receive(SlowSink(self._rng))):
            for _ in range(2):
                for shard in SHARDS:
                    source.append(1, shard)
                await asyncio.sleep(4.5 * ACK_SECONDS)

    async def _repair(self) -> None:
        """Delete the subscription; a process dies under the repair, and others may take some of it away again."""
        rng, source = self._rng, self.source
        source.unsubscribe()
        sink = SlowSink(rng)
        async with in_background(self._receive(sink)):
            await asyncio.sleep(rng.choice([0.3, 1.2, 3]))
            landed = sink.landed_at_death()
            source.disconnect()
        sink.frames = landed
        if source.subscription is not None and rng.random() < 0.5:
            await source.take_away(acknowledged=True)
            source.unsubscribe()

    async def _receive(self, sink: SlowSink) -> None:
        self.sinks.append(sink)
        offset = self._conditions.offset.name.lower()
        settings = feed("hstream://model", committed_seconds=1, ack_timeout_seconds=ACK_SECONDS, offset=offset)
        await epochs(receiver.HStreamReceiver(settings, {}), sink, self._resume)

    def _resume(self, epoch: int) -> Resume:
        frames = [frame for sink in self.sinks for frame in sink.frames]
        positions = [frame.source_position for frame in frames if frame.source_position is not None]
        control = [body for sink in self.sinks for body in sink.control]
        return Resume(
            epoch, {STREAM: CONNECTOR.resume_position(positions)} if positions else {}, control[-1] if control else None
        )

    async def _happen(self) -> None:
        rng, source, conditions = self._rng, self.source, self._conditions
        events = {"append": 40, "trim": 15, "disconnect": 5, "restart": 6}
        if source.subscription is not None:
            events |= {"other consumer": 20, "recreate": 7 * conditions.is_recreated}
        if conditions.has_epochs:
            events["epoch"] = 7
        match rng.choices([*events], [*events.values()])[0]:
            case "append":
                source.append(rng.randint(1, 9))
            case "trim":
                source.trim()
            case "disconnect":
                source.disconnect()
            case "restart":
                source.restart()
            case "epoch":
                source.begin_epoch()
            case "other consumer":
                source.append(rng.randint(1, 5))
                await source.take_away(acknowledged=conditions.has_thieves and rng.random() < 0.7)
            case "recreate":
                source.unsubscribe()
                if rng.random() < 0.5:
                    ends = {SpecialOffset.EARLIEST, conditions.offset}
                    source.subscribe(rng.choice(sorted(ends)))
