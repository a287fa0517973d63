"""A subscription to one table on a connection of its own, from the beginning, to verify silver against the source."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Self

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceRefused, SourceUnavailable, WireError
from silverfold.connectors.base import ControlFrame
from silverfold.connectors.common.update_queue import UpdateQueue
from silverfold.connectors.tengi.address import link_settings, parse_address
from silverfold.connectors.tengi.options import TengiFeed
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, MessageReceived
from silverfold.connectors.tengi.protocol.feed.heading import read_heading
from silverfold.connectors.tengi.protocol.feed.order import Action, Ask, Land, TableOrder
from silverfold.connectors.tengi.protocol.feed.packets import Ping, Pong, Position, SourceError, Subscribe, read_packet
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.reference.reader import TengiReferenceReader
from silverfold.connectors.tengi.transports.dialing import open_first_link
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.verification import ReferenceChange, ReferenceUpdate


class TengiSourceSubscription:
    """A `SourceSubscription`. Connects on entering its ``with`` block; updates arrive while it runs."""

    def __init__(self, feed: TengiFeed, table: str) -> None:
        settings, options = feed.tables[table], feed.options
        self._feed, self._options, self._stream = feed, options, settings.stream(table)
        self._reader = TengiReferenceReader(self._stream, settings, options)
        self._updates = UpdateQueue()
        self._connected: Future[None] = Future()
        self._numbers = count(1)
        self._snapshot: list[ReferenceChange] = []
        self._order: TableOrder[MessageReceived] = TableOrder(
            self._stream,
            wait=options.reorder_wait,
            max_held=options.reorder_packets,
            max_bytes=options.reorder_bytes,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self._reader.keys

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns; empty before the first update."""
        return self._reader.columns

    def __enter__(self) -> Self:
        if self._options.mode == "listen":
            raise SourceRefused(
                code="listen", text="sources connect to the receiver: none can be asked", stream=self._stream
            )
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._subscribe())
        self._thread = threading.Thread(target=self._run, name=f"watch-{self._stream}", daemon=True)
        self._thread.start()
        try:
            self._connected.result()
        except SilverfoldError:
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def take(self, seconds: float) -> Sequence[ReferenceUpdate]:
        """Return the complete updates since the last call; see `connectors.verification.SourceSubscription.take`."""
        return self._updates.take(seconds)

    def _run(self) -> None:
        error: SilverfoldError = SourceUnavailable("the watch has ended")
        try:
            self._loop.run_until_complete(self._task)
        except WireError as raised:
            error = RemoteProtocolError(str(raised), stream=self._stream)
        except SilverfoldError as raised:
            error = raised
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()
            self._updates.end(error)
            if not self._connected.done():
                self._connected.set_exception(error)

    async def _subscribe(self) -> None:
        link = await open_first_link(parse_address(self._feed.address).host, link_settings(self._feed))
        try:
            await self._ask(link, None)
            await self._learn_keys(link)
            self._connected.set_result(None)
            while True:
                await self._step(link)
        finally:
            await link.abort()

    async def _learn_keys(self, link: Link) -> None:
        """Take events until the schema has come."""
        seconds = self._options.subscribe_wait
        try:
            async with asyncio.timeout(seconds):
                while not self._reader.columns:
                    await self._step(link)
        except TimeoutError:
            raise SourceUnavailable(f"the source tells no columns within {seconds:g} s") from None

    async def _step(self, link: Link) -> None:
        """Take the next event. Raises SourceUnavailable at the end of the connection."""
        event = await self._next_event(link)
        if isinstance(event, Closed):
            raise SourceUnavailable("the source ended the connection")
        if isinstance(event, BadFrame):
            raise event.error
        for action in self._order.elapsed(self._loop.time()) if event is None else await self._take(link, event):
            await self._perform(link, action)

    async def _next_event(self, link: Link) -> MessageReceived | BadFrame | Closed | None:
        """Return the next event; None after a while without one, to send a ping, or when a change is missing."""
        due = self._loop.time() + self._options.ping_interval
        try:
            async with asyncio.timeout_at(min(due, self._order.deadline or due)):
                return await link.next_event()
        except TimeoutError:
            if self._loop.time() > link.last_received + self._options.dead_after:
                raise SourceUnavailable(f"nothing came for {self._options.dead_after:g} s") from None
            await self._send(link, Ping(next(self._numbers)))
            return None

    async def _take(self, link: Link, event: MessageReceived) -> Sequence[Action[MessageReceived]]:
        heading, now = read_heading(event.raw, event.body_at, event.types), self._loop.time()
        if heading.name == "ping":
            await self._send(link, Pong(event.body.get_value("seq")))
        elif heading.name == "error":
            found = read_packet(event.body)
            assert isinstance(found, SourceError)
            raise SourceRefused(code=str(found.code), text=found.text, stream=self._stream)
        elif heading.table == self._stream and heading.name == "schema":
            self._reader.control(ControlFrame(next(self._numbers), 1, self._stream, event.raw))
        elif heading.table == self._stream and heading.position is not None:
            if heading.id is None:
                return self._order.change(heading.position, event, len(event.raw), now)
            part, is_last = heading.part, heading.is_last
            return self._order.snapshot_part(heading.position, heading.id, event, now, part=part, is_last=is_last)
        return ()

    async def _perform(self, link: Link, action: Action[MessageReceived]) -> None:
        match action:
            case Ask(position):
                await self._ask(link, position)
            case Land(event, boundary, _):
                changes = list(self._reader.changes(1, [(next(self._numbers), event.raw)]))
                if read_heading(event.raw, event.body_at, event.types).name != "snapshot":
                    self._updates.put(ReferenceUpdate(False, changes))
                    return
                if boundary in ("whole", "begin"):
                    self._snapshot = []
                self._snapshot += changes
                if boundary in ("whole", "end"):
                    self._updates.put(ReferenceUpdate(True, self._snapshot))
                    self._snapshot = []

    async def _ask(self, link: Link, position: Position | None) -> None:
        seq, epoch = (-1, None) if position is None else (position.seq, position.epoch)
        await self._send(link, Subscribe(self._stream, seq, epoch))

    async def _send(self, link: Link, packet: Any) -> None:
        await link.send(Message.create(packet.to_packet()))
