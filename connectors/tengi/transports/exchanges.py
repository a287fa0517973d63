"""Reads HTTP from sockets: heads and bodies of requests and answers, and the upgrade to WebSocket."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from http import HTTPStatus

from silverfold.conf.errors import RemoteProtocolError, SourceUnavailable
from silverfold.connectors.common.transport import Connection
from silverfold.connectors.tengi.transports.frames import accept_key
from silverfold.connectors.tengi.transports.link import closed_early
from silverfold.connectors.tengi.transports.requests import SOCKET, Head, HttpReader, encode_answer


async def read_head(socket: Connection, reader: HttpReader) -> Head | None:
    """Return the next head; None if the connection ends first. Raises SourceUnavailable, RemoteProtocolError."""
    while (head := reader.next_head()) is None:
        chunk = await socket.read()
        if not chunk:
            return None
        reader.receive(chunk)
    return head


def _ignored() -> None:
    pass


async def fill(socket: Connection, reader: HttpReader, size: int, received: Callable[[], None] = _ignored) -> bool:
    """Read until the reader holds so many bytes; False if the connection ends first. Raises SourceUnavailable.

    Args:
        received: Is called when bytes came.
    """
    while reader.held < size:
        chunk = await socket.read()
        if not chunk:
            return False
        reader.receive(chunk)
        received()
    return True


async def read_answer(
    socket: Connection, max_body: int, received: Callable[[], None] = _ignored
) -> tuple[Head, bytes] | None:
    """Return head and body of an answer; None if the server closes without a byte of it. Raises SilverfoldError.

    Args:
        received: Is called when bytes of the body came.
    """
    reader = HttpReader()
    head = await read_head(socket, reader)
    if head is None:
        if reader.held:
            raise SourceUnavailable("the connection ended in the head of an answer")
        return None
    size = head.content_length or 0
    if size > max_body:
        raise RemoteProtocolError(
            f"an answer of {size} bytes, {max_body} are allowed (`max_answer`)", reason="too_large"
        )
    if not await fill(socket, reader, size, received):
        raise SourceUnavailable("the connection ended in an answer")
    return head, reader.take(size)


async def ask_for_upgrade(socket: Connection, host: str) -> bytes:
    """Request an upgrade to WebSocket; return the bytes that follow the server's answer.

    Raises:
        SourceUnavailable: The server closed the connection, or the connection broke.
        RemoteProtocolError: The server did not grant the upgrade.
    """
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {SOCKET} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    ]
    await socket.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
    reader = HttpReader()
    head = await read_head(socket, reader)
    if head is None:
        raise closed_early(host)
    if head.status != HTTPStatus.SWITCHING_PROTOCOLS or not head.is_upgrade:
        raise RemoteProtocolError(f"status {head.status} instead of an upgrade to WebSocket", reason="no_upgrade")
    if head.headers.get("sec-websocket-accept") != accept_key(key):
        raise RemoteProtocolError("the upgrade answers another key", reason="no_upgrade")
    return reader.take(reader.held)


async def grant_upgrade(socket: Connection, head: Head, *, timeout: float) -> bool:
    """Answer a request for an upgrade to WebSocket; return whether it was granted."""
    key = head.headers.get("sec-websocket-key", "")
    if head.start[:2] != ("GET", SOCKET) or not key:
        await socket.send(encode_answer(HTTPStatus.FORBIDDEN))
        await socket.finish(timeout)
        return False
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "upgrade: websocket",
        "connection: upgrade",
        f"sec-websocket-accept: {accept_key(key)}",
    ]
    await socket.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
    return True
