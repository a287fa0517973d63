"""Measures `apply_changes`: ``python -m tests.bench.autocdc [--rows N] [--changes N] [--runs N]``.

Each line is one type of table: a warm call with a few changes, a tenth of them deletes unless stated otherwise,
against a bare MERGE of as many changes into a table of the same rows, alternating in one session.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from silverfold.pipelines.spark.session import own_session, start_spark
from silverfold.transforms.autocdc.apply import apply_changes
from silverfold.transforms.merge import Recorded
from silverfold.transforms.sql import path_table
from tests.bench.silver import COLUMNS, report, settings_at, timed

KINDS: dict[str, dict[str, Any]] = {
    "type 1": {"stored_as_scd_type": 1},
    "type 1, no deletes": {"stored_as_scd_type": 1, "apply_as_deletes": None},
    "type 1, NULL updates ignored": {"stored_as_scd_type": 1, "ignore_null_updates": True},
    "type 2": {"stored_as_scd_type": 2},
    "type 2, no deletes": {"stored_as_scd_type": 2, "apply_as_deletes": None},
}
WARM = 3
"""Warm-up calls."""


def changes(session: SparkSession, path: Path, count: int, rows: int, number: int) -> DataFrame:
    """Write changes to files, and return them as read back."""
    keys = F.floor(F.rand(number) * rows).cast("long") if number else F.col("id")
    values = {name: F.floor(F.rand(number + at) * (1 << 40)).cast("long") for at, name in enumerate(COLUMNS, 1)}
    deletes = (F.col("id") % 10 == 9) & F.lit(number > 0)
    operations = session.range(count).select(
        keys.alias("k"), deletes.alias("gone"), (F.lit(number << 32) + F.col("id")).alias("at"), "id"
    )
    operations.dropDuplicates(["k"]).drop("id").withColumns(values).write.parquet(str(path))
    return session.read.parquet(str(path))


def measured(spark: SparkSession, folder: Path, kind: str, arguments: argparse.Namespace) -> None:
    """Print a line for one type of table."""
    session, table, bare = own_session(spark), str(folder / kind / "ours"), str(folder / kind / "bare")
    session.conf.set("spark.sql.adaptive.enabled", "false")

    def ours(source: DataFrame, number: int) -> None:
        apply_changes(
            source,
            table,
            keys=["k"],
            sequence_by="at",
            except_column_list=["gone"],
            recorded=Recorded("bench", number),
            **{"apply_as_deletes": "gone", **KINDS[kind]},
        )

    def merge(source: DataFrame) -> None:
        source.createOrReplaceTempView("net")
        session.sql(
            f"MERGE INTO {path_table(bare)} AS t USING net AS s ON t.k = s.k WHEN MATCHED AND s.gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in COLUMNS)} "
            f"WHEN NOT MATCHED AND NOT s.gone THEN INSERT (k, {', '.join(COLUMNS)}) "
            f"VALUES (s.k, {', '.join(f's.{name}' for name in COLUMNS)})"
        ).collect()

    first = changes(session, folder / kind / "0", arguments.rows, arguments.rows, 0)
    ours(first, 1)
    first.drop("gone", "at").write.format("delta").option("delta.enableDeletionVectors", "true").save(bare)
    mine, limit = [], []
    for run in range(1, WARM + arguments.runs + 1):
        source = changes(session, folder / kind / str(run), arguments.changes, arguments.rows, run)
        seconds, bare_seconds = timed(lambda: ours(source, run + 1)), timed(lambda: merge(source))  # noqa: B023 - at once
        if run > WARM:
            mine.append(seconds)
            limit.append(bare_seconds)
    report("autocdc", mine, limit, what=kind, rows=arguments.rows, changes=arguments.changes, aim=2)


def main() -> None:
    """Run all measurements in a temporary warehouse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="silverfold-bench-"))
    try:
        spark = start_spark(settings_at(folder), app="silverfold bench")
        for kind in KINDS:
            measured(spark, folder, kind, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
