"""A cluster whose nodes die and drop acknowledgements, received and built by processes that are killed: all is there.

Nodes are killed inside the cluster, so that what they share outlives them, as the stored log does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.connectors.frames import Kind
from silverfold.connectors.hstreamdb.client import connect
from silverfold.connectors.hstreamdb.client.fetch import FetchedFrame
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, CompressionType
from silverfold.connectors.hstreamdb.server.options import ClusterOptions, RebuiltWindow, Ticks
from silverfold.connectors.hstreamdb.server.server import HStreamServer
from silverfold.connectors.hstreamdb.server.workload.layouts import RecordLayout
from silverfold.connectors.hstreamdb.server.workload.producer import TableProducer
from silverfold.connectors.hstreamdb.server.workload.tables import ChangingTable
from silverfold.pipelines.landing.bronze import last_position, read_frames
from silverfold.pipelines.store import open_table
from tests.support.building_once import all_rows
from tests.support.processes import FeedProcesses

pytestmark = pytest.mark.xdist_group("kills")

FEED = """
connector = "hstreamdb"
address = "{address}"
commit = {{ interval_ms = 20 }}
reconnect = {{ first = 0.1, longest = 0.5 }}
options = {{ stream = "orders", subscription = "feed", create = false, consumers = 3, committed_seconds = 1 }}
[tables.orders]
keys = ["id"]
columns = {{ id = "bigint", name = "string", price = "double" }}
"""
TICKS = Ticks(start_delay=0.001, resend=0.05, assign=0.1, read_wait=0.1)
ROWS = [{"id": number, "name": f"name {number}", "price": number / 4} for number in range(1, 40)]


class Orders(FeedProcesses):
    """A stream of four shards that changes without a pause, and the processes that receive and build it."""

    def __init__(self, folder: Path, rng: Random, server: HStreamServer) -> None:
        super().__init__(folder, rng)
        self.server, self.owner, self.appended = server, 0, 0
        self.table = ChangingTable(ROWS, seed=7)
        ranges = server.create_stream("orders", 4)
        asyncio.run(self._subscribe())
        layout, compression = RecordLayout.UNWRAPPED, CompressionType.ZSTD
        self.producer = TableProducer(self.table, ranges, self._append, layout=layout, compression=compression)
        self._quiet = threading.Event()
        self._changing = threading.Thread(target=self._change)
        self._changing.start()
        self.receive_as(FEED.format(address=server.address))

    async def _subscribe(self) -> None:
        async with await connect(self.server.address) as client:
            await client.create_subscription("feed", "orders", ack_timeout_seconds=1)

    def _append(self, shard: int, batch: BatchedRecord) -> None:
        self.server.append(shard, batch)
        self.appended += batch.batch_size

    def _change(self) -> None:
        self.producer.load()
        while not self._quiet.wait(0.02):
            self.producer.change()

    def progress(self) -> int:
        return last_position(self.bronze, "shop")

    def kill(self, name: str) -> None:
        """Kill a process, or the node of the subscription."""
        if name == "node":
            self.owner = self.server.owner("feed")
            self.server.kill(self.owner)
        else:
            super().kill(name)

    def node(self) -> None:
        """Start the killed node again."""
        self.server.restart(self.owner)

    def come_to_rest(self) -> None:
        self.stop_changes()
        self.until(lambda: len(self.landed()) == self.appended)
        self.stop("receive")

    def landed(self) -> set[Any]:
        """Return the ids of all records that have landed."""
        bodies = (frame.body for frame in read_frames(self.bronze, kind=Kind.DATA))
        return {record for body in bodies for record in FetchedFrame.of(body).ids}

    def silver(self) -> dict[int, dict[str, Any]]:
        rows = all_rows(open_table(self.places.silver("shop", "orders")))
        return {row["id"]: {name: row[name] for name in ROWS[0]} for row in rows}

    def stop_changes(self) -> None:
        self._quiet.set()
        self._changing.join()

    def close(self) -> None:
        """Leave neither process nor thread behind."""
        self.stop_changes()
        super().close()


@pytest.fixture
def orders(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Orders]:
    options = ClusterOptions(ticks=TICKS, rebuilt_window=request.param, dropped_acks=range(4, 9))
    with HStreamServer.start(options) as server, closing(Orders(tmp_path, Random(3), server)) as orders:
        yield orders


@pytest.mark.parametrize(
    ("orders", "victims"),
    [
        pytest.param(RebuiltWindow.AS_PUBLISHED, ["receive", "node", "receive"], id="short"),
        *(
            pytest.param(window, ["receive", "node"] * 4 + ["build"] * 2, id=window, marks=pytest.mark.nightly)
            for window in RebuiltWindow
        ),
    ],
    indirect=["orders"],
)
def test_whoever_is_killed_silver_is_the_table_that_was_produced(
    spark: SparkSession, orders: Orders, victims: list[str]
) -> None:
    orders.survive(*victims)

    assert orders.silver() == {row["id"]: row for row in orders.table.rows.values()}
    assert len(orders.silver()) > 20
    assert orders.run("verify", "shop") == 0
    assert orders.run("verify", "shop", "--against-source") == 0
