"""Measures the time from COMMIT until a change is in silver, against a bare MERGE of the same rows."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud.client.client import Client, connect
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.jobs.receive import until_stopped
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.run import run
from silverfold.pipelines.places import Places
from silverfold.pipelines.spark.session import start_spark
from tests.bench.silver import settings_at, timed
from tests.bench.sqlitecloud.source import TABLE, Sent, feed_at, source

CHANGED = 1_000
_PATIENCE = 120.0
_FILLED = (
    f"INSERT INTO {TABLE} WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n LIMIT ?) "
    "SELECT i, 'customer ' || i, i / 8.0, -1, NULL FROM n"
)
_CHANGED = f"UPDATE {TABLE} SET quantity = ? WHERE id % (SELECT count(*) / ? FROM {TABLE}) = ?"
_COPIED = (
    "CREATE TABLE delta.`{0}` USING DELTA TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') "
    "AS SELECT * FROM delta.`{1}`"
)
_MERGED = (
    "MERGE INTO delta.`{0}` AS t USING net AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def visible(rows: int, runs: int) -> dict[str, object]:
    """Commit and merge, alternating; return the line to print."""
    folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
    settings = settings_at(folder)
    spark = start_spark(settings, app="bench")
    try:
        with source(Sent(1)) as serving:
            ours, bare = asyncio.run(measured(spark, settings, feed_at(serving.address), rows, runs))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    ratios = sorted(mine / limit for mine, limit in zip(ours, bare, strict=True))
    return {
        "bench": "sqlitecloud-visible",
        "rows": rows,
        "changed": CHANGED,
        "visible_seconds": round(statistics.median(ours), 3),
        "merge_seconds": round(statistics.median(bare), 3),
        "ratio": round(statistics.median(ratios), 2),
        "commit_interval_seconds": feed_at("").commit.interval_ms / 1000,
        "poll_seconds": settings.build.poll_ms / 1000,
        "runs": runs,
    }


async def measured(
    spark: SparkSession, settings: Settings, feed: Feed, rows: int, runs: int
) -> tuple[list[float], list[float]]:
    """Return the seconds until each commit was in silver, and those of each MERGE."""
    silver, bare = Places(settings.warehouse).silver(feed.name, TABLE).url, f"{settings.warehouse}/bare"
    session, ours, limit = spark.newSession(), list[float](), list[float]()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    async with await connect(feed.address) as db:
        await db.exec(_FILLED, rows)
        with receiving(feed, settings), building(spark, settings, feed):
            await asyncio.to_thread(wait_for, session, silver, -1, rows, 0)
            session.sql(_COPIED.format(bare, silver)).collect()
            for turn in range(runs + 2):
                seconds = await committed(db, session, silver, turn)
                changed = session.read.format("delta").load(silver).where(f"quantity = {turn}")
                changed.write.format("delta").mode("overwrite").save(f"{settings.warehouse}/net")
                session.read.format("delta").load(f"{settings.warehouse}/net").createOrReplaceTempView("net")
                merged = timed(lambda: session.sql(_MERGED.format(bare)).collect())
                if turn >= 2:  # the first rounds warm up both sides
                    ours.append(seconds)
                    limit.append(merged)
    return ours, limit


async def committed(db: Client, session: SparkSession, silver: str, turn: int) -> float:
    """Change rows across the table; return the seconds from the answer to COMMIT until silver has them."""
    before = DeltaTable(silver).version()
    await db.exec("BEGIN")
    await db.exec(_CHANGED, turn, CHANGED, turn)
    await db.exec("COMMIT")
    began = time.perf_counter()
    return await asyncio.to_thread(wait_for, session, silver, turn, CHANGED, before + 1) - began


def wait_for(session: SparkSession, silver: str, quantity: int, count: int, version: int) -> float:
    """Return when the first version, from the given one on, had ``count`` rows with the quantity."""
    deadline = time.perf_counter() + _PATIENCE
    while time.perf_counter() < deadline:
        if DeltaTable.is_deltatable(silver) and DeltaTable(silver).version() >= version:
            seen = time.perf_counter()
            found = session.read.format("delta").load(silver).where(f"quantity = {quantity}").count()
            if found == count:
                return seen
            assert found in (0, count), found
        time.sleep(0.005)
    raise AssertionError(f"quantity {quantity} is not in silver in time")


@contextmanager
def receiving(feed: Feed, settings: Settings) -> Iterator[None]:
    """Run the receiver in its own process until the end of the block."""
    process = multiprocessing.get_context("spawn").Process(target=received, args=(feed.address, settings))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def received(address: str, settings: Settings) -> None:
    """Receive until signalled to stop."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    asyncio.run(until_stopped([(CONNECTOR, feed_at(address))], settings))


@contextmanager
def building(spark: SparkSession, settings: Settings, feed: Feed) -> Iterator[None]:
    """Run the build that follows bronze in a thread until the end of the block."""
    stop = threading.Event()

    def build() -> None:
        feed_build = FeedBuild.open(lambda: spark, settings, CONNECTOR, feed)
        feed_build.refresh()
        run([feed_build], stop, follow=True)

    thread = threading.Thread(target=build)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
