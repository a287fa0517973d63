"""Streams, shards, subscriptions and readers, shared by the nodes of a cluster. In memory; used by one event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord
from silverfold.connectors.hstreamdb.protocol.messages.offsets import ShardOffset, SpecialOffset
from silverfold.connectors.hstreamdb.protocol.messages.streams import Stream
from silverfold.connectors.hstreamdb.protocol.messages.subscriptions import Subscription
from silverfold.connectors.hstreamdb.protocol.streams import even_ranges
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.store.log import ShardLog

DELETED_STREAM: Final = "__deleted_stream__"
"""The stream of a subscription whose stream was deleted by force."""
_YEAR_2020: Final = 1_577_836_800


@dataclass(frozen=True)
class StoreLimits:
    """Bounds of the memory that clients can make the store take.

    Args:
        max_record_size: Most bytes of an encoded batch.
        max_batch_records: Most records of a batch, as its producer counts them: the answer has an id for each.
        max_shards: Most shards of a stream.
        max_bytes: Most bytes of all shards; then the fullest one loses its oldest batches.
    """

    max_record_size: int = 1 << 20
    max_batch_records: int = 1 << 20
    max_shards: int = 1_000
    max_bytes: int = 1 << 30


@dataclass
class StoredStream:
    """A stream and the logs of its shards, in the order of their keys."""

    settings: Stream
    logs: dict[int, ShardLog]


@dataclass
class StoredSubscription:
    """A subscription: where it starts in each shard, and how far it was acknowledged."""

    settings: Subscription
    logs: Mapping[int, ShardLog]
    starts: Mapping[int, int]
    checkpoints: dict[int, int] = field(default_factory=dict)
    is_being_deleted: bool = False

    @property
    def id(self) -> str:
        """Its name."""
        return self.settings.subscription_id


@dataclass(frozen=True)
class StoredReader:
    """A shard reader as created. How far it has read is known to one node only."""

    log: ShardLog
    offset: ShardOffset
    timeout_ms: int


class Store:
    """State that outlives the nodes. Methods raise `Refusal`.

    Args:
        clock: Returns the seconds since 1970.
        chance: Source of random bits for shard ids.
    """

    def __init__(self, limits: StoreLimits, *, clock: Callable[[], float], chance: Random) -> None:
        self.streams: dict[str, StoredStream] = {}
        self.shards: dict[int, ShardLog] = {}
        self.subscriptions: dict[str, StoredSubscription] = {}
        self.readers: dict[str, StoredReader] = {}
        self.allocations: dict[str, int] = {}
        """Nodes of subscriptions and readers, by the key that `MemberList.allocated` makes."""
        self.listeners = set[Callable[[], None]]()
        """Called after each append."""
        self.limits = limits
        self._clock, self._chance = clock, chance

    def create_stream(self, wanted: Stream) -> StoredStream:
        """Create a stream with its shards."""
        if not wanted.replication_factor:
            raise refusals.invalid_replica_factor()
        if not 0 < wanted.shard_count <= self.limits.max_shards:
            raise refusals.invalid_shard_count(extra=f"1 to {self.limits.max_shards}")
        if wanted.stream_name in self.streams:
            raise refusals.stream_exists(extra=wanted.stream_name)
        wanted.creation_time.FromMilliseconds(self._now_ms())
        logs = [self._new_log(wanted, key_range) for key_range in even_ranges(wanted.shard_count)]
        stream = StoredStream(wanted, {log.shard_id: log for log in logs})
        self.streams[wanted.stream_name] = stream
        return stream

    def stream(self, name: str) -> StoredStream:
        """Return a stream."""
        if name not in self.streams:
            raise refusals.stream_not_found(extra=name)
        return self.streams[name]

    def delete_stream(self, name: str, *, force: bool) -> None:
        """Delete a stream. Subscriptions of it go on with what it held, if forced."""
        stream = self.stream(name)
        reading = [each for each in self.subscriptions.values() if each.settings.stream_name == name]
        if reading and not force:
            raise refusals.found_subscription()
        for each in reading:
            each.settings.stream_name = DELETED_STREAM
        del self.streams[name]
        for shard in stream.logs:
            del self.shards[shard]

    def append(self, shard_id: int, batch: BatchedRecord) -> int:
        """Store a batch; return its LSN. The producer's number of records is not checked.

        Args:
            batch: Gets the time of the append.
        """
        log = self.shards.get(shard_id)
        if not batch.batch_size or not batch.payload:
            raise refusals.empty_batch()
        if (size := batch.ByteSize()) > self.limits.max_record_size or batch.batch_size > self.limits.max_batch_records:
            raise refusals.too_large(extra=size)
        if log is None:
            raise refusals.unavailable(f"shard {shard_id} has no log")
        now = self._now_ms()
        batch.publish_time.FromMilliseconds(now)
        lsn = log.append(batch.SerializeToString(), batch.batch_size, now)
        while sum(each.bytes for each in self.shards.values()) > self.limits.max_bytes:
            max(self.shards.values(), key=lambda each: each.bytes).drop_oldest()
        for notify in list(self.listeners):
            notify()
        return lsn

    def create_subscription(self, wanted: Subscription) -> StoredSubscription:
        """Create a subscription; it starts where the stream is now."""
        stream = self.streams.get(wanted.stream_name)
        if stream is None:
            raise refusals.non_existent_stream(extra=wanted.stream_name)
        if wanted.offset not in list(SpecialOffset):
            raise refusals.invalid_subscription_offset(extra=str(wanted.offset))
        if wanted.subscription_id in self.subscriptions:
            raise refusals.subscription_exists(extra=wanted.subscription_id)
        wanted.creation_time.FromMilliseconds(self._now_ms())
        is_earliest = wanted.offset == SpecialOffset.EARLIEST
        starts = {shard: 1 if is_earliest else log.tail + 1 for shard, log in stream.logs.items()}
        subscription = StoredSubscription(wanted, dict(stream.logs), starts)
        self.subscriptions[wanted.subscription_id] = subscription
        return subscription

    def subscription(self, name: str) -> StoredSubscription:
        """Return a subscription."""
        if name not in self.subscriptions:
            raise refusals.subscription_not_found(extra=name)
        return self.subscriptions[name]

    def shard(self, shard_id: int) -> ShardLog:
        """Return the log of a shard."""
        if shard_id not in self.shards:
            raise refusals.shard_not_found(extra=str(shard_id))
        return self.shards[shard_id]

    def logs_of(self, stream: str) -> Iterable[ShardLog]:
        """Return the logs of a stream, in the order of their keys."""
        return self.stream(stream).logs.values()

    def _new_log(self, stream: Stream, key_range: tuple[int, int]) -> ShardLog:
        shard_id = self._new_shard_id()
        while shard_id in self.shards:
            shard_id = self._new_shard_id()
        log = self.shards[shard_id] = ShardLog(
            shard_id,
            stream.stream_name,
            key_range,
            retention=stream.backlog_duration,
            clock=self._clock,
        )
        return log

    def _new_shard_id(self) -> int:
        """Return the seconds since 2020, some bits of the nanoseconds, and chance."""
        nanos = int(self._clock() * 1_000_000_000)
        seconds = nanos // 1_000_000_000 - _YEAR_2020
        return (seconds << 24) | ((nanos & 0xFF) << 16) | self._chance.getrandbits(16)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
