"""A standalone client of a SQLite Cloud database: statements on one connection, notifications on another.

::

    async with await connect("sqlitecloud://user:secret@db.example/shop.sqlite") as db:
        await db.listen_table("orders")
        async for row in db.select("SELECT id, total FROM orders WHERE total > ?", 100):
            print(row)
        async for notification in db.notifications():
            print(notification.text)  # `silverfold.connectors.sqlitecloud.client.decoded` parses it

The first `Client.listen` or `Client.listen_table` opens the second connection. If either connection ends, both end, and
every later call raises the reason. There is no reconnect: notifications missed in between are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from silverfold.conf.errors import LocalProtocolError, RemoteProtocolError
from silverfold.connectors.sqlitecloud.client.session import Session
from silverfold.connectors.sqlitecloud.client.settings import ConnectionSettings
from silverfold.connectors.sqlitecloud.client.urls import parse_connection_string
from silverfold.connectors.sqlitecloud.protocol import statements
from silverfold.connectors.sqlitecloud.protocol.frames import MAX_FRAME_BYTES
from silverfold.connectors.sqlitecloud.protocol.messages import (
    Array,
    BadFrame,
    ChunkReceived,
    ChunksEnded,
    JsonText,
    Notification,
    ReplyReceived,
    Rowset,
    RowsetChunk,
    Single,
    Statement,
    Value,
)
from silverfold.connectors.sqlitecloud.protocol.sql_splitter import first_word, split

Reply: TypeAlias = Value | tuple[Value, ...] | Rowset | JsonText
"""The reply to a statement: one value, the values of an array, a rowset, or a JSON text."""

Part: TypeAlias = ReplyReceived | ChunkReceived | ChunksEnded
"""A frame of a rowset reply: the complete rowset, one of its chunks, or the end of its chunks."""

FRAME_TIMEOUT: Final = 60.0


async def connect(
    to: ConnectionSettings | str, *, max_frame_bytes: int = MAX_FRAME_BYTES, frame_timeout: float = FRAME_TIMEOUT
) -> Client:
    """Return a client that is connected and logged in.

    Args:
        to: Settings, or a connection string.
        max_frame_bytes: Longest frame to accept, as announced and after expansion.
        frame_timeout: Seconds within which a started frame must be complete.

    Raises:
        ValueError: The connection string is invalid.
        ConfigError: A certificate file is unusable.
        SourceUnavailable, RemoteProtocolError: The server is unreachable or violates the protocol.
        UntrustedSource: The server's certificate is not trusted.
        StatementRefused: The server refuses the credentials, or has no such database.
    """
    settings = parse_connection_string(to) if isinstance(to, str) else to
    session = Session(settings, max_frame_bytes=max_frame_bytes, frame_timeout=frame_timeout)
    await session.open()
    return Client(session, settings)


class Client:
    """A session with a database, closed at the end of its ``async with`` block. Created by `connect`.

    Every call may raise SourceUnavailable or RemoteProtocolError: the session is then over. StatementRefused means that
    the server refused one statement. Requests run one at a time; tasks wait for their turn.
    """

    def __init__(self, session: Session, settings: ConnectionSettings) -> None:
        self._session, self._settings = session, settings
        self._buffered: deque[Notification] = deque()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def bad_frames(self) -> list[BadFrame]:
        """The unreadable input that ended the session: the bad frame and everything after it."""
        return self._session.bad_frames

    @property
    def own_uuid(self) -> str | None:
        """The session's uuid, as notifications name their sender; None before the session listens."""
        return self._session.uuid

    async def close(self) -> None:
        """End the session immediately. Idempotent."""
        await self._session.close()

    async def exec(self, sql: str, *parameters: Value) -> Reply:
        """Run a statement and return its complete reply; for many rows use `select`.

        Args:
            parameters: Values for the question marks of the statement, in order.

        Raises:
            InvalidValue: A parameter cannot be sent, such as a text with a NUL. Nothing was sent.
            LocalProtocolError: A statement is a LISTEN, for which there are `listen` and `listen_table`.
        """
        if "LISTEN" in map(first_word, split(sql)):
            raise LocalProtocolError("LISTEN needs a second connection: call listen or listen_table")
        return await self._reply(Statement(sql, parameters))

    async def select(self, sql: str, *parameters: Value) -> AsyncGenerator[tuple[Value, ...], None]:
        """Yield the rows of a statement as they arrive. Memory holds at most the rows of one frame.

        The task that reads them cannot send another request until all are read or the generator is closed. Unread rows
        are then received and dropped before the next request.

        Raises:
            LocalProtocolError: The statement returns no rows.
        """
        async with aclosing(self.parts(sql, *parameters, patience=self._settings.timeout)) as parts:
            async for part in parts:
                for row in rows_of(part):
                    yield row

    async def parts(self, sql: str, *parameters: Value, patience: float | None) -> AsyncGenerator[Part, None]:
        """Yield the frames of a statement's reply as they arrive: chunks and their end, or one complete frame.

        The restrictions of `select` apply.

        Args:
            patience: Seconds within which the reply must begin, and each further part must arrive; None waits forever.
        """
        async with aclosing(self._session.answers(Statement(sql, parameters), patience)) as answers:
            async for answer in answers:
                if isinstance(answer, ChunkReceived | ReplyReceived | ChunksEnded):
                    yield answer

    async def uuid(self) -> str:
        """Return the session's uuid, as notifications name their sender."""
        found = await self.exec("GET CLIENT KEY UUID;")
        if not isinstance(found, str):
            raise self._session.lose(RemoteProtocolError("the session's uuid is not a text"))
        return found

    async def ping(self) -> None:
        """Check that the server responds. Raise SourceUnavailable if it does not answer in time."""
        if await self.exec("PING;") != "PONG":
            raise self._session.lose(RemoteProtocolError("PING is not answered with PONG"))

    async def listen(self, channel: str) -> None:
        """Subscribe to the messages of a channel.

        A server of the older kind (PUBSUB.md, 2021) treats the name of a table in the current database as that table,
        and ``*`` as all tables: it then sends their changes.
        """
        await self._session.listen(statements.listen_channel(channel))

    async def listen_table(self, table: str, database: str | None = None) -> None:
        """Subscribe to the changes of a table, or of all tables with ``*``. Not inside a transaction.

        Args:
            database: None for the connection's database.
        """
        await self._session.listen(statements.listen_table(table, self._database(database)))

    async def listen_as(self, kind: Literal["table", "channel"], table: str) -> None:
        """Subscribe to the changes of a table, or of all tables, by `listen` or `listen_table`."""
        await (self.listen(table) if kind == "channel" else self.listen_table(table))

    async def unlisten(self, channel: str) -> None:
        """Unsubscribe from a channel, or from everything with ``*``. Some messages may still arrive."""
        await self._reply(statements.unlisten_channel(channel))

    async def unlisten_table(self, table: str, database: str | None = None) -> None:
        """Unsubscribe from a table, or from the ``*`` subscription."""
        await self._reply(statements.unlisten_table(table, self._database(database)))

    async def notify(self, channel: str, payload: str | None = None) -> None:
        """Send a message to all listeners of a channel, ourselves included; None sends no payload."""
        await self._reply(statements.notify(channel, payload))

    async def create_channel(self, channel: str, *, if_not_exists: bool = False) -> None:
        """Create a channel. Raise StatementRefused if it exists, unless ``if_not_exists``."""
        await self._reply(statements.create_channel(channel, if_missing=if_not_exists))

    async def remove_channel(self, channel: str) -> None:
        """Remove a channel."""
        await self._reply(statements.remove_channel(channel))

    async def list_channels(self) -> list[str]:
        """Return the names of all channels."""
        found = await self._reply(Statement("LIST CHANNELS;"))
        if not isinstance(found, Rowset):
            raise self._session.lose(RemoteProtocolError("the list of channels is not a rowset"))
        return [str(row[0]) for row in found.rows]

    async def pubsub_only(self) -> None:
        """Close the main connection: only notifications follow, and requests are no longer possible."""
        await self._session.pubsub_only()

    async def notifications(self) -> AsyncGenerator[Notification, None]:
        """Yield every notification in order, with its original frame. A later reader continues where this one stops.

        Nothing is read ahead: a slow reader makes the server wait.

        Raises:
            LocalProtocolError: Nothing was listened to, or another task is reading notifications.
        """
        while True:
            while self._buffered:
                yield self._buffered.popleft()
            self._buffered.extend(await self._session.next_notifications())

    async def next_notifications(self) -> list[Notification]:
        """Return all notifications available, waiting for at least one; the batched form of `notifications`."""
        notifications = list(self._buffered) or await self._session.next_notifications()
        self._buffered.clear()
        return notifications

    def arrived(self) -> list[Notification]:
        """Return the arrived, undelivered notifications without waiting; also after the session has ended."""
        arrived = [*self._buffered, *self._session.arrived()]
        self._buffered.clear()
        return arrived

    def _database(self, given: str | None) -> str:
        database = given or self._settings.database
        if database is None:
            raise LocalProtocolError("the connection names no database: name one")
        return database

    async def _reply(self, statement: Statement) -> Reply:
        chunks: list[RowsetChunk] = []
        async with aclosing(self._session.answers(statement, self._settings.timeout)) as answers:
            async for answer in answers:
                if isinstance(answer, ChunkReceived):
                    chunks.append(answer.chunk)
                elif isinstance(answer, ReplyReceived):
                    return _reply_value(answer.reply)
        return _join_chunks(chunks)


def _reply_value(reply: Single | JsonText | Array | Rowset) -> Reply:
    if isinstance(reply, Single):
        return reply.value
    return reply.items if isinstance(reply, Array) else reply


def _join_chunks(chunks: list[RowsetChunk]) -> Rowset:
    first = chunks[0]
    return Rowset(first.columns or (), [row for chunk in chunks for row in chunk.rows], first.version)


def rows_of(part: Part) -> list[tuple[Value, ...]]:
    """Return the rows of a reply part; none for the end of chunks. Raise LocalProtocolError if it is not a rowset."""
    if isinstance(part, ReplyReceived):
        if not isinstance(part.reply, Rowset):
            raise LocalProtocolError("the statement has no rows")
        return part.reply.rows
    return part.chunk.rows if isinstance(part, ChunkReceived) else []
