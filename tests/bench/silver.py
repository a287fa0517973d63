"""Measures the build against bare Spark on the same rows: ``python -m tests.bench.silver [--rows N] [--runs N]``.

Prints JSON lines for two measurements, each alternating with its limit in the same run:

``rebuild``: silver from a landed snapshot of N rows x 10 long columns, against copying that silver table with Spark.
``follow``: one cycle for 1,000 changed rows in a table of N / 2 rows, against a bare hand-written MERGE of the same net
rows into a copy of the table; the cycle begins once the end of the update has landed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from silverfold.conf.load import load_settings
from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.frames import Kind
from silverfold.pipelines.applying.build import FeedBuild, Step
from silverfold.pipelines.places import Places
from silverfold.pipelines.spark.session import start_spark
from tests.support.deephaven.landed_history import LandedHistory

COLUMNS = {f"c{i}": "Long" for i in range(10)}
CHANGED = 1_000


def settings_at(warehouse: Path) -> Settings:
    """Return settings for two cores and a warehouse."""
    local = load_settings(None, "local", {})
    spark = {**local.spark, "spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    return local.model_copy(update={"warehouse": str(warehouse), "spark": spark})


def feed(name: str) -> Feed:
    """Return a feed of one table ``t``."""
    return Feed(name, "deephaven", "unused", DeephavenOptions(), {"t": DeephavenTable(source="T")})


def land_snapshot(places: Places, name: str, rows: int) -> LandedHistory:
    """Land a snapshot of random longs."""
    rng = np.random.default_rng(7)
    history = LandedHistory({"t": COLUMNS})
    history.connect()
    history.begin("t", Kind.SNAPSHOT)
    send_columns(history, np.arange(rows), rng, modified=False, kind=Kind.SNAPSHOT)
    history.end("t", Kind.SNAPSHOT)
    history.land(places.bronze(name), name)
    return history


def send_columns(
    history: LandedHistory,
    keys: np.ndarray[Any, Any],
    rng: np.random.Generator,
    *,
    modified: bool,
    kind: Kind,
    table: str = "t",
) -> None:
    """Send random longs for every column of some rows."""
    ascending = keys.tolist()
    for column_id in range(len(COLUMNS)):
        values = rng.integers(0, 1 << 40, len(keys))
        history.column(table, column_id, ascending, values, modified=modified, kind=kind)


def check(step: Step, *, inserted: int, updated: int) -> None:
    """Assert that the measured step did its work."""
    assert step.applied is not None, step
    assert (step.applied.inserted, step.applied.updated) == (inserted, updated), step


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def report(name: str, ours: list[float], limit: list[float], **more: object) -> None:
    """Print one JSON line: medians, and the ratio pair by pair."""
    ratios = sorted(a / b for a, b in zip(ours, limit, strict=True))
    line = {
        "bench": name,
        "seconds": round(statistics.median(ours), 3),
        "limit_seconds": round(statistics.median(limit), 3),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        **more,
    }
    print(json.dumps(line), flush=True)


def rebuild(spark: SparkSession, settings: Settings, rows: int, runs: int) -> None:
    """Measure an initial build against a copy."""
    places = Places(settings.warehouse)
    land_snapshot(places, "big", rows)
    silver, copy = places.silver("big", "t").url, f"{settings.warehouse}/copy"

    def build() -> None:
        shutil.rmtree(silver, ignore_errors=True)
        shutil.rmtree(places.cuts("big").url, ignore_errors=True)
        build = FeedBuild.open(lambda: spark, settings, CONNECTOR, feed("big"))
        build.refresh()
        step = build.step("t")
        check(step, inserted=rows, updated=0)

    def copy_table() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        spark.read.format("delta").load(silver).write.format("delta").save(copy)

    build()
    copy_table()
    pairs = [(timed(build), timed(copy_table)) for _ in range(runs)]
    ours, limit = map(list, zip(*pairs, strict=True))
    report("rebuild", ours, limit, rows=rows, columns=len(COLUMNS), rows_per_second=int(rows / statistics.median(ours)))


def follow(spark: SparkSession, settings: Settings, rows: int, runs: int) -> None:
    """Measure a follow cycle against a bare MERGE."""
    places, name = Places(settings.warehouse), "live"
    history = land_snapshot(places, name, rows)
    build = FeedBuild.open(lambda: spark, settings, CONNECTOR, feed(name))
    build.refresh()
    build.step("t")
    silver, bare = places.silver(name, "t").url, f"{settings.warehouse}/bare"
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.sql(f"CREATE TABLE delta.`{bare}` USING DELTA TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') "
                f"AS SELECT * FROM delta.`{silver}`").collect()  # fmt: skip
    rng = np.random.default_rng(11)
    visible: list[float] = []

    def cycle() -> None:
        landed = time.perf_counter()
        build.refresh()
        step = build.step("t")
        visible.append(time.perf_counter() - landed)
        check(step, inserted=0, updated=CHANGED)

    def merge(keys: np.ndarray[Any, Any]) -> None:
        session.sql(
            f"MERGE INTO delta.`{bare}` AS t USING net AS s ON t._row_key = s._row_key "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    ours, limit = [], []
    for run in range(runs + 2):
        keys = np.sort(rng.choice(rows, CHANGED, replace=False))
        history.begin("t")
        send_columns(history, keys, rng, modified=True, kind=Kind.DATA)
        history.end("t")
        history.land(places.bronze(name), name)
        seconds = timed(cycle)
        changed = session.createDataFrame([(key,) for key in keys.tolist()], "_row_key long")
        net = session.read.format("delta").load(silver).join(changed, "_row_key")
        net.write.format("delta").mode("overwrite").save(f"{settings.warehouse}/net")
        session.read.format("delta").load(f"{settings.warehouse}/net").createOrReplaceTempView("net")
        bare_seconds = timed(lambda keys=keys: merge(keys))
        if run >= 2:  # the first rounds warm up both sides
            ours.append(seconds)
            limit.append(bare_seconds)
    report("follow", ours, limit, rows=rows, changed=CHANGED, visible_seconds=round(statistics.median(visible[2:]), 3))


def main() -> None:
    """Run both measurements in a temporary warehouse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
    try:
        settings = settings_at(folder)
        spark = start_spark(settings, app="silverfold bench")
        rebuild(spark, settings, options.rows, options.runs)
        follow(spark, settings, options.rows // 2, options.runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
