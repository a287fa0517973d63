"""A client of a SQLite Cloud database, usable alone: statements on one connection, notifications on another.

::

    async with await connect("sqlitecloud://user:secret@db.example/shop.sqlite") as db:
        await db.listen_table("orders")
        async for row in db.select("SELECT id, total FROM orders WHERE total > ?", 100):
            print(row)
        async for notification in db.notifications():
            print(notification.text)  # `connectors.sqlitecloud.decoded` reads it

The second connection is opened by the first `Client.listen` or `Client.listen_table`. The end of either is the end of
both, and every call from then on says why. Nothing connects again: what was not heard is not told later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from conf.errors import LocalProtocolError, RemoteProtocolError
from connectors.sqlitecloud import statements
from connectors.sqlitecloud.frames import MAX_FRAME_BYTES
from connectors.sqlitecloud.messages import (
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
from connectors.sqlitecloud.session import Session
from connectors.sqlitecloud.settings import ConnectionSettings
from connectors.sqlitecloud.urls import parse_connection_string

Reply: TypeAlias = Value | tuple[Value, ...] | Rowset | JsonText
"""The answer to a statement: one value, the values of an array, a rowset, or a text of JSON."""

Part: TypeAlias = ReplyReceived | ChunkReceived | ChunksEnded
"""A frame of a rowset's answer: all of it, or one of its chunks, or their end."""

FRAME_TIMEOUT: Final = 60.0


async def connect(
    to: ConnectionSettings | str, *, max_frame_bytes: int = MAX_FRAME_BYTES, frame_timeout: float = FRAME_TIMEOUT
) -> Client:
    """Return a client that is connected and logged in.

    Args:
        to: Settings, or a connection string.
        max_frame_bytes: Longest frame to accept, as announced and as expanded.
        frame_timeout: Seconds within which a frame that has begun must be there.

    Raises:
        ValueError: The connection string is wrong.
        ConfigError: A file of certificates cannot be used.
        SourceUnavailable, RemoteProtocolError: There is no server, or none that answers as it should.
        UntrustedSource: Its certificate is not one to trust.
        StatementRefused: It does not accept the credentials, or has no such database.
    """
    settings = parse_connection_string(to) if isinstance(to, str) else to
    session = Session(settings, max_frame_bytes=max_frame_bytes, frame_timeout=frame_timeout)
    await session.open()
    return Client(session, settings)


