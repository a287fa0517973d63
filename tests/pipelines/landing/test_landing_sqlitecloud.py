"""Bronze against the true server of a database: whatever happens to a connection, the tables can be folded from it."""

import asyncio
import sqlite3
from random import Random

import pytest

from silverfold.conf.model import Commit, Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud.client.client import connect
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.pipelines.landing.receiving import receive
from silverfold.pipelines.places import Places
from silverfold.pipelines.verifying.reference_fold import LandedTable, fold_bronze
from tests.support.landing import LOG, landed, marks
from tests.support.polling import wait_until
from tests.support.sqlitecloud.receiving import database, stored, url

TABLES = {"foo": SqliteCloudTable(), "pairs": SqliteCloudTable()}


def feed_at(address, **options):
    settings = SqliteCloudOptions(**{"canary_seconds": 0.2, "max_rows": 7, **options})
    commit, reconnect = Commit(interval_ms=5), Reconnect(first=0.01, longest=0.05)
    return Feed("market", "sqlitecloud", address, settings, TABLES, commit, reconnect)


def folded(places, feed, table):
    bronze = landed(places)
    expected = fold_bronze(
        LandedTable(places.bronze("market"), CONNECTOR, feed, table, bronze[-1].frame_seq)
    ).expected()
    return sorted(expected.rows, key=str)


def change(rng, n):
    """Some statements, each a transaction of its own, and one of several tables."""
    key, other = rng.randrange(40), rng.randrange(40)
    yield "INSERT OR REPLACE INTO foo VALUES (?, ?, NULL)", (key, f"a{n}")
    yield "UPDATE foo SET b = ? WHERE id = ?", (f"b{n}", other)
    yield "UPDATE OR REPLACE foo SET id = ? WHERE id = ?", (key + 1, other)
    yield "DELETE FROM foo WHERE id = ?", (rng.randrange(40),)
    yield "BEGIN; INSERT OR REPLACE INTO pairs VALUES (?, ?, ?); DELETE FROM foo WHERE id = ?; COMMIT", (key, "x", n, n)
    yield "UPDATE pairs SET v = v + 1 WHERE k < ?", (other,)


@pytest.mark.parametrize(
    ("capture", "fence"),
    [
        (CaptureMode.HOOK_CHANGED, True),
        pytest.param(CaptureMode.SESSION, True, marks=pytest.mark.nightly),
        pytest.param(CaptureMode.SESSION, False, marks=pytest.mark.nightly),
        pytest.param(CaptureMode.HOOK_CHANGED, False, marks=pytest.mark.nightly),
    ],
)
def test_tables_that_change_while_they_are_received_and_connections_are_cut_can_be_folded(
    warehouse, tmp_path, capture, fence
):
    path = database(
        tmp_path,
        "CREATE TABLE foo(id INTEGER PRIMARY KEY, a TEXT, b TEXT)",
        "CREATE TABLE pairs(k INTEGER, l TEXT, v INTEGER, PRIMARY KEY (l, k))",
        *[f"INSERT INTO foo VALUES ({n}, 'a', 'b')" for n in range(40)],
    )
    places, rng, stop = Places(str(warehouse)), Random(7), asyncio.Event()
    server_options = ServerOptions(pacing=Pacing.SPLIT, capture=capture)

    async def run(server):
        feed = feed_at(url(server), fence=fence, settle_seconds=0.1)
        clock = iter(range(1 << 40)).__next__
        task = asyncio.create_task(receive(feed, CONNECTOR, places, stop=stop, clock=clock, rng=Random(1), log=LOG))
        try:
            for n in range(18):
                await write(server, rng, n)
                if n % 6 == 3:
                    cut = server.disconnect_listeners if n % 4 else server.disconnect_all
                    await asyncio.to_thread(cut)
            await asyncio.to_thread(
                wait_until,
                lambda: all(folded(places, feed, name) == stored(path, name) for name in TABLES),
                "all that is stored to land",
                pause=0.1,
            )
        finally:
            stop.set()
            await task
        return {name: folded(places, feed, name) for name in TABLES}

    with SqliteCloudServer.start({"shop.db": path}, options=server_options) as server:
        assert asyncio.run(run(server)) == {name: stored(path, name) for name in TABLES}
    assert len(marks(places, "logged in")) >= 3
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def write(server, rng, n):
    async with await connect(url(server)) as db:
        for sql, parameters in change(rng, n):
            await db.exec(sql, *parameters)
