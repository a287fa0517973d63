"""Serves one client of a table server: reads its requests, sends its subscriptions, drops it when it is too slow.

Three tasks share two queues::

    socket ─▶ read ─▶ work queue ─▶ work ─▶ frame queue (msg_queue_size) ─▶ send ─▶ socket
                 tables ──▶┘

Requests and updates are processed in order of arrival. Only one request is queued at a time, so that a client cannot
pile them up. Frames are built only as fast as the frame queue drains. Updates pending for it are shared with all
clients and bounded in bytes. Large updates are encoded in other threads, piece by piece.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from silverfold.conf.errors import InvalidValue, LocalProtocolError, RemoteProtocolError, SourceRefused
from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.deephaven.protocol.messages import (
    Request,
    SubscribeMode,
    TableSubscribe,
    TableUnsubscribe,
    UnreadableSubscribe,
)
from silverfold.connectors.deephaven.server.publication import Publication
from silverfold.connectors.deephaven.server.session import ServerSession
from silverfold.connectors.deephaven.server.table_subscription import TableSubscription
from silverfold.connectors.deephaven.server.tables.rows import NetChange, Rows

_RECEIVED_AT_ONCE = 1 << 16
_SENT_AT_ONCE = 1 << 18
_BATCH_BYTES = 1 << 20
_LIGHT_BYTES, _LIGHT_CELLS = 1 << 17, 1 << 12
"""Rows up to this size are encoded inline; more would hold up other clients."""
_SMALLEST_BACKLOG = 1 << 24

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Limits:
    """Limits of a client's backlog.

    Args:
        msg_queue_size: Frames queued for the client.
        msg_buffer_size: Longest message in bytes.
        send_wait_time_millis: How long to wait for room in the full queue before the client is dropped.
    """

    msg_queue_size: int = 1000
    msg_buffer_size: int = 65_536
    send_wait_time_millis: int = 5000

    @property
    def send_wait(self) -> float:
        """`send_wait_time_millis` in seconds."""
        return self.send_wait_time_millis / 1000

    @property
    def backlog(self) -> int:
        """Bytes of updates that may be pending for the frame queue: as much as that queue may hold, at least 16 MiB."""
        return max(_SMALLEST_BACKLOG, self.msg_queue_size * self.msg_buffer_size)


class TooSlow(RemoteProtocolError):
    """The client does not drain its queue in time."""


class _RequestWork(NamedTuple):
    request: Request
    done: asyncio.Event


class _UpdateWork(NamedTuple):
    subscription: TableSubscription
    delta: NetChange
    size: int


_Work: TypeAlias = _RequestWork | _UpdateWork


class ServedClient:
    """One connection. Everything except `_deliver` runs in the server's event loop."""

    def __init__(
        self,
        connection: socket.socket,
        session: ServerSession,
        limits: Limits,
        encoders: Executor,
    ) -> None:
        self._connection = connection
        self._session = session
        self._limits = limits
        self._encoders = encoders
        self._loop = asyncio.get_running_loop()
        self._subscriptions: dict[int, TableSubscription] = {}
        self._work: asyncio.Queue[_Work] = asyncio.Queue()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(limits.msg_queue_size)
        self._pending_bytes = 0
        self._overdue: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def serve(self) -> None:
        """Serve until the connection is closed, by either side. Raise the error that ended it."""
        try:
            await until_first_ends(self._read(), self._process_work(), self._send(), self._ended)
        finally:
            self._end()

    def disconnect(self) -> None:
        """End the connection in whatever state; `serve` returns soon after."""
        if not self._ended.done():
            self._ended.set_result(None)

    def _end(self) -> None:
        for subscription in self._subscriptions.values():
            self._close(subscription)
        if self._overdue is not None:
            self._overdue.cancel()
        self._connection.close()

    async def _read(self) -> None:
        while chunk := await self._loop.sock_recv(self._connection, _RECEIVED_AT_ONCE):
            self._session.receive(chunk)
            while (request := self._session.next_request()) is not None:
                work = _RequestWork(request, asyncio.Event())
                self._work.put_nowait(work)
                await work.done.wait()

    async def _send(self) -> None:
        while True:
            batch = [await self._frames.get()]
            size = len(batch[0])
            while size < _SENT_AT_ONCE and not self._frames.empty():
                batch.append(self._frames.get_nowait())
                size += len(batch[-1])
            await self._loop.sock_sendall(self._connection, b"".join(batch))

    async def _process_work(self) -> None:
        await self._queue(self._session.greeting())
        while True:
            work = await self._work.get()
            if isinstance(work, _RequestWork):
                await self._answer(work.request)
                work.done.set()
            else:
                await self._publish_update(work)
            await asyncio.sleep(0)  # getting from a non-empty queue does not yield to other tasks

    async def _answer(self, request: Request) -> None:
        if isinstance(request, TableUnsubscribe):
            answer, publication = self._session.unsubscribe(request)
            if publication is not None:
                self._close(self._subscriptions.pop(publication.id))
            await self._queue(answer)
        else:
            await self._subscribe(request)

    async def _subscribe(self, request: TableSubscribe | UnreadableSubscribe) -> None:
        answer, publication = self._session.subscribe(request)
        if publication is None:
            await self._queue(answer)
        elif publication.mode is SubscribeMode.SNAPSHOT_ONLY:
            await self._queue(answer)
            found = await self._in_thread(lambda: publication.table.snapshot(publication.snapshot_columns))
            await self._publish(publication, publication.snapshot(found.rows), light=_is_light(found.rows))
            self._session.end(publication)
        elif publication.mode is SubscribeMode.UPDATES_ONLY:
            await self._in_thread(self._add_subscription(publication).open)
            await self._queue(answer)  # only now: a client that has the answer may rely on getting every later update
        else:
            await self._queue(answer)
            rows = await self._in_thread(self._add_subscription(publication).open_with_snapshot)
            await self._publish(publication, publication.snapshot(rows), light=_is_light(rows))

    def _add_subscription(self, publication: Publication) -> TableSubscription:
        subscription = self._subscriptions[publication.id] = TableSubscription(publication, self._deliver)
        return subscription

    def _close(self, subscription: TableSubscription) -> None:
        """Stop sending for a subscription; detach it from its table, which may be busy, in another thread."""
        subscription.stop()
        self._encoders.submit(subscription.detach)

    async def _publish_update(self, change: _UpdateWork) -> None:
        self._pending_bytes -= change.size
        if self._overdue is not None and self._pending_bytes <= self._limits.backlog:
            self._overdue.cancel()
            self._overdue = None
        if not change.subscription.closed:
            publication = change.subscription.publication
            await self._publish(publication, publication.update(change.delta), light=change.size < _LIGHT_BYTES)

    async def _publish(self, publication: Publication, messages: Iterator[bytes], *, light: bool) -> None:
        """Queue messages as they are built; end the subscription with an error if its rows cannot be sent."""
        try:
            while batch := _next_batch(messages) if light else await self._in_thread(lambda: _next_batch(messages)):
                for message in batch:
                    await self._queue(message)
        except (InvalidValue, LocalProtocolError, SourceRefused) as error:
            if publication.id in self._subscriptions:
                self._close(self._subscriptions.pop(publication.id))
            await self._queue(self._session.failure(publication, error))

    async def _queue(self, message: bytes | None) -> None:
        """Queue a message; None stands for one that the schema lacks."""
        if message is None:
            return
        data = self._session.encode_frame(message)
        if not self._frames.full():
            self._frames.put_nowait(data)
            return
        try:
            async with asyncio.timeout(self._limits.send_wait):
                await self._frames.put(data)
        except TimeoutError:
            raise TooSlow(f"its queue was full for {self._limits.send_wait_time_millis} ms") from None

    def _deliver(self, subscription: TableSubscription, delta: NetChange) -> None:
        """Take an update. Called in the updating thread."""
        change = _UpdateWork(subscription, delta, delta.size)
        with suppress(RuntimeError):  # the loop is closed: the server ended while a table was changing
            self._loop.call_soon_threadsafe(self._enqueue, change)

    def _enqueue(self, change: _UpdateWork) -> None:
        if change.subscription.closed or self._ended.done():
            return
        if self._pending_bytes > 2 * self._limits.backlog:
            self._drop("more than twice the backlog")
        elif self._pending_bytes > self._limits.backlog and self._overdue is None:
            self._overdue = self._loop.call_later(self._limits.send_wait, self._check_backlog)
        self._pending_bytes += change.size
        self._work.put_nowait(change)

    def _check_backlog(self) -> None:
        self._overdue = None
        if self._pending_bytes > self._limits.backlog:
            self._drop(f"more than the backlog for {self._limits.send_wait_time_millis} ms")

    def _drop(self, why: str) -> None:
        if not self._ended.done():
            bound = f"{why}, {self._limits.backlog} bytes by its queue"
            self._ended.set_exception(TooSlow(f"updates of {self._pending_bytes} bytes wait for it: {bound}"))

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run work in another thread, so that other clients need not wait."""
        return await self._loop.run_in_executor(self._encoders, work)


def _is_light(rows: Rows) -> bool:
    return len(rows) * len(rows.columns) < _LIGHT_CELLS


def _next_batch(messages: Iterator[bytes]) -> list[bytes]:
    """Return the next messages, a bounded number of bytes; none at the end."""
    batch: list[bytes] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += len(message)
        if size >= _BATCH_BYTES:
            break
    return batch
