"""A model of a source: a stream of some shards, one subscription, its consumers. No socket, and no time but the loop's.

Every choice is the random generator's, so that in virtual time a seed is a whole run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from random import Random
from typing import Final

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.hstreamdb.client.fetch import AckQueue, FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.protocol.status import Status
from tests.support.hstreamdb.landed import frame_of, objects

SHARDS: Final = (70007, 80008)
ACK_SECONDS: Final = 10
"""After which a batch is sent again that is not acknowledged."""
_FIRST: Final = (2 << 32) + 1


@dataclass
class SubscriptionModel:
    """What the source knows of a subscription."""

    created: int
    """Seconds since 1970; another one's are others."""
    offset: SpecialOffset
    begins: dict[int, int]
    """The batch of each shard behind which it begins."""
    acknowledged: set[RecordId] = field(default_factory=set)
    under_way: dict[tuple[int, int], float] = field(default_factory=dict)
    """When each batch that was sent is sent again, by shard and batch."""


class Consumer:
    """A fetch of the subscription that there is now, as a receiver sees a `client.fetch.Fetch`."""

    node = "n1"

    def __init__(self, source: SourceModel, name: str, acks: AckQueue) -> None:
        assert source.subscription is not None
        self.consumer, self.acks, self.subscription = name, acks, source.subscription
        self.status: Status | None = None
        self._source = source
        self._frames: list[FetchedFrame] = []
        self._changed = asyncio.Event()
        self._sender = asyncio.create_task(self._send())
        source.consumers.append(self)

    async def _send(self) -> None:
        while True:
            self.acknowledge(await self.acks.first(100, patience=0))

    def acknowledge(self, ids: Iterable[RecordId]) -> None:
        self.subscription.acknowledged.update(ids)
        self.acks.remove(ids)

    def receive(self, frame: FetchedFrame) -> None:
        self._frames.append(frame)
        self._changed.set()

    async def next_frames(self) -> Sequence[FetchedFrame]:
        while not self._frames:
            if self.status is not None:
                raise SourceUnavailable("StreamingFetch: UNAVAILABLE")
            self._changed.clear()
            await self._changed.wait()
        frames, self._frames = self._frames, []
        return frames

    def end(self) -> None:
        """End as with a lost connection: what is not sent stays in the queue."""
        if self.status is None:
            self.status = Status("UNAVAILABLE", "")
            self._changed.set()
            self._sender.cancel()
            self._source.consumers.remove(self)

    async def close(self) -> None:
        """End as a client does that closes: it sends its acknowledgements."""
        if self.status is None and self.acks:
            self.acknowledge(await self.acks.first(len(self.acks), patience=0))
        self.end()


