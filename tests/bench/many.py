"""Measures many tables in one session against one alone: ``python -m tests.bench.many [--rows N] [--shapes FxT …]``.

Each line is a number of feeds and tables: the time of a cut of 100 changes while every table has one to apply, two at a
time, against that of a single table in the same session; and the memory of both processes, in MiB, compared with that
of the single table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.frames import Kind
from silverfold.jobs.common.logs import start_logs
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.run import run
from silverfold.pipelines.places import Places
from silverfold.pipelines.spark.session import start_spark
from tests.bench.silver import COLUMNS, report, send_columns, settings_at, timed
from tests.support.deephaven.landed_history import LandedHistory

WARM = 1
"""Warm-up rounds."""

CHANGES = 100


@dataclass
class Many:
    """Several feeds with the same number of tables, all built."""

    spark: SparkSession
    settings: Settings
    feeds: int
    tables: int
    rows: int

    def __post_init__(self) -> None:
        self._places, self._rng = Places(self.settings.warehouse), np.random.default_rng(3)
        names = [f"t{number}" for number in range(self.tables)]
        tables = {name: DeephavenTable(source=name) for name in names}
        self._histories, self._builds = [], []
        for number in range(self.feeds):
            feed = Feed(f"f{self.feeds}x{self.tables}_{number}", "deephaven", "unused", DeephavenOptions(), tables)
            history = LandedHistory(dict.fromkeys(names, COLUMNS))
            history.connect()
            self._histories.append((feed.name, history))
            self._land(feed.name, history, np.arange(self.rows), Kind.SNAPSHOT)
            self._builds.append(FeedBuild.open(lambda: self.spark, self.settings, CONNECTOR, feed))
        self.build()

    def land(self) -> None:
        """Land an update of every table."""
        for name, history in self._histories:
            keys = np.sort(self._rng.choice(self.rows, CHANGES, replace=False))
            self._land(name, history, keys, Kind.DATA)

    def build(self) -> None:
        """Apply the landed updates."""
        for feed_build in self._builds:
            feed_build.refresh()
        assert run(self._builds) == {}

    def _land(self, feed: str, history: LandedHistory, keys: np.ndarray[Any, Any], kind: Kind) -> None:
        for table in history.columns:
            history.begin(table, kind)
            send_columns(history, keys, self._rng, modified=kind is Kind.DATA, kind=kind, table=table)
            history.end(table, kind)
        history.land(self._places.bronze(feed), feed)


def measured(one: Many, many: Many, runs: int, memory: int) -> None:
    """Print a line."""
    at_once = many.settings.build.tables_at_once
    cuts: list[float] = []
    alone: list[float] = []
    for number in range(WARM + runs):
        one.land()
        many.land()
        alone_seconds, seconds = timed(one.build), timed(many.build)
        if number >= WARM:
            alone.append(alone_seconds)
            cuts.append(seconds * at_once / (many.feeds * many.tables))
    now = _memory()
    report("many", cuts, alone, feeds=many.feeds, tables=many.tables, rows=many.rows, mib=now, mib_of_one=memory)


def _memory() -> int:
    """Return the resident memory of this process and its JVM, in MiB."""
    pids = [os.getpid(), *_children(os.getpid())]
    return sum(_status(pid, "VmRSS") for pid in pids) >> 10


def _children(parent: int) -> Sequence[int]:
    return [int(each) for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))


def main() -> None:
    """Run all measurements in a temporary warehouse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shapes", nargs="+", default=["20x3", "1x40"], help="feeds, by tables of each")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
    start_logs("error")
    try:
        settings = settings_at(folder)
        spark = start_spark(settings, app="silverfold bench")
        one = Many(spark, settings, 1, 1, arguments.rows)
        for _ in range(WARM + arguments.runs):
            one.land()
            one.build()
        memory = _memory()
        for feeds, tables in (map(int, shape.split("x")) for shape in arguments.shapes):
            measured(one, Many(spark, settings, feeds, tables, arguments.rows), arguments.runs, memory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
