"""Lands a feed's messages, from a connection or a file: what is read around `connectors.sbe.landing`.

A connection is an epoch; nothing is asked of the peer. A file is read from where the last epoch left it up to its end,
which ends the epoch in order; the next one reads what was added since. Part of a message at its end is left for then.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import structlog

from conf.errors import SchemaError, SourceRefused, SourceUnavailable
from connectors.base import Feed, FrameSink, Resume
from connectors.sbe.filepositions import FilePosition, furthest
from connectors.sbe.landing import Landing
from connectors.sbe.options import SbeOptions
from connectors.sbe.places import parse_place
from connectors.sbe.protocol import Session
from connectors.sbe.schemas import read_schema
from connectors.transport import Address, Connection, connect
from connectors.wire.sbe.model import Schema

_CHUNK = 1 << 18


class SbeReceiver:
    """A `connectors.base.Receiver`.

    Raises:
        SchemaError: The feed's schema file is missing or wrong.
    """

    def __init__(self, feed: Feed) -> None:
        assert isinstance(feed.options, SbeOptions)
        self._feed, self._options = feed, feed.options
        self._place = parse_place(feed.address)
        framing, largest = feed.options.framing, feed.options.max_message
        self._framing = framing if largest is None else replace(framing, largest=largest)
        self._schema, self._text = self._read_schema()
        self._landed: bytes | None = None
        self._told: set[str] = set()

    async def run(self, sink: FrameSink, resume: Resume) -> None:
        """Run one epoch; see `connectors.base.Receiver`.

        Raises:
            SourceUnavailable: Nobody listens, the connection broke, or the file cannot be read.
            RemoteProtocolError: Bytes came that are no messages.
            SourceRefused: The file is shorter than what was read of it before.
        """
        self._refresh_schema()
        if isinstance(self._place, Address):
            await self._connected(self._place, sink, resume)
        else:
            await self._from_file(self._place, sink, resume)

    async def _connected(self, address: Address, sink: FrameSink, resume: Resume) -> None:
        connection = await connect(address, timeout=self._feed.reconnect.connect_timeout)
        landing = Landing(self._schema, Session(self._schema, self._framing), places=False, told=self._told)
        try:
            await self._begin(landing, sink, resume)
            await _converse(connection, landing, sink)
        except asyncio.CancelledError:
            sink.take(landing.receive(connection.arrived()))
            raise
        finally:
            await connection.close()

    async def _from_file(self, path: Path, sink: FrameSink, resume: Resume) -> None:
        begins = furthest(resume.source_positions.values())
        session = Session(self._schema, self._framing, begins=begins)
        landing = Landing(self._schema, session, places=True, told=self._told)
        with _opened(path, begins) as file:
            await self._begin(landing, sink, resume)
            while landing.error is None and (chunk := await asyncio.to_thread(_read, file, path)):
                await sink.land(landing.receive(chunk))
        if landing.error is None:
            await sink.land(landing.receive_end_of_file())
        if landing.error is not None:
            raise landing.error

    async def _begin(self, landing: Landing, sink: FrameSink, resume: Resume) -> None:
        frames = landing.begin(self._text, self._landed if self._landed is not None else resume.told)
        self._landed = self._text
        await sink.land(frames)

    def _read_schema(self) -> tuple[Schema, bytes]:
        read = read_schema(self._options.schema_)
        return read.load(), read.text

    def _refresh_schema(self) -> None:
        """Take the schema as it is now; one that cannot be used now is not waited for."""
        try:
            self._schema, self._text = self._read_schema()
        except SchemaError as error:
            log = structlog.get_logger("receive").bind(feed=self._feed.name)
            log.warning("schema cannot be used", reason=str(error), goes_on_with=self._schema.version)


async def _converse(connection: Connection, landing: Landing, sink: FrameSink) -> None:
    chunk: bytes | None = None
    while chunk != b"":
        chunk = await connection.read()
        await sink.land(landing.receive(chunk) if chunk else landing.receive_eof())
        if landing.error is not None:
            raise landing.error


def _opened(path: Path, begins: FilePosition) -> BinaryIO:
    """Return the file, what was read of it before being passed."""
    try:
        file = path.open("rb")
        size = path.stat().st_size
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error.strerror or error}") from error
    if size < begins.offset:
        file.close()
        text = f"{path} has {size} bytes, {begins.offset} were read before: it is another file"
        raise SourceRefused(code="file-shorter", text=text)
    file.seek(begins.offset)
    return file


def _read(file: BinaryIO, path: Path) -> bytes:
    try:
        return file.read(_CHUNK)
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error.strerror or error}") from error
