"""A scripted SCSP server: answers commands with bytes given by the test, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext

from silverfold.connectors.sqlitecloud.protocol.encode import encode_json, encode_text
from silverfold.connectors.sqlitecloud.protocol.frames import RawFrame
from silverfold.connectors.sqlitecloud.protocol.messages import Statement
from silverfold.connectors.sqlitecloud.server.connection import read_statement
from tests.support.peers import serving

UUID = "a365efef-cfb7-4672-8ed4-45a489ddb194"
SECRET = "9230b8d8-93dc-4edc-bcaf-cc118fe32d4d"
TICKET = b"|79 PAUTH " + UUID.encode() + b" " + SECRET.encode()
OK = b"+2 OK"

Write = Callable[[asyncio.StreamWriter], Awaitable[None]]
Answer = bytes | Callable[[Statement], bytes | Write]


@dataclass
class Peer:
    """A scripted SCSP server.

    Args:
        answers: Answers by command prefix: bytes, or a function of the command that returns bytes or a coroutine
            function that writes them. Other commands are answered with OK.
        pauth: The answer to PAUTH.
        on_pubsub: Called with the writer of the pub/sub connection once it is open.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict)
    pauth: bytes = OK
    on_pubsub: Write | None = None
    commands: list[str] = field(default_factory=list)
    """All commands so far, parameters substituted, including those of the pub/sub connection."""
    second: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (statement := await read_command(reader)) is not None:
            self.commands.append(bound_text(statement))
            if statement.text.startswith("PAUTH"):
                self.second = writer
                writer.write(self.pauth)
                if self.on_pubsub is not None:
                    await self.on_pubsub(writer)
                continue
            answer = self.answer(statement)
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(writer)

    def answer(self, statement: Statement) -> bytes | Write:
        defaults: Mapping[str, Answer] = {
            "LISTEN": TICKET if sum(command.startswith("LISTEN") for command in self.commands) == 1 else OK,
            "GET CLIENT KEY UUID": encode_text(UUID),
            "PING": encode_text("PONG"),
        }
        for begins, answer in {**defaults, **self.answers}.items():
            if statement.text.startswith(begins):
                return answer if isinstance(answer, bytes) else answer(statement)
        return OK

    def notify(self, text: bytes) -> None:
        """Send a notification on the pub/sub connection."""
        assert self.second is not None
        self.second.write(encode_json(text))


async def read_command(reader: asyncio.StreamReader) -> Statement | None:
    """Return the next command; None at the end of the connection."""
    try:
        header = await reader.readuntil(b" ")
        body = await reader.readexactly(int(header[1:]))
    except asyncio.IncompleteReadError:
        return None
    return read_statement(RawFrame(chr(header[0]), header + body, len(header)))


def bound_text(statement: Statement) -> str:
    """Return the command with its parameters substituted for the question marks."""
    text = statement.text
    for parameter in statement.parameters:
        text = text.replace("?", repr(parameter), 1)
    return text


@asynccontextmanager
async def scripted(peer: Peer, *, tls: SSLContext | None = None, timeout: float = 10) -> AsyncIterator[str]:
    """Run the peer on a free port; yield the connection string."""
    async with serving(peer.serve, tls=tls) as address:
        yield f"sqlitecloud://user:s3cret@{address}/shop.sqlite?insecure={'0' if tls else '1'}&timeout={timeout:g}"
