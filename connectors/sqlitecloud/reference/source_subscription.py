"""A subscription to one table in a session of its own, to verify silver against the source.

The table is read between two messages on a channel of its own. Notifications in between overlay its rows. Together they
are the table at one moment, which is the first update. Every later notification is an update.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, Final
from uuid import uuid4

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceRefused, SourceUnavailable
from silverfold.connectors.common.update_queue import LoopSubscription
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.address import connection_settings
from silverfold.connectors.sqlitecloud.client.client import Client, connect
from silverfold.connectors.sqlitecloud.options import SqliteCloudFeed
from silverfold.connectors.sqlitecloud.protocol.messages import Notification, Rowset
from silverfold.connectors.sqlitecloud.protocol.statements import quote_identifier
from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader
from silverfold.connectors.verification import ReferenceChange, ReferenceUpdate

_COLUMNS: Final = 'SELECT name, type, "notnull" != 0, pk, hidden FROM pragma_table_xinfo(?)'
_COLUMN_FIELDS: Final = ("name", "type", "not_null", "pk", "hidden")
_PATIENCE: Final = 600.0
"""Seconds within which the table's rows must begin, and each further part must arrive."""


class SqliteCloudSourceSubscription(LoopSubscription):
    """A `SourceSubscription`. Connects on entering its ``with`` block; rows arrive while it runs.

    Requires the privilege to create a channel of its own.
    """

    def __init__(self, feed: SqliteCloudFeed, table: str) -> None:
        settings, options = feed.tables[table], feed.options
        super().__init__(settings.stream(table))
        self._feed, self._options, self._table = feed, options, settings
        self._reader = SqliteCloudReferenceReader(self._stream, settings, options)
        self._channel = f"silverfold-{uuid4()}"
        self._overlay: list[ReferenceChange] | None = None
        self._echoes: dict[str, asyncio.Event] = {}
        self._position = 0

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self._reader.keys

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns."""
        return self._reader.columns

    async def _subscribe(self) -> None:
        async with await self._open() as db:
            await self._describe(db)
            await db.listen_as(self._options.listen, self._stream)
            await db.create_channel(self._channel, if_not_exists=True)
            await db.listen(self._channel)
            self._connected.set_result(None)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._receive(db))
                    tasks.create_task(self._read(db))
            except* SilverfoldError as several:
                raise several.exceptions[0] from None
            finally:
                with suppress(SilverfoldError):
                    await db.remove_channel(self._channel)

    async def _open(self) -> Client:
        """Connect. A peer that does not answer as a server concerns no table: it may be a proxy without its source."""
        settings, options = connection_settings(self._feed, os.environ), self._options
        try:
            return await connect(settings, max_frame_bytes=options.max_frame_bytes, frame_timeout=options.frame_timeout)
        except RemoteProtocolError as error:
            raise SourceUnavailable(str(error)) from error

    async def _describe(self, db: Client) -> None:
        found = await db.exec(_COLUMNS, self._stream)
        rows = found.rows if isinstance(found, Rowset) else []
        try:
            columns: list[dict[str, Any]] = [dict(zip(_COLUMN_FIELDS, row, strict=True)) for row in rows]
            own = sorted((column for column in columns if column["pk"]), key=lambda column: int(column["pk"]))
        except (TypeError, ValueError) as error:
            raise RemoteProtocolError("a table is described by other values than were selected") from error
        keys = self._table.keys or [column["name"] for column in own]
        if not columns or not keys:
            raise SourceRefused(code="no-key", text="there is no such table, or it has no key", stream=self._stream)
        description = json.dumps({"table": self._stream, "columns": columns, "keys": list(keys)})
        self._reader.control(ControlFrame(0, 1, self._stream, description.encode()))

    async def _receive(self, db: Client) -> None:
        async with aclosing(db.notifications()) as notifications:
            async for notification in notifications:
                if (word := self._own_message(notification)) is not None:
                    self._echoes[word].set()
                    if word == "low":
                        self._overlay = []
                    continue
                changes = self._changes(notification.frame)
                if self._overlay is not None:
                    self._overlay += changes
                elif "high" in self._echoes:
                    self._updates.put(ReferenceUpdate(False, changes))

    async def _read(self, db: Client) -> None:
        """Read the table, repeatedly if needed, until notifications can overlay it; then deliver both."""
        names = ", ".join(map(quote_identifier, self.columns))
        while True:
            await self._send_and_wait(db, "low")
            sql = f"SELECT {names} FROM {quote_identifier(self._stream)}"
            async with aclosing(db.parts(sql, patience=_PATIENCE)) as parts:
                frames = [(0, part.frame) async for part in parts]
            rows = list(self._reader.changes(1, frames))
            await self._send_and_wait(db, "high")
            overlay, self._overlay = self._overlay or [], None
            if not any(self._is_partial_move(change) for change in overlay):
                return self._updates.put(ReferenceUpdate(True, [*rows, *overlay]))
            del self._echoes["high"]

    def _is_partial_move(self, change: ReferenceChange) -> bool:
        """Return whether a row may already have moved in the snapshot, without the columns not sent."""
        return change.op == "update" and change.old_key is not None and set(change.row) != set(self.columns)

    async def _send_and_wait(self, db: Client, word: str) -> None:
        self._echoes[word] = asyncio.Event()
        await db.notify(self._channel, word)
        await self._echoes[word].wait()

    def _own_message(self, notification: Notification) -> str | None:
        """Return the message if it is from our own channel; None otherwise."""
        if self._channel.encode() not in notification.text:
            return None
        try:
            message = json.loads(notification.text)
        except ValueError:
            return None
        is_own = message.get("channel") == self._channel and message.get("payload") in self._echoes
        return str(message["payload"]) if is_own else None

    def _changes(self, frame: bytes) -> Sequence[ReferenceChange]:
        self._position += 1
        return list(self._reader.changes(1, [(self._position, frame)]))
