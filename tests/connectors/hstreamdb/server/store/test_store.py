"""The store: ids of shards, logs with gaps and bounds, and offsets."""

from __future__ import annotations

from random import Random

import pytest

from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord
from silverfold.connectors.hstreamdb.protocol.messages.offsets import (
    ShardOffset,
    SpecialOffset,
    StreamOffset,
    TimestampOffset,
)
from silverfold.connectors.hstreamdb.protocol.messages.streams import Stream
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server.refusals import Refusal
from silverfold.connectors.hstreamdb.server.store.log import Gap, LogEntry, ShardLog
from silverfold.connectors.hstreamdb.server.store.offsets import end_lsn, start_lsn
from silverfold.connectors.hstreamdb.server.store.store import Store, StoreLimits

FIRST = (2 << 32) + 1
START = 1_700_000_000.0


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


def a_store(clock: Clock | None = None, **limits: int) -> Store:
    return Store(StoreLimits(**limits), clock=clock or Clock(), chance=Random(1))


def shards_of(store: Store, count: int = 1, retention: int = 0) -> list[ShardLog]:
    wanted = Stream(stream_name="s", replication_factor=1, shard_count=count, backlog_duration=retention)
    return list(store.create_stream(wanted).logs.values())


def a_batch(payload: bytes = b"x") -> BatchedRecord:
    return BatchedRecord(batch_size=1, payload=payload)


def left(log: ShardLog) -> list[int]:
    found, at = [], 1
    while entry := log.read(at):
        if isinstance(entry, LogEntry):
            found.append(entry.lsn)
        at = (entry.lsn if isinstance(entry, LogEntry) else entry.last) + 1
    return found


def test_ids_of_shards_are_the_seconds_since_2020_and_chance() -> None:
    logs = shards_of(a_store(), 1000)
    assert len({each.shard_id for each in logs}) == 1000
    assert {each.shard_id >> 24 for each in logs} == {1_700_000_000 - 1_577_836_800}


def test_a_gap_reaches_to_the_next_batch_or_the_tail() -> None:
    store = a_store()
    (log,) = shards_of(store)
    assert log.read(1) == Gap(1, FIRST - 1)
    assert log.read(FIRST) is None
    store.append(log.shard_id, a_batch())
    assert log.read(1) == Gap(1, FIRST - 1)
    log.begin_epoch()
    assert log.read(FIRST + 1) == Gap(FIRST + 1, 3 << 32)
    assert store.append(log.shard_id, a_batch()) == (3 << 32) + 1


def test_the_fullest_shard_loses_its_oldest_batches() -> None:
    store = a_store(max_bytes=1000)
    small, full = shards_of(store, 2)
    store.append(small.shard_id, a_batch())
    for _ in range(20):
        store.append(full.shard_id, a_batch(bytes(100)))
    assert small.bytes + full.bytes <= 1000
    assert left(small) == [FIRST]
    assert left(full) == [FIRST + number for number in range(12, 20)]


def test_batches_expire_by_their_age() -> None:
    clock = Clock()
    store = a_store(clock)
    (log,) = shards_of(store, retention=10)
    for _ in range(5):
        store.append(log.shard_id, a_batch())
        clock.now += 4
    assert left(log) == [FIRST + 3, FIRST + 4]
    assert log.bytes == sum(
        len(entry.stored) for entry in (log.read_again(FIRST + 3), log.read_again(FIRST + 4)) if entry
    )
    assert log.read_again(FIRST) is None


def test_the_time_of_a_batch_is_that_of_its_append_whatever_its_producer_set() -> None:
    store = a_store()
    (log,) = shards_of(store)
    batch = a_batch()
    batch.publish_time.FromNanoseconds(5)
    store.append(log.shard_id, batch)
    entry = log.read_again(FIRST)
    assert entry is not None
    assert BatchedRecord.FromString(entry.stored).publish_time.ToNanoseconds() == int(START) * 10**9


def test_offsets_are_inclusive_as_start_and_as_end() -> None:
    clock = Clock()
    store = a_store(clock)
    (log,) = shards_of(store)
    for _ in range(3):
        store.append(log.shard_id, a_batch())
        clock.now += 1

    def ends(**offset: object) -> tuple[int, int]:
        given = ShardOffset(**offset)  # type: ignore[arg-type]  # one member
        return start_lsn(log, given), end_lsn(log, given)

    assert ends(special_offset=SpecialOffset.EARLIEST) == (1, 1)
    assert ends(special_offset=SpecialOffset.LATEST) == (FIRST + 3, FIRST + 2)
    assert ends(record_offset=RecordId(log.shard_id, FIRST + 1, 9).to_message()) == (FIRST + 1, FIRST + 1)
    millis = int(START) * 1000
    assert ends(timestamp_offset=TimestampOffset(timestamp_in_ms=millis + 1000)) == (FIRST + 1, FIRST + 1)
    assert ends(timestamp_offset=TimestampOffset(timestamp_in_ms=millis + 1500)) == (FIRST + 2, FIRST + 1)
    assert ends(timestamp_offset=TimestampOffset(timestamp_in_ms=0)) == (FIRST, FIRST - 1)


def test_an_offset_of_another_shard_or_without_a_member_is_refused() -> None:
    (log,) = shards_of(a_store())
    with pytest.raises(Refusal, match="ConflictOffset"):
        start_lsn(log, ShardOffset(record_offset=RecordId(1, 1, 1).to_message()))
    for offset in (ShardOffset(), StreamOffset(), ShardOffset(special_offset=2)):
        with pytest.raises(Refusal, match="InvalidOffset"):
            end_lsn(log, offset)
