"""A client of a modeled source, as a receiver sees one. Its answers take time, may fail, and may be wrong once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Self

from google.protobuf.timestamp_pb2 import Timestamp

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.connectors.hstreamdb.client.fetch import AckQueue, FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.streams import Shard
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import (
    GetSubscriptionResponse,
    Subscription,
    SubscriptionOffset,
)
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from tests.support.hstreamdb.landed import STREAM
from tests.support.hstreamdb.looks import OLD, fetched
from tests.support.hstreamdb.source_model import ACK_SECONDS, SHARDS, Consumer, SourceModel, SubscriptionModel

CALLS = ("GetSubscription", "ListShards", "GetTailRecordId", "ReadShardStream", "StreamingFetch")
"""Those that may fail."""


class ModelClient:
    """What a receiver calls of a `client.client.Client`."""

    def __init__(self, source: SourceModel) -> None:
        self._source, self._rng = source, source.rng
        self._fetches: list[Consumer] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._fetches:
            await each.close()

    async def _answers(self, call: str) -> None:
        await asyncio.sleep(self._rng.choice([0.001, 0.001, 0.2]))
        if call == self._source.failing and self._rng.random() < 0.5:
            raise SourceUnavailable(f"{call}: INTERNAL")

    def _is_wrong(self, kind: str, shard: int) -> bool:
        if self._source.wrong != kind or self._rng.random() < 0.8:
            return False
        self._source.wrong = None
        self._source.events.append(f"wrong {kind} of {shard}")
        return True

    async def has_subscription(self, _name: str) -> bool:
        await self._answers("GetSubscription")
        return self._source.subscription is not None

    async def create_subscription(self, *_: object, offset: SpecialOffset, **_settings: object) -> None:
        await self._answers("GetSubscription")
        if self._source.subscription is None:
            self._source.subscribe(offset)

    async def get_subscription(self, _name: str) -> GetSubscriptionResponse:
        await self._answers("GetSubscription")
        found = self._subscription()
        points = {shard: self._source.checkpoint(shard) for shard in SHARDS}
        shard = self._rng.choice(SHARDS)
        if self._is_wrong("checkpoint", shard):
            points[shard] = self._rng.randint(OLD, self._source.tail(shard) + 2)
        subscription = Subscription(
            stream_name=STREAM,
            subscription_id="feed",
            ack_timeout_seconds=ACK_SECONDS,
            max_unacked_records=100_000,
            creation_time=Timestamp(seconds=found.created),
            offset=found.offset,
        )
        offsets = [SubscriptionOffset(shard_id=shard, batch_id=batch) for shard, batch in points.items() if batch]
        return GetSubscriptionResponse(subscription=subscription, offsets=offsets)

    def _subscription(self) -> SubscriptionModel:
        if self._source.subscription is None:
            raise SourceRefused(code="SubscriptionNotFound", text="deleted")
        return self._source.subscription

    async def list_shards(self, _stream: str) -> list[Shard]:
        await self._answers("ListShards")
        absent = self._rng.choice(SHARDS)
        is_wrong = self._is_wrong("list", absent)
        return [Shard(shard_id=shard) for shard in SHARDS if not (is_wrong and shard == absent)]

    async def list_consumers(self, _name: str) -> list[Any]:
        return [SimpleNamespace(name=each.consumer) for each in self._source.consumers]

    async def log_end(self, _stream: str, shard: int) -> RecordId:
        await self._answers("GetTailRecordId")
        tail = self._source.tail(shard)
        return RecordId(shard, self._rng.randint(OLD, tail + 29) if self._is_wrong("tail", shard) else tail, 0)

    async def read_shard(
        self, _stream: str, shard: int, start: RecordId | SpecialOffset, *, max_batches: int
    ) -> AsyncIterator[FetchedFrame]:
        await self._answers("ReadShardStream")
        least = start.batch_id if isinstance(start, RecordId) else OLD + 1
        found = [batch for batch in self._source.stored(shard) if batch >= least][:max_batches]
        if self._is_wrong("read", shard):
            last = self._source.tail(shard) + 19
            found = [self._rng.randint(least, last)] if least <= last and self._rng.random() < 0.6 else []
        for batch in found:
            yield fetched(shard, batch)

    async def open_fetch(self, _name: str, *, consumer_prefix: str, acks: AckQueue) -> Consumer:
        await self._answers("StreamingFetch")
        self._subscription()
        self._fetches.append(Consumer(self._source, f"{consumer_prefix}-{len(self._fetches)}", acks))
        return self._fetches[-1]
