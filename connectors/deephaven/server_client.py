"""Serves one client of a table server: reads its requests, sends what it subscribed, drops it when it is too slow.

Three tasks share two queues::

    socket ─▶ read ─▶ work queue ─▶ work ─▶ frame queue (msg_queue_size) ─▶ send ─▶ socket
                 tables ──▶┘

Requests and updates are worked off in the order in which they came. One request waits at a time, so that a client
cannot pile them up. Frames are made only as fast as the frame queue empties; updates that wait for that are shared
with all clients and bounded in bytes. Large updates are encoded in other threads, piece by piece.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from conf.errors import InvalidValue, LocalProtocolError, RemoteProtocolError, SourceRefused
from connectors.deephaven.messages import Request, SubscribeMode, TableSubscribe, TableUnsubscribe
from connectors.deephaven.publication import Publication
from connectors.deephaven.rows import Delta, Rows
from connectors.deephaven.server_session import ServerSession
from connectors.deephaven.table_subscription import TableSubscription
from connectors.tasks import until_first_ends

_RECEIVED_AT_ONCE = 1 << 16
_SENT_AT_ONCE = 1 << 18
_MADE_AT_ONCE = 1 << 20
_LIGHT_BYTES, _LIGHT_CELLS = 1 << 17, 1 << 12
"""Rows up to this size are encoded on the spot; more would hold up other clients."""
_SMALLEST_BACKLOG = 1 << 24

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Limits:
    """How much a client may be behind.

    Args:
        msg_queue_size: Frames queued for it.
        msg_buffer_size: Longest message in bytes.
        send_wait_time_millis: How long to wait for room in the full queue before the client is dropped.
    """

    msg_queue_size: int = 1000
    msg_buffer_size: int = 65_536
    send_wait_time_millis: int = 5000

    @property
    def send_wait(self) -> float:
        """The wait in seconds."""
        return self.send_wait_time_millis / 1000

    @property
    def backlog(self) -> int:
        """Bytes of updates that may wait for the frame queue: as much as that queue may hold, at least 16 MiB."""
        return max(_SMALLEST_BACKLOG, self.msg_queue_size * self.msg_buffer_size)


class TooSlow(RemoteProtocolError):
    """The client does not drain its queue in time."""


class _Asked(NamedTuple):
    request: Request
    answered: asyncio.Event


class _Changed(NamedTuple):
    tap: TableSubscription
    delta: Delta
    size: int


_Work: TypeAlias = _Asked | _Changed


class ServedClient:
    """One connection. Everything but `_deliver` runs in the server's event loop."""

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
        self._taps: dict[int, TableSubscription] = {}
        self._work: asyncio.Queue[_Work] = asyncio.Queue()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(limits.msg_queue_size)
        self._waiting = 0
        self._overdue: asyncio.TimerHandle | None = None
        self._verdict: asyncio.Future[None] = self._loop.create_future()

    async def serve(self) -> Exception | None:
        """Serve until the connection ends; return what ended it: None when the client closed it."""
        try:
            await until_first_ends(self._read(), self._answer_all(), self._send(), self._verdict)
        except Exception as error:
            return error
        finally:
            self._end()
        return None

    def disconnect(self) -> None:
        """End the connection wherever it stands; `serve` returns soon after."""
        if not self._verdict.done():
            self._verdict.set_result(None)

    def _end(self) -> None:
        for tap in self._taps.values():
            self._close(tap)
        if self._overdue is not None:
            self._overdue.cancel()
        self._connection.close()

    async def _read(self) -> None:
        while chunk := await self._loop.sock_recv(self._connection, _RECEIVED_AT_ONCE):
            self._session.receive(chunk)
            while (request := self._session.next_request()) is not None:
                asked = _Asked(request, asyncio.Event())
                self._work.put_nowait(asked)
                await asked.answered.wait()

    async def _send(self) -> None:
        while True:
            batch = [await self._frames.get()]
            size = len(batch[0])
            while size < _SENT_AT_ONCE and not self._frames.empty():
                batch.append(self._frames.get_nowait())
                size += len(batch[-1])
            await self._loop.sock_sendall(self._connection, b"".join(batch))

    async def _answer_all(self) -> None:
        await self._queue(self._session.greeting())
        while True:
            work = await self._work.get()
            if isinstance(work, _Asked):
                await self._answer(work.request)
                work.answered.set()
            else:
                await self._change(work)
            await asyncio.sleep(0)  # a queue that is not empty does not let others run

    async def _answer(self, request: Request) -> None:
        if isinstance(request, TableUnsubscribe):
            answer, publication = self._session.unsubscribe(request)
            if publication is not None:
                self._close(self._taps.pop(publication.id))
            await self._queue(answer)
        else:
            await self._subscribe(request)

    async def _subscribe(self, request: TableSubscribe) -> None:
        answer, publication = self._session.subscribe(request)
        if publication is None:
            await self._queue(answer)
        elif publication.mode is SubscribeMode.SNAPSHOT_ONLY:
            await self._queue(answer)
            found = await self._elsewhere(lambda: publication.table.snapshot(publication.looked_at))
            await self._publish(publication, publication.snapshot(found.rows), light=_is_light(found.rows))
            self._session.end(publication)
        elif publication.mode is SubscribeMode.UPDATES_ONLY:
            await self._elsewhere(self._tap(publication).open)
            await self._queue(answer)  # afterwards: whoever sees the answer may count on what happens next
        else:
            await self._queue(answer)
            rows = await self._elsewhere(self._tap(publication).open_with_snapshot)
            await self._publish(publication, publication.snapshot(rows), light=_is_light(rows))

    def _tap(self, publication: Publication) -> TableSubscription:
        tap = self._taps[publication.id] = TableSubscription(publication, self._deliver)
        return tap

    def _close(self, tap: TableSubscription) -> None:
        """Let nothing more of it be sent; its table, which may be busy, is told elsewhere."""
        tap.shut()
        self._encoders.submit(tap.detach)

    async def _change(self, change: _Changed) -> None:
        self._waiting -= change.size
        if not change.tap.closed:
            publication = change.tap.publication
            await self._publish(publication, publication.update(change.delta), light=change.size < _LIGHT_BYTES)

    async def _publish(self, publication: Publication, messages: Iterator[bytes], *, light: bool) -> None:
        """Queue messages as they are made; a subscription whose rows cannot be sent ends with an error."""
        try:
            while batch := _some(messages) if light else await self._elsewhere(lambda: _some(messages)):
                for message in batch:
                    await self._queue(message)
        except (InvalidValue, LocalProtocolError, SourceRefused) as error:
            if publication.id in self._taps:
                self._close(self._taps.pop(publication.id))
            await self._queue(self._session.failure(publication, error))

    async def _queue(self, message: bytes) -> None:
        framed = self._session.framed(message)
        if not self._frames.full():
            self._frames.put_nowait(framed)
            return
        try:
            async with asyncio.timeout(self._limits.send_wait):
                await self._frames.put(framed)
        except TimeoutError:
            raise TooSlow(f"its queue was full for {self._limits.send_wait_time_millis} ms") from None

    def _deliver(self, tap: TableSubscription, delta: Delta) -> None:
        """Take an update. Called in the updating thread."""
        change = _Changed(tap, delta, delta.size)
        with suppress(RuntimeError):  # the loop is closed: the server ended while a table was changing
            self._loop.call_soon_threadsafe(self._arrived, change)

    def _arrived(self, change: _Changed) -> None:
        if change.tap.closed or self._verdict.done():
            return
        if self._waiting > 2 * self._limits.backlog:
            self._condemn()
        elif self._waiting > self._limits.backlog and self._overdue is None:
            self._overdue = self._loop.call_later(self._limits.send_wait, self._reconsider)
        self._waiting += change.size
        self._work.put_nowait(change)

    def _reconsider(self) -> None:
        self._overdue = None
        if self._waiting > self._limits.backlog:
            self._condemn()

    def _condemn(self) -> None:
        if not self._verdict.done():
            self._verdict.set_exception(TooSlow(f"updates of {self._waiting} bytes wait for it"))

    async def _elsewhere(self, work: Callable[[], _Made]) -> _Made:
        """Do work in another thread, so that other clients need not wait."""
        return await self._loop.run_in_executor(self._encoders, work)


def _is_light(rows: Rows) -> bool:
    return len(rows) * len(rows.columns) < _LIGHT_CELLS


def _some(messages: Iterator[bytes]) -> list[bytes]:
    """Return the next messages, a bounded number of bytes; nothing at the end."""
    made: list[bytes] = []
    size = 0
    for message in messages:
        made.append(message)
        size += len(message)
        if size >= _MADE_AT_ONCE:
            break
    return made
