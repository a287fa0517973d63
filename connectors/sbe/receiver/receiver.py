"""Lands a feed's messages from a connection or a file: the I/O around `connectors.sbe.receiver.landing`.

A connection is one epoch; the receiver sends nothing. A file is read from where the last epoch stopped, and followed as
it grows: reaching its end does not end the epoch. The epoch ends when the file is truncated, replaced or removed. It
also ends, normally, when the schema changes; the next epoch uses the new one. If a file is one message, so is an epoch:
it ends normally when the file grows.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from silverfold.conf.errors import SchemaError, SourceUnavailable
from silverfold.connectors.common.read_loop import land_connection
from silverfold.connectors.common.transport import Address, connect
from silverfold.connectors.frames import Frame, FrameSink, Resume
from silverfold.connectors.sbe.address import parse_source
from silverfold.connectors.sbe.options import SbeFeed
from silverfold.connectors.sbe.protocol.filepositions import furthest
from silverfold.connectors.sbe.protocol.schemas import read_schema
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.receiver.growing_file import GrowingFile
from silverfold.connectors.sbe.receiver.landing import Landing

_LOOKS_PER_SCHEMA: Final = 5
"""Number of polls of an unchanged file between checks of the schema for changes."""


class SbeReceiver:
    """A `connectors.frames.Receiver`.

    Args:
        look: Seconds between polls of an unchanged file.

    Raises:
        SchemaError: The feed's schema file is missing or invalid.
    """

    def __init__(self, feed: SbeFeed, *, look: float = 0.2) -> None:
        self._feed, self._options = feed, feed.options
        self._source = parse_source(feed.address)
        framing, largest = feed.options.framing, feed.options.max_message
        self._framing = framing if largest is None else replace(framing, largest=largest)
        self._is_one_message = self._framing.length is None and self._framing.unframed == "whole"
        self._look, self._schema_due = look, 0.0
        self._read = read_schema(self._options.schema_, self._options.accept)
        self._schema, self._text = self._read.load(), self._read.text
        self._refused = ""
        self._landed: bytes | None = None
        self._reported: set[str] = set()

    async def run(self, sink: FrameSink, resume: Resume) -> str | None:
        """Run one epoch; see `connectors.frames.Receiver`.

        Raises:
            SourceUnavailable: The connection was refused or lost, or the file cannot be read (any further).
            RemoteProtocolError: Received bytes are no messages.
            SourceRefused: The file is shorter than the position already read, or is no regular file.
        """
        self._refresh_schema()
        if isinstance(self._source, Address):
            await self._connected(self._source, sink, resume)
            return None
        return await self._from_file(self._source, sink, resume)

    async def _connected(self, address: Address, sink: FrameSink, resume: Resume) -> None:
        timeout = self._feed.reconnect.connect_timeout
        connection = await connect(address, timeout=timeout, silent_after=self._options.silent_after)
        landing = Landing(
            self._schema, Session(self._schema, self._framing), has_positions=False, reported=self._reported
        )
        await land_connection(connection, landing, sink, first=self._first_frames(landing, resume))

    async def _from_file(self, path: Path, sink: FrameSink, resume: Resume) -> str | None:
        begins = furthest([*resume.source_positions.values(), *resume.silver_positions.values()])
        session = Session(self._schema, self._framing, begins=begins)
        landing = Landing(self._schema, session, has_positions=True, reported=self._reported)
        with GrowingFile(path, begins.offset, lacks=self._framing.padding - 1) as file:
            await sink.land(self._first_frames(landing, resume))
            try:
                ended = await self._follow(file, landing, sink)
            except SourceUnavailable:
                await sink.land(landing.receive_end_of_file())
                raise
        if landing.error is not None:
            raise landing.error
        return ended

    async def _follow(self, file: GrowingFile, landing: Landing, sink: FrameSink) -> str | None:
        """Land what the file contains and gains. Return why another session must continue; None after bad bytes."""
        while landing.error is None:
            if chunk := await asyncio.to_thread(file.read):
                await sink.land(landing.receive(chunk))
                continue
            if self._is_one_message:
                await sink.land(landing.receive_end_of_file())
            if not await self._grows(file):
                return "the schema is another one"
            if self._is_one_message:
                return "the file has grown"
        return None

    async def _grows(self, file: GrowingFile) -> bool:
        """Wait at the end of a file until it grows; return False if the schema changes first."""
        now = asyncio.get_running_loop().time
        while not await asyncio.to_thread(file.has_more):
            if now() >= self._schema_due:
                await asyncio.to_thread(self._refresh_schema)
                self._schema_due = now() + _LOOKS_PER_SCHEMA * self._look
            if self._text != self._landed:
                return False
            await asyncio.sleep(self._look)
        return True

    def _first_frames(self, landing: Landing, resume: Resume) -> list[Frame]:
        frames = landing.begin(self._text, self._landed if self._landed is not None else resume.last_control)
        self._landed = self._text
        return frames

    def _refresh_schema(self) -> None:
        """Reload the schema if it changed. An unusable one is logged once, and the previous schema stays in use."""
        try:
            read = read_schema(self._options.schema_, self._options.accept)
            if read == self._read:
                return
            self._read = read
            self._schema, self._text, self._refused = read.load(), read.text, ""
        except SchemaError as error:
            log = structlog.get_logger("receive").bind(feed=self._feed.name)
            if str(error) != self._refused:
                log.warning("schema cannot be used", reason=str(error), goes_on_with=self._schema.version)
            self._refused = str(error)
