"""Receiver for a database's notifications and snapshots: connects, listens, and only then reads the tables.

A session is an epoch. Changes between two sessions are not reported, so each begins with a snapshot of every table.
Tables are listened to by name, or all at once (``all_tables``). In that mode every table with a key is read, even one
without a silver table, and one created later: its bronze frames can become silver whenever a table is configured for
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from random import Random
from typing import Final

from silverfold.conf.errors import SilverfoldError, SourceRefused, SourceUnavailable, StatementRefused
from silverfold.connectors.common.backoff import Backoff, CircuitBreaker, RenewedFiles
from silverfold.connectors.frames import FrameSink, Resume, mark
from silverfold.connectors.sqlitecloud.address import connection_settings
from silverfold.connectors.sqlitecloud.client.client import Client, connect
from silverfold.connectors.sqlitecloud.client.settings import ConnectionSettings
from silverfold.connectors.sqlitecloud.options import SqliteCloudFeed
from silverfold.connectors.sqlitecloud.protocol.frame_access import log_stream
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.statements import ALL
from silverfold.connectors.sqlitecloud.receiver import bronze_frames
from silverfold.connectors.sqlitecloud.receiver.capture_tasks import FORBIDDEN, WITHOUT_CHANNEL, CaptureTasks, naming
from silverfold.connectors.sqlitecloud.receiver.epoch import Epoch
from silverfold.connectors.sqlitecloud.receiver.introspection import PASSES, describe, list_tables, schema_version

_FAREWELL: Final = 1.0
"""Seconds to remove our channel on shutdown."""


class SqliteCloudReceiver:
    """A `connectors.frames.Receiver`.

    Args:
        rng: Randomizes retry waits and the name of our channel.
        clock: Seconds, of any origin.
        environ: Source of secrets.
    """

    def __init__(
        self, feed: SqliteCloudFeed, *, rng: Random, clock: Callable[[], float], environ: Mapping[str, str]
    ) -> None:
        self._feed, self._options = feed, feed.options
        self._rng, self._clock, self._environ = rng, clock, environ
        self._tables = {table.stream(name): table for name, table in feed.tables.items() if not table.only_adds}
        self._logged = frozenset(table.source or name for name, table in feed.tables.items() if table.log)
        self._channels = sorted({table.channel for table in feed.tables.values() if table.is_channel})
        self._own_channel = f"silverfold-{rng.getrandbits(64):016x}"
        self._circuit_breaker = CircuitBreaker(self._backoff, clock)
        self._files = RenewedFiles()
        self._has_listened = False  # to a table, in some epoch
        self._was_well = False  # in some epoch, a PING was answered and a canary came back

    async def run(self, sink: FrameSink, resume: Resume) -> None:
        """Run one epoch; see `connectors.frames.Receiver`. Nothing is resumed: tables are read anew.

        Raises:
            ConfigError: A secret or a certificate file cannot be used; SourceUnavailable if it could in an earlier
                epoch.
            SourceRefused: The login is refused; or a statement, such as of a channel, before a canary came back in any
                epoch; or every table is, and always was: it does not exist, has no key, or may not be read.
        """
        try:
            with self._files.retrying_refusals():  # of trust: the second connection may meet another node
                settings, opened = await self._open()
                async with opened as db:
                    await self._run_epoch(db, settings, sink)
        except StatementRefused as refused:
            if refused.code in PASSES:
                raise SourceUnavailable(str(refused)) from refused
            raise

    async def _open(self) -> tuple[ConnectionSettings, Client]:
        """Connect and log in."""
        options = self._options
        is_named_by_file = options.connection is not None and options.connection.may_change

        def is_of_file(refused: SourceRefused) -> bool:
            return is_named_by_file or refused.code == FORBIDDEN  # a file may name the database, too

        with self._files.reading(), self._files.retrying_refusals(is_of_file):
            settings = connection_settings(self._feed, self._environ)
            opened = await connect(
                settings, max_frame_bytes=options.max_frame_bytes, frame_timeout=options.frame_timeout
            )
        has_own_ca = settings.tls is not None and settings.tls.root_certificate is not None
        self._files.let_in(trust=has_own_ca or is_named_by_file, login=options.login_may_change)
        return settings, opened

    async def _run_epoch(self, db: Client, settings: ConnectionSettings, sink: FrameSink) -> None:
        epoch = Epoch(
            self._tables,
            self._options,
            channel=self._own_channel,
            backoff=self._backoff,
            circuit_breaker=self._circuit_breaker,
            clock=self._clock,
            logged=self._logged,
            channels=self._channels,
        )
        tasks: CaptureTasks | None = None
        try:
            schema = await self._log_in(db, settings, sink)
            channel = await self._listen(db, epoch, sink, schema)
            tasks = CaptureTasks(db, epoch, sink, self._options, channel=channel, schema=schema, clock=self._clock)
            await tasks.run()
        except asyncio.CancelledError:
            sink.take(epoch.receive(db.arrived()))
            await self._remove_channel(db)
            raise
        except SilverfoldError as error:
            await sink.land([*epoch.receive(db.arrived()), *bronze_frames.bad_frames(db.bad_frames)])
            self._was_well |= tasks is not None and tasks.was_well
            if self._was_well and isinstance(error, StatementRefused) and error.code != FORBIDDEN:
                raise SourceUnavailable(f"{error} (it was not refused before, and may not be again)") from error
            raise

    async def _log_in(self, db: Client, settings: ConnectionSettings, sink: FrameSink) -> int | None:
        """Land the session's details; return the schema version, if the server reports one."""
        uuid, schema = await db.uuid(), await schema_version(db)
        frames = [mark("logged in", uuid=uuid, host=settings.host, database=settings.database)]
        await sink.land(frames if schema is not None else [*frames, mark("no schema version")])
        return schema

    async def _listen(self, db: Client, epoch: Epoch, sink: FrameSink, schema: int | None) -> str | None:
        """Listen to all tables and channels; return our own channel, if there is one."""
        described, logged = await self._describe_tables(db, epoch, sink), set[str]()
        if self._options.all_tables:
            await db.listen_as(self._options.listen, ALL)
        elif self._logged:
            logged = await self._listen_to_logged(db, sink, self._logged - described.keys())
        for name in self._channels:
            await db.listen(name)
        channel = await self._listen_to_own(db, sink)
        for name, description in described.items():
            table = epoch.add(name, schema)
            if not self._options.fence:
                table.start_listening(description)
        tables = ALL if self._options.all_tables else sorted({*described, *logged})
        suspensions = ((name, self._circuit_breaker.suspension(name)) for name in described)
        suspended = [bronze_frames.suspended(name, seconds) for name, seconds in suspensions if seconds]
        await sink.land([mark("listening", tables=tables, channels=self._channels), *suspended])
        return channel

    async def _describe_tables(self, db: Client, epoch: Epoch, sink: FrameSink) -> dict[str, Description]:
        """Describe all tables; listen to each unless ``all_tables`` covers them.

        Raises:
            SourceRefused: No table can be read or listened to, and none ever could.
            SourceUnavailable: No table can be now.
        """
        names = await list_tables(db) if self._options.all_tables else []
        described: dict[str, Description] = {}
        refusals: list[SourceRefused] = []
        for name in sorted({*names, *self._tables}):
            try:
                description = await describe(db, name, epoch.settings_of(name))
                if not self._options.all_tables:
                    await db.listen_as(self._options.listen, name)
                described[name] = description
            except SourceRefused as refused:
                if refused.code in PASSES:
                    raise
                refusals.append(refused)
                await sink.land([bronze_frames.left_out(name, refused)])
        if refusals and not (described or self._channels or self._logged or self._options.all_tables):
            raise SourceUnavailable(str(refusals[0])) if self._has_listened else refusals[0]
        self._has_listened |= bool(described)
        return described

    async def _listen_to_logged(self, db: Client, sink: FrameSink, names: Iterable[str]) -> set[str]:
        """Listen to tables that are only logged; return those that the server accepts."""
        found = set[str]()
        for name in sorted(names):
            try:
                await db.listen_as(self._options.listen, name)
                found.add(name)
            except StatementRefused as refused:
                if refused.code in PASSES:
                    raise
                await sink.land([bronze_frames.left_out(log_stream(name), refused)])
        return found

    async def _listen_to_own(self, db: Client, sink: FrameSink) -> str | None:
        """Create a channel and listen to it. Without a fence a refusal is tolerated: then there is no canary either."""
        if not self._options.fence and not self._options.canary_seconds:
            return None
        try:
            with naming("our own channel", forbidden=WITHOUT_CHANNEL) if self._options.fence else nullcontext():
                await db.create_channel(self._own_channel, if_not_exists=True)
                await db.listen(self._own_channel)
        except StatementRefused as refused:
            if self._options.fence:
                raise
            await sink.land([mark("no canary", level="warning", code=refused.code, text=refused.text)])
            return None
        return self._own_channel

    async def _remove_channel(self, db: Client) -> None:
        with suppress(SilverfoldError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await db.remove_channel(self._own_channel)

    def _backoff(self) -> Backoff:
        return Backoff(self._feed.reconnect.first, self._feed.reconnect.longest, self._rng)
