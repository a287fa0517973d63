"""The reading of a subscription on one node: one loop sends, one sends again, one assigns.

All of it belongs to this node. A second node that is asked builds its own, and delivers everything a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final

import structlog

from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, StreamingFetchResponse
from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server import refusals
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, RebuiltWindow
from silverfold.connectors.hstreamdb.server.reading.consumers import Assignment, ConsumerBuffer
from silverfold.connectors.hstreamdb.server.reading.cursors import received_record
from silverfold.connectors.hstreamdb.server.reading.delivery_state import DeliveryState
from silverfold.connectors.hstreamdb.server.reading.redelivery import DueRecords, pick_records
from silverfold.connectors.hstreamdb.server.store.log import Gap, LogEntry
from silverfold.connectors.hstreamdb.server.store.store import StoredSubscription

_BATCHES_OF_A_ROUND: Final = 100

_log = structlog.get_logger("hstreamdb.server")


class ContextState(Enum):
    """State of a context."""

    RUNNING = auto()
    STOPPING = auto()
    STOPPED = auto()


class ReadingContext:
    """Delivers a subscription to its consumers until it is closed."""

    def __init__(self, subscription: StoredSubscription, options: ClusterOptions) -> None:
        self.subscription = subscription
        self.state = ContextState.RUNNING
        self.consumers: dict[str, ConsumerBuffer] = {}
        self._options, self._ticks = options, options.ticks
        self._assignment = Assignment(subscription.starts)
        self._delivery = DeliveryState(
            {shard: self._bound(shard) for shard in subscription.starts},
            max_unacked=subscription.settings.max_unacked_records,
            timeout=subscription.settings.ack_timeout_seconds,
        )
        self._next: dict[int, int] = {}
        """The next LSN of each shard that was assigned once."""
        self._changed, self._has_read = asyncio.Event(), asyncio.Event()
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start its loops."""
        self._delivery.tick(asyncio.get_running_loop().time())
        self._task = asyncio.create_task(self._run())

    def notice(self) -> None:
        """Wake the loops: something has changed."""
        self._changed.set()

    def join(self, consumer: ConsumerBuffer) -> None:
        """Add a consumer. Raises Refusal if its name is taken, or the context is stopping."""
        if self.state is not ContextState.RUNNING:
            raise refusals.invalid_subscription()
        if consumer.name in self.consumers:
            raise refusals.consumer_exists(extra=consumer.name)
        self.consumers[consumer.name] = consumer
        self._assignment.join(consumer.name)
        self.notice()

    def leave(self, consumer: ConsumerBuffer) -> None:
        """Remove a consumer, if it is still there."""
        consumer.close()
        if self.consumers.get(consumer.name) is consumer:
            del self.consumers[consumer.name]
            self._assignment.leave(consumer.name)
            self.notice()

    def acknowledge(self, ids: Iterable[RecordId]) -> None:
        """Acknowledge the records of one request, and store what is whole. Raises UnknownShard."""
        self.subscription.checkpoints.update(self._delivery.acknowledge(ids))
        self.notice()

    async def stopping(self) -> None:
        """Return once the context is stopped for its consumers."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """End the calls of all consumers; return when the last one is gone."""
        self.state = ContextState.STOPPING
        self._stopped.set()
        for each in [each for each in self.consumers.values() if not each.is_open]:
            self.leave(each)
        while self.consumers:
            await self._change()
        self.state = ContextState.STOPPED
        await self.close()

    async def close(self) -> None:
        """End the loops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _bound(self, shard: int) -> int:
        checkpoint = self.subscription.checkpoints.get(shard)
        if checkpoint is None or self._options.rebuilt_window is RebuiltWindow.AS_PUBLISHED:
            return self.subscription.starts[shard]
        return checkpoint + 1

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._send())
                loops.create_task(self._send_again())
                loops.create_task(self._assign())
        except* Exception:
            _log.exception("context_failed", subscription=self.subscription.id)
            self.state = ContextState.STOPPED

    async def _send(self) -> None:
        await asyncio.sleep(self._ticks.start_delay)
        while True:
            while not (self.consumers and self._delivery.may_read):
                await self._change()
            self._assignment.balance()
            batches = self._read()
            self._has_read.set()
            if not batches:
                await self._change(self._ticks.read_wait)
            missed = set[int]()
            for shard, entry in batches:
                if shard not in missed and not await self._deliver(shard, entry):
                    missed.add(shard)
                    self._next[shard] = entry.lsn

    def _read(self) -> Sequence[tuple[int, LogEntry]]:
        """Return batches of all shards that have an owner, in turn; note them, and the gaps before them."""
        found: list[tuple[int, LogEntry]] = []
        ready = list(self._assignment.owners)
        for shard in ready:
            start = self.subscription.checkpoints.get(shard, self.subscription.starts[shard] - 1) + 1
            self._next.setdefault(shard, start)
        while ready and len(found) < _BATCHES_OF_A_ROUND:
            shard = ready.pop(0)
            if entry := self._read_next(shard):
                found.append((shard, entry))
                ready.append(shard)
        return found

    def _read_next(self, shard: int) -> LogEntry | None:
        window = self._delivery.windows[shard]
        while found := self.subscription.logs[shard].read(self._next[shard]):
            if isinstance(found, Gap):
                window.gap(found.first, found.last)
                self._next[shard] = found.last + 1
                continue
            window.read(found.lsn, found.size)
            self._next[shard] = found.lsn + 1
            return found
        return None

    async def _deliver(self, shard: int, entry: LogEntry) -> bool:
        frame = _frame(shard, entry.lsn, range(entry.size), entry.stored)
        if not await self._write(shard, frame):
            return False
        self._delivery.sent(shard, entry.lsn, entry.size)
        return True

    async def _write(self, shard: int, frame: bytes) -> bool:
        consumer = self.consumers.get(self._assignment.owners.get(shard, ""))
        if consumer is None:
            return False
        is_written = await consumer.write(frame)
        if not is_written:
            self.leave(consumer)
        return is_written

    async def _send_again(self) -> None:
        await self._has_read.wait()
        while True:
            await asyncio.sleep(self._ticks.resend)
            for due in self._delivery.tick(asyncio.get_running_loop().time()):
                await self._deliver_again(due)

    async def _deliver_again(self, due: DueRecords) -> None:
        """Send the rest of a batch to the shard's owner. If it cannot be read again, it is never sent again here."""
        entry = self.subscription.logs[due.shard].read_again(due.batch)
        indexes = sorted(due.indexes)
        rest = None if entry is None else pick_records(BatchedRecord.FromString(entry.stored), indexes)
        if rest is None:
            _log.warning("batch_unreadable", shard=due.shard, batch=due.batch)
            return
        self._delivery.sent_again(due.shard, due.batch, indexes)
        await self._write(due.shard, _frame(due.shard, due.batch, indexes, rest.SerializeToString()))

    async def _assign(self) -> None:
        await self._has_read.wait()
        while True:
            await asyncio.sleep(self._ticks.assign)
            self._assignment.assign()
            self.notice()

    async def _change(self, seconds: float | None = None) -> None:
        """Wait until something changed, or some seconds are over."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()


def _frame(shard: int, batch: int, indexes: Sequence[int], stored: bytes) -> bytes:
    return StreamingFetchResponse(received_records=received_record(shard, batch, indexes, stored)).SerializeToString()
