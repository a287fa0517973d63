"""The side table counts by the position that the table itself has reached."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from transforms.aside import in_force, keep_aside

COMING = "k LONG, _present ARRAY<STRING>, _reasons ARRAY<STRING>"


def coming(spark: SparkSession, *keys: int) -> DataFrame:
    return spark.createDataFrame([(key, None, ["low"]) for key in keys], COMING)


def test_a_cut_of_one_position_counts_neither_one_earlier_nor_only_one_later(spark: SparkSession, tmp_path: Path):
    path = str(tmp_path / "orders__aside")

    keep_aside(None, coming(spark, 1, 2), path, position=5)
    before = in_force(spark.read.format("delta").load(path), 5).localCheckpoint()
    keep_aside(before, coming(spark, 2, 3), path, position=6)

    rows = spark.read.format("delta").load(path)
    found = {at: sorted((row.k, row._since) for row in in_force(rows, at).collect()) for at in (4, 5, 6, 7)}
    assert found == {4: [], 5: [(1, 5), (2, 5)], 6: [(2, 6), (3, 6)], 7: [(2, 6), (3, 6)]}
