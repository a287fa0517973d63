"""A client that writes what a test gives it, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.transport import Address, Connection, connect
from silverfold.connectors.tengi.protocol import Identifier, Message, PollingRequest
from silverfold.connectors.tengi.protocol.encoder import Encoder
from silverfold.connectors.tengi.transports.requests import HttpReader

HANDSHAKE = bytes.fromhex("00ff99ff3700000009000000090009") + b"Handshake" + bytes(4)
"""An empty handshake's packet."""
UPGRADE = (
    b"GET /wss HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)


def packet_of(connection_id: bytes, value: object) -> bytes:
    """A packet of a message."""
    encoder = Encoder()
    encoder.write_object(value if isinstance(value, Message) else Message.create(value))
    return b"\1\xff\x9b" + connection_id + encoder.to_bytes()


def poll_of(connection_id: bytes) -> bytes:
    """A poll's packet."""
    return packet_of(connection_id, PollingRequest())


def java_post(body: bytes) -> bytes:
    """A request as Java's client writes it: in lower case, and without Host."""
    head = (
        "POST /channel HTTP/1.1\r\ncontent-type: application/tengi\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\nuser-agent: tengi::transport::http/1.1\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[Connection]:
    """Connect to a port of loopback."""
    connection = await connect(Address("127.0.0.1", port), timeout=10)
    try:
        yield connection
    finally:
        await connection.close()


async def read_all(connection: Connection) -> bytes:
    """Read until the server closes or resets the connection."""
    chunks = []
    with contextlib.suppress(SourceUnavailable):
        while chunk := await asyncio.wait_for(connection.read(), 20):
            chunks.append(chunk)
    return b"".join(chunks)


async def exchange(port: int, request: bytes) -> bytes:
    """Write a request on a connection of its own; return all that comes."""
    async with raw(port) as connection:
        await connection.send(request)
        return await read_all(connection)


def body_of(answer: bytes) -> bytes:
    """The body of an answer, whose length must be as announced."""
    reader = HttpReader(answer)
    head = reader.next_head()
    assert head is not None
    assert head.content_length == reader.held
    return reader.take(reader.held)


async def http_handshake(port: int) -> Identifier:
    """Shake hands over HTTP; return the connection's id."""
    return Identifier(body_of(await exchange(port, java_post(HANDSHAKE)))[3:19])
