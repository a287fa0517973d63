"""One epoch on an open session: lands notifications continuously, and snapshots tables when they are due.

Four tasks run until the first fails, which ends the epoch: one receives notifications, one checks landed ones, one
snapshots tables in turn, and one checks that both connections are alive and the schema is unchanged. Messages to our
own channel come back among the notifications. They order a snapshot against them (a fence) and show that notifications
still arrive (a canary).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Final

from silverfold.conf.errors import SilverfoldError, SourceRefused, SourceUnavailable, StatementRefused
from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.frames import Frame, FrameSink, mark
from silverfold.connectors.sqlitecloud.client.client import Client
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.messages import ChunkReceived, ChunksEnded, Value
from silverfold.connectors.sqlitecloud.receiver import bronze_frames
from silverfold.connectors.sqlitecloud.receiver.attempts import TableAttempts
from silverfold.connectors.sqlitecloud.receiver.epoch import Epoch
from silverfold.connectors.sqlitecloud.receiver.introspection import (
    PASSES,
    checked_rows,
    describe,
    list_tables,
    page_text,
    schema_version,
    select_text,
)

FORBIDDEN: Final = "10004"
"""Code of a refusal of our credentials, or for lack of a privilege."""

WITHOUT_CHANNEL: Final = "fence = false and canary_seconds = 0 do without"

CANDIDATES_AGAIN: Final = 5.0
"""Seconds after which a table that was refused so is asked for again."""

ALIVE_EVERY: Final = 30.0
"""Seconds between two PINGs, unless a canary is configured."""

RETURN_WITHIN: Final = 10.0
"""Seconds within which a message to our own channel must come back while no other notification arrives."""

RETURN_AT_LAST: Final = 60.0
"""Seconds after which it counts as lost, whatever else arrives."""

SELECT_PATIENCE: Final = 600.0
"""Seconds within which a SELECT's result must begin, and each further part must arrive."""

CHECKED_AT_ONCE: Final = 64
"""Notifications checked before others may land."""

SETTLED_AT_LAST: Final = 10
"""Without a fence, a table that is never quiet counts as settled after this many times ``settle_seconds``."""


