"""Rows named by the source's row key, kept in silver under keys of the user's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.transforms.changes import as_struct
from silverfold.transforms.complete_rows import completed
from silverfold.transforms.existing_rows import by_keys, snapshot_by_keys, with_taken
from silverfold.transforms.merge import Recorded, append, merge, replace
from silverfold.transforms.sql import path_table
from tests.support.building_once import all_rows

KEY = T.StructType().add("_row_key", T.LongType())
SOURCE = T.StructType().add("Sym", T.StringType()).add("Bid", T.DoubleType())
ROW = T.StructType([*KEY, *SOURCE])
NET = (
    "op string, position long, present array<string>, key struct<_row_key: long>, row struct<Sym: string, Bid: double>"
)
TABLE = "_row_key long, Sym string, Bid double, _position long"
APP = "apply/market/quotes"


@pytest.fixture(scope="module")
def quotes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table that each test has a copy of: Spark takes a second to make it."""
    quotes = str(tmp_path_factory.mktemp("quotes"))
    spark.sql(f"CREATE TABLE {path_table(quotes)} ({TABLE}) USING DELTA")
    rows = spark.createDataFrame([(1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5)], TABLE)
    append(rows, quotes, recorded=Recorded(APP, 5))
    return quotes


@pytest.fixture
def table(quotes: str, tmp_path: Path) -> str:
    return path_table(shutil.copytree(quotes, str(tmp_path / "quotes")))


def moved(spark: SparkSession, table: str, *rows: tuple[object, ...], upsert: bool = False) -> DataFrame:
    net = spark.createDataFrame([(*row[:3], (row[3],), row[4:]) for row in rows], NET)
    current = spark.table(table)
    before = current.select(
        as_struct(KEY).alias("key"),
        F.col("_position").alias("position"),
        as_struct(ROW).alias("row"),
        F.lit(False).alias("outside"),
    )
    whole = completed(net, before.join(net.select("key"), "key", "left_semi"), upsert=upsert)
    return with_taken(by_keys(whole, keys=["Sym"]), current, whole, few=True)


def flat(rows: DataFrame) -> DataFrame:
    cells = [F.coalesce("key.Sym", "after.Sym").alias("Sym"), "after.Bid"]
    return rows.select(F.col("op").alias("_op"), F.col("position").alias("_position"), "after._row_key", *cells)


def apply(spark: SparkSession, table: str, *rows: tuple[object, ...], upsert: bool = False) -> None:
    merge(flat(moved(spark, table, *rows, upsert=upsert)), table, keys=["Sym"], recorded=Recorded(APP, 9))


def assert_rows(table: str, *rows: tuple[object, ...]) -> None:
    """Compare without Spark, in a tenth of its time."""
    found = [tuple(row.values()) for row in all_rows(DeltaTable(table.removeprefix("delta.").strip("`")))]
    assert sorted(found, key=repr) == sorted(rows, key=repr)


def test_a_row_moves_with_its_key_and_keeps_what_was_not_sent(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, ["Sym"], 1, "Z", None))

    assert_rows(table, (1, "Z", 1.0, 7), (2, "B", 2.0, 5), (3, "C", 3.0, 5))


def test_two_rows_swap_their_keys(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, ["Sym"], 1, "B", None), ("update", 8, ["Sym"], 2, "A", None))

    assert_rows(table, (1, "B", 1.0, 7), (2, "A", 2.0, 8), (3, "C", 3.0, 5))


def test_keys_move_in_a_circle(spark: SparkSession, table: str) -> None:
    apply(
        spark,
        table,
        ("update", 7, ["Sym"], 1, "B", None),
        ("update", 7, ["Sym"], 2, "C", None),
        ("update", 7, ["Sym"], 3, "A", None),
    )

    assert_rows(table, (1, "B", 1.0, 7), (2, "C", 2.0, 7), (3, "A", 3.0, 7))


def test_a_row_takes_the_key_of_a_deleted_one(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("delete", 7, None, 1, None, None), ("update", 8, ["Sym"], 2, "A", None))

    assert_rows(table, (2, "A", 2.0, 8), (3, "C", 3.0, 5))


def test_a_delete_by_row_key_finds_the_row_under_its_key(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("delete", 7, None, 3, None, None), ("delete", 7, None, 99, None, None))

    assert_rows(table, (1, "A", 1.0, 5), (2, "B", 2.0, 5))


def test_a_new_row_key_takes_the_key_another_leaves(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("delete", 7, None, 1, None, None), ("insert", 7, None, 4, "A", 9.0))

    assert_rows(table, (4, "A", 9.0, 7), (2, "B", 2.0, 5), (3, "C", 3.0, 5))


def test_an_update_without_the_key_column_stays_where_it_is(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, ["Bid"], 2, None, 8.0))

    assert_rows(table, (1, "A", 1.0, 5), (2, "B", 8.0, 7), (3, "C", 3.0, 5))


def test_an_update_of_an_unknown_row_makes_no_row_unless_it_may(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, None, 4, "D", 4.0))
    assert_rows(table, (1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5))


def test_an_upsert_of_an_unknown_row_makes_it(spark: SparkSession, table: str) -> None:
    apply(spark, table, ("update", 7, None, 4, "D", 4.0), upsert=True)

    assert_rows(table, (1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5), (4, "D", 4.0, 7))


@pytest.mark.parametrize(
    "rows",
    [
        [("insert", 7, None, 4, "Z", 1.0), ("insert", 7, None, 5, "Z", 2.0)],
        [("insert", 7, None, 4, "A", 1.0)],
        [("update", 7, ["Sym"], 1, "B", None)],
    ],
    ids=["two new rows", "a new row on a row that stays", "a move onto a row that stays"],
)
def test_two_rows_on_one_key_are_told(spark: SparkSession, table: str, rows: list[tuple[object, ...]]) -> None:
    found = moved(spark, table, *rows).where("claims > 1 OR taken").collect()

    assert len(found) == 1


def test_a_row_outside_the_table_claims_its_key_too(spark: SparkSession, table: str) -> None:
    net = spark.createDataFrame([("insert", 7, None, (4,), ("K", 1.0))], NET)
    side_rows = spark.createDataFrame(
        [((9,), 6, (9, "K", 5.0), True)],
        T.StructType().add("key", KEY).add("position", "long").add("row", ROW).add("outside", "boolean"),
    )

    rows = by_keys(completed(net, side_rows, upsert=False), keys=["Sym"]).collect()

    assert [(row.key.Sym, row.claims) for row in rows] == [("K", 2)]


def snapshot(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    kind = T.StructType().add("position", "long").add("after", ROW)
    return snapshot_by_keys(spark.createDataFrame([(20, row) for row in rows], kind), keys=["Sym"])


def test_a_snapshot_is_matched_by_the_configured_keys(spark: SparkSession, table: str) -> None:
    replace(flat(snapshot(spark, (1, "A", 1.0), (7, "C", 3.5))), table, keys=["Sym"], recorded=Recorded(APP, 20))

    assert_rows(table, (1, "A", 1.0, 5), (7, "C", 3.5, 20))


def test_a_snapshot_with_one_key_twice_is_told(spark: SparkSession) -> None:
    rows = snapshot(spark, (1, "A", 1.0), (2, "A", 2.0), (3, "B", 2.0)).collect()

    assert sorted((row.key.Sym, row.claims) for row in rows) == [("A", 2), ("B", 1)]
