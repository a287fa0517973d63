"""Replies to a session's requests: frames in request order, without sockets.

A request may wait for SQLite: the caller gives each session its own thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator

from conf.errors import SourceRefused
from connectors.sqlitecloud.protocol.commands import Parameters, parse_command
from connectors.sqlitecloud.protocol.encode import encode_error, encode_value
from connectors.sqlitecloud.server.error_codes import AUTH, REFUSALS, refusal
from connectors.sqlitecloud.protocol.messages import Statement
from connectors.sqlitecloud.server.results import rows_frames, written_frame
from connectors.sqlitecloud.server.commands import execute
from connectors.sqlitecloud.server.state import ServedSession
from connectors.sqlitecloud.protocol.sql_splitter import split
from connectors.sqlitecloud.server.transactions import Written
from connectors.sqlitecloud.server.transfers import take_part


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
    return rows_frames(found, session.keys, chunk_bytes=session.served.behaviour.chunk_bytes)
