"""Rows that are handed to Spark as part of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from transforms.changes import at_hand, few_at_hand, from_arrow

KIND = T.StructType([T.StructField("n", T.LongType())])


@pytest.mark.parametrize("sizes", [(2, 0, 1), (0, 0, 2), (0, 2), (0,), ()])
def test_no_row_is_lost_behind_an_empty_batch(spark: SparkSession, sizes: Sequence[int]) -> None:
    batches = [pa.record_batch({"n": pa.array(range(size), pa.int64())}) for size in sizes]
    rows = pa.Table.from_batches(batches, pa.schema([("n", pa.int64())]))

    assert [row.n for row in from_arrow(spark, rows, KIND).collect()] == rows["n"].to_pylist()


def test_rows_of_a_few_of_many_partitions_are_all_at_hand(spark: SparkSession) -> None:
    some = spark.range(0, 10, 1, 5).where("id IN (3, 9)")

    assert sorted(row.id for row in at_hand(some).collect()) == [3, 9]


def test_few_rows_are_at_hand_and_many_large_or_odd_ones_are_not(spark: SparkSession) -> None:
    few = few_at_hand(spark.range(3), 3)

    assert few is not None
    assert sorted(row.id for row in few.collect()) == [0, 1, 2]
    assert few_at_hand(spark.range(4), 3) is None
    assert few_at_hand(spark.range(2).selectExpr("repeat('x', 10 << 20) AS large"), 3) is None
    assert few_at_hand(spark.sql("SELECT INTERVAL '1' YEAR AS unknown_to_arrow"), 3) is None
    assert few_at_hand(spark.sql("SELECT IF(id = 0, parse_json('1'), NULL) AS half_known FROM range(2)"), 3) is None
    assert few_at_hand(spark.sql("SELECT raise_error('broken') AS broken"), 3) is None
