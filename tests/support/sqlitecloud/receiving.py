"""Runs a receiver against the server of a database file, with an in-memory sink."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import apsw

from silverfold.conf.model import Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Boundary, ControlFrame, Frame, Kind, Resume
from silverfold.connectors.sqlitecloud.client.client import Client, connect
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.receiver.receiver import SqliteCloudReceiver
from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.pipelines.verifying.table_fold import TableFold
from tests.support.memory import MemorySink
from tests.support.polling import PATIENCE, until

JOINED = ServerOptions(pacing=Pacing.JOINED)
FOO = {"foo": SqliteCloudTable()}


class Sink(MemorySink):
    """In-memory sink that yields to other tasks whenever frames land."""

    async def land(self, frames: Sequence[Frame]) -> None:
        await super().land(frames)
        await asyncio.sleep(0)

    def outline(self, stream: str) -> list[str]:
        """Landed frames of a stream, in order: marks by name, other frames by kind; with the boundary, if any."""
        return [_label(frame) for frame in self.frames if frame.stream == stream]

    def marks(self, name: str, stream: str | None = None) -> list[dict[str, Any]]:
        """Details of the marks with this name, of one stream or of all."""
        return [details for of, details in self.mark_details() if details["mark"] == name and stream in (None, of)]

    def folded(self, stream: str, table: SqliteCloudTable | None = None) -> list[dict[str, Any]]:
        """Rows after the last complete snapshot and all notifications since it began."""
        reader = SqliteCloudReferenceReader(stream, table or SqliteCloudTable(), SqliteCloudOptions())
        fold = TableFold(())
        begin = end = -1
        for at, frame in enumerate(self.frames):
            if frame.stream == stream and frame.boundary is Boundary.END:
                end = at
            if frame.stream == stream and frame.boundary is Boundary.BEGIN and at < self._last_end(stream):
                begin = at
        assert -1 < begin < end, "no snapshot is whole"
        for at, frame in enumerate(self.frames):
            if frame.stream != stream:
                continue
            if frame.kind is Kind.CONTROL and at < end:
                reader.control(ControlFrame(at, 1, stream, frame.body))
                fold = TableFold(reader.keys)
            elif frame.kind is Kind.SNAPSHOT and begin <= at < end:
                fold.apply(reader.changes(1, [(at, frame.body)]))
        for at, frame in enumerate(self.frames):
            if frame.stream == stream and frame.kind is Kind.DATA and at > begin:
                fold.apply(reader.changes(1, [(at, frame.body)]))
        return sorted(fold.all_rows(), key=str)

    def _last_end(self, stream: str) -> int:
        ends = [at for at, f in enumerate(self.frames) if f.stream == stream and f.boundary is Boundary.END]
        return max(ends, default=-1)


def _label(frame: Frame) -> str:
    what = json.loads(frame.body)["mark"] if frame.kind is Kind.MARK else frame.kind.value
    return what if frame.boundary is Boundary.NONE else f"{what}, {frame.boundary.value}"


def database(folder: Path, *statements: str) -> Path:
    """Create a database file; by default with an empty table foo with a key and two columns."""
    path = folder / "shop.db"
    connection = apsw.Connection(str(path))
    with connection:
        for statement in statements or ("CREATE TABLE foo(id INTEGER PRIMARY KEY, a TEXT, b TEXT)",):
            connection.execute(statement)
    connection.close()
    return path


def stored(path: Path, table: str = "foo") -> list[dict[str, Any]]:
    """Rows of a table in the file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    cursor = connection.execute(f"SELECT * FROM {table}")
    names = [name for name, *_ in connection.execute(f"SELECT name FROM pragma_table_info('{table}')")]
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    connection.close()
    return sorted(rows, key=str)


def url(server: SqliteCloudServer) -> str:
    return f"sqlitecloud://u:p@127.0.0.1:{server.port}/shop.db?insecure=1"


def receiver_at(
    address: str, tables: Mapping[str, SqliteCloudTable] | None = None, **options: Any
) -> SqliteCloudReceiver:
    reconnect = Reconnect(first=0.01, longest=0.02)
    settings = SqliteCloudOptions(**{"canary_seconds": 0, **options})
    feed = Feed("shop", "sqlitecloud", address, settings, FOO if tables is None else tables, reconnect=reconnect)
    return SqliteCloudReceiver(feed, rng=Random(1), clock=time.monotonic, environ={})


@dataclass
class Receiving:
    """A running receiver."""

    sink: Sink
    db: Client
    """A separate session, for writing."""
    server: SqliteCloudServer
    running: asyncio.Task[None]

    async def until(self, met: Callable[[], object], what: str) -> None:
        """Wait until the condition is met; if the receiver ends first, raise its error."""
        await until(met, what, work=self.running)

    async def complete(self, stream: str = "foo", count: int = 1) -> None:
        await self.until(lambda: len(self.sink.marks("snapshot complete", stream)) >= count, "whole snapshots")

    async def await_notifications(self, stream: str, count: int) -> None:
        await self.until(lambda: self.sink.outline(stream).count("data, whole") >= count, "notifications")

    async def await_text(self, text: str, what: str) -> None:
        """Wait until a notification with this text has landed, possibly with others after it."""
        await self.until(lambda: any(f.kind is Kind.DATA and text.encode() in f.body for f in self.sink.frames), what)

    async def ended(self) -> BaseException | None:
        """Wait until the receiver has ended; return its error."""
        await asyncio.wait([self.running], timeout=PATIENCE)
        return self.running.exception()


@asynccontextmanager
async def receiving(
    path: Path,
    tables: Mapping[str, SqliteCloudTable] | None = None,
    *,
    server_options: ServerOptions = JOINED,
    **options: Any,
) -> AsyncIterator[Receiving]:
    """Serve the file and receive from it until the end of the block."""
    with SqliteCloudServer.start({"shop.db": path}, options=server_options) as server:
        sink = Sink()
        async with await connect(url(server)) as db:
            running = asyncio.create_task(receiver_at(url(server), tables, **options).run(sink, Resume(1)))
            try:
                yield Receiving(sink, db, server, running)
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await running
