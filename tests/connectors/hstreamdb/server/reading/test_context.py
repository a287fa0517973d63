"""Readings of a subscription in virtual time: whatever consumers, acks and nodes do, nothing is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType
from silverfold.connectors.hstreamdb.protocol.messages.streams import Stream
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Subscription
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, RebuiltWindow
from silverfold.connectors.hstreamdb.server.reading.consumers import ConsumerBuffer
from silverfold.connectors.hstreamdb.server.reading.context import ReadingContext
from silverfold.connectors.hstreamdb.server.refusals import Refusal
from silverfold.connectors.hstreamdb.server.store.store import Store, StoredSubscription, StoreLimits
from tests.support.hstreamdb.batches import numbered, numbers_in
from tests.support.hstreamdb.virtual_time import run_in_virtual_time

TIMEOUT = 5


class Scene:
    """A subscription of some shards, its context, and consumers that acknowledge by chance."""

    def __init__(self, shards: int, seed: int, options: ClusterOptions, limit: int = 1000) -> None:
        self.chance = Random(seed)
        self.store = Store(StoreLimits(), clock=lambda: 1_700_000_000.0, chance=Random(1))
        self.shards = list(
            self.store.create_stream(Stream(stream_name="s", replication_factor=1, shard_count=shards)).logs
        )
        wanted = Subscription(
            subscription_id="sub", stream_name="s", ack_timeout_seconds=TIMEOUT, max_unacked_records=limit
        )
        self.subscription: StoredSubscription = self.store.create_subscription(wanted)
        self.options = options
        self.context = self.new_context()
        self.appended: dict[RecordId, int] = {}
        self.received: dict[RecordId, int] = {}
        self.acknowledged = set[RecordId]()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def new_context(self) -> ReadingContext:
        context = ReadingContext(self.subscription, self.options)
        self.store.listeners.add(context.notice)
        context.start()
        return context

    def append(self) -> None:
        shard, size = self.chance.choice(self.shards), self.chance.randint(1, 4)
        numbers = range(len(self.appended), len(self.appended) + size)
        lsn = self.store.append(shard, numbered(numbers, self.chance.choice(list(CompressionType))))
        self.appended |= {RecordId(shard, lsn, index): number for index, number in enumerate(numbers)}

    def come(self, name: str, *, acks: float = 1.0) -> None:
        self.tasks[name] = asyncio.create_task(self._consume(name, acks))

    async def go(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def rebuild(self) -> None:
        """Let the node die: all consumers are cut, the context is built again from what was stored."""
        for name in list(self.tasks):
            await self.go(name)
        await self.context.close()
        self.store.listeners.discard(self.context.notice)
        self.context = self.new_context()

    async def close(self) -> None:
        for name in list(self.tasks):
            await self.go(name)
        await self.context.close()

    async def _consume(self, name: str, acks: float) -> None:
        consumer = ConsumerBuffer(name, "", "", buffer=4)
        self.context.join(consumer)
        context = self.context
        try:
            while True:
                found = numbers_in(await consumer.next_frame())
                self.received |= found
                acked = [each for each in found if self.chance.random() < acks]
                self.acknowledged |= set(acked)
                context.acknowledge(acked)
                self.check()
        finally:
            context.leave(consumer)

    def check(self) -> None:
        for shard, checkpoint in self.subscription.checkpoints.items():
            below = {each for each in self.appended if each.shard_id == shard and each.batch_id <= checkpoint}
            assert below <= self.acknowledged


STEPS = st.lists(
    st.sampled_from(["append", "append", "come", "go", "wait", "long", "rebuild", "epoch"]), min_size=5, max_size=40
)


@pytest.mark.parametrize("window", list(RebuiltWindow))
@given(steps=STEPS, shards=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_every_record_arrives_and_no_checkpoint_passes_one_without_an_ack(
    window: RebuiltWindow, steps: list[str], shards: int, seed: int
) -> None:
    async def play() -> None:
        scene = Scene(shards, seed, ClusterOptions(rebuilt_window=window), limit=20)
        for number, step in enumerate(steps):
            match step:
                case "append":
                    scene.append()
                case "come":
                    scene.come(f"c{number}", acks=scene.chance.choice([0.0, 0.6, 0.9]))
                case "go" if scene.tasks:
                    await scene.go(scene.chance.choice(list(scene.tasks)))
                case "wait":
                    await asyncio.sleep(scene.chance.random())
                case "long":
                    await asyncio.sleep(TIMEOUT + 1)
                case "rebuild":
                    await scene.rebuild()
                case "epoch":
                    scene.store.shard(scene.chance.choice(scene.shards)).begin_epoch()
        for name in list(scene.tasks):
            await scene.go(name)
        scene.come("last")
        await asyncio.sleep(20 * TIMEOUT)
        assert scene.received == scene.appended
        assert scene.acknowledged == scene.appended.keys()
        scene.check()
        await scene.close()

    run_in_virtual_time(play())


def test_the_first_frame_comes_after_the_first_assignment() -> None:
    async def play() -> float:
        scene = Scene(1, 0, ClusterOptions())
        scene.append()
        scene.come("a")
        while not scene.received:
            await asyncio.sleep(0.01)
        await scene.close()
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(play()) == pytest.approx(1.0, abs=0.1)


def test_a_consumer_that_does_not_take_its_frames_stops_the_others() -> None:
    async def play() -> tuple[int, int]:
        scene = Scene(2, 0, ClusterOptions())
        stalled = ConsumerBuffer("a", "", "", buffer=2)
        scene.context.join(stalled)
        scene.come("b")
        await asyncio.sleep(2)
        for _ in range(60):
            scene.append()
        await asyncio.sleep(60)
        blocked = len(scene.received)
        scene.context.leave(stalled)
        await asyncio.sleep(60)
        await scene.close()
        return blocked, len(scene.appended) - len(scene.received)

    blocked, missing = run_in_virtual_time(play())
    assert blocked < 60
    assert missing == 0


def test_a_context_that_is_stopped_takes_no_consumer() -> None:
    async def play() -> None:
        scene = Scene(1, 0, ClusterOptions())
        await scene.context.stop()
        with pytest.raises(Refusal, match="SubscriptionInvalidError"):
            scene.context.join(ConsumerBuffer("a", "", "", buffer=1))

    run_in_virtual_time(play())
