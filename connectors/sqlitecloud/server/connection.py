"""Serving of one client connection: a session's main connection, or its pub/sub connection after PAUTH.

Either is a stream of frames. An invalid request is answered with an error, and the connection continues. Bytes that
cannot be split into frames end it.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import InvalidValue, RemoteProtocolError, SourceRefused, WireError
from silverfold.connectors.common.tasks import until_first_ends
from silverfold.connectors.sqlitecloud.protocol.commands import Parameters, parse_command
from silverfold.connectors.sqlitecloud.protocol.encode import OK, encode_error, encode_value
from silverfold.connectors.sqlitecloud.protocol.frames import FrameCutter, RawFrame, parse
from silverfold.connectors.sqlitecloud.protocol.messages import Array, PubSubTicket, Single, Statement
from silverfold.connectors.sqlitecloud.protocol.sql_splitter import split, words
from silverfold.connectors.sqlitecloud.server.commands import execute
from silverfold.connectors.sqlitecloud.server.error_codes import AUTH, REFUSALS, refusal
from silverfold.connectors.sqlitecloud.server.pubsub.outbox import Outbox
from silverfold.connectors.sqlitecloud.server.results import rows_frames, written_frame
from silverfold.connectors.sqlitecloud.server.state import Served, ServedSession
from silverfold.connectors.sqlitecloud.server.transactions import Written
from silverfold.connectors.sqlitecloud.server.transfers import take_part


def answer(session: ServedSession, request: Statement | bytes) -> Generator[bytes, None, None]:
    """Execute a request, statement by statement, or take uploaded bytes; yield the last statement's reply.

    The first error ends the request and is its reply. Rows are read from the database as frames are consumed.
    """
    try:
        yield from take_part(session, request) if isinstance(request, bytes) else _reply(session, request)
    except REFUSALS as error:
        yield encode_error(refusal(error))


def _reply(session: ServedSession, request: Statement) -> Iterator[bytes]:
    *statements, last = list(split(request.text)) or [""]
    parameters = Parameters(request.parameters)
    for statement in statements:
        deque(_perform(session, statement, parameters), maxlen=0)
    if last:
        yield from _perform(session, last, parameters, last=True)
    else:
        yield encode_value(None)


def _perform(session: ServedSession, statement: str, parameters: Parameters, *, last: bool = False) -> Iterator[bytes]:
    """Execute one statement. The last one receives all remaining parameters, so that surplus ones are detected."""
    command = parse_command(statement, parameters)
    if command is not None:
        return execute(session, command)
    if not session.admitted:
        raise SourceRefused(code=AUTH, text="Authentication required.")
    found = session.transactions.run(statement, (lambda _count: parameters.rest()) if last else parameters.take)
    if isinstance(found, Written):
        return iter([written_frame(found)])
    return rows_frames(found, session.keys, chunk_bytes=session.served.options.chunk_bytes)


def read_request(raw: RawFrame) -> Statement | bytes:
    """Parse a request: the bytes of an upload (``$``), or a command as in `read_statement`."""
    message = parse(raw)
    if isinstance(message, Single) and isinstance(message.value, bytes):
        return message.value
    return read_statement(raw)


def read_statement(raw: RawFrame) -> Statement:
    """Return the command of a frame ``+``, ``!`` or ``=``.

    Raises:
        InvalidValue: The frame is malformed, or is not a command (``not_a_command``). The stream remains usable: reply
            with an error.
    """
    message = parse(raw)
    items = message.items if isinstance(message, Array) else (message.value,) if isinstance(message, Single) else ()
    if not items or not isinstance(items[0], str):
        raise InvalidValue("a command is a text, or an array that begins with one", reason="not_a_command")
    if "\0" in items[0]:
        raise InvalidValue("a command has no character of code 0", reason="not_a_command")
    return Statement(items[0], items[1:])


_RECEIVED_AT_ONCE: Final = 1 << 16
_LOOKS_FOR_CLIENT: Final = 1.0
"""Seconds between looks whether the client of a running statement is still there."""

_Result = TypeVar("_Result")


class Sessions:
    """The sessions of a server's connections. Used in its event loop.

    Args:
        encrypted: Whether connections use TLS.
    """

    def __init__(self, served: Served, *, encrypted: bool) -> None:
        self.served, self.encrypted = served, encrypted
        self.by_uuid: dict[str, ServedSession] = {}
        """Sessions that have a main connection, or continue without one."""

    def release(self, session: ServedSession) -> None:
        """Forget a session with no connection to continue on; end its pub/sub connection, if any."""
        if not session.has_main and not (session.pubsub_only and session.has_pubsub):
            self.by_uuid.pop(session.uuid, None)
            session.leave()

    def owner(self, ticket: PubSubTicket) -> ServedSession | None:
        """Return the session that issued a ticket, or None if it is invalid or PAUTH is refused."""
        session = self.by_uuid.get(ticket.uuid)
        right = session is not None and hmac.compare_digest(session.ticket.secret.encode(), ticket.secret.encode())
        return session if right and not self.served.options.refuse_pauth else None


@dataclass(eq=False)
class Connection:
    """One connection, and its session."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    session: ServedSession
    listens: bool = False
    cutter: FrameCutter = field(default_factory=FrameCutter)
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "sqlitecloud-session"))

    def break_off(self) -> None:
        """End the connection immediately."""
        self.writer.transport.abort()
        if not self.listens:
            self.session.interrupt()

    async def frames(self) -> AsyncIterator[RawFrame]:
        """Yield frames until the client closes the connection. Raise WireError for invalid bytes."""
        while chunk := await self.reader.read(_RECEIVED_AT_ONCE):
            self.cutter.receive(chunk)
            while (frame := self.cutter.next_frame()) is not None:
                yield frame

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run work that may wait for SQLite, in the session's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)

    async def in_thread_for_client(self, work: Callable[[], _Result]) -> _Result:
        """Run a statement's work, as `in_thread`; interrupt the statement once its client has left.

        Only what has arrived is looked at: of a client that has sent more requests, the end comes after them.
        """
        running = asyncio.ensure_future(self.in_thread(work))
        while not (await asyncio.wait({running}, timeout=_LOOKS_FOR_CLIENT))[0]:
            if self.reader.at_eof() or self.writer.is_closing():
                self.session.interrupt()
        return running.result()

    async def send(self, frame: bytes) -> None:
        """Write a frame, waiting until the client has room."""
        self.writer.write(frame)
        await self.writer.drain()


