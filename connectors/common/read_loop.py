"""The read loop of a receiver with one connection: bytes to the epoch, its frames to bronze."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.common.transport import Connection
from silverfold.connectors.frames import Frame, FrameSink


class FrameSource(Protocol):
    """One epoch without its connection. Once ``error`` is set, the connection must be dropped."""

    error: RemoteProtocolError | None

    def receive(self, chunk: bytes) -> list[Frame]:
        """Take bytes and return the frames that they complete."""

    def receive_eof(self) -> list[Frame]:
        """Take the end of the connection and return what is left to land."""


async def land_connection(
    connection: Connection,
    source: FrameSource,
    sink: FrameSink,
    *,
    first: Sequence[Frame] = (),
    read: Callable[[], Awaitable[bytes]] | None = None,
) -> None:
    """Land all frames of a connection until the peer ends it, and close it. Cancelling loses no received bytes.

    Args:
        first: Frames to land before those of the connection.
        read: Reads the next bytes, none at the end; `Connection.read` by default.

    Raises:
        RemoteProtocolError: The source's error, once the frames before it have landed.
        SourceUnavailable: The connection broke. The source is not told.
    """
    chunk: bytes | None = None
    try:
        if first:
            await sink.land(first)
        while chunk != b"":
            chunk = await (read or connection.read)()
            await sink.land(source.receive(chunk) if chunk else source.receive_eof())
            if source.error is not None:
                raise source.error
    except asyncio.CancelledError:
        sink.take(source.receive(connection.arrived()))
        raise
    finally:
        await connection.close()
