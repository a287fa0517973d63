"""Measures landing over loopback TCP: ``python -m tests.bench.landing [--megabytes N] [--runs N]``.

A separate process sends one snapshot of prepared column messages, as a table server would; the receiver lands it in
bronze. The limit is `write_deltalake` alone, given the same frames as Arrow tables of the same sizes. Both alternate on
the same disk, several times; the medians count. Prints a JSON line for each size of frames.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from silverfold.conf.model import Commit
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol.columns.encode import encode_column
from silverfold.connectors.deephaven.protocol.control import (
    encode_begin,
    encode_connection_response,
    encode_end,
    encode_subscribe_response,
)
from silverfold.connectors.deephaven.protocol.frames import frame
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.receiver.receiver import DeephavenReceiver
from silverfold.connectors.frames import Boundary, Frame, Kind, Resume
from silverfold.jobs.receive import collect_rarely
from silverfold.pipelines.landing.batch import FRAME_BYTES, Batch
from silverfold.pipelines.landing.bronze_table import SCHEMA
from silverfold.pipelines.landing.sink import BronzeSink
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Place

LONG = TYPES["Long"]
BUFFER = 65_536
ROLES = load_roles()
Octets = npt.NDArray[np.uint8]


def column_messages(size: int, count: int) -> Octets:
    """Return encoded column messages of random longs, one per array row, each about ``size`` bytes long."""
    rows = (size - 49) // 8
    (message,) = encode_column(
        ROLES,
        LONG,
        np.zeros(rows, np.int64),
        subscription_id=1,
        column_id=0,
        modified=False,
        ranges=np.array([[0, rows - 1]]),
        limit=BUFFER,
    )
    model = np.frombuffer(frame(message), np.uint8)
    messages = np.tile(model, (count, 1))
    messages[:, -8 * rows :] = np.random.default_rng(1).integers(0, 256, (count, 8 * rows), np.uint8)
    return messages


def send(size: int, count: int, port: Connection) -> None:
    """Serve the messages to one client after another, as often as the parent requests. Runs in its own process."""
    wire = memoryview(column_messages(size, count).reshape(-1))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port.send(listening.getsockname()[1])
        while port.recv():
            client, _ = listening.accept()
            with client:
                client.sendall(frame(encode_connection_response(ROLES, BUFFER)))
                client.recv(1 << 16)
                client.sendall(frame(encode_subscribe_response(ROLES, 1, [(0, "n", LONG)])))
                client.sendall(frame(encode_begin(ROLES, 1)))
                client.sendall(wire)
                client.sendall(frame(encode_end(ROLES, 1)))


async def land(port: int, place: Place, commit: Commit) -> int:
    """Receive one epoch into a new table; return the last position once everything is committed."""
    feed = Feed("bench", "deephaven", f"127.0.0.1:{port}", DeephavenOptions(), {"t": DeephavenTable(source="T")})
    log = structlog.wrap_logger(structlog.ReturnLogger(), wrapper_class=structlog.make_filtering_bound_logger("error"))
    writer = BronzeWriter.open(place, "bench", token="bench")
    receiver = DeephavenReceiver(feed, rng=Random(1), clock=time.monotonic)
    clock, rng = (lambda: time.time_ns() // 1000), Random(1)
    async with BronzeSink(writer, place, commit, clock=clock, rng=rng, log=log) as sink:
        await receiver.run(sink, Resume(sink.begin_epoch()))
        return await sink.flush()


def tables(messages: Octets, commit: Commit) -> list[pa.Table]:
    """Return the frames of the messages as bronze rows, one table for each commit that the receiver makes."""
    per_commit = max(1, commit.max_bytes // (messages.shape[1] - 4 + FRAME_BYTES))
    made = []
    for first in range(0, len(messages), per_commit):
        batch = Batch(first)
        bodies = [row[4:].tobytes() for row in messages[first : first + per_commit]]
        batch.add([Frame(body, Kind.SNAPSHOT, Boundary.INSIDE, "t") for body in bodies], 1, 0)
        made.append(batch.prepare().table)
    return made


def write(place: Place, made: list[pa.Table]) -> None:
    """Append the tables with a default `write_deltalake`, with an app transaction per commit, as in bronze."""
    table = DeltaTable.create(place.url, SCHEMA)
    for number, rows in enumerate(made):
        position = CommitProperties(app_transactions=[Transaction("bench", number)])
        write_deltalake(table, rows, mode="append", commit_properties=position)


def measure(size: int, megabytes: int, runs: int) -> dict[str, object]:
    """Land and write, alternating; return the line to print."""
    count, commit = megabytes * 1_000_000 // size, Commit()
    made = tables(column_messages(size, count), commit)
    ours, theirs = multiprocessing.Pipe()
    sender = multiprocessing.get_context("spawn").Process(target=send, args=(size, count, theirs))
    sender.start()
    port = ours.recv()
    landing, bare = [], []
    for _ in range(runs):
        bare.append(timed(lambda place: write(place, made)))
        ours.send(True)
        landing.append(timed(lambda place: asyncio.run(land(port, place, commit))))
    ours.send(False)
    sender.join()
    landed, limit = statistics.median(landing), statistics.median(bare)
    return {
        "bench": "landing",
        "frame_bytes": size,
        "frames": count,
        "landing_seconds": round(landed, 3),
        "landing_megabytes_per_second": round(megabytes / landed, 1),
        "landing_microseconds_per_frame": round(1e6 * landed / count, 2),
        "bare_write_seconds": round(limit, 3),
        "ratio": round(limit / landed, 2),
        "aim": 0.5,
        "runs": runs,
        "most_memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def timed(work: object) -> float:
    """Return the seconds that ``work`` takes at a new place."""
    folder = Path(tempfile.mkdtemp(prefix="landing-"))
    try:
        began = time.perf_counter()
        assert callable(work)
        work(Place(str(folder / "bronze")))
        return time.perf_counter() - began
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=256, help="how much to land, for each size of frames")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[65_536, 200])
    chosen = parser.parse_args()
    collect_rarely()  # as the receive command does
    for size in chosen.sizes:
        json.dump(measure(size, chosen.megabytes, chosen.runs), sys.stdout)
        print(flush=True)


if __name__ == "__main__":
    main()