class CaptureTasks:
    """The tasks of an epoch that already listens.

    Args:
        channel: Our own channel; None if there is none, and so neither fence nor canary.
        schema: Schema version of the database before anything was listened to.
        clock: Seconds, of any origin.
    """

    def __init__(
        self,
        db: Client,
        epoch: Epoch,
        sink: FrameSink,
        options: SqliteCloudOptions,
        *,
        channel: str | None,
        schema: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._db, self._epoch, self._sink, self._options = db, epoch, sink, options
        self._channel, self._schema, self._clock = channel, schema, clock
        self.was_well = False
        """Whether a PING was answered, and a canary came back."""
        self._message_count = 0
        self._candidates_at = clock()
        self._is_receiving = False
        self._received_at = clock()
        self._activity = asyncio.Event()

    async def run(self) -> None:
        """Run until something fails, and raise SourceUnavailable or RemoteProtocolError. Safe to cancel."""
        await until_first_ends(self._receive(), self._check(), self._read_tables(), self._keep_alive())

    async def _receive(self) -> None:
        while True:
            self._is_receiving = True
            notifications = await self._db.next_notifications()
            self._is_receiving, self._received_at = False, self._clock()
            await self._sink.land(self._epoch.receive(notifications))
            self._activity.set()

    async def _check(self) -> None:
        """Check deferred notifications in small batches, so that new ones land first."""
        while True:
            frames = self._epoch.check(CHECKED_AT_ONCE)
            if frames is None:
                await self._wait_for_activity(None)
                continue
            await self._sink.land(frames)
            if frames:
                self._activity.set()
            await asyncio.sleep(0)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._options.canary_seconds or ALIVE_EVERY)
            with naming("PING"):
                await self._db.ping()
            await self._check_schema()
            if self._channel is not None and self._options.canary_seconds:
                await self._send_and_wait("canary", list)
            self.was_well = True

    async def _read_tables(self) -> None:
        while True:
            await self._add_candidates()
            table = self._epoch.next_due()
            if table is None:
                waits = (self._epoch.wait(), CANDIDATES_AGAIN if self._epoch.candidates else None)
                await self._wait_for_activity(min((wait for wait in waits if wait is not None), default=None))
            else:
                await self._read(table)

    async def _check_schema(self) -> int | None:
        """Mark every table described under another schema version as due; return the current version."""
        version = await schema_version(self._db)
        if version is None:
            return None
        if version != self._schema:
            listed = await list_tables(self._db) if self._options.all_tables else []
            self._epoch.candidates += {*listed, *self._epoch.settings}
            self._schema = version
            self._activity.set()
        await self._sink.land(self._epoch.compare_schema(version))
        return version

    async def _add_candidates(self) -> None:
        """Start capturing newly found tables that are wanted and can be captured; those that cannot be now stay."""
        if self._clock() < self._candidates_at:
            return
        refused_now = list[str]()
        while self._epoch.candidates:
            stream = self._epoch.candidates.pop(0)
            if self._epoch.is_wanted(stream):
                try:
                    schema = await schema_version(self._db)
                    await describe(self._db, stream, self._epoch.settings_of(stream))
                    await self._listen(stream)
                except SourceRefused as refused:
                    if refused.code in PASSES:
                        refused_now.append(stream)
                    else:
                        await self._sink.land([bronze_frames.left_out(stream, refused)])
                else:
                    self._epoch.add(stream, schema)
        if refused_now:
            self._epoch.candidates += refused_now
            self._candidates_at = self._clock() + CANDIDATES_AGAIN

    async def _listen(self, stream: str) -> None:
        """Listen to a table again, since it may have been recreated; needed only if tables are listened to by name."""
        if not self._options.all_tables:
            await self._db.listen_as(self._options.listen, stream)

    async def _read(self, table: TableAttempts) -> None:
        """Make one attempt at a snapshot of the table."""
        try:
            schema = await self._check_schema()
            described = await describe(self._db, table.stream, table.table)
            if schema != table.schema:
                await self._listen(table.stream)
            await self._begin(table, described, schema)
            async with aclosing(self._snapshot_parts(described)) as parts:
                async for rows, frame in parts:
                    await self._sink.land(table.select(rows, frame))
            await self._check_schema()
            await self._end(table)
            if not table.is_void:
                self._epoch.circuit_breaker.reset(table.stream)
        except SourceRefused as refused:
            if refused.code == "no-table":
                self._epoch.leave(table.stream)
                await self._sink.land([bronze_frames.left_out(table.stream, refused)])
            else:
                await self._sink.land(table.give_up(str(refused), self._clock()))
        except SilverfoldError:
            self._epoch.circuit_breaker.trip(table.stream)
            raise

    async def _begin(self, table: TableAttempts, described: Description, schema: int | None) -> None:
        if not self._options.fence:
            return await self._sink.land(table.begin_from_listening(described, schema))
        low = mark("fence low", stream=table.stream)
        return await self._send_and_wait("low", lambda: [low, *table.begin(described, schema)])

    async def _end(self, table: TableAttempts) -> None:
        if not self._options.fence:
            await self._settle(table)
            return await self._sink.land(table.close(self._clock()))
        high = mark("fence high", stream=table.stream)
        return await self._send_and_wait("high", lambda: [high, *table.close(self._clock())])

    async def _settle(self, table: TableAttempts) -> None:
        """Wait until every commit before the end of the SELECT must have been notified."""
        settle, ended = self._options.settle_seconds, self._clock()
        latest = ended + SETTLED_AT_LAST * settle
        while (left := min(latest, max(ended, table.notified_at) + settle) - self._clock()) > 0:
            await asyncio.sleep(left)

    async def _snapshot_parts(
        self, described: Description
    ) -> AsyncGenerator[tuple[Sequence[tuple[Value, ...]], bytes], None]:
        """Yield the rows and frames of a snapshot, from one SELECT or from pages, each after the last key.

        Configured keys that are not the primary key may repeat: paging would skip all but the first such row.
        """
        page = self._options.page_rows if described.has_primary_key else 0
        behind: tuple[Value, ...] = ()
        while True:
            sql = page_text(described, first=not behind) if page else select_text(described)
            parameters = (*behind, page) if page else ()
            last, count = None, 0
            async with aclosing(self._db.parts(sql, *parameters, patience=SELECT_PATIENCE)) as parts:
                async for part in parts:
                    if isinstance(part, ChunksEnded):
                        rows: Sequence[tuple[Value, ...]] = ()
                    else:
                        answer = part.chunk if isinstance(part, ChunkReceived) else part.reply
                        rows = checked_rows(answer, len(described.names))
                    count += len(rows)
                    last = rows[-1] if rows else last
                    yield rows, part.frame
            if last is None or not page or count < page:
                return
            behind = _key(described, last)

    async def _send_and_wait(self, what: str, then: Callable[[], list[Frame]]) -> None:
        """Send a message to our channel; wait until it comes back and ``then``'s frames have landed behind it.

        Raises:
            SourceUnavailable: It does not come back: other notifications may be lost as well.
            StatementRefused: It cannot be sent.
        """
        assert self._channel is not None
        self._message_count += 1
        token = f"{what} {self._message_count}"
        self._epoch.expect(token, then)
        with naming("NOTIFY on our own channel", forbidden=WITHOUT_CHANNEL):
            await self._db.notify(self._channel, token)
        sent_at = self._clock()
        while not self._epoch.has_returned(token):
            await self._wait_for_activity(1.0)
            if not self._epoch.has_returned(token) and self._is_lost(sent_at):
                raise SourceUnavailable(f"{what}: what was said on our own channel did not come back")

    def _is_lost(self, sent_at: float) -> bool:
        """Return whether a message sent then is overdue; never while we ourselves lag behind."""
        now = self._clock()
        is_quiet = self._is_receiving and now - max(sent_at, self._received_at) >= RETURN_WITHIN
        return is_quiet or (self._is_receiving and now - sent_at >= RETURN_AT_LAST)

    async def _wait_for_activity(self, seconds: float | None) -> None:
        """Wait for the next notification, at most this long."""
        self._activity.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # `asyncio.wait_for` may swallow a cancellation
                await self._activity.wait()


@contextmanager
def naming(statement: str, *, forbidden: str = "") -> Iterator[None]:
    """Name a statement where the server refuses it, and what to do where we may not give it."""
    try:
        yield
    except StatementRefused as refused:
        advice = f": {forbidden}" if forbidden and refused.code == FORBIDDEN else ""
        raise StatementRefused(code=refused.code, text=f"{statement}: {refused.text}{advice}") from None


def _key(described: Description, row: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the key of a row. Raise StatementRefused if no page can start after it: it contains NULL or a NUL."""
    key = tuple(row[described.names.index(name)] for name in described.keys)
    if None in key:
        raise StatementRefused(code="null-key", text="a row has a NULL in its key: set page_rows to 0")
    if any(isinstance(part, str) and "\0" in part for part in key):
        raise StatementRefused(code="nul-in-key", text="a row has a NUL character in its key: set page_rows to 0")
    return key
