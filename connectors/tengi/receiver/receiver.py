"""Lands the packets of a source: the link around `connectors.tengi.receiver.epoch`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from random import Random
from typing import Final

import structlog

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceRefused, SourceUnavailable, WireError
from silverfold.connectors.common.backoff import Backoff, RenewedFiles
from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.frames import FrameSink, Resume, mark
from silverfold.connectors.tengi.address import link_settings, parse_address
from silverfold.connectors.tengi.options import TengiFeed
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed
from silverfold.connectors.tengi.protocol.feed.packets import Ack, Ping, Pong, Position, Schema, Subscribe
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.receiver.epoch import Epoch, Refused
from silverfold.connectors.tengi.receiver.table_feed import (
    TableFeed,
    landed_positions,
    landed_schemas,
    resumed_position,
)
from silverfold.connectors.tengi.transports.configuration import Configuration, Tls
from silverfold.connectors.tengi.transports.dialing import open_first_link
from silverfold.connectors.tengi.transports.link import Link
from silverfold.connectors.tengi.transports.listening import Listening

_TICK: Final = 0.02
"""Seconds between checks of the time and of the packets to send."""


class TengiReceiver:
    """A `connectors.frames.Receiver`. In listen mode an epoch is the connection of one source.

    Args:
        rng: Randomises the waits after errors.
        environ: Environment variables, for secrets.
    """

    def __init__(self, feed: TengiFeed, *, rng: Random, environ: Mapping[str, str]) -> None:
        self._feed, self._rng, self._environ = feed, rng, environ
        self._files = RenewedFiles()
        self._listening_tls: Tls | None = None
        self._schemas: dict[str, Schema] = {}
        self._last_landed: dict[str, Position] = {}
        self._begin_anew = set(_streams(feed)) if feed.options.snapshot_at_start else set[str]()
        self._has_begun = False
        self._is_reading = True
        """False while a frame waits for room in bronze."""
        self._log = structlog.get_logger("tengi.receiver").bind(feed=feed.name)

    async def run(self, sink: FrameSink, resume: Resume) -> str | None:
        """Run one epoch; see `connectors.frames.Receiver`.

        Raises:
            ConfigError: A secret or a file of TLS cannot be used; SourceUnavailable if it could in an earlier epoch.
            SourceRefused: The source refuses all tables, or is not to be trusted.
        """
        with self._files.reading():
            settings = link_settings(self._feed, self._environ, listening_tls=self._listening_tls)
        if self._feed.options.mode == "listen":
            self._listening_tls = settings.tls
            return await self._listen(settings, sink, resume)
        with self._files.retrying_refusals():
            link = await open_first_link(parse_address(self._feed.address).host, settings, self._log)
            self._files.let_in(trust=bool(self._feed.options.tls_ca))
            try:
                return await self._serve(link, sink, resume)
            finally:
                await link.abort()

    async def _listen(self, settings: Configuration, sink: FrameSink, resume: Resume) -> str | None:
        """Run the epoch of the first source that comes."""
        served: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        async def serve(link: Link) -> None:
            if served.done():  # a second source, after the first one's end
                return
            try:
                found = await self._serve(link, sink, resume)
            except SourceRefused as error:  # anybody may connect: another source may serve the tables
                served.set_exception(SourceUnavailable(f"{link.peer_address}: {error}"))
            except Exception as error:
                served.set_exception(error)
            else:
                served.set_result(found)

        listening = Listening(settings, serve, self._log)
        await listening.start()
        try:
            return await served
        finally:
            await listening.stop()

    async def _serve(self, link: Link, sink: FrameSink, resume: Resume) -> str | None:
        if not self._has_begun:  # later, a source that has lost updates may have set bronze to a smaller position
            self._has_begun = True
            self._begin_anew |= _lost_in_bronze(self._feed, resume)
        positions = {name: at for name, at in resume.source_positions.items() if name not in self._begin_anew}
        landed = landed_schemas(resume.stream_controls, limit=self._feed.options.max_packet)
        self._schemas = landed | self._schemas
        self._last_landed = landed_positions(resume.source_positions) | self._last_landed
        epoch = new_epoch(self._feed, positions, schemas=self._schemas, last_landed=self._last_landed, rng=self._rng)
        connected = mark(
            "connected", transport=link.transport.value, peer=link.peer_address, connection_id=str(link.connection_id)
        )
        await sink.land([connected, *epoch.begin(self._now())])
        self._is_reading = True
        try:
            await until_first_ends(
                self._read(link, epoch, sink),
                self._keep_time(link, epoch, sink),
                self._acknowledge(link, epoch, sink),
            )
        except asyncio.CancelledError:
            await self._land_arrived(link, epoch, sink)
            raise
        except WireError as error:
            raise RemoteProtocolError(error.detail, reason=error.reason) from error
        except Refused as error:
            await sink.land(error.frames)
            raise
        return None

    async def _read(self, link: Link, epoch: Epoch, sink: FrameSink) -> None:
        """Land packets until the source ends the connection.

        While bronze has no room, nobody reads: that time counts neither as the source's silence nor as a late packet.
        """
        now, paused = asyncio.get_running_loop().time, 0.0
        while not isinstance(event := await link.next_event(), Closed):
            began = now()
            frames = epoch.take(event, began)
            self._is_reading = False
            await sink.land(frames)
            self._is_reading = True
            paused += now() - began
            if paused > _TICK:  # short pauses add up: an answer to a poll has many packets
                link.discount(paused)
                epoch.postpone(paused)
                paused = 0.0

    async def _keep_time(self, link: Link, epoch: Epoch, sink: FrameSink) -> None:
        """Send packets and do what is due, for ever. Raises SourceUnavailable if the source is gone.

        Every `_TICK`, beside the reader: a timer for each event took 9 of 42 µs.
        """
        while True:
            now = self._now()
            if self._is_reading:
                link.check_alive(self._feed.options.dead_after)
            if epoch.deadline <= now and (frames := epoch.due(now, is_reading=self._is_reading)):
                await sink.land(frames)
            for request in epoch.requests():
                await self._send(link, request)
            await asyncio.sleep(_TICK)

    async def _acknowledge(self, link: Link, epoch: Epoch, sink: FrameSink) -> None:
        """Acknowledge committed positions every ``ack_interval``, for ever."""
        while True:
            await asyncio.sleep(self._feed.options.ack_interval)
            landed = epoch.landed
            if landed:
                await sink.flush()
                self._begin_anew.difference_update(landed)
            for ack in epoch.acknowledge(landed):
                await self._send(link, ack)

    async def _send(self, link: Link, packet: Subscribe | Ack | Ping | Pong) -> None:
        """Queue a packet. Raises SourceUnavailable if the source takes nothing, even if it sends."""
        silence = self._feed.options.dead_after
        try:
            async with asyncio.timeout(silence):
                await link.send(Message.create(packet.to_packet()))
        except TimeoutError:
            raise SourceUnavailable(f"{link.peer_address}: takes nothing for {silence:g} s") from None

    async def _land_arrived(self, link: Link, epoch: Epoch, sink: FrameSink) -> None:
        """Land the packets that had arrived when the epoch was stopped."""
        with suppress(SilverfoldError, TimeoutError):
            async with asyncio.timeout(0):
                while True:
                    event = await link.next_event()
                    if isinstance(event, Closed):
                        return
                    sink.take(epoch.take(event, self._now()))
                    if isinstance(event, BadFrame):
                        return

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def new_epoch(
    feed: TengiFeed,
    positions: Mapping[str, str],
    *,
    schemas: MutableMapping[str, Schema] | None = None,
    last_landed: MutableMapping[str, Position] | None = None,
    rng: Random | None = None,
    clock: Callable[[], float] = time.time,
) -> Epoch:
    """Return an epoch of a feed.

    Args:
        positions: `connectors.frames.Resume.source_positions`.
        schemas, last_landed: See `table_feed.TableFeed`.
        rng: Randomises the waits after errors.
        clock: Seconds since 1970.

    Raises:
        InvalidValue: A position is not tengi's.
    """
    chance, options = rng or Random(0), feed.options  # noqa: S311 - spreads waits
    seen, known = {} if schemas is None else schemas, {} if last_landed is None else last_landed
    tables = {}
    for stream in _streams(feed):
        backoff = Backoff(feed.reconnect.first, feed.reconnect.longest, chance)
        position = resumed_position(positions, stream)
        tables[stream] = TableFeed(stream, position, options, schemas=seen, last_landed=known, backoff=backoff)
    return Epoch(tables, ping_interval=options.ping_interval, clock=clock)


def _lost_in_bronze(feed: TengiFeed, resume: Resume) -> set[str]:
    """Return the streams whose silver has updates that bronze lost. Partial updates must not be applied twice.

    Texts of positions sort as the positions do.
    """
    silver = [(feed.tables[name].stream(name), position) for name, position in resume.silver_positions.items()]
    return {stream for stream, position in silver if position > resume.source_positions.get(stream, position)}


def _streams(feed: TengiFeed) -> list[str]:
    return sorted({table.stream(name) for name, table in feed.tables.items()})
