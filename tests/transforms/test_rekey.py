"""Rows named by the source's row key, kept in silver under keys of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from conf.errors import DuplicateKey, NullKey
from transforms.merge import Recorded, append, merge, replace
from transforms.rekey import by_keys, unique_rows
from transforms.sql import path_table

NET = "_op string, _position long, _present array<string>, _row_key long, Sym string, Bid double"
TABLE = "_row_key long, Sym string, Bid double, _position long"
APP = "apply/market/quotes"


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    target = path_table(str(tmp_path / "quotes"))
    spark.sql(f"CREATE TABLE {target} ({TABLE}) USING DELTA")
    rows = spark.createDataFrame([(1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5)], TABLE)
    append(rows, str(tmp_path / "quotes"), recorded=Recorded(APP, 5))
    return target


def apply(spark: SparkSession, table: str, *rows: tuple[object, ...], upsert: bool = False) -> None:
    net = spark.createDataFrame(list(rows), NET)
    moved = by_keys(net, spark.table(table), keys=["Sym"], identity="_row_key", upsert=upsert)
    merge(moved, table, keys=["Sym"], recorded=Recorded(APP, 9), identity="_row_key")


def assert_rows(spark: SparkSession, table: str, *rows: tuple[object, ...]) -> None:
    assert_df_equality(spark.table(table), spark.createDataFrame(list(rows), TABLE), ignore_row_order=True)


def test_a_row_moves_with_its_key_and_keeps_what_was_not_sent(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, ["Sym"], 1, "Z", None))

    assert_rows(spark, table, (1, "Z", 1.0, 7), (2, "B", 2.0, 5), (3, "C", 3.0, 5))


def test_two_rows_swap_their_keys(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, ["Sym"], 1, "B", None), ("update", 8, ["Sym"], 2, "A", None))

    assert_rows(spark, table, (1, "B", 1.0, 7), (2, "A", 2.0, 8), (3, "C", 3.0, 5))


def test_keys_move_in_a_circle(spark: SparkSession, table: str) -> None:
    apply(
        spark,
        table,
        ("update", 7, ["Sym"], 1, "B", None),
        ("update", 7, ["Sym"], 2, "C", None),
        ("update", 7, ["Sym"], 3, "A", None),
    )

    assert_rows(spark, table, (1, "B", 1.0, 7), (2, "C", 2.0, 7), (3, "A", 3.0, 7))


def test_a_row_takes_the_key_of_a_deleted_one(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("delete", 7, None, 1, None, None), ("update", 8, ["Sym"], 2, "A", None))

    assert_rows(spark, table, (2, "A", 2.0, 8), (3, "C", 3.0, 5))


def test_a_delete_by_row_key_finds_the_row_under_its_key(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("delete", 7, None, 3, None, None), ("delete", 7, None, 99, None, None))

    assert_rows(spark, table, (1, "A", 1.0, 5), (2, "B", 2.0, 5))


def test_a_new_row_key_takes_the_key_another_leaves(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("delete", 7, None, 1, None, None), ("insert", 7, None, 4, "A", 9.0))

    assert_rows(spark, table, (4, "A", 9.0, 7), (2, "B", 2.0, 5), (3, "C", 3.0, 5))


def test_an_update_without_the_key_column_stays_where_it_is(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, ["Bid"], 2, None, 8.0))

    assert_rows(spark, table, (1, "A", 1.0, 5), (2, "B", 8.0, 7), (3, "C", 3.0, 5))


def test_an_update_of_an_unknown_row_makes_no_row_unless_it_may(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, None, 4, "D", 4.0))
    assert_rows(spark, table, (1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5))


def test_an_upsert_of_an_unknown_row_makes_it(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, None, 4, "D", 4.0), upsert=True)

    assert_rows(spark, table, (1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5), (4, "D", 4.0, 7))


@pytest.mark.parametrize(
    "rows",
    [
        [("insert", 7, None, 4, "Z", 1.0), ("insert", 7, None, 5, "Z", 2.0)],
        [("insert", 7, None, 4, "A", 1.0)],
        [("update", 7, ["Sym"], 1, "B", None)],
    ],
    ids=["two new rows", "a new row on a row that stays", "a move onto a row that stays"],
)
def test_two_rows_on_one_key_stop_the_table(spark: SparkSession, table: str, rows: list[tuple[object, ...]]) -> None:
    with pytest.raises(DuplicateKey):
        apply(spark, table, *rows)

    assert_rows(spark, table, (1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5))


def test_a_null_key_stops_the_table(spark: SparkSession, table: str) -> None:
    with pytest.raises(NullKey):
        apply(spark, table, ("insert", 7, None, 4, None, 1.0))


def snapshot(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame([("snapshot", 20, None, *row) for row in rows], NET)


def test_a_snapshot_is_matched_by_the_configured_keys(spark: SparkSession, table: str) -> None:
    rows = unique_rows(snapshot(spark, (1, "A", 1.0), (7, "C", 3.5)), keys=["Sym"])

    replace(rows, table, keys=["Sym"], recorded=Recorded(APP, 20))

    assert_rows(spark, table, (1, "A", 1.0, 5), (7, "C", 3.5, 20))


def test_a_snapshot_with_one_key_twice_is_refused(spark: SparkSession, table: str) -> None:
    rows = unique_rows(snapshot(spark, (1, "A", 1.0), (2, "A", 2.0)), keys=["Sym"])

    with pytest.raises(DuplicateKey):
        replace(rows, table, keys=["Sym"], recorded=Recorded(APP, 20))
