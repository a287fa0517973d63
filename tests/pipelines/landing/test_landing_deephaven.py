"""Bronze against the real table server on sockets: whatever happens to the connection, the table can be rebuilt."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from random import Random

import pytest

import silverfold.pipelines.landing.receiving
from silverfold.conf.model import Commit, Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.workload import Changer
from silverfold.jobs.demo.tables import TABLES
from silverfold.pipelines.landing.receiving import receive
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from tests.support.landing import LOG, landed, marks
from tests.support.polling import tries, until, wait_until
from tests.support.replay import replay

PATIENCE = 120.0


@pytest.fixture
def places(warehouse):
    return Places(str(warehouse))


@pytest.fixture
def tables():
    """Live tables with all column types between them, by stream."""
    return {name: demo.filled(200, Random(name)) for name, demo in TABLES.items()}


@pytest.fixture
def server(tables):
    with TableServer.start(msg_queue_size=64, send_wait_time_millis=300) as server:
        for name, table in tables.items():
            server.export_table(TABLES[name].source, table)
        yield server


def feed_of(server, names=tuple(TABLES), **tables):
    return Feed(
        "market",
        "deephaven",
        f"127.0.0.1:{server.port}",
        DeephavenOptions(),
        {name: DeephavenTable(source=TABLES[name].source) for name in names} | tables,
        Commit(interval_ms=5, max_bytes=1 << 20),
        Reconnect(first=0.01, longest=0.05),
    )


@asynccontextmanager
async def receiving(feed, places):
    stop = asyncio.Event()
    task = asyncio.create_task(receive(feed, CONNECTOR, places, stop=stop, clock=lambda: 0, rng=Random(1), log=LOG))
    try:
        yield task
    finally:
        stop.set()
        await task


def rows_of(table):
    """The server's rows as decoded values; text, for NaN's sake."""
    rows = {row.pop("_row_key"): row for row in table.to_arrow().to_pylist()}
    return repr(sorted(rows.items()))


def rebuilt(places, stream):
    rows = replay(landed(places), stream)
    return None if rows is None else repr(sorted((key, dict(sorted_as(stream, row))) for key, row in rows.items()))


def sorted_as(stream, row):
    return [(name, row[name]) for name in TABLES[stream].columns]


async def caught_up(places, tables):
    def met():
        return all(rebuilt(places, name) == rows_of(table) for name, table in tables.items())

    await asyncio.to_thread(wait_until, met, "every change to land", seconds=PATIENCE, pause=0.1)


def change(tables, times, seed=0):
    changers = [Changer(table, f"{seed} {name}") for name, table in tables.items()]
    for _ in range(times):
        for changer in changers:
            changer.change()


def test_tables_of_all_types_that_change_while_they_are_received_can_be_rebuilt(server, tables, places):
    async def run():
        async with receiving(feed_of(server), places):
            await asyncio.to_thread(change, tables, 30)
            await caught_up(places, tables)

    asyncio.run(run())
    assert {name: rebuilt(places, name) for name in tables} == {name: rows_of(table) for name, table in tables.items()}
    frames = landed(places)
    assert [frame.frame_seq for frame in frames] == list(range(len(frames)))
    assert {frame.epoch for frame in frames} == {1}
    assert [each["mark"] for each in marks(places)] == [
        "opened",
        "calibrated",
        "snapshot asked",
        "snapshot asked",
        "closed",
    ]


def test_after_lost_connections_a_new_epoch_brings_the_tables_anew(server, tables, places):
    async def run():
        async with receiving(feed_of(server), places):
            for seed in range(3):
                await until(lambda: server.client_count == 1, "it to connect")
                await asyncio.to_thread(change, tables, 20, seed)
                await asyncio.to_thread(server.disconnect_all)
            await asyncio.to_thread(change, tables, 20, 99)
            await caught_up(places, tables)

    asyncio.run(run())
    assert max(frame.epoch for frame in landed(places)) >= 4
    assert len(marks(places, "closed")) == len(marks(places, "opened"))


def test_a_restarted_receiver_goes_on_densely_with_a_new_snapshot(server, tables, places):
    async def run():
        async with receiving(feed_of(server), places):
            await asyncio.to_thread(change, tables, 10)
            await caught_up(places, tables)

    asyncio.run(run())
    change(tables, 10, seed=1)
    asyncio.run(run())
    frames = landed(places)
    assert [frame.frame_seq for frame in frames] == list(range(len(frames)))
    assert {frame.epoch for frame in frames} == {1, 2}


def test_a_table_that_is_exported_late_comes_late_and_others_do_not_wait(server, tables, places):
    late = TABLES["trades"].filled(50, Random(5))
    feed = feed_of(server, names=("baskets",), trades=DeephavenTable(source="Late"))

    async def run():
        async with receiving(feed, places):
            await caught_up(places, {"baskets": tables["baskets"]})
            assert rebuilt(places, "trades") is None
            server.export_table("Late", late)
            await caught_up(places, {"baskets": tables["baskets"], "trades": late})

    asyncio.run(run())
    assert {frame.epoch for frame in landed(places)} == {1}
    assert {each["code"] for each in marks(places, "subscription failed")} == {"UNKNOWN_TABLE"}


def test_a_store_that_hangs_gets_the_receiver_dropped_and_it_comes_back_with_a_new_snapshot(
    server, tables, places, monkeypatch
):
    gate = threading.Event()

    class GatedWriter(BronzeWriter):
        def append(self, frames):
            gate.wait()
            super().append(frames)

    monkeypatch.setattr(silverfold.pipelines.landing.receiving, "BronzeWriter", GatedWriter)

    async def run():
        async with receiving(feed_of(server), places):
            try:
                await asyncio.to_thread(flood, server, tables["trades"])
            finally:
                gate.set()
            # On a slow machine all that the server sent before it dropped the receiver lands first.
            await until(lambda: landed(places) and landed(places)[-1].epoch >= 2, "a new epoch")
            await caught_up(places, tables)

    asyncio.run(run())
    assert server.dropped_count >= 1
    frames = landed(places)
    assert [frame.frame_seq for frame in frames] == list(range(len(frames)))
    assert max(frame.epoch for frame in frames) >= 2


def flood(server, table):
    """Add rows until the server has dropped a client."""
    for _ in tries("a client to be dropped", seconds=PATIENCE):
        if server.dropped_count:
            return
        if server.client_count:
            with table.update() as update:
                update.modify_columns(table.snapshot(["Symbol"]).rows.keys, {"Symbol": ["x" * 5000] * len(table)})
        time.sleep(0.01)
