"""Rows that are handed to Spark as part of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.transforms.changes import at_hand, few_at_hand, from_arrow

KIND = T.StructType([T.StructField("n", T.LongType())])


@pytest.mark.parametrize("sizes", [(2, 0, 1), (0, 0, 2), (0, 2), (0,), ()])
def test_no_row_is_lost_behind_an_empty_batch(spark: SparkSession, sizes: Sequence[int]) -> None:
    batches = [pa.record_batch({"n": pa.array(range(size), pa.int64())}) for size in sizes]
    rows = pa.Table.from_batches(batches, pa.schema([("n", pa.int64())]))

    assert [row.n for row in from_arrow(spark, rows, KIND).collect()] == rows["n"].to_pylist()


def test_rows_of_a_few_of_many_partitions_are_all_at_hand(spark: SparkSession) -> None:
    some = spark.range(0, 10, 1, 5).where("id IN (3, 9)")

    assert sorted(row.id for row in at_hand(some).collect()) == [3, 9]


MAP, EMPTY = "map('k', struct(1 AS n, 'y' AS t))", "slice(array(1), 1, 0)"
NESTED = f"named_struct('s', array('x', NULL), 'm', {MAP}, 'e', {EMPTY}, 'b', X'00')"


def test_few_rows_are_at_hand_with_all_that_is_in_them(spark: SparkSession) -> None:
    found = spark.sql(f"SELECT id, IF(id = 1, NULL, {NESTED}) AS v, TIMESTAMP'1900-01-01' AS at FROM range(3)")
    rows = found.select(*(F.col(each.name).cast(each.dataType).alias(each.name) for each in found.schema.toNullable()))

    few = few_at_hand(rows, 3)

    assert few is not None
    assert few.schema.toNullable() == rows.schema.toNullable()
    assert sorted(few.collect(), key=str) == sorted(rows.collect(), key=str)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM range(4)",
        "SELECT repeat('x', 10 << 20) AS large FROM range(2)",
        "SELECT map(id, array(struct(repeat('x', 30 << 20) AS x))) AS large_inside FROM range(2)",
        "SELECT INTERVAL '1' YEAR AS unknown_to_arrow",
        "SELECT parse_json('1') AS without_null_to_arrow",
        "SELECT array() AS of_no_type",
        "SELECT raise_error('broken') AS broken",
    ],
)
def test_many_large_or_odd_rows_are_not_at_hand(spark: SparkSession, query: str) -> None:
    assert few_at_hand(spark.sql(query), 3) is None


def test_rows_of_a_thousand_columns_are_measured(spark: SparkSession) -> None:
    wide = spark.sql(f"SELECT {', '.join(f'CAST(id AS STRING) AS c{number}' for number in range(1_000))} FROM range(2)")
    few = few_at_hand(wide, 2)
    assert few is not None
    assert [row.c999 for row in few.select("c999").collect()] == ["0", "1"]
