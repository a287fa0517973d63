"""Measures a small cut of a live feed: ``python -m tests.bench.small [--rows N …] [--changes N] [--runs N]``.

Each line is one connector and one set of settings: a cut of a few changes, from the landed frames to the commit,
against a bare MERGE of as many complete rows into an equal table, alternating in one session. ``jobs`` is the number of
Spark jobs of the last cut.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.deephaven.connector import CONNECTOR as DEEPHAVEN
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.frames import Kind
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.places import Places
from silverfold.pipelines.spark.session import start_spark
from tests.bench.bare import BareMerge
from tests.bench.silver import COLUMNS, land_snapshot, report, send_columns, settings_at, timed
from tests.support.change_model import Change
from tests.support.stub_connector import StubConnector, StubHistory, StubOptions, StubTable

WARM = 4
"""Warm-up cuts."""

KEY = T.StructType().add("k", T.LongType())
ROW = T.StructType([*KEY, *(T.StructField(name, T.LongType()) for name in COLUMNS)])

RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "rules": {"expect": {"low": {"condition": "c0 >= 0", "action": "quarantine"}}},
    "aside": {"expect": {"low": {"condition": "c0 % 1000 > 0", "action": "quarantine"}}},
    "history": {"stored_as_scd_type": 2},
}
"""``aside``: about one row in a thousand goes to the side table."""


@dataclass
class Live:
    """A feed with a built snapshot, and a function that lands a cut."""

    places: Places
    feed: Feed
    connector: Connector
    rows: int
    land: Callable[[list[int]], None]


def deephaven(folder: Path, name: str, rows: int, settings: dict[str, Any]) -> Live:
    """Land a Deephaven snapshot; the decoder folds."""
    places, rng = Places(str(folder)), np.random.default_rng(11)
    history = land_snapshot(places, name, rows)

    def land(keys: list[int]) -> None:
        history.begin("t")
        send_columns(history, np.array(keys), rng, modified=True, kind=Kind.DATA)
        history.end("t")
        history.land(places.bronze(name), name)

    feed = Feed(name, "deephaven", "unused", DeephavenOptions(), {"t": DeephavenTable(source="T", **settings)})
    return Live(places, feed, DEEPHAVEN, rows, land)


def stubbed(folder: Path, name: str, rows: int, settings: dict[str, Any]) -> Live:
    """Land a snapshot of the stub connector; the decoder does not fold, and rows are complete."""
    places, rng = Places(str(folder / name)), np.random.default_rng(11)
    history = StubHistory(places)

    def whole(op: str, key: int) -> Change:
        return Change(
            0, op, (key,), {"k": key, **dict(zip(COLUMNS, rng.integers(0, 1 << 40, 10).tolist(), strict=True))}
        )

    def land(keys: list[int]) -> None:
        for key in keys:
            history.update([whole("update", key)])
        history.land()

    history.connect()
    history.begin_snapshot()
    for first in range(0, rows, 1000):
        history.snapshot_rows([whole("snapshot", key) for key in range(first, min(first + 1000, rows))])
    history.end_snapshot()
    history.land()
    feed = Feed("told", "told", "unused", StubOptions(), {"t": StubTable(source="T", **settings)})
    return Live(places, feed, StubConnector(row=ROW, key=KEY), rows, land)


def measured(spark: SparkSession, live: Live, name: str, arguments: argparse.Namespace) -> None:
    """Print a line for one feed."""
    settings, folder = settings_at(Path(live.places.warehouse)), Path(live.places.warehouse)
    build = FeedBuild.open(lambda: spark, settings, live.connector, live.feed)
    build.refresh()
    first = build.step("t")
    assert first.applied is not None, first
    key = "_row_key" if live.connector is DEEPHAVEN else "k"
    bare = BareMerge.beside(spark, live.places.silver(live.feed.name, "t").url, folder / f"{name}-bare", key)
    rng = np.random.default_rng(13)

    def cut() -> None:
        build.refresh()
        step = build.step("t")
        assert step.applied is not None, step

    ours, limit, jobs = [], [], 0
    for run in range(WARM + arguments.runs):
        keys = sorted(rng.choice(live.rows, arguments.changes, replace=False).tolist())
        live.land(keys)
        before = max(_jobs(spark), default=-1)
        seconds = timed(cut)
        jobs = max(_jobs(spark), default=-1) - before
        bare_seconds = bare.seconds(keys)
        if run >= WARM:
            ours.append(seconds)
            limit.append(bare_seconds)
    report("small", ours, limit, feed=name, rows=live.rows, changes=arguments.changes, jobs=jobs)


def _jobs(spark: SparkSession) -> list[int]:
    """Return the ids of the session's jobs that Spark still remembers."""
    return list(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def main() -> None:
    """Run all measurements in a temporary warehouse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000, 100_000])
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--only", nargs="+", default=list(RULES), choices=list(RULES))
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
    try:
        spark = start_spark(settings_at(folder), app="silverfold bench")
        for rows in arguments.rows:
            for rules in arguments.only:
                for source in (deephaven, stubbed):
                    name = f"{source.__name__}-{rules}-{rows}"
                    live = source(folder, name, rows, RULES[rules])
                    measured(spark, live, name, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
