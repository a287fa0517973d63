"""MERGE of net rows into a Delta table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from silverfold.pipelines.spark.session import own_session
from silverfold.transforms.merge import (
    AT_HAND,
    WHOLE_FILES,
    Recorded,
    _recording,
    allow_columns,
    append,
    create_empty,
    merge,
    overwrite,
    replace,
    settings,
)
from silverfold.transforms.sql import path_table
from tests.support.building_once import all_rows
from tests.support.commits import begin_log

NET = "_op string, _position long, _present array<string>, Sym string, Bid double, Qty long"
TABLE = "Sym string, Bid double, Qty long, _position long"
APP = "apply/market/quotes"


@pytest.fixture(scope="module")
def quotes_built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table that each test has a copy of: Spark takes a second to make it."""
    quotes = str(tmp_path_factory.mktemp("quotes"))
    create = f"CREATE TABLE {path_table(quotes)} ({TABLE}) USING DELTA"
    spark.sql(create + " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    rows = spark.createDataFrame([("AAPL", 1.0, 10, 5), ("IBM", 2.0, 20, 5), ("MSFT", None, 30, 5)], TABLE)
    append(rows, quotes, recorded=Recorded(APP, 5, "first"))
    return quotes


@pytest.fixture
def table(quotes_built: str, tmp_path: Path) -> str:
    return path_table(shutil.copytree(quotes_built, str(tmp_path / "quotes")))


def net(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), NET)


def assert_rows(table: str, *rows: tuple[object, ...]) -> None:
    """Compare without Spark, in a tenth of its time."""
    found = [tuple(row.values()) for row in all_rows(log_of(table))]
    assert sorted(found, key=repr) == sorted(rows, key=repr)


def log_of(table: str) -> DeltaTable:
    return DeltaTable(table.removeprefix("delta.").strip("`"))


def test_inserts_updates_and_deletes_are_one_commit_in_which_what_finds_no_row_makes_none(
    spark: SparkSession, table: str
) -> None:
    rows = net(
        spark,
        ("update", 7, None, "AAPL", 1.5, 11),
        ("delete", 8, None, "IBM", None, None),
        ("insert", 9, None, "TSLA", 4.0, None),
        ("update", 7, None, "SAP", 4.0, 1),
        ("delete", 7, None, "NFLX", None, None),
    )

    merge(rows, table, keys=["Sym"], recorded=Recorded(APP, 9))

    assert log_of(table).version() == 2
    assert_rows(table, ("AAPL", 1.5, 11, 7), ("MSFT", None, 30, 5), ("TSLA", 4.0, None, 9))


def test_columns_that_were_not_sent_and_rows_of_a_higher_position_stay_as_they_were(
    spark: SparkSession, table: str
) -> None:
    rows = net(
        spark,
        ("update", 7, ["Qty"], "AAPL", None, None),
        ("update", 8, ["Bid"], "IBM", 2.5, None),
        ("delete", 4, None, "MSFT", None, None),
    )

    merge(rows, table, keys=["Sym"], recorded=Recorded(APP, 9))

    assert_rows(table, ("AAPL", 1.0, None, 7), ("IBM", 2.5, 20, 8), ("MSFT", None, 30, 5))


def test_an_upsert_inserts_the_row_an_update_does_not_find_and_writes_none_of_the_same_position(
    spark: SparkSession, table: str
) -> None:
    rows = net(spark, ("update", 7, None, "TSLA", 4.0, 1), ("update", 5, None, "AAPL", 9.0, 9))

    merge(rows, table, keys=["Sym"], recorded=Recorded(APP, 9), upsert=True)

    assert_rows(table, ("AAPL", 1.0, 10, 5), ("IBM", 2.0, 20, 5), ("MSFT", None, 30, 5), ("TSLA", 4.0, 1, 7))


def test_a_cut_applied_twice_is_applied_once(spark: SparkSession, table: str) -> None:
    merge(net(spark, ("update", 7, None, "AAPL", 9.0, 9)), table, keys=["Sym"], recorded=Recorded(APP, 9))

    merge(net(spark, ("delete", 8, None, "AAPL", None, None)), table, keys=["Sym"], recorded=Recorded(APP, 9))

    assert log_of(table).version() == 2
    assert_rows(table, ("AAPL", 9.0, 9, 7), ("IBM", 2.0, 20, 5), ("MSFT", None, 30, 5))


