"""A subscription to one table on a connection of its own, from the beginning, to verify silver against the source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count
from random import Random
from typing import Self

from silverfold.conf.errors import RemoteProtocolError, SourceRefused, SourceUnavailable
from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.common.update_queue import LoopSubscription
from silverfold.connectors.frames import Boundary, ControlFrame, Frame, Kind
from silverfold.connectors.tengi.address import link_settings, parse_address
from silverfold.connectors.tengi.options import TengiFeed
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, MessageReceived
from silverfold.connectors.tengi.protocol.feed.heading import read_heading
from silverfold.connectors.tengi.protocol.feed.packets import Ping, Pong, SourceError, Subscribe, read_packet
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.receiver.table_feed import TableFeed
from silverfold.connectors.tengi.reference.reader import TengiReferenceReader
from silverfold.connectors.tengi.transports.dialing import open_first_link
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.verification import ReferenceChange, ReferenceUpdate


class TengiSourceSubscription(LoopSubscription):
    """A `SourceSubscription`. Connects on entering its ``with`` block; updates arrive while it runs."""

    def __init__(self, feed: TengiFeed, table: str) -> None:
        settings, options = feed.tables[table], feed.options
        super().__init__(settings.stream(table))
        self._feed, self._options = feed, options
        self._reader = TengiReferenceReader(self._stream, settings, options)
        self._numbers = count(1)
        self._snapshot: list[ReferenceChange] = []
        self._ping_at = 0.0
        backoff = Backoff(feed.reconnect.first, feed.reconnect.longest, Random())  # noqa: S311 - spreads waits
        self._table = TableFeed(self._stream, None, options, schemas={}, last_landed={}, backoff=backoff)

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
            text = "sources connect to the receiver: none can be asked"
            raise SourceRefused(code="listen", text=text, stream=self._stream)
        return super().__enter__()

    async def _subscribe(self) -> None:
        link = await self._open()
        try:
            self._take_frames(self._table.subscribe(self._loop.time()))
            await self._learn_keys(link)
            self._connected.set_result(None)
            while True:
                await self._step(link)
        finally:
            await link.abort()

    async def _open(self) -> Link:
        """Connect. A peer that answers with no handshake concerns no table: it may be a proxy without its source."""
        try:
            return await open_first_link(parse_address(self._feed.address).host, link_settings(self._feed))
        except RemoteProtocolError as error:
            raise SourceUnavailable(str(error)) from error

    async def _learn_keys(self, link: Link) -> None:
        """Take events until the schema arrives."""
        seconds = 3 * self._options.subscribe_wait
        try:
            async with asyncio.timeout(seconds):
                while not self._reader.columns:
                    await self._step(link)
        except TimeoutError:
            raise SourceUnavailable(f"the source tells no columns within {seconds:g} s") from None

    async def _step(self, link: Link) -> None:
        """Send the packets that are due, and take the next event. Raises SourceUnavailable after the last one."""
        while self._table.requests:
            await self._send(link, self._table.requests.pop(0))
        event = await self._next_event(link)
        if isinstance(event, Closed):
            raise SourceUnavailable("the source ended the connection")
        if isinstance(event, BadFrame):
            raise event.error
        if event is None:
            self._take_frames(self._table.due(self._loop.time()))
        else:
            await self._take(link, event)

    async def _next_event(self, link: Link) -> MessageReceived | BadFrame | Closed | None:
        """Return the next event. None if none comes in time: a ping, or a request for a missing packet, is due.

        Pings go by the clock, however busy the source is: it ends connections on which it gets nothing.
        """
        if (now := self._loop.time()) >= self._ping_at:
            self._ping_at = now + self._options.ping_interval
            await self._send(link, Ping(next(self._numbers)))
        try:
            async with asyncio.timeout_at(min(self._ping_at, self._table.deadline)):
                return await link.next_event()
        except TimeoutError:
            link.check_alive(self._options.dead_after)
            return None

    async def _take(self, link: Link, event: MessageReceived) -> None:
        heading, now = read_heading(event.raw, event.body_at, event.types), self._loop.time()
        if heading.name == "ping":
            await self._send(link, Pong(event.body.get_value("seq")))
        elif heading.name == "error":
            found = read_packet(event.body)
            assert isinstance(found, SourceError)
            self._take_frames(self._table.take_error(found, now))
            if self._table.refused:
                raise SourceRefused(code=str(found.code), text=found.text, stream=self._stream)
        elif heading.table == self._stream:
            self._take_frames(self._table.take(heading, event, now))

    def _take_frames(self, frames: Iterable[Frame]) -> None:
        """Take the frames that a receiver would land, except its marks."""
        for frame in frames:
            number = next(self._numbers)
            if frame.kind is Kind.CONTROL:
                self._reader.control(ControlFrame(number, 1, self._stream, frame.body))
            elif frame.kind is Kind.DATA:
                changes = list(self._reader.changes(1, [(number, frame.body)]))
                self._updates.put(ReferenceUpdate(False, changes))
            elif frame.kind is Kind.SNAPSHOT:
                if frame.boundary in (Boundary.WHOLE, Boundary.BEGIN):
                    self._snapshot = []
                self._snapshot += self._reader.changes(1, [(number, frame.body)])
                if frame.boundary in (Boundary.WHOLE, Boundary.END):
                    self._updates.put(ReferenceUpdate(True, self._snapshot))
                    self._snapshot = []

    async def _send(self, link: Link, packet: Subscribe | Ping | Pong) -> None:
        await link.send(Message.create(packet.to_packet()))
