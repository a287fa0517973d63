"""One epoch on a session that stands: lands what is heard without pause, and reads tables when they are due.

Four tasks, of which the first to fail ends the epoch: one hears, one looks at what has landed, one reads tables one
after another, one makes sure that both connections still live and that the schema is what it was. What is said on our
own channel comes back among the notifications: there it tells how a snapshot stands to them (a fence), and that they
still come at all (a canary).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final

from conf.errors import SourceRefused, SourceUnavailable, StatementRefused
from connectors.base import Frame, FrameSink, mark
from connectors.sqlitecloud import bronze_frames
from connectors.sqlitecloud.attempts import TableAttempts
from connectors.sqlitecloud.client import Client, rows_of
from connectors.sqlitecloud.control import Description
from connectors.sqlitecloud.epoch import Epoch
from connectors.sqlitecloud.introspection import describe, list_tables, page_text, schema_version, select_text
from connectors.sqlitecloud.messages import Value
from connectors.sqlitecloud.options import SqliteCloudOptions
from connectors.tasks import until_first_ends

ALIVE_EVERY: Final = 30.0
"""Seconds between two PINGs, where no canary says otherwise."""

RETURN_WITHIN: Final = 10.0
"""Seconds in which what is said on our own channel comes back, while nothing else is on the way."""

RETURN_AT_LAST: Final = 60.0
"""Seconds after which it is lost whatever else comes."""

SELECT_PATIENCE: Final = 600.0
"""Seconds in which a SELECT's answer must begin, and go on."""

CHECKED_AT_ONCE: Final = 64
"""Notifications that are read before others may land."""

SETTLED_AT_LAST: Final = 10
"""Without a fence, a table that is never quiet counts as settled after so many times its ``settle_seconds``."""