def test_an_empty_cut_moves_the_position(spark: SparkSession, table: str) -> None:
    merge(net(spark), table, keys=["Sym"], recorded=Recorded(APP, 12, '{"last_position": 12}'))

    log = log_of(table)
    assert log.transaction_version(APP) == 12
    assert log.history(1)[0]["userMetadata"] == '{"last_position": 12}'


def test_settings_of_the_commit_do_not_leak_into_the_next(spark: SparkSession, table: str) -> None:
    merge(net(spark), table, keys=["Sym"], recorded=Recorded(APP, 12))

    spark.sql(f"DELETE FROM {table} WHERE Sym = 'IBM'").collect()

    log = log_of(table)
    assert log.transaction_version(APP) == 12
    assert "userMetadata" not in log.history(1)[0]
    assert_rows(table, ("AAPL", 1.0, 10, 5), ("MSFT", None, 30, 5))


def test_new_columns_come_in_the_commit_of_their_rows(spark: SparkSession, table: str) -> None:
    wide = f"{NET}, `t` string, `d.e, f` int"
    rows = [
        ("update", 7, ["t"], "AAPL", None, None, "new", None),
        ("update", 7, ["Qty"], "IBM", None, 21, "unsent", None),
        ("insert", 7, None, "TSLA", 4.0, 1, None, 5),
    ]
    path, session, before = log_of(table).table_uri, own_session(spark), log_of(table).version()
    net = session.createDataFrame(rows, wide)
    allow_columns(session, path, net.schema)

    merge(net, table, keys=["Sym"], recorded=Recorded(APP, 9), new=["t", "d.e, f"])

    assert DeltaTable(path).version() == before + 2, "one lets the table have such names"
    assert sorted(map(tuple, spark.table(table).collect())) == [
        ("AAPL", 1.0, 10, 7, "new", None),
        ("IBM", 2.0, 21, 7, None, None),
        ("MSFT", None, 30, 5, None, None),
        ("TSLA", 4.0, 1, 7, None, 5),
    ]


@pytest.mark.parametrize("later", ["x", None])
def test_replace_takes_new_columns_too(spark: SparkSession, table: str, later: str | None) -> None:
    rows = [("snapshot", 20, None, "AAPL", 1.0, 10, later), ("snapshot", 20, None, "MSFT", None, 30, None)]

    replace(
        own_session(spark).createDataFrame(rows, f"{NET}, later string"),
        table,
        keys=["Sym"],
        recorded=Recorded(APP, 22),
        new=["later"],
    )

    assert sorted(map(tuple, spark.table(table).collect())) == [
        ("AAPL", 1.0, 10, 20 if later else 5, later),
        ("MSFT", None, 30, 5, None),
    ]


def test_replace_leaves_exactly_the_net_rows(spark: SparkSession, table: str) -> None:
    rows = net(spark, ("snapshot", 20, None, "AAPL", 1.0, 10), ("snapshot", 21, None, "MSFT", 3.0, 30))

    replace(rows, table, keys=["Sym"], recorded=Recorded(APP, 22))

    assert_rows(table, ("AAPL", 1.0, 10, 5), ("MSFT", 3.0, 30, 21))


def test_replace_by_equal_rows_writes_no_row(spark: SparkSession, table: str) -> None:
    rows = net(
        spark,
        ("snapshot", 20, None, "AAPL", 1.0, 10),
        ("snapshot", 20, None, "IBM", 2.0, 20),
        ("snapshot", 20, None, "MSFT", None, 30),
    )

    replace(rows, table, keys=["Sym"], recorded=Recorded(APP, 22))

    metrics = log_of(table).history(1)[0]["operationMetrics"]
    written = {name: metrics[f"numTargetRows{name}"] for name in ("Inserted", "Updated", "Deleted", "Copied")}
    assert written == {"Inserted": "0", "Updated": "0", "Deleted": "0", "Copied": "0"}
    assert log_of(table).transaction_version(APP) == 22


