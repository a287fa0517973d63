"""Answers a session's requests: bytes of frames in the order asked for, and nothing of sockets.

A request may wait for SQLite: the caller gives each session a thread of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator

from conf.errors import SourceRefused
from connectors.sqlitecloud.commands import Parameters, command_of
from connectors.sqlitecloud.encode import encode_error, encode_value
from connectors.sqlitecloud.error_codes import AUTH, REFUSALS, refusal
from connectors.sqlitecloud.messages import Statement
from connectors.sqlitecloud.results import rows_frames, written_frame
from connectors.sqlitecloud.server_commands import execute
from connectors.sqlitecloud.server_state import ServedSession
from connectors.sqlitecloud.sql_splitter import split
from connectors.sqlitecloud.transactions import Written
from connectors.sqlitecloud.transfers import take_part


def answer(session: ServedSession, asked: Statement | bytes) -> Generator[bytes, None, None]:
    """Do what a request asks for, statement by statement, or take bytes that it uploads; give the last one's answer.

    The first error ends it, and is the answer. Rows are read from the database as frames are taken.
    """
    try:
        yield from take_part(session, asked) if isinstance(asked, bytes) else _answer(session, asked)
    except REFUSALS as error:
        yield encode_error(refusal(error))


def _answer(session: ServedSession, asked: Statement) -> Iterator[bytes]:
    *statements, last = list(split(asked.text)) or [""]
    parameters = Parameters(asked.parameters)
    for statement in statements:
        deque(_perform(session, statement, parameters), maxlen=0)
    if last:
        yield from _perform(session, last, parameters, last=True)
    else:
        yield encode_value(None)


def _perform(session: ServedSession, statement: str, parameters: Parameters, *, last: bool = False) -> Iterator[bytes]:
    """Do one statement. The last one takes all parameters that are left, so that one too many is found."""
    command = command_of(statement, parameters)
    if command is not None:
        return execute(session, command)
    if not session.admitted:
        raise SourceRefused(code=AUTH, text="Authentication required.")
    found = session.transactions.run(statement, (lambda _count: parameters.rest()) if last else parameters.take)
    if isinstance(found, Written):
        return iter([written_frame(found)])
    return rows_frames(found, session.keys, chunk_bytes=session.served.behaviour.chunk_bytes)
