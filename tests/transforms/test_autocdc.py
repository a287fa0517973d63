"""Changes of anybody's, applied with the parameters of Spark's AUTO CDC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from conf.errors import NullKey, UnusableKey
from pipelines.spark import own_session
from transforms.autocdc import apply_changes
from transforms.merge import Recorded
from transforms.tombstones import read

SOURCE = "id int, name string, city string, op string, seq bigint"
TABLE = "id int, name string, city string, _position bigint"


def apply(spark: SparkSession, path: Path, number: int, *rows: tuple[Any, ...], **options: Any) -> None:
    source = own_session(spark).createDataFrame(list(rows), SOURCE)
    apply_changes(
        source,
        str(path),
        **{
            "keys": ["id"],
            "sequence_by": "seq",
            "apply_as_deletes": "op = 'D'",
            "except_column_list": ["op", "seq"],
            "recorded": Recorded("users", number),
            **options,
        },
    )


def table(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("delta").load(str(path))


def assert_table(spark: SparkSession, path: Path, *rows: tuple[Any, ...]) -> None:
    assert_df_equality(table(spark, path), spark.createDataFrame(list(rows), TABLE), ignore_row_order=True)


def test_of_each_key_the_last_change_wins_in_whatever_order_they_come(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), (2, "Bob", "Bern", "U", 2), (1, "Ann", "Oslo", "U", 4))
    apply(spark, path, 2, (1, "Ann", "Paris", "U", 3), (3, "Cy", "Bonn", "U", 5), (2, None, None, "D", 6))
    apply(spark, path, 3, (2, "Bob", "Bern", "U", 2), (3, "Cy", None, "U", 7), (2, "Bob", "Late", "U", 5))

    assert_table(spark, path, (1, "Ann", "Oslo", 4), (3, "Cy", None, 7))


def test_a_batch_applied_twice_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1))
    apply(spark, path, 1, (1, "Ann", "Oslo", "U", 9))

    assert_table(spark, path, (1, "Ann", "Rome", 1))


@pytest.mark.nightly
def test_nulls_can_leave_columns_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), ignore_null_updates=True)
    apply(spark, path, 2, (1, None, "Oslo", "U", 2), (4, "Di", None, "U", 3), ignore_null_updates=True)

    late_and_new = [(1, "Late", None, "U", 1), (1, None, "Bern", "U", 4)]
    apply(spark, path, 3, *late_and_new, ignore_null_updates=True)

    assert_table(spark, path, (1, "Ann", "Bern", 4), (4, "Di", None, 3))


def test_the_tables_columns_can_be_listed_and_keys_are_always_among_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), column_list=["city"], except_column_list=None)

    assert table(spark, path).columns == ["id", "city", "_position"]


@pytest.mark.nightly
def test_every_version_is_kept_and_late_ones_find_their_place(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    apply(spark, path, 1, (1, "Ann", "Rome", "U", 1), (1, "Ann", "Oslo", "U", 5), stored_as_scd_type=2)
    apply(spark, path, 2, (1, "Ann", "Paris", "U", 3), (1, None, None, "D", 8), stored_as_scd_type=2)
    apply(spark, path, 3, (2, None, None, "D", 9), (2, "Bob", "Bern", "U", 7), stored_as_scd_type=2)

    expected = spark.createDataFrame(
        [
            (1, "Ann", "Rome", 1, 3),
            (1, "Ann", "Paris", 3, 5),
            (1, "Ann", "Oslo", 5, 8),
            (2, "Bob", "Bern", 7, 9),
        ],
        "id int, name string, city string, __START_AT bigint, __END_AT bigint",
    )
    assert_df_equality(table(spark, path), expected, ignore_row_order=True)


@pytest.mark.nightly
def test_deletes_are_remembered_until_nothing_older_can_come(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "users"
    remembered = []
    for number in range(4):
        deletes = [(10 * number + at, None, None, "D", 10 * number + at) for at in range(5)]
        apply(spark, path, number, *deletes, settled=f"t._position < {10 * number - 10}")
        remembered.append(read(spark, f"{path}__tombstones").count())

    assert remembered == [5, 10, 10, 10]


def test_keys_and_order_are_never_null(spark: SparkSession, tmp_path: Path) -> None:
    for row in ((None, "Ann", "Rome", "U", 1), (1, "Ann", "Rome", "U", None)):
        with pytest.raises(NullKey):
            apply(spark, tmp_path / "users", 1, row)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keys": []}, "keys is empty"),
        ({"keys": ["nr"]}, "the source lacks nr"),
        ({"column_list": ["name"]}, "column_list and except_column_list are both given"),
    ],
)
def test_wrong_parameters_are_named(spark: SparkSession, tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        apply(spark, tmp_path / "users", 1, (1, "Ann", "Rome", "U", 1), **options)


def test_a_float_is_no_key(spark: SparkSession, tmp_path: Path) -> None:
    source = own_session(spark).range(1).select(F.col("id").cast("double").alias("id"), F.lit(1).alias("seq"))
    with pytest.raises(UnusableKey, match="id is double"):
        apply_changes(source, str(tmp_path / "t"), keys=["id"], sequence_by="seq", recorded=Recorded("t", 1))