async def serve_client(sessions: Sessions, connection: Connection, log: FilteringBoundLogger) -> None:
    """Serve a connection until it ends."""
    frames, session = connection.frames(), connection.session
    sessions.by_uuid[session.uuid] = session
    try:
        owner = await _serve_main(sessions, connection, frames)
    finally:
        await connection.in_thread(session.close)
        connection.thread.shutdown(wait=False)
        session.has_main = False
        sessions.release(session)
    if owner is not None:
        log.info("client_listens", of=owner.uuid)
        await _serve_pubsub(sessions, connection, frames, owner)


async def _serve_main(
    sessions: Sessions, connection: Connection, frames: AsyncIterator[RawFrame]
) -> ServedSession | None:
    """Answer requests; return the session that this becomes the pub/sub connection of, None once the client leaves."""
    options, number = sessions.served.options, count(1)
    try:
        async for frame in frames:
            if next(number) == options.close_main_at:
                connection.break_off()
                return None
            if (owner := await _answer(sessions, connection, frame)) is not None:
                return owner
    except WireError as error:
        await connection.send(encode_error(refusal(error)))
        raise
    return None


async def _answer(sessions: Sessions, connection: Connection, frame: RawFrame) -> ServedSession | None:
    try:
        request = read_request(frame)
    except WireError as error:
        await connection.send(encode_error(refusal(error)))
        return None
    ticket = None if isinstance(request, bytes) else _ticket(request)
    if ticket is not None and (owner := sessions.owner(ticket)) is not None and owner is not connection.session:
        return owner
    answered = answer(connection.session, request)
    try:
        await _send_answer(sessions, connection, answered)
    finally:
        await connection.in_thread(answered.close)
    return None


async def _send_answer(sessions: Sessions, connection: Connection, answered: Generator[bytes, None, None]) -> None:
    last = sessions.served.options.close_main_after_chunk
    sent = 0
    while (frame := await connection.in_thread_for_client(lambda: next(answered, None))) is not None:
        await connection.send(frame)
        sent += 1
        if sent == last:
            connection.break_off()


def _ticket(request: Statement) -> PubSubTicket | None:
    """Return the ticket of a PAUTH; None for any other request."""
    found = words(request.text.rstrip("; ")) or []
    if len(found) != 3 or found[0].text.upper() != "PAUTH":
        return None
    return PubSubTicket(found[1].text, found[2].text)


async def _serve_pubsub(
    sessions: Sessions, connection: Connection, frames: AsyncIterator[RawFrame], owner: ServedSession
) -> None:
    """Send a session's notifications until either side ends the connection."""
    connection.listens = True
    outbox = Outbox(sessions.served.options, encrypted=sessions.encrypted)
    outbox.answer(OK)
    owner.attach(outbox)
    try:
        await until_first_ends(
            _break_off_closed(connection, outbox),  # first: its error is the reason, though sending fails by it, too
            outbox.send_all(connection.writer),
            _answer_all(outbox, frames),
        )
    finally:
        owner.detach(outbox)
        sessions.release(owner)


async def _break_off_closed(connection: Connection, outbox: Outbox) -> None:
    """End the connection once its outbox closes: by the session, or because the client does not read.

    Raises:
        RemoteProtocolError: The client does not read.
    """
    await outbox.closed()
    connection.break_off()
    if outbox.overflowed:
        raise RemoteProtocolError("the client does not read: no room is left for its notifications")


async def _answer_all(outbox: Outbox, frames: AsyncIterator[RawFrame]) -> None:
    """Reply OK to any request on a pub/sub connection, where clients are not expected to send."""
    async for _ in frames:
        outbox.answer(OK)
