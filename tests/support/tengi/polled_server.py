"""A server over HTTP that answers polls at once, always alike, and posts never."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from silverfold.connectors.tengi.transports.requests import HttpReader, encode_answer
from tests.support.tengi.raw_peer import HANDSHAKE

HEAD = b"\1\xff\x9b" + bytes(16)
RESPONSE = HEAD + b"\xff\x9a\xff\x9b" + bytes(16) + b"\xff\x98\xff\x35"
NOTHING = RESPONSE + bytes(4)
"""An answer to a poll without messages."""


class PolledServer:
    """Serves the connections of a scripted peer.

    Args:
        pause: Seconds before each of the last ten bytes of an answer.

    Attributes:
        times: When the polls came.
    """

    def __init__(self, answer: bytes = NOTHING, *, pause: float = 0.0) -> None:
        self.answer, self.pause = answer, pause
        self.times: list[float] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = HttpReader(await reader.readuntil(b"\r\n\r\n")).next_head()
        assert head is not None
        body = await reader.readexactly(head.content_length or 0)
        if body[:1] == HANDSHAKE[:1]:
            writer.write(encode_answer(HTTPStatus.OK, HEAD + HANDSHAKE[1:]))
        elif b"\xff\x98\xff\x36" in body:
            self.times.append(asyncio.get_running_loop().time())
            answer = self.framed()
            writer.write(answer[:-10])
            for byte in answer[-10:]:
                await asyncio.sleep(self.pause)
                writer.write(bytes([byte]))
        else:
            await self.post(reader, writer)

    def framed(self) -> bytes:
        """Return the answer to a poll, with its head."""
        return encode_answer(HTTPStatus.OK, self.answer)

    async def post(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called for a post; its connection is closed on return."""
        await reader.read()
