"""Measures notifications received and landed, against reading them alone, and against writing their rows alone."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import structlog
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from conf.model import Commit
from connectors.base import Boundary, Frame, Kind, Receiver, Resume
from connectors.sqlitecloud.client import connect
from connectors.sqlitecloud.receiver import SqliteCloudReceiver
from jobs.receive import rest_the_collector
from pipelines.batch import FRAME_BYTES, Batch
from pipelines.bronze_table import SCHEMA
from pipelines.places import Place
from pipelines.sink import BronzeSink
from pipelines.writer import BronzeWriter
from tests.bench.sqlitecloud.source import DISTINCT, TABLE, Sent, Source, feed_at, frames, source

LOG = structlog.wrap_logger(structlog.ReturnLogger(), wrapper_class=structlog.make_filtering_bound_logger("error"))


def landing(notifications: int, rows: int, runs: int) -> dict[str, object]:
    """Land, read and write in turn; return the line to print."""
    sent = Sent(notifications, rows)
    made, landed, read, bare = tables(sent), list[float](), list[float](), list[float]()
    rest_the_collector()  # as the receive command does
    with source(sent) as serving:
        for _ in range(runs):
            read.append(asyncio.run(seconds_to_read(serving)))
            bare.append(at_a_place(lambda place: write(place, made)))
            landed.append(at_a_place(lambda place: asyncio.run(seconds_to_land(serving, place))))
    ours, reader, writer = map(statistics.median, (landed, read, bare))
    return {
        "bench": "sqlitecloud-landing",
        "notifications": notifications,
        "rows_each": rows,
        "bytes_each": sum(map(len, frames(DISTINCT, rows))) // DISTINCT,
        "landed_per_second": round(notifications / ours),
        "microseconds": {name: round(1e6 * each / notifications, 2) for name, each in
                         {"landed": ours, "read": reader, "bare_write": writer}.items()},
        "ratio_to_reading": round(reader / ours, 2),
        "ratio_to_reading_and_writing": round((reader + writer) / ours, 2),
        "aim": 0.5,
        "runs": runs,
    }  # fmt: skip


async def seconds_to_read(serving: Source) -> float:
    """Hear all notifications, and drop them."""
    async with await connect(serving.address) as db:
        await db.listen_table(TABLE)
        began, heard = time.perf_counter(), 0
        serving.send()
        while heard < serving.sent.notifications:
            heard += len(await db.heard())
        return time.perf_counter() - began


async def seconds_to_land(serving: Source, place: Place) -> float:
    """Receive all notifications, behind a snapshot, into a fresh table; all are committed by the end."""
    receiver = SqliteCloudReceiver(feed_at(serving.address), rng=Random(1), clock=time.monotonic, environ={})
    wanted = serving.sent.notifications
    async with landing_at(place, receiver) as sink:
        await until(lambda: sink.progressed)
        before, began = sink.last, time.perf_counter()
        serving.send()
        await until(lambda: sink.last >= before + wanted)
        await sink.flush()
        seconds = time.perf_counter() - began
    data = DeltaTable(place.url).to_pyarrow_table(columns=["kind"], filters=[("kind", "=", Kind.DATA)])
    assert data.num_rows >= wanted, (data.num_rows, wanted)
    return seconds


@asynccontextmanager
async def landing_at(place: Place, receiver: Receiver) -> AsyncIterator[BronzeSink]:
    """Run a receiver into a fresh table, as settings are without any, until the block ends."""
    clock, rng = (lambda: time.time_ns() // 1000), Random(1)
    writer = BronzeWriter(place, "bench", token="bench")
    async with BronzeSink(writer, place, Commit(), clock=clock, rng=rng, log=LOG) as sink:
        running = asyncio.create_task(receiver.run(sink, Resume(sink.begin_epoch())))
        yield sink
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes; a hundredth of a second does not count."""
    while not condition():
        await asyncio.sleep(0.005)


def tables(sent: Sent) -> list[pa.Table]:
    """Return the notifications as bronze rows, one table for each commit that the receiver makes of them at most."""
    made, whole = frames(DISTINCT, sent.rows), []
    every = [Frame(made[at % DISTINCT], Kind.DATA, Boundary.WHOLE, TABLE) for at in range(sent.notifications)]
    size = Commit().max_bytes // (sum(map(len, made)) // DISTINCT + FRAME_BYTES)
    for first in range(0, len(every), size):
        batch = Batch(first)
        batch.add(every[first : first + size], 1, 0)
        whole.append(batch.prepare().table)
    return whole


def write(place: Place, made: list[pa.Table]) -> None:
    """Append the tables with `write_deltalake` as it comes, a transaction in each commit as bronze has it."""
    table = DeltaTable.create(place.url, SCHEMA)
    for number, rows in enumerate(made):
        position = CommitProperties(app_transactions=[Transaction("bench", number)])
        write_deltalake(table, rows, mode="append", commit_properties=position)


def at_a_place(work: Callable[[Place], float | None]) -> float:
    """Return the seconds that the work says, or else takes, at a fresh place."""
    folder = Path(tempfile.mkdtemp(prefix="landing-"))
    try:
        began = time.perf_counter()
        return work(Place(str(folder / "bronze"))) or time.perf_counter() - began
    finally:
        shutil.rmtree(folder)
