"""Serves a source on links of any transport, dialled or accepted. One task takes requests, another sends packets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Final

from silverfold.conf.errors import WireError
from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.tengi.protocol.events import Closed, MessageReceived
from silverfold.connectors.tengi.protocol.heads import encode_message_of
from silverfold.connectors.tengi.server.feed.faults import FaultyLink, FeedFaults
from silverfold.connectors.tengi.server.feed.source import FeedSession, FeedSource
from silverfold.connectors.tengi.transports.link import Link

_TURN: Final = 16 << 10
"""Bytes that are queued on a link before other links have their turn."""


class FeedService:
    """The links of a source. All calls are made in one event loop.

    Args:
        faults: Faults that happen to the packets of each connection.
        chance: Decides when they do.
        clock: Seconds, for the expiry of subscriptions.
    """

    def __init__(
        self,
        source: FeedSource,
        *,
        faults: FeedFaults,
        chance: Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._faults, self._chance, self._clock = source, faults, chance, clock
        self._wakes: dict[Link, asyncio.Event] = {}

    @property
    def link_count(self) -> int:
        """Number of links being served."""
        return len(self._wakes)

    def wake(self) -> None:
        """Make all links send new updates. Called after a table has changed."""
        for each in self._wakes.values():
            each.set()

    async def disconnect(self) -> None:
        """Break all connections. Receivers may reconnect."""
        for link in list(self._wakes):
            await link.abort()

    async def serve(self, link: Link) -> None:
        """Serve a link until it ends, or its receiver is silent for too long. The caller closes the link.

        Raises:
            SourceUnavailable: The connection broke.
            ProtocolError, WireError: The receiver violated the protocol, or does not read.
        """
        session, wake = FeedSession(self._source, self._clock()), asyncio.Event()
        self._wakes[link] = wake
        try:
            await until_first_ends(
                self._take(link, session, wake), self._send(link, session, wake), self._expire(session)
            )
        finally:
            del self._wakes[link]
            session.close()

    async def _take(self, link: Link, session: FeedSession, wake: asyncio.Event) -> None:
        while not isinstance(event := await link.next_event(), Closed):
            try:
                body = event.body if isinstance(event, MessageReceived) else event.error
            except WireError as error:
                body = error
            session.receive(body, self._clock())
            wake.set()

    async def _send(self, link: Link, session: FeedSession, wake: asyncio.Event) -> None:
        """Send packets as fast as the link takes them, then wait for more."""
        line, unyielded = FaultyLink(self._faults, self._chance), 0
        while True:
            wake.clear()
            while (packet := session.next_packet()) is not None:
                if line.closes():
                    return
                for each in line.send(packet):
                    await link.send_encoded(encode_message_of(each.body))
                unyielded += len(packet.body)
                if unyielded >= _TURN:  # a link with room does not wait
                    await asyncio.sleep(0)
                    unyielded = 0
            for each in line.flush():
                await link.send_encoded(encode_message_of(each.body))
            await wake.wait()

    async def _expire(self, session: FeedSession) -> None:
        while (left := session.expires_at - self._clock()) > 0:
            await asyncio.sleep(left)
