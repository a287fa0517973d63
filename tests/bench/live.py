"""Measures a live feed as processes: ``python -m tests.bench.live [--rows N …] [--seconds N] [--tables N]``.

A simulator, ``receive`` and ``build --follow`` run as a user would start them, with the default settings. Measured is
the time from landing an update until its rows are in silver: from its bronze commit to the first silver commit that has
reached it, by the modification times of the log files. The first `WARM` seconds do not count. The limit is a bare MERGE
of a cut's rows on the same machine, right afterwards: a slow machine slows both.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from silverfold.connectors.frames import Boundary
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.spark.session import start_spark, stop_spark
from silverfold.pipelines.storage.cuts import app_id
from tests.bench.bare import BareMerge
from tests.bench.silver import COLUMNS, settings_at

FEED = "market"
WARM = 60.0
"""Warm-up seconds from the first cut on, in which the JVM compiles."""

CHANGES_PER_SECOND = 70.0
"""Changes per second of one table: some hundred per cut."""

BARE_RUNS = 16
"""Runs of the bare MERGE; the first half is warm-up."""

AIMS = {1: 1.5, 2: 3.0}
"""Target medians in seconds, by number of concurrent tables."""

_CLI = (sys.executable, "-m", "silverfold.jobs.cli")


def measured(folder: Path, rows: int, tables: int, seconds: float) -> None:
    """Run a feed for some time, and print a line."""
    names = [f"t{number}" for number in range(tables)]
    address, exports = "127.0.0.1:0", []
    rng = np.random.default_rng(3)
    for name in names:
        pq.write_table(pa.table({each: rng.integers(0, 1 << 40, rows) for each in COLUMNS}), folder / f"{name}.parquet")
        exports += ["--table", f"{name}={folder}/{name}.parquet"]
    conf, places = folder / "conf", Places(str(folder / "lake"))
    with running("simulate", "deephaven", *exports, "--changes-per-second", str(CHANGES_PER_SECOND)) as source:
        assert source.stdout is not None
        address = source.stdout.readline().split()[-1]
        write_conf(conf, places.warehouse, address, names)
        with running("--conf", str(conf), "receive", FEED), running("--conf", str(conf), "build", FEED, "--follow"):
            while not all(silver_commits(places, name) for name in names):
                time.sleep(0.5)
            first = time.time()
            time.sleep(WARM + seconds)
    waits = sorted(wait for name in names for wait in landing_delays(places, name, first + WARM))
    cuts = sum(at > first + WARM for name in names for at, _ in silver_commits(places, name)) / tables
    changes, wait = round(CHANGES_PER_SECOND * seconds / cuts), median(waits)
    bare = bare_seconds(folder, places.silver(FEED, names[0]).url, rows, changes)
    line = {
        "bench": "live",
        "rows": rows,
        "tables": tables,
        "seconds": round(wait, 3),
        "limit_seconds": round(bare, 3),
        "ratio": round(wait / bare, 2),
        "p99_seconds": round(waits[len(waits) * 99 // 100], 3),
        "aim": AIMS.get(tables),
        "updates": len(waits),
        "changes_a_cut": changes,
    }
    print(json.dumps(line), flush=True)


def bare_seconds(folder: Path, silver: str, rows: int, changes: int) -> float:
    """Return the seconds of a warm bare MERGE of as many rows."""
    spark = start_spark(settings_at(folder), app="silverfold bench")
    bare, rng = BareMerge.beside(spark, silver, folder / "bare", "_row_key"), np.random.default_rng(13)
    times = [bare.seconds(rng.choice(rows, min(changes, rows), replace=False).tolist()) for _ in range(BARE_RUNS)]
    stop_spark(spark)
    return median(times[BARE_RUNS // 2 :])


def write_conf(conf: Path, warehouse: str, address: str, tables: Sequence[str]) -> None:
    """Write the configuration of one feed."""
    (conf / "feeds").mkdir(parents=True)
    (conf / "settings.toml").write_text(f'warehouse = "{warehouse}"\n')
    sections = "".join(f'[tables.{name}]\nsource = "{name}"\n' for name in tables)
    (conf / "feeds" / f"{FEED}.toml").write_text(f'connector = "deephaven"\naddress = "{address}"\n{sections}')


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the end of the block."""
    process = subprocess.Popen([*_CLI, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def landing_delays(places: Places, table: str, after: float) -> Iterator[float]:
    """Yield the seconds from landing to silver of each update landed after a time, unless not yet in silver."""
    commits = silver_commits(places, table)
    reached = [position for _, position in commits]
    landed = [(position, at) for at, position in transactions(places.bronze(FEED), f"receive/{FEED}")]
    batches = read_small_columns(places.bronze(FEED), after=-1)
    for position in update_ends(batches, table):
        at = landed[bisect_left(landed, (position,))][1]
        shown = bisect_left(reached, position)
        if at > after and shown < len(commits):
            yield commits[shown][0] - at


def update_ends(batches: Any, table: str) -> Iterator[int]:
    """Yield the end positions of a table's updates."""
    for batch in batches:
        names = ("frame_seq", "stream", "boundary")
        for position, stream, boundary in zip(*(batch[name].to_pylist() for name in names), strict=True):
            if stream == table and boundary in (Boundary.END, Boundary.WHOLE):
                yield position


def silver_commits(places: Places, table: str) -> list[tuple[float, int]]:
    """Return the time of each commit of a silver table, and the position it reached."""
    return list(transactions(places.silver(FEED, table), app_id(FEED, table)))


def transactions(place: Place, app: str) -> Iterator[tuple[float, int]]:
    """Yield the times of a table's commits, and the positions recorded for an application id."""
    folder = place.local
    assert folder is not None
    for path in sorted((folder / "_delta_log").glob("*.json")):
        for line in path.read_text().splitlines():
            action: Mapping[str, Any] = json.loads(line)
            if action.get("txn", {}).get("appId") == app:
                yield path.stat().st_mtime, action["txn"]["version"]


def main() -> None:
    """Run each size in its own folders."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000, 100_000])
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    for rows in arguments.rows:
        folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
        try:
            measured(folder, rows, arguments.tables, arguments.seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
