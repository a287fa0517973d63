"""Measures receiving and landing notifications, against only reading them, and against only writing their rows."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import structlog
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from structlog.testing import CapturingLogger

from silverfold.conf.model import Commit
from silverfold.connectors.frames import Boundary, Frame, Kind, Receiver, Resume
from silverfold.connectors.sqlitecloud.client.client import connect
from silverfold.connectors.sqlitecloud.receiver.receiver import SqliteCloudReceiver
from silverfold.jobs.receive import collect_rarely
from silverfold.pipelines.landing.batch import FRAME_BYTES, Batch
from silverfold.pipelines.landing.bronze_table import SCHEMA
from silverfold.pipelines.landing.sink import BronzeSink
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Place
from tests.bench.sqlitecloud.source import DISTINCT, TABLE, Sent, Source, feed_at, frames, source
from tests.support.polling import until

LOG = structlog.wrap_logger(structlog.ReturnLogger(), wrapper_class=structlog.make_filtering_bound_logger("error"))
LONGEST = 600.0
"""Timeout of a measurement, in seconds."""


class Spent(NamedTuple):
    """Time spent: wall seconds, and processor seconds of all threads of this process."""

    seconds: float
    processor: float


def now() -> Spent:
    """Return the current readings of both clocks."""
    return Spent(time.perf_counter(), time.process_time())


def since(began: Spent) -> Spent:
    """Return the time spent since then."""
    seconds, processor = now()
    return Spent(seconds - began.seconds, processor - began.processor)


def median(each: Sequence[Spent]) -> Spent:
    """Return the median of each clock."""
    return Spent(*map(statistics.median, zip(*each, strict=True)))


def landing(notifications: int, rows: int, runs: int) -> dict[str, object]:
    """Land, read and write, alternating; return the line to print."""
    sent = Sent(notifications, rows)
    made, landed, read, bare = tables(sent), list[Spent](), list[Spent](), list[Spent]()
    collect_rarely()  # as the receive command does
    with source(sent) as serving:
        for _ in range(runs):
            read.append(asyncio.run(spent_to_read(serving)))
            bare.append(at_a_place(lambda place: write(place, made)))
            landed.append(at_a_place(lambda place: asyncio.run(spent_to_land(serving, place))))
    ours, reader, writer = map(median, (landed, read, bare))
    measured = {"landed": ours, "read": reader, "bare_write": writer}
    return {
        "bench": "sqlitecloud-landing",
        "notifications": notifications,
        "rows_each": rows,
        "bytes_each": sum(map(len, frames(DISTINCT, rows))) // DISTINCT,
        "landed_per_second": round(notifications / ours.seconds),
        "microseconds": {name: round(1e6 * each.seconds / notifications, 2) for name, each in measured.items()},
        "processor_microseconds": {
            name: round(1e6 * each.processor / notifications, 2) for name, each in measured.items()
        },
        "ratio": round(reader.seconds / ours.seconds, 2),
        "processor_ratio": round(reader.processor / ours.processor, 2),
        "processor_ratio_with_bare_write": round((reader.processor + writer.processor) / ours.processor, 2),
        "aim": 0.5,
        "runs": runs,
    }


async def spent_to_read(serving: Source) -> Spent:
    """Receive all notifications, and discard them."""
    async with await connect(serving.address) as db:
        await db.listen_table(TABLE)
        began, received = now(), 0
        serving.send()
        while received < serving.sent.notifications:
            received += len(await db.next_notifications())
        return since(began)


async def spent_to_land(serving: Source, place: Place) -> Spent:
    """Receive all notifications, after a snapshot, into a new table; all are committed at the end."""
    receiver = SqliteCloudReceiver(feed_at(serving.address), rng=Random(1), clock=time.monotonic, environ={})
    wanted, logger = serving.sent.notifications, CapturingLogger()
    log = structlog.wrap_logger(logger, processors=[], wrapper_class=structlog.make_filtering_bound_logger("info"))
    async with landing_at(place, receiver, log) as sink:
        await until(lambda: any(call.kwargs["event"] == "snapshot complete" for call in logger.calls), "the snapshot")
        before, began = sink.last, now()
        serving.send()
        await until(lambda: sink.last >= before + wanted, "all to land", seconds=LONGEST)
        await sink.flush()
        spent = since(began)
    data = DeltaTable(place.url).to_pyarrow_table(columns=["kind"], filters=[("kind", "=", Kind.DATA)])
    assert data.num_rows >= wanted, (data.num_rows, wanted)
    return spent


@asynccontextmanager
async def landing_at(place: Place, receiver: Receiver, log: Any = LOG) -> AsyncIterator[BronzeSink]:
    """Run a receiver into a new table, with default settings, until the end of the block."""
    clock, rng = (lambda: time.time_ns() // 1000), Random(1)
    writer = BronzeWriter.open(place, "bench", token="bench")
    async with BronzeSink(writer, place, Commit(), clock=clock, rng=rng, log=log) as sink:
        running = asyncio.create_task(receiver.run(sink, Resume(sink.begin_epoch())))
        yield sink
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def tables(sent: Sent) -> list[pa.Table]:
    """Return the notifications as bronze rows, in tables of the maximum size of the receiver's commits."""
    made, whole = frames(DISTINCT, sent.rows), []
    every = [Frame(made[at % DISTINCT], Kind.DATA, Boundary.WHOLE, TABLE) for at in range(sent.notifications)]
    size = Commit().max_bytes // (sum(map(len, made)) // DISTINCT + FRAME_BYTES)
    for first in range(0, len(every), size):
        batch = Batch(first)
        batch.add(every[first : first + size], 1, 0)
        whole.append(batch.prepare().table)
    return whole


def write(place: Place, made: list[pa.Table]) -> Spent:
    """Append the tables with a default `write_deltalake`, with an app transaction per commit, as in bronze."""
    began, table = now(), DeltaTable.create(place.url, SCHEMA)
    for number, rows in enumerate(made):
        position = CommitProperties(app_transactions=[Transaction("bench", number)])
        write_deltalake(table, rows, mode="append", commit_properties=position)
    return since(began)


def at_a_place(work: Callable[[Place], Spent]) -> Spent:
    """Do the work at a new place."""
    with tempfile.TemporaryDirectory(prefix="landing-") as folder:
        return work(Place(f"{folder}/bronze"))