def test_names_with_quotes_and_backticks_are_columns_like_others(spark: SparkSession, tmp_path: Path) -> None:
    """And a literal key range changes nothing but the files read."""
    target = path_table(str(tmp_path / "odd"))
    spark.sql(f"CREATE TABLE {target} (k long, `it's` string, `a``b` string, _position long) USING DELTA")
    columns = "_op string, _position long, _present array<string>, k long, `it's` string, `a``b` string"
    first = [("insert", 1, None, k, "x", "y") for k in (1, 8, 9)]
    merge(spark.createDataFrame(first, columns), target, keys=["k"], recorded=Recorded(APP, 1))
    second = [
        ("update", 2, ["it's"], 8, "z", None),
        ("delete", 2, None, 9, None, None),
        ("insert", 2, None, 10, "c", None),
    ]

    rows, recorded = spark.createDataFrame(second, columns), Recorded(APP, 2)
    merge(rows, target, keys=["k"], recorded=recorded, bounds={"k": (8, 10)})

    found = spark.table(target)
    assert sorted(map(tuple, found.collect())) == [(1, "x", "y", 1), (8, "z", "y", 2), (10, "c", None, 2)]
    of = "k long, `it's` string, `a``b` string, _position long"
    assert found.schema == spark.createDataFrame([], of).schema


@pytest.mark.parametrize("write", [append, overwrite])
def test_a_table_with_a_change_data_feed_is_made_with_names_that_need_mapping(
    spark: SparkSession, tmp_path: Path, write: Callable[..., None]
) -> None:
    rows = spark.createDataFrame([(1, "x")], "a int, `b b` string")
    with settings(spark, {"spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true"}):
        write(rows, str(tmp_path / "t"), recorded=Recorded("t", 1))
    found = DeltaTable(str(tmp_path / "t"))
    assert found.metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert spark.read.format("delta").load(str(tmp_path / "t")).collect() == [(1, "x")]


def test_a_key_is_a_value_whatever_it_spells(spark: SparkSession, table: str) -> None:
    keys = ["${x}", "${env:HOME}", "{source}", "it's", 'a"b', "back\\slash", "nul\0", "é", "e\u0301"]
    others = [("AAPL", 1.0, 10, 5), ("IBM", 2.0, 20, 5), ("MSFT", None, 30, 5)]

    def apply(position: int, op: str, bid: float | None, present: list[str] | None = None) -> None:
        changes = net(spark, *((op, position, present, key, bid, None) for key in keys))
        merge(changes, table, keys=["Sym"], recorded=Recorded(APP, position))

    apply(6, "insert", 1.0)
    apply(7, "update", 2.0, ["Bid"])
    apply(8, "insert", 3.0)
    assert_rows(table, *others, *((key, 3.0, None, 8) for key in keys))

    apply(9, "delete", None)
    assert_rows(table, *others)


def test_a_table_whose_first_commit_was_begun_and_never_made_is_made(spark: SparkSession, tmp_path: Path) -> None:
    begin_log(tmp_path / "empty")
    begin_log(tmp_path / "filled")
    rows = spark.createDataFrame([("AAPL", 1.0, 10, 5)], TABLE)

    create_empty(spark, rows.schema, str(tmp_path / "empty"))
    append(rows, str(tmp_path / "filled"), recorded=Recorded(APP, 5))

    assert_rows(path_table(str(tmp_path / "empty")))
    assert_rows(path_table(str(tmp_path / "filled")), ("AAPL", 1.0, 10, 5))


def test_a_table_that_is_there_is_not_made(spark: SparkSession, table: str) -> None:
    before = log_of(table).version()

    create_empty(spark, spark.table(table).schema, log_of(table).table_uri)

    assert log_of(table).version() == before


def test_a_commit_leaves_the_session_the_settings_it_had(spark: SparkSession, table: str) -> None:
    session = spark.newSession()
    theirs, ours = next(iter(AT_HAND)), next(iter(WHOLE_FILES))
    session.conf.set(theirs, "all")
    rows = session.createDataFrame([("insert", 7, None, "TSLA", 4.0, None)], NET)

    merge(rows, table, keys=["Sym"], recorded=Recorded(APP, 9, "told"), options={**AT_HAND, **WHOLE_FILES})

    assert {name: session.conf.get(name, None) for name in (theirs, ours)} == {theirs: "all", ours: None}
    assert not [name for name in session.conf.getAll if "txn" in name or "userMetadata" in name]


class Settings:
    """Settings of a session, without one."""

    def __init__(self) -> None:
        self.known = dict[str, str]()
        self.conf, self.set, self.get = self, self.known.__setitem__, self.known.get

    def unset(self, name: str) -> None:
        self.known.pop(name, None)


def test_commits_that_overlap_in_one_session_leave_no_position_in_it() -> None:
    session: Any = Settings()
    second = _recording(session, Recorded("b", 1), AT_HAND)
    with _recording(session, Recorded("a", 1), AT_HAND):
        second.__enter__()
    second.__exit__(None, None, None)
    assert not session.known