class LiveEpoch:
    """An epoch that listens already.

    Args:
        channel: Our own channel; None where there is none, and so neither fence nor canary.
        schema: Version of the database's schema before anything was listened to.
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
        self._said = 0
        self._reads = False
        self._heard_at = clock()
        self._pulse = asyncio.Event()

    async def run(self) -> None:
        """Go on until something fails, and raise that: SourceUnavailable or RemoteProtocolError. Safe to cancel."""
        await until_first_ends(self._hear(), self._check(), self._read_tables(), self._keep_alive())

    async def _hear(self) -> None:
        while True:
            self._reads = True
            heard = await self._db.heard()
            self._reads, self._heard_at = False, self._clock()
            await self._sink.land(self._epoch.hear(heard))
            self._pulse.set()

    async def _check(self) -> None:
        """Look at what has landed unread, a little at a time: what is heard meanwhile goes first."""
        while True:
            found = self._epoch.check(CHECKED_AT_ONCE)
            if found is None:
                await self._until_heard(None)
                continue
            await self._sink.land(found)
            if found:
                self._pulse.set()
            await asyncio.sleep(0)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._options.canary_seconds or ALIVE_EVERY)
            await self._db.ping()
            await self._look_at_schema()
            if self._channel is not None and self._options.canary_seconds:
                await self._say("canary", list)

    async def _read_tables(self) -> None:
        while True:
            await self._look_at_found()
            table = self._epoch.next_due()
            if table is None:
                await self._until_heard(self._epoch.wait())
            else:
                await self._read(table)

    async def _look_at_schema(self) -> int | None:
        """Let all be read again that was read by another version of the schema; return the version by now."""
        version = await schema_version(self._db)
        if version is None:
            return None
        if version != self._schema:
            listed = await list_tables(self._db) if self._options.all_tables else []
            self._epoch.found += {*listed, *self._epoch.settings}
            self._schema = version
            self._pulse.set()
        await self._sink.land(self._epoch.compare_schema(version))
        return version

    async def _look_at_found(self) -> None:
        """Let tables take part that may be there, if they are wanted and can be captured."""
        while self._epoch.found:
            stream = self._epoch.found.pop(0)
            if self._epoch.is_wanted(stream):
                try:
                    schema = await schema_version(self._db)
                    await describe(self._db, stream, self._epoch.settings_of(stream))
                    await self._listen(stream)
                except SourceRefused as refused:
                    await self._sink.land([bronze_frames.left_out(stream, refused)])
                else:
                    self._epoch.add(stream, schema)

    async def _listen(self, stream: str) -> None:
        """Listen to a table that may be another one than was listened to by its name, where each is by its own."""
        if not self._options.all_tables:
            await self._db.listen_as(self._options.listen, stream)

    async def _read(self, table: TableAttempts) -> None:
        """Make one attempt at a snapshot of the table."""
        try:
            schema = await self._look_at_schema()
            described = await describe(self._db, table.stream, table.table)
            if schema != table.schema:
                await self._listen(table.stream)
            await self._begin(table, described, schema)
            async with aclosing(self._parts(described)) as parts:
                async for rows, frame in parts:
                    await self._sink.land(table.select(rows, frame))
            await self._look_at_schema()
            await self._end(table)
        except SourceRefused as refused:
            if refused.code == "no-table":
                self._epoch.leave(table.stream)
                await self._sink.land([bronze_frames.left_out(table.stream, refused)])
            else:
                await self._sink.land(table.give_up(str(refused), self._clock()))

    async def _begin(self, table: TableAttempts, described: Description, schema: int | None) -> None:
        if not self._options.fence:
            return await self._sink.land(table.begin_from_listening(described, schema))
        low = mark("fence low", stream=table.stream)
        return await self._say("low", lambda: [low, *table.begin(described, schema)])

    async def _end(self, table: TableAttempts) -> None:
        if not self._options.fence:
            await self._settle(table)
            return await self._sink.land(table.close(self._clock()))
        high = mark("fence high", stream=table.stream)
        return await self._say("high", lambda: [high, *table.close(self._clock())])

    async def _settle(self, table: TableAttempts) -> None:
        """Wait until what was committed before the SELECT's end must have been notified."""
        settle, ended = self._options.settle_seconds, self._clock()
        latest = ended + SETTLED_AT_LAST * settle
        while (left := min(latest, max(ended, table.heard_at) + settle) - self._clock()) > 0:
            await asyncio.sleep(left)

    async def _parts(self, described: Description) -> AsyncGenerator[tuple[Sequence[tuple[Value, ...]], bytes], None]:
        """Yield the rows and the frames of a snapshot, in one SELECT or in pages behind the last key.

        Keys of the settings may be those of several rows, and the others would be passed over behind the first.
        """
        page = self._options.page_rows if described.has_primary_key else 0
        behind: tuple[Value, ...] = ()
        while True:
            sql = page_text(described, first=not behind) if page else select_text(described)
            parameters = (*behind, page) if page else ()
            last, count = None, 0
            async with aclosing(self._db.parts(sql, *parameters, patience=SELECT_PATIENCE)) as parts:
                async for part in parts:
                    rows = rows_of(part)
                    count += len(rows)
                    last = rows[-1] if rows else last
                    yield rows, part.frame
            if last is None or not page or count < page:
                return
            behind = _key(described, last)

    async def _say(self, what: str, then: Callable[[], list[Frame]]) -> None:
        """Say something on our channel, and wait until it has been heard, and ``then`` has landed behind it.

        Raises:
            SourceUnavailable: It does not come back: so other notifications may be lost as well.
        """
        assert self._channel is not None
        self._said += 1
        token = f"{what} {self._said}"
        self._epoch.expect(token, then)
        await self._db.notify(self._channel, token)
        said_at = self._clock()
        while not self._epoch.has_returned(token):
            await self._until_heard(1.0)
            if not self._epoch.has_returned(token) and self._is_lost(said_at):
                raise SourceUnavailable(f"{what}: what was said on our own channel did not come back")

    def _is_lost(self, said_at: float) -> bool:
        """Tell whether what was said then must have come by now; not while we are the ones who are behind."""
        now = self._clock()
        is_quiet = self._reads and now - max(said_at, self._heard_at) >= RETURN_WITHIN
        return is_quiet or (self._reads and now - said_at >= RETURN_AT_LAST)

    async def _until_heard(self, seconds: float | None) -> None:
        """Wait until something was heard, at most so long."""
        self._pulse.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # `asyncio.wait_for` may swallow a cancellation
                await self._pulse.wait()


def _key(described: Description, row: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the key of a row. Raises StatementRefused when no page can begin behind it: it has a NULL or a NUL."""
    key = tuple(row[described.names.index(name)] for name in described.keys)
    if None in key:
        raise StatementRefused(code="null-key", text="a row has a NULL in its key: set page_rows to 0")
    if any(isinstance(part, str) and "\0" in part for part in key):
        raise StatementRefused(code="nul-in-key", text="a row has a NUL character in its key: set page_rows to 0")
    return key
