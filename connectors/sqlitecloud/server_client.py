"""Serves one connection of a client: a session's main connection, or, once it has said PAUTH, its pub/sub connection.

Either is a stream of frames. What cannot be read as a request is answered with an error, and the connection lives; what
cannot even be cut into frames ends it.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

import structlog

from conf.errors import WireError
from connectors.sqlitecloud.encode import OK, encode_error
from connectors.sqlitecloud.error_codes import refusal
from connectors.sqlitecloud.frames import FrameCutter, RawFrame
from connectors.sqlitecloud.messages import PubSubTicket, Statement
from connectors.sqlitecloud.outbox import Outbox
from connectors.sqlitecloud.request_reader import read_request
from connectors.sqlitecloud.server_session import answer
from connectors.sqlitecloud.server_state import Served, ServedSession
from connectors.sqlitecloud.sql_splitter import words
from connectors.tasks import until_first_ends

_RECEIVED_AT_ONCE: Final = 1 << 16

_Found = TypeVar("_Found")


class Clients:
    """All connections of a server. Used in its loop, except for the counts.

    Args:
        encrypted: Whether connections are.
    """

    def __init__(self, served: Served, log: structlog.typing.FilteringBoundLogger, *, encrypted: bool) -> None:
        self.served, self.log, self.encrypted = served, log, encrypted
        self.sessions: dict[str, ServedSession] = {}
        """Those that have a main connection, or go on without, by uuid."""
        self.open: dict[asyncio.Task[None], Connection] = {}
        """Connections by the task that serves them."""

    @property
    def count(self) -> int:
        """How many connections there are."""
        return len(self.open)

    @property
    def listening_count(self) -> int:
        """How many of them are pub/sub connections."""
        return sum(connection.listens for connection in list(self.open.values()))

    async def disconnect(self, *, listeners_only: bool = False) -> None:
        """Break connections, and return when they have ended."""
        ended = {task: each for task, each in self.open.items() if each.listens or not listeners_only}
        for connection in ended.values():
            connection.break_off()
        if ended:
            await asyncio.wait(ended)

    def let_go(self, session: ServedSession) -> None:
        """Forget a session that has no connection to go on with: its pub/sub connection ends, if it has one."""
        if not session.has_main and not (session.pubsub_only and session.is_heard):
            self.sessions.pop(session.uuid, None)
            session.leave()

    def owner(self, ticket: PubSubTicket) -> ServedSession | None:
        """Return the session whose ticket it is."""
        session = self.sessions.get(ticket.uuid)
        right = session is not None and hmac.compare_digest(session.ticket.secret.encode(), ticket.secret.encode())
        return session if right and not self.served.behaviour.refuse_pauth else None


@dataclass(eq=False)
class Connection:
    """One connection, and the session it is of."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    session: ServedSession
    listens: bool = False
    cutter: FrameCutter = field(default_factory=FrameCutter)
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "sqlitecloud-session"))

    def break_off(self) -> None:
        """End the connection wherever it stands."""
        self.writer.transport.abort()
        if not self.listens:
            self.session.interrupt()

    async def frames(self) -> AsyncIterator[RawFrame]:
        """Give frames as they come, until the client closes. Raises WireError where there are none."""
        while chunk := await self.reader.read(_RECEIVED_AT_ONCE):
            self.cutter.receive(chunk)
            while (frame := self.cutter.next_frame()) is not None:
                yield frame

    async def in_thread(self, work: Callable[[], _Found]) -> _Found:
        """Do what may wait for SQLite, in the session's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)

    async def send(self, frame: bytes) -> None:
        """Write a frame, as fast as the client takes it."""
        self.writer.write(frame)
        await self.writer.drain()


async def serve_client(clients: Clients, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection until it ends."""
    task = asyncio.current_task()
    assert task is not None
    host, port = writer.get_extra_info("peername")[:2]
    connection = Connection(reader, writer, ServedSession(clients.served, ip=host))
    clients.open[task] = connection
    log = clients.log.bind(client=f"{host}:{port}", session=connection.session.uuid)
    log.info("client_connected")
    try:
        await _serve(clients, connection, log)
        log.info("client_left")
    except OSError as error:
        log.info("client_left", reason=str(error))
    except WireError as error:
        log.warning("client_dropped", reason=str(error))
    except Exception:
        log.exception("client_failed")
    finally:
        del clients.open[task]
        writer.close()


