"""Rows named by the source's row key, kept in silver under keys of the user's."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

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
Line = tuple[Any, ...]

BEFORE: Sequence[Line] = [(1, "A", 1.0, 5), (2, "B", 2.0, 5), (3, "C", 3.0, 5)]
"""The rows of each case before it."""
CASES: Mapping[str, tuple[Sequence[Line], Sequence[Line]]] = {
    "a row moves with its key and keeps what was not sent": (
        [("update", 7, ["Sym"], 1, "Z", None)],
        [(1, "Z", 1.0, 7), (2, "B", 2.0, 5), (3, "C", 3.0, 5)],
    ),
    "two rows swap their keys": (
        [("update", 7, ["Sym"], 1, "B", None), ("update", 8, ["Sym"], 2, "A", None)],
        [(1, "B", 1.0, 7), (2, "A", 2.0, 8), (3, "C", 3.0, 5)],
    ),
    "keys move in a circle": (
        [
            ("update", 7, ["Sym"], 1, "B", None),
            ("update", 7, ["Sym"], 2, "C", None),
            ("update", 7, ["Sym"], 3, "A", None),
        ],
        [(1, "B", 1.0, 7), (2, "C", 2.0, 7), (3, "A", 3.0, 7)],
    ),
    "a row takes the key of a deleted one": (
        [("delete", 7, None, 1, None, None), ("update", 8, ["Sym"], 2, "A", None)],
        [(2, "A", 2.0, 8), (3, "C", 3.0, 5)],
    ),
    "a delete by row key finds the row under its key": (
        [("delete", 7, None, 3, None, None), ("delete", 7, None, 9, None, None)],
        [(1, "A", 1.0, 5), (2, "B", 2.0, 5)],
    ),
    "a new row key takes the key another leaves": (
        [("delete", 7, None, 1, None, None), ("insert", 7, None, 4, "A", 9.0)],
        [(4, "A", 9.0, 7), (2, "B", 2.0, 5), (3, "C", 3.0, 5)],
    ),
    "an update without the key column stays where it is": (
        [("update", 7, ["Bid"], 2, None, 8.0)],
        [(1, "A", 1.0, 5), (2, "B", 8.0, 7), (3, "C", 3.0, 5)],
    ),
    "an update of an unknown row makes no row unless it may": ([("update", 7, None, 4, "D", 4.0)], BEFORE),
}
"""Net rows, and the rows that they leave. Each case has row keys and keys of its own: eight cost as much as one."""
UPSERTED = {
    "an update of an unknown row makes no row unless it may": [*BEFORE, (4, "D", 4.0, 7)],
}
"""Rows that an upsert leaves where they are others."""
DOUBLED: Mapping[str, Sequence[Line]] = {
    "two new rows": [("insert", 7, None, 4, "Z", 1.0), ("insert", 7, None, 5, "Z", 2.0)],
    "a new row on a row that stays": [("insert", 7, None, 4, "A", 1.0)],
    "a move onto a row that stays": [("update", 7, ["Sym"], 1, "B", None)],
}
"""Net rows that leave two rows on one key."""


@pytest.fixture(scope="module")
def quotes_built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table that each test has a copy of: Spark takes a second to make it."""
    quotes = str(tmp_path_factory.mktemp("quotes"))
    spark.sql(f"CREATE TABLE {path_table(quotes)} ({TABLE}) USING DELTA")
    rows = [own(at, row, key=0, sym=1) for at in range(len(CASES)) for row in BEFORE]
    append(spark.createDataFrame(rows, TABLE), quotes, recorded=Recorded(APP, 5))
    return quotes


@pytest.fixture
def table(quotes_built: str, tmp_path: Path) -> str:
    return path_table(shutil.copytree(quotes_built, str(tmp_path / "quotes")))


def own(case: int, line: Line, *, key: int, sym: int) -> Line:
    """Return a line with the row key and the key of a case, by their places in it."""
    found = list(line)
    found[key] += 10 * case
    found[sym] = found[sym] and f"{found[sym]}{case}"
    return tuple(found)


def own_changes(cases: Collection[Sequence[Line]]) -> list[Line]:
    return [own(at, row, key=3, sym=4) for at, rows in enumerate(cases) for row in rows]


def moved(spark: SparkSession, table: str, rows: Sequence[Line], *, upsert: bool = False) -> DataFrame:
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


def rows_of(table: str) -> list[Line]:
    """Read without Spark, in a tenth of its time."""
    return [tuple(row.values()) for row in all_rows(DeltaTable(table.removeprefix("delta.").strip("`")))]


@pytest.mark.parametrize("upsert", [False, True])
def test_rows_are_under_the_keys_that_their_changes_give_them(spark: SparkSession, table: str, upsert: bool) -> None:
    changes = moved(spark, table, own_changes([net for net, _ in CASES.values()]), upsert=upsert)

    merge(flat(changes), table, keys=["Sym"], recorded=Recorded(APP, 9))

    found = rows_of(table)
    for at, (name, (_, after)) in enumerate(CASES.items()):
        wanted = [own(at, row, key=0, sym=1) for row in (UPSERTED.get(name, after) if upsert else after)]
        assert sorted(row for row in found if row[0] // 10 == at) == sorted(wanted), name
    assert {row[0] // 10 for row in found} == set(range(len(CASES)))


def test_two_rows_on_one_key_are_told(spark: SparkSession, table: str) -> None:
    found = moved(spark, table, own_changes(DOUBLED.values())).where("claims > 1 OR taken").collect()

    assert sorted(row.key.Sym for row in found) == ["A1", "B2", "Z0"]


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
    replace(flat(snapshot(spark, (1, "A0", 1.0), (7, "C0", 3.5))), table, keys=["Sym"], recorded=Recorded(APP, 20))

    assert sorted(rows_of(table)) == [(1, "A0", 1.0, 5), (7, "C0", 3.5, 20)]


def test_a_snapshot_with_one_key_twice_is_told(spark: SparkSession) -> None:
    rows = snapshot(spark, (1, "A", 1.0), (2, "A", 2.0), (3, "B", 2.0)).collect()

    assert sorted((row.key.Sym, row.claims) for row in rows) == [("A", 2), ("B", 1)]
