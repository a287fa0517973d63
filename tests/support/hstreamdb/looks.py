"""Looks at a source that answers as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.hstreamdb.client.client import Client
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.streams import Shard
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    GetSubscriptionResponse,
    Subscription,
    SubscriptionOffset,
)
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.receiver.control_frames import ControlFrames
from silverfold.connectors.hstreamdb.receiver.epoch import Epoch, ShardProgress
from silverfold.connectors.hstreamdb.receiver.gaps import Overdue
from silverfold.connectors.hstreamdb.receiver.progress import Progress
from tests.support.epochs import in_background
from tests.support.hstreamdb.landed import STREAM, feed_of
from tests.support.hstreamdb.receiving import CountingSink

OLD, NEW = 2 << 32, 3 << 32
"""Two epochs of a log, as the batches with the number 0."""
EARLIEST, LATEST = (
    Subscription(stream_name=STREAM, ack_timeout_seconds=60, creation_time=Timestamp(seconds=1), offset=offset)
    for offset in SpecialOffset
)


class Source:
    """What a client finds in the shards of a stream.

    Args:
        batches: Those that each shard has.
        ends: Its last batch, if it does not have that.
    """

    def __init__(self, batches: Mapping[int, Sequence[int]], ends: Mapping[int, int] | None = None) -> None:
        self.batches = dict(batches)
        self.ends = {shard: max(found) for shard, found in batches.items() if found} | dict(ends or {})
        self.subscription: Subscription | None = EARLIEST
        self.broken: dict[int, str] = {}
        """Which calls fail for a shard."""
        self.unlisted = set[int]()
        self.lies: dict[str, list[int]] = {"end": [], "read": [], "checkpoint": []}
        """The next answers to where a shard ends, what it has, and what is acknowledged."""
        self.checkpoints: dict[int, int] = {}

    async def get_subscription(self, _name: str) -> GetSubscriptionResponse:
        if self.subscription is None:
            raise SourceUnavailable("GetSubscription: INTERNAL")
        lies = self.lies["checkpoint"]
        points = {7: lies.pop()} if lies else self.checkpoints
        offsets = [SubscriptionOffset(shard_id=shard, batch_id=batch) for shard, batch in points.items()]
        return GetSubscriptionResponse(subscription=self.subscription, offsets=offsets)

    async def list_shards(self, _stream: str) -> list[Shard]:
        return [Shard(shard_id=shard) for shard in self.ends if shard not in self.unlisted]

    async def list_consumers(self, _name: str) -> list[Any]:
        return []

    async def log_end(self, _stream: str, shard: int) -> RecordId:
        if self.broken.get(shard) == "end":
            raise SourceUnavailable("GetTailRecordId: INTERNAL")
        return RecordId(shard, self.lies["end"].pop() if self.lies["end"] else self.ends[shard], 0)

    async def read_shard(
        self, _stream: str, shard: int, start: RecordId | SpecialOffset, *, max_batches: int
    ) -> AsyncIterator[FetchedFrame]:
        if self.broken.get(shard) == "read":
            raise SourceUnavailable("ReadShardStream: INTERNAL")
        if self.broken.get(shard) == "silence":
            await asyncio.Event().wait()
        if self.lies["read"]:
            yield fetched(shard, self.lies["read"].pop())
            return
        least = start.batch_id if isinstance(start, RecordId) else 0
        for batch in [each for each in sorted(self.batches[shard]) if each >= least][:max_batches]:
            yield fetched(shard, batch)


def fetched(shard: int, batch: int) -> FetchedFrame:
    """Return a frame of one record."""
    return FetchedFrame(b"", [RecordId(shard, batch, 0)])


class Looks:
    """A receiver's looks at a source, and what landed of them.

    Args:
        landed: The newest batch of each shard that has landed before.
        guessed: Shards of which that batch is a guess.
        overdue: Of an earlier epoch.
    """

    def __init__(
        self,
        source: Source,
        landed: Mapping[int, int] | None = None,
        subscription: Subscription = EARLIEST,
        *,
        guessed: Collection[int] = (),
        overdue: Overdue | None = None,
    ) -> None:
        options = feed_of().options.model_copy(update={"committed_seconds": 0.01})
        self.sink, self.now = CountingSink(), 0.0
        self.control = ControlFrames(options, subscription, None)
        self.epoch = Epoch(
            STREAM,
            {
                shard: ShardProgress(batch, has_begun=True, is_guess=shard in guessed)
                for shard, batch in (landed or {}).items()
            },
        )
        self.progress = Progress(
            cast("Client", source),
            options,
            self.epoch,
            self.control,
            subscription=subscription,
            overdue=overdue or Overdue(),
            feed="feed",
            ours="feed-1",
            clock=lambda: self.now,
        )

    def take(self, shard: int, batches: Iterable[int]) -> None:
        for batch in batches:
            self.sink.take(self.progress.frames(fetched(shard, batch), "consumer"))

    def run(self) -> Any:
        return in_background(self.progress.run(self.sink, lambda: 0))