class SourceModel:
    """The stream, and what happens to it.

    Args:
        wrong: Kind of answer that is wrong once: ``checkpoint``, ``tail``, ``read`` or ``list``.
    """

    def __init__(self, rng: Random, wrong: str | None = None) -> None:
        self.rng, self.wrong = rng, wrong
        self.batches: dict[int, dict[int, list[int]]] = {shard: {} for shard in SHARDS}
        """The numbers in the records of each batch that was ever appended; of each shard, ascending."""
        self.trimmed = dict.fromkeys(SHARDS, 0)
        """The batch of each shard up to which it has none any more."""
        self.subscription: SubscriptionModel | None = None
        self.consumers: list[Consumer] = []
        self.failing: str | None = None
        """The call that fails half of the time."""
        self.delivers = True
        self.events: list[str] = []
        """What happened, for whoever reads a failure."""
        self._next = dict.fromkeys(SHARDS, _FIRST)
        self._numbers, self._created = count(), count(1)

    def append(self, batches: int, shard: int | None = None) -> None:
        """Append batches of one or three records; without a shard, each to any."""
        for _ in range(batches):
            chosen = shard or self.rng.choice(SHARDS)
            records = self.rng.choice([1, 1, 3])
            self.batches[chosen][self._next[chosen]] = [next(self._numbers) for _ in range(records)]
            self._next[chosen] += 1
        self.events.append(f"{batches} batches appended")

    def trim(self) -> None:
        """Drop the batches of a shard up to one of its last six."""
        shard = self.rng.choice(SHARDS)
        if self.batches[shard]:
            batch = self.rng.choice([*self.batches[shard]][-6:])
            self.trimmed[shard] = max(self.trimmed[shard], batch)
            self.events.append(f"{shard} trimmed up to {batch}")

    def begin_epoch(self) -> None:
        """Begin a new epoch of a shard's log, as another node does that takes it over."""
        shard = self.rng.choice(SHARDS)
        self._next[shard] = (((self._next[shard] >> 32) + 1) << 32) + 1
        self.events.append(f"an epoch of {shard} begins")
        self.restart()

    def disconnect(self) -> None:
        for each in [*self.consumers]:
            each.end()
        self.events.append("connections lost")

    def restart(self) -> None:
        """Forget what was sent, as a node does that restarts."""
        if self.subscription is not None:
            self.subscription.under_way.clear()
        self.disconnect()

    def subscribe(self, offset: SpecialOffset) -> None:
        begins = {shard: 0 if offset == SpecialOffset.EARLIEST else self.tail(shard) for shard in SHARDS}
        self.subscription = SubscriptionModel(next(self._created), offset, begins)
        self.events.append(f"subscription made from {offset.name}")

    def unsubscribe(self) -> None:
        self.subscription = None
        self.disconnect()
        self.events.append("subscription deleted")

    async def take_away(self, *, acknowledged: bool) -> None:
        """Let another consumer take all that is due, and acknowledge it, or of batches the first records; or die."""
        name = "console-1" if acknowledged else "feed-00000000-1"
        consumer = Consumer(self, name, AckQueue())
        if due := [*self._due()]:
            self._deliver(consumer, due)
            frames = await consumer.next_frames()
            if acknowledged:
                most = self.rng.choice([None, None, 1, 2])
                consumer.acknowledge([each for frame in frames for each in frame.ids[:most]])
        await asyncio.sleep(0.1)
        consumer.end()
        self.events.append(f"{due} {'acknowledged elsewhere' if acknowledged else 'sent to one that dies'}")

    def deliver_some(self) -> None:
        """Send a few batches to a consumer, if there is any."""
        if self.consumers and self.delivers:
            self._deliver(self.rng.choice(self.consumers), [*self._due()][: self.rng.choice([1, 3, 20])])

    def tail(self, shard: int) -> int:
        """Return the last batch of a shard, or the number 0 of its log's epoch."""
        return self._next[shard] - 1

    def stored(self, shard: int) -> list[int]:
        return [batch for batch in self.batches[shard] if batch > self.trimmed[shard]]

    def checkpoint(self, shard: int) -> int:
        """Return the batch up to which all is acknowledged or dropped; 0 if none is behind the beginning."""
        assert self.subscription is not None
        begin = self.subscription.begins[shard]
        done = takewhile(
            lambda batch: batch <= self.trimmed[shard] or not self._unacknowledged(shard, batch),
            (batch for batch in self.batches[shard] if batch > begin),
        )
        return max(done, default=0)

    def _unacknowledged(self, shard: int, batch: int) -> list[int]:
        """Return the indexes of a batch's records that are not acknowledged."""
        assert self.subscription is not None
        known = self.subscription.acknowledged
        return [at for at in range(len(self.batches[shard][batch])) if RecordId(shard, batch, at) not in known]

    def _due(self) -> Iterator[tuple[int, int]]:
        """Yield the batches to send: those that are not acknowledged, and not under way."""
        found, now = self.subscription, asyncio.get_running_loop().time()
        assert found is not None
        for shard in SHARDS:
            for batch in self.stored(shard):
                is_sent = now < found.under_way.get((shard, batch), 0)
                if batch > found.begins[shard] and not is_sent and self._unacknowledged(shard, batch):
                    yield shard, batch

    def _deliver(self, consumer: Consumer, batches: Iterable[tuple[int, int]]) -> None:
        again = asyncio.get_running_loop().time() + ACK_SECONDS
        for shard, batch in batches:
            consumer.subscription.under_way[shard, batch] = again
            indexes, numbers = self._unacknowledged(shard, batch), self.batches[shard][batch]
            records = objects(*({"id": numbers[at]} for at in indexes))
            consumer.receive(FetchedFrame.of(frame_of(records, shard=shard, batch=batch, indexes=indexes)))