class Client:
    """A session with a database; its ``async with`` block ends with it. Made by `connect`.

    Every call may raise SourceUnavailable or RemoteProtocolError: the session is over. StatementRefused is the server's
    no to one statement. One request is under way at a time; tasks wait for their turn.
    """

    def __init__(self, session: Session, settings: ConnectionSettings) -> None:
        self._session, self._settings = session, settings
        self._heard: deque[Notification] = deque()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def bad_frames(self) -> list[BadFrame]:
        """What could not be read, where that ended the session: the frame and all behind it."""
        return self._session.bad_frames

    @property
    def own_uuid(self) -> str | None:
        """The session's own name, as notifications tell who sent them; None before it listens."""
        return self._session.uuid

    async def close(self) -> None:
        """End the session, whatever is on its way. Safe to repeat."""
        await self._session.close()

    async def exec(self, sql: str, *parameters: Value) -> Reply:
        """Run a statement and return its whole answer; for many rows use `select`.

        Args:
            parameters: For the question marks of the statement, in order.

        Raises:
            InvalidValue: A parameter cannot be sent, such as a text with a NUL. Nothing was sent.
        """
        return await self._reply(Statement(sql, parameters))

    async def select(self, sql: str, *parameters: Value) -> AsyncGenerator[tuple[Value, ...], None]:
        """Yield the rows of a statement as they come; never more of them are in memory than the server puts in a frame.

        Nothing else can be asked by the task that reads them, until all are read or the generator is closed. What is
        left then is still received, and dropped, before the next request.

        Raises:
            LocalProtocolError: The statement has no rows.
        """
        async with aclosing(self.parts(sql, *parameters, patience=self._settings.timeout)) as parts:
            async for part in parts:
                for row in rows_of(part):
                    yield row

    async def parts(self, sql: str, *parameters: Value, patience: float | None) -> AsyncGenerator[Part, None]:
        """Yield the frames of a statement's answer as they come: chunks and their end, or one that is all of it.

        What `select` says of rows holds for parts.

        Args:
            patience: Seconds in which the answer must begin, and go on; None waits for ever.
        """
        async with aclosing(self._session.answers(Statement(sql, parameters), patience)) as answers:
            async for answer in answers:
                if isinstance(answer, ChunkReceived | ReplyReceived | ChunksEnded):
                    yield answer

    async def uuid(self) -> str:
        """Return the session's own name, as notifications tell who sent them."""
        found = await self.exec("GET CLIENT KEY UUID;")
        if not isinstance(found, str):
            raise RemoteProtocolError("the session's uuid is not a text")
        return found

    async def ping(self) -> None:
        """Ask whether the server is there. Raises SourceUnavailable when it does not answer in time."""
        if await self.exec("PING;") != "PONG":
            raise RemoteProtocolError("PING is not answered with PONG")

    async def listen(self, channel: str) -> None:
        """Ask for the messages of a channel.

        A server of the old kind (PUBSUB.md, 2021) takes the name of a table in the database in use for that table, and
        ``*`` for all of them: then for their changes.
        """
        await self._session.listen(statements.listen_channel(channel))

    async def listen_table(self, table: str, database: str | None = None) -> None:
        """Ask for the changes of a table, or of all tables: ``*``. Not inside a transaction.

        Args:
            database: None for the one that the connection names.
        """
        await self._session.listen(statements.listen_table(table, self._database(database)))

    async def listen_as(self, kind: Literal["table", "channel"], table: str) -> None:
        """Ask for the changes of a table, or of all tables, by `listen` or `listen_table`, as the server has it."""
        await (self.listen(table) if kind == "channel" else self.listen_table(table))

    async def unlisten(self, channel: str) -> None:
        """Ask for no more messages of a channel; ``*`` for nothing more at all. Some may still be under way."""
        await self._reply(statements.unlisten_channel(channel))

    async def unlisten_table(self, table: str, database: str | None = None) -> None:
        """Ask for no more changes of a table, or of all that were asked for with ``*``."""
        await self._reply(statements.unlisten_table(table, self._database(database)))

    async def notify(self, channel: str, payload: str | None = None) -> None:
        """Send a message to all that listen to a channel, ourselves included; one of None has no payload."""
        await self._reply(statements.notify(channel, payload))

    async def create_channel(self, channel: str, *, if_not_exists: bool = False) -> None:
        """Make a channel. Raises StatementRefused when there is one already, unless ``if_not_exists``."""
        await self._reply(statements.create_channel(channel, if_missing=if_not_exists))

    async def remove_channel(self, channel: str) -> None:
        """Remove a channel."""
        await self._reply(statements.remove_channel(channel))

    async def list_channels(self) -> list[str]:
        """Return the names of all channels."""
        found = await self._reply(Statement("LIST CHANNELS;"))
        if not isinstance(found, Rowset):
            raise RemoteProtocolError("the list of channels is not a rowset")
        return [str(row[0]) for row in found.rows]

    async def pubsub_only(self) -> None:
        """End the main connection: from now on there are notifications, and nothing can be asked."""
        await self._session.pubsub_only()

    async def notifications(self) -> AsyncGenerator[Notification, None]:
        """Yield every notification, in order, with its frame as it came. What one reader leaves, the next one gets.

        Nothing is read ahead: a reader that takes its time lets the server wait.

        Raises:
            LocalProtocolError: Nothing was listened to, or another task is reading them.
        """
        while True:
            while self._heard:
                yield self._heard.popleft()
            self._heard.extend(await self._session.hear())

    async def heard(self) -> list[Notification]:
        """Return the next notifications, as many as there are, at least one; as `notifications` does one by one."""
        heard = list(self._heard) or await self._session.hear()
        self._heard.clear()
        return heard

    def arrived(self) -> list[Notification]:
        """Return the notifications that have arrived and were not handed out, without waiting; also once it is over."""
        arrived = [*self._heard, *self._session.arrived()]
        self._heard.clear()
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
                    return _value(answer.reply)
        return _gathered(chunks)


def _value(reply: Single | JsonText | Array | Rowset) -> Reply:
    if isinstance(reply, Single):
        return reply.value
    return reply.items if isinstance(reply, Array) else reply


def _gathered(chunks: list[RowsetChunk]) -> Rowset:
    first = chunks[0]
    return Rowset(first.columns or (), [row for chunk in chunks for row in chunk.rows], first.version)


def rows_of(part: Part) -> list[tuple[Value, ...]]:
    """Return the rows of a part; the end of chunks has none. Raises LocalProtocolError when it is no part of rows."""
    if isinstance(part, ReplyReceived):
        if not isinstance(part.reply, Rowset):
            raise LocalProtocolError("the statement has no rows")
        return part.reply.rows
    return part.chunk.rows if isinstance(part, ChunkReceived) else []