async def _serve(clients: Clients, connection: Connection, log: structlog.typing.FilteringBoundLogger) -> None:
    frames, session = connection.frames(), connection.session
    clients.sessions[session.uuid] = session
    try:
        owner = await _serve_main(clients, connection, frames)
    finally:
        await connection.in_thread(session.close)
        connection.thread.shutdown(wait=False)
        session.has_main = False
        clients.let_go(session)
    if owner is not None:
        log.info("client_listens", of=owner.uuid)
        await _serve_pubsub(clients, connection, frames, owner)


async def _serve_main(
    clients: Clients, connection: Connection, frames: AsyncIterator[RawFrame]
) -> ServedSession | None:
    """Answer requests; return the session of which this is to be the pub/sub connection, None when the client left."""
    behaviour, number = clients.served.behaviour, count(1)
    try:
        async for frame in frames:
            if next(number) == behaviour.close_main_at:
                connection.break_off()
                return None
            if (owner := await _answer(clients, connection, frame)) is not None:
                return owner
    except WireError as error:
        await connection.send(encode_error(refusal(error)))
        raise
    return None


async def _answer(clients: Clients, connection: Connection, frame: RawFrame) -> ServedSession | None:
    try:
        asked = read_request(frame)
    except WireError as error:
        await connection.send(encode_error(refusal(error)))
        return None
    ticket = None if isinstance(asked, bytes) else _ticket(asked)
    if ticket is not None and (owner := clients.owner(ticket)) is not None and owner is not connection.session:
        return owner
    answered = answer(connection.session, asked)
    try:
        await _send_answer(clients, connection, answered)
    finally:
        await connection.in_thread(answered.close)
    return None


async def _send_answer(clients: Clients, connection: Connection, answered: Generator[bytes, None, None]) -> None:
    last = clients.served.behaviour.close_main_after_chunk
    sent = 0
    while (frame := await connection.in_thread(lambda: next(answered, None))) is not None:
        await connection.send(frame)
        sent += 1
        if sent == last:
            connection.break_off()


def _ticket(asked: Statement) -> PubSubTicket | None:
    """Return what a PAUTH shows; None for any other request."""
    given = words(asked.text.rstrip("; ")) or []
    if len(given) != 3 or given[0].text.upper() != "PAUTH":
        return None
    return PubSubTicket(given[1].text, given[2].text)


async def _serve_pubsub(
    clients: Clients, connection: Connection, frames: AsyncIterator[RawFrame], owner: ServedSession
) -> None:
    """Send a session's notifications until either side ends it."""
    connection.listens = True
    outbox = Outbox(clients.served.behaviour, encrypted=clients.encrypted)
    outbox.answer(OK)
    owner.attach(outbox)
    try:
        await until_first_ends(
            outbox.send_all(connection.writer), _answer_all(outbox, frames), _break_off_closed(connection, outbox)
        )
    finally:
        owner.detach(outbox)
        clients.let_go(owner)


async def _break_off_closed(connection: Connection, outbox: Outbox) -> None:
    """End the connection once its outbox is closed: by the session, or because the client does not read."""
    await outbox.closed()
    connection.break_off()


async def _answer_all(outbox: Outbox, frames: AsyncIterator[RawFrame]) -> None:
    """Answer what a client says on its pub/sub connection, where only the server is to speak: OK, whatever it is."""
    async for _ in frames:
        outbox.answer(OK)
