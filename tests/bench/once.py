"""Measures a scheduled job, from prompt to exit: ``python -m tests.bench.once [--rows N] [--changes N] [--runs N]``.

``small cut``: ``build --once`` with one cut of a few changes, against a program that starts Spark and Delta as
documented, and merges as many rows into an equal table.
``nothing new``: ``build --once`` with nothing to do, against a program that loads the same libraries and opens silver's
log.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from silverfold.connectors.frames import Kind
from silverfold.pipelines.places import Places
from tests.bench.live import FEED, write_conf
from tests.bench.silver import COLUMNS, land_snapshot, report, send_columns, timed

BARE = """
import sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

table, net = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = configure_spark_with_delta_pip(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
spark.read.parquet(net).createOrReplaceTempView("net")
spark.sql(
    f"MERGE INTO delta.`{table}` AS t USING net AS s ON t._row_key = s._row_key "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
spark.stop()
"""

OPEN = """
import sys
import deltalake, pyarrow.dataset, pydantic, pyspark.sql, structlog, typer

print(deltalake.DeltaTable(sys.argv[1]).version())
"""


def ran(*arguments: str) -> float:
    """Run Python, which must exit with 0; return the seconds."""
    return timed(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True))


def measured(folder: Path, rows: int, changes: int, runs: int) -> None:
    """Measure and print both lines."""
    places, rng = Places(str(folder / "lake")), np.random.default_rng(11)
    history, conf = land_snapshot(places, FEED, rows), folder / "conf"
    write_conf(conf, places.warehouse, "127.0.0.1:1", ["t"])
    silver, copy = places.silver(FEED, "t").url, str(folder / "copy")

    def build() -> float:
        return ran("-m", "silverfold.jobs.cli", "--conf", str(conf), "build", FEED, "--once")

    def small_cut(run: int) -> tuple[float, float]:
        keys, net = np.sort(rng.choice(rows, changes, replace=False)), f"{folder}/net{run}.parquet"
        values = {name: rng.integers(0, 1 << 40, changes) for name in COLUMNS}
        pq.write_table(pa.table({"_row_key": keys, **values, "_position": np.full(changes, run)}), net)
        history.begin("t")
        send_columns(history, keys, rng, modified=True, kind=Kind.DATA)
        history.end("t")
        history.land(places.bronze(FEED), FEED)
        return build(), ran("-c", BARE, copy, net)

    def pairs(once: Callable[[int], tuple[float, float]]) -> tuple[list[float], list[float]]:
        ours, limit = zip(*(once(run) for run in range(runs)), strict=True)
        return list(ours), list(limit)

    build()
    shutil.copytree(silver, copy)
    report("once", *pairs(small_cut), what="small cut", rows=rows, changes=changes, aim="8 s")
    report("once", *pairs(lambda _: (build(), ran("-c", OPEN, silver))), what="nothing new", aim="1 s")


def main() -> None:
    """Run both measurements in a temporary folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.once", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
    try:
        measured(folder, arguments.rows, arguments.changes, arguments.runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
