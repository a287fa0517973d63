"""Lanes of a producer: the records of one shard or key in order, cut to batches, one batch on its way at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.hstreamdb.protocol.records import RecordId

ENTRY_COST: Final = 512
"""Memory per record besides its own bytes: its future, its entry and its slots in lists."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An encoded record, not answered yet. ``future`` gets its id; if ``is_submitted``, `flush` raises its error."""

    encoded: bytes
    key: str
    future: asyncio.Future[RecordId]
    taken_at: float
    is_submitted: bool

    @property
    def cost(self) -> int:
        """Bytes that it counts for."""
        return len(self.encoded) + ENTRY_COST

    def resolve(self, record_id: RecordId) -> None:
        """Set the id as the future's result."""
        if not self.future.done():  # who waits may have been cancelled
            self.future.set_result(record_id)

    def fail(self, error: SilverfoldError) -> None:
        """Set the future's error. asyncio does not log it if nobody awaits the future."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is complete: by its records, their bytes before compression, or the age of the first in seconds."""

    max_records: int
    max_bytes: int
    max_age: float


@dataclass(slots=True, eq=False)
class Lane:
    """Records of one shard or key that were taken and not answered yet, in order."""

    shard_id: int
    limits: BatchLimits
    pending: deque[Entry] = field(default_factory=deque)
    sending: list[Entry] = field(default_factory=list)
    """The batch on its way."""
    _pending_bytes: int = 0
    _taken: int = 0
    _answered: int = 0
    _flushes: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)
    _is_hurried: bool = False
    _due: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, entry: Entry) -> bool:
        """Take a record. Return whether the caller should let other tasks run: once in ``max_records``."""
        self.pending.append(entry)
        self._pending_bytes += len(entry.encoded)
        self._taken += 1
        if self._is_full():
            self._due.set()
        return self._taken % self.limits.max_records == 0

    def flush(self) -> asyncio.Future[None]:
        """Return a future that is done once all records taken so far are answered. They are sent without delay."""
        flushed = asyncio.get_running_loop().create_future()
        self._flushes.append((self._taken, flushed))
        self._due.set()
        return flushed

    def hurry(self) -> None:
        """Send the next batch as it is: there is no room for further records to wait for."""
        self._is_hurried = True
        self._due.set()

    async def next_batch(self) -> list[Entry]:
        """Return the next batch once it is full, or old enough, or need not wait. There must be a pending record."""
        if not (self._is_full() or self._flushes or self._is_hurried):
            self._due.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self.pending[0].taken_at + self.limits.max_age):
                    await self._due.wait()
        self.sending = batch = [self.pending.popleft()]
        size = len(batch[0].encoded)
        while self.pending and len(batch) < self.limits.max_records:
            if size + len(self.pending[0].encoded) > self.limits.max_bytes:
                break
            batch.append(self.pending.popleft())
            size += len(batch[-1].encoded)
        self._pending_bytes -= size
        self._is_hurried = False
        return batch

    def settle(self, count: int) -> None:
        """Note that the oldest ``count`` records were answered or failed."""
        self.sending = []
        self._answered += count
        while self._flushes and self._flushes[0][0] <= self._answered:
            _, flushed = self._flushes.popleft()
            if not flushed.done():
                flushed.set_result(None)

    def _is_full(self) -> bool:
        return len(self.pending) >= self.limits.max_records or self._pending_bytes >= self.limits.max_bytes
