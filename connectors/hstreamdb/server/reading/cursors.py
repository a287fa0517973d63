"""Reading of logs with cursors, without acknowledgement: batches in turn, and the wait for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, ReceivedRecord
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server.store.log import Gap, LogEntry, ShardLog
from silverfold.connectors.hstreamdb.server.store.store import Store

BATCHES_OF_AN_ANSWER: Final = 10
_WAIT: Final = 60.0


@dataclass
class LogCursor:
    """A position in a log that moves as batches are read.

    Args:
        next: The next LSN.
        end: The last LSN to read; None for no end.
        stops_at_loss: Whether nothing is read past a batch that was lost.
    """

    log: ShardLog
    next: int
    end: int | None = None
    stops_at_loss: bool = False

    @property
    def is_over(self) -> bool:
        """Whether all was read."""
        return self.end is not None and self.next > self.end

    def read(self) -> LogEntry | Gap | None:
        """Return the next batch, or the gap before it, and go on; None if there is nothing now."""
        found = None if self.is_over else self.log.read(self.next)
        if found is not None:
            self.next = (found.last if isinstance(found, Gap) else found.lsn) + 1
        return found

    def read_batch(self) -> LogEntry | None:
        """Return the next batch, and go on; gaps are skipped."""
        found: LogEntry | Gap | None = Gap(0, 0)
        while isinstance(found, Gap):
            stops = self.stops_at_loss and self.log.loss_at(self.next) is not None
            found = None if stops else self.read()
        return found


async def next_batches(
    store: Store, cursors: Sequence[LogCursor], most: int, seconds: float = _WAIT
) -> list[ReceivedRecord]:
    """Return the next batches of some logs, in turn. Waits while there is none; empty if there will be none.

    Args:
        most: Number of batches to return.
        seconds: Longest wait.
    """
    changed = asyncio.Event()
    store.listeners.add(changed.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (found := _read(cursors, most)) and not all(each.is_over for each in cursors):
                    await changed.wait()
                    changed.clear()
    finally:
        store.listeners.discard(changed.set)
    return found


async def all_batches(store: Store, cursors: Sequence[LogCursor], most: int) -> AsyncIterator[list[ReceivedRecord]]:
    """Yield batches of some logs, a few at once, until all is read.

    Args:
        most: Number of batches after which it ends; 0 for no limit.
    """
    read = 0
    while not all(each.is_over for each in cursors) and (not most or read < most):
        few = min(BATCHES_OF_AN_ANSWER, most - read) if most else BATCHES_OF_AN_ANSWER
        if found := await next_batches(store, cursors, few):
            read += len(found)
            yield found


def _read(cursors: Sequence[LogCursor], most: int) -> list[ReceivedRecord]:
    found, ready = list[ReceivedRecord](), list(cursors)
    while ready and len(found) < most:
        cursor = ready.pop(0)
        if entry := cursor.read_batch():
            found.append(received_record(cursor.log.shard_id, entry.lsn, range(entry.size), entry.stored))
            ready.append(cursor)
    return found


def received_record(shard: int, batch: int, indexes: Sequence[int], stored: bytes) -> ReceivedRecord:
    """Return records of one batch with their ids; the batch is in it as stored."""
    ids = [RecordId(shard, batch, each).to_message() for each in indexes]
    return ReceivedRecord(record_ids=ids, record=BatchedRecord.FromString(stored))
