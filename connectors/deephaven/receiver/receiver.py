"""Lands a table server's frames: the socket around `connectors.deephaven.receiver.epoch`.

All tables of a feed share one connection, so a fault in one stream affects all of them. A stream whose frames broke two
epochs in a row is therefore suspended for a while (`CircuitBreaker`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.backoff import Backoff, CircuitBreaker
from silverfold.connectors.common.read_loop import land_connection
from silverfold.connectors.common.transport import Connection, connect, parse_address
from silverfold.connectors.deephaven.options import DeephavenFeed
from silverfold.connectors.deephaven.protocol.handshake import Expected
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.receiver.epoch import Epoch
from silverfold.connectors.frames import FrameSink, Resume


class DeephavenReceiver:
    """A `connectors.frames.Receiver`.

    Args:
        rng: Randomises the waits of retries.
        clock: Seconds from an arbitrary origin.

    Raises:
        SchemaError: The feed's schema file is missing or invalid.
    """

    def __init__(self, feed: DeephavenFeed, *, rng: Random, clock: Callable[[], float]) -> None:
        self._feed, self._rng, self._clock = feed, rng, clock
        self._silent_after = feed.options.silent_after
        self._address = parse_address(feed.address)
        self._roles = load_roles(feed.options.schema_, feed.options.text)
        self._expected = Expected(
            prefix_counts=feed.options.prefix_counts,
            byte_order=feed.options.byte_order,
            accept_schema_id=feed.options.accept_schema_id,
        )
        self._tables = {table.stream(name): table for name, table in feed.tables.items()}
        self._circuit_breaker = CircuitBreaker(self._backoff, clock)

    async def run(self, sink: FrameSink, resume: Resume) -> None:
        """Run one epoch; see `connectors.frames.Receiver`. Nothing is resumed: tables are sent anew."""
        timeout = self._feed.reconnect.connect_timeout
        connection = await connect(self._address, timeout=timeout, silent_after=self._silent_after)
        epoch = self._new_epoch()
        read = partial(self._read, connection, epoch, sink, self._clock() + timeout)
        try:
            await land_connection(connection, epoch, sink, read=read)
        except (asyncio.CancelledError, SourceUnavailable):
            sink.take(epoch.stop())
            raise
        finally:
            broken_by = epoch.error.stream if epoch.error else None
            for stream in epoch.subscribed_streams:
                if stream != broken_by:
                    self._circuit_breaker.reset(stream)
            if broken_by is not None:
                self._circuit_breaker.trip(broken_by)

    def _backoff(self) -> Backoff:
        return Backoff(self._feed.reconnect.first, self._feed.reconnect.longest, self._rng)

    def _new_epoch(self) -> Epoch:
        return Epoch(
            Session(self._roles, expected=self._expected),
            self._tables,
            suspensions={name: self._circuit_breaker.suspension(name) for name in self._tables},
            backoffs={name: self._backoff() for name in self._tables},
            clock=self._clock,
        )

    async def _read(self, connection: Connection, epoch: Epoch, sink: FrameSink, greeted_by: float) -> bytes:
        """Read the next bytes, and send requests when they are due. Silence is normal only after the first frame."""
        while epoch.greeted:
            try:
                requests, marks = epoch.requests()
            except SourceUnavailable:
                sink.take(epoch.receive(connection.arrived()))
                raise
            if marks:
                await sink.land(marks)
                connection.write(requests)
            with suppress(TimeoutError):
                return await connection.read(epoch.wait())
        try:
            return await connection.read(max(0.0, greeted_by - self._clock()))
        except TimeoutError:
            within = self._feed.reconnect.connect_timeout
            raise SourceUnavailable(f"{self._address}: no first frame within {within:g} s") from None
