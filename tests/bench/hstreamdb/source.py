"""A cluster of one node in its own process, with a stream that has all records beforehand."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from silverfold.conf.model import Commit
from silverfold.connectors.base import Feed
from silverfold.connectors.hstreamdb.options import HStreamFeed, HStreamOptions, HStreamTable
from silverfold.connectors.hstreamdb.protocol.frames import encode_batch, encode_entry
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, CompressionType
from silverfold.connectors.hstreamdb.protocol.records import HRecord
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, Ticks
from silverfold.connectors.hstreamdb.server.server import HStreamServer

STREAM = "orders"
COLUMNS = {
    "id": "bigint",
    "customer": "string",
    "total": "double",
    "quantity": "int",
    "paid": "boolean",
    "note": "string",
    "country": "string",
    "at": "string",
}
DISTINCT = 100
"""Number of distinct batches; more are repetitions."""


@dataclass(frozen=True)
class Stored:
    """The records of a stream.

    Args:
        batch: Records of a batch.
    """

    records: int
    batch: int
    compression: CompressionType = CompressionType.NONE


def rows(count: int) -> list[dict[str, Any]]:
    """Return rows of eight values."""
    chance = Random(11)
    return [
        {
            "id": number,
            "customer": f"customer {number:,}",
            "total": round(chance.uniform(1, 500), 2),
            "quantity": chance.randrange(100),
            "paid": chance.random() < 0.5,
            "note": chance.choice([None, "", "gift", 'ring "twice"', "Grüße"]),
            "country": chance.choice(["de", "fr", "it"]),
            "at": f"2026-01-02T03:04:{number % 60:02}Z",
        }
        for number in range(count)
    ]


def batches(stored: Stored) -> Iterator[BatchedRecord]:
    """Yield the batches of the stream."""
    entries = [encode_entry(HRecord(row), str(row["id"])) for row in rows(stored.batch * DISTINCT)]
    made = [
        encode_batch(entries[first : first + stored.batch], stored.compression)
        for first in range(0, len(entries), stored.batch)
    ]
    for number in range(stored.records // stored.batch):
        yield made[number % DISTINCT]


def feed_at(address: str, subscription: str = "feed") -> HStreamFeed:
    """Return a feed of the stream."""
    options = HStreamOptions(stream=STREAM, subscription=subscription, create=False)
    tables = {STREAM: HStreamTable(keys=("id",), columns=COLUMNS, layout="row")}
    return Feed("bench", "hstreamdb", address, options, tables, commit=Commit(interval_ms=200))


@contextmanager
def cluster(stored: Stored) -> Iterator[str]:
    """Run a cluster until the end of the block; its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(stored, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def serve(stored: Stored, pipe: Connection) -> None:
    """Serve until the parent sends something. Runs in its own process."""
    with HStreamServer.start(ClusterOptions(nodes=1, ticks=Ticks(assign=0.05))) as server:
        (shard,) = server.create_stream(STREAM)
        for each in batches(stored):
            server.append(shard.shard_id, each)
        pipe.send(server.address)
        pipe.recv()
