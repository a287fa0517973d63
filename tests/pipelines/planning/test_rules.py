"""Rules of a table: rows that fail one are warned of, kept out of the table, or stop it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from silverfold.conf.model import Expectation
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.pipelines.reading.status import read_status
from silverfold.pipelines.reading.views import register_views
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.building import Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.stub_connector import FEED, ROW, STREAM, StubConnector, StubTable
from tests.support.stub_warehouse import StubWarehouse, change


def rule(condition: str, action: str) -> Expectation:
    return Expectation.model_validate({"condition": condition, "action": action})


def market(spark: SparkSession, warehouse: Path, **settings: object) -> tuple[Built, LandedHistory]:
    built = Built(spark, warehouse, {"t": table(**settings)})
    history = LandedHistory({"t": {"Sym": "String", "Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Sym": "AAPL", "Qty": 10}, 2: {"Sym": "IBM", "Qty": 20}})
    return built, history


def query_rows(built: Built, query: str) -> list[tuple[object, ...]]:
    session = built.spark.newSession()
    register_views(session, built.places, {built.feed.name: ["t", "t__aside"]})
    return [tuple(row) for row in session.sql(query).collect()]


def test_a_row_that_fails_a_rule_is_kept_out_until_a_change_of_some_columns_mends_it(
    spark: SparkSession, warehouse: Path
) -> None:
    built, history = market(spark, warehouse, expect={"small": rule("Qty < 100", "quarantine")})
    history.update("t", modified={1: {"Qty": 500}, 2: {"Sym": "BIG"}})
    assert built.land_and_build(history) == {}
    assert {key: row["Sym"] for key, row in built.rows("t").items()} == {2: "BIG"}
    assert built.notes("t") == {"failed.small": 1}

    history.update("t", modified={1: {"Sym": "MSFT"}})
    assert built.land_and_build(history) == {}
    assert {key: row["Sym"] for key, row in built.rows("t").items()} == {2: "BIG"}
    assert query_rows(built, "SELECT _row_key, Sym, Qty, _reasons FROM t__aside") == [(1, "MSFT", 500, ["small"])]
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
    assert read_status(built.places, CONNECTOR, built.feed, now=datetime.now(UTC)).tables[0].rows_aside == 1

    Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "again").run()
    assert query_rows(built, "SELECT _row_key, Sym, Qty, _reasons FROM t__aside") == [(1, "MSFT", 500, ["small"])]

    history.update("t", modified={1: {"Qty": 50}})
    assert built.land_and_build(history) == {}
    assert {key: (row["Sym"], row["Qty"]) for key, row in built.rows("t").items()} == {1: ("MSFT", 50), 2: ("BIG", 20)}
    assert query_rows(built, "SELECT * FROM t__aside") == []


@pytest.mark.parametrize("keys", [pytest.param((), marks=pytest.mark.nightly), ("Sym",)])
def test_rows_that_stay_in_the_side_table_count_neither_as_ignored_nor_as_failures(
    spark: SparkSession, warehouse: Path, keys: tuple[str, ...]
) -> None:
    built, history = market(spark, warehouse, keys=keys, expect={"small": rule("Qty < 100", "quarantine")})
    history.update("t", modified={1: {"Qty": 500}})
    assert built.land_and_build(history) == {}
    assert built.notes("t") == {"failed.small": 1}
    history.update("t", modified={2: {"Qty": 21}})
    assert built.land_and_build(history) == {}

    cut = last_cuts(built.places, built.feed.name)["t"]
    assert (cut.inserted, cut.updated, cut.deleted, cut.ignored) == (0, 1, 0, 0)
    assert cut.notes == {}
    assert [row["Qty"] for row in built.rows("t").values()] == [21]
    assert query_rows(built, "SELECT Sym, Qty FROM t__aside") == [("AAPL", 500)]

    built.settle(table(keys=keys, expect={"small": rule("Qty < 100", "fail")}))
    history.update("t", modified={2: {"Qty": 22}})
    assert built.land_and_build(history)["t"].error_class == "EXPECTATION_FAILED"


@pytest.mark.nightly
def test_rows_of_configured_keys_are_judged_too_and_return_when_the_rule_is_gone(
    spark: SparkSession, warehouse: Path
) -> None:
    settings = {"keys": ("Sym",), "expect": {"small": rule("Qty < 100", "quarantine")}}
    built, history = market(spark, warehouse, **settings)
    history.update("t", modified={1: {"Qty": 500}})
    assert built.land_and_build(history) == {}
    history.update("t", modified={1: {"Sym": "MSFT"}})
    assert built.land_and_build(history) == {}
    assert {row["Sym"] for row in built.rows("t").values()} == {"IBM"}

    built.settle(table(keys=("Sym",)))
    history.update("t", modified={2: {"Qty": 21}})
    assert built.land_and_build(history) == {}

    assert {row["Sym"]: row["Qty"] for row in built.rows("t").values()} == {"MSFT": 500, "IBM": 21}


def test_a_rule_that_none_may_fail_stops_the_table_until_the_row_is_mended(
    spark: SparkSession, warehouse: Path
) -> None:
    rules = {"small": rule("Qty < 100", "fail"), "named": rule("Sym <> 'IBM'", "warn")}
    built, history = market(spark, warehouse, expect=rules)
    history.update("t", modified={2: {"Qty": 21}})
    history.update("t", modified={1: {"Qty": 500}})
    stopped = built.land_and_build(history)
    assert (stopped["t"].error_class, str(stopped["t"])) == (
        "EXPECTATION_FAILED",
        "t: rows fail rules that none may fail: small: 1",
    )
    assert {key: row["Qty"] for key, row in built.rows("t").items()} == {1: 10, 2: 21}

    history.update("t", modified={1: {"Qty": 50}})
    assert built.land_and_build(history) == {}
    assert {key: row["Qty"] for key, row in built.rows("t").items()} == {1: 50, 2: 21}


@pytest.mark.parametrize(
    ("condition", "why"),
    [("Price > 0", "UNRESOLVED_COLUMN"), ("Sym <> `Current_User`", "there is no column current_user")],
)
def test_a_rule_that_cannot_be_judged_stops_the_table_and_is_named(
    spark: SparkSession, warehouse: Path, condition: str, why: str
) -> None:
    built, history = market(spark, warehouse, expect={"odd": rule(condition, "warn")})

    stopped = built.land_and_build(history)

    assert stopped["t"].error_class == "UNUSABLE_EXPECTATION"
    assert f"rule odd: {why}" in str(stopped["t"])


def test_a_receiver_that_connects_again_does_not_keep_what_mends_a_row_from_it(
    spark: SparkSession, warehouse: Path
) -> None:
    """It tells the columns again: that is no news."""
    stub = StubWarehouse(spark, warehouse, StubConnector(continuity="resume", snapshots=False))
    rules = {"expect": {"small": rule("b < 9", "fail")}}
    stub.history.columns(ROW)
    stub.history.update([change("insert", 1, a="x", b=1), change("insert", 2, a="y", b=99)])
    assert stub.build(**rules)[STREAM].error_class == "EXPECTATION_FAILED"

    stub.history.connect()
    stub.history.columns(ROW)
    stub.history.update([change("update", 2, b=2)])
    assert stub.build(**rules) == {}
    assert stub.rows() == {1: ("x", 1), 2: ("y", 2)}


def test_a_new_column_of_a_partial_source_waits_for_a_snapshot(spark: SparkSession, warehouse: Path) -> None:
    stub = StubWarehouse(spark, warehouse, StubConnector())
    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", 1, a="x", b=1)])
    stub.history.end_snapshot()
    assert stub.build() == {}

    stub.connector = StubConnector(row=T.StructType([*ROW, T.StructField("c", T.LongType())]))
    stub.history.update([change("update", 1, b=2)])
    stopped = stub.build()
    assert (stopped[STREAM].error_class, stub.rows()) == ("SNAPSHOT_NEEDED", {1: ("x", 1)})

    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", 1, a="x", b=2, c=7)])
    stub.history.end_snapshot()
    assert stub.build() == {}
    assert [row.c for row in spark.read.format("delta").load(stub.places.silver(FEED, STREAM).url).collect()] == [7]


@pytest.mark.parametrize(
    ("model", "settings", "why"),
    [
        (StubTable, {"stored_as_scd_type": 2, "expect": {"r": rule("a > 0", "quarantine")}}, "use warn or fail"),
        (StubTable, {"expect": {"r": {"condition": "a > > 0 (", "action": "warn"}}}, "a condition in SQL"),
        (StubTable, {"expect": {"r": {"condition": "max(a) > 0", "action": "warn"}}}, "without queries and aggregates"),
        (StubTable, {"expect": {"r": {"condition": "DELETE FROM t", "action": "warn"}}}, "without queries"),
        (StubTable, {"expect": {"r": {"condition": "a IN (SELECT 1)", "action": "warn"}}}, "without queries"),
        (
            StubTable,
            {"expect": {"r": {"condition": "row_number() OVER (ORDER BY a) < 3", "action": "warn"}}},
            "without windows",
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "a > 0 AND RAND() < 0.5", "action": "warn"}}},
            r"without rand\(\), which says",
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "a < unix_timestamp()", "action": "warn"}}},
            r"without current_timestamp\(\), which dep",
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "b <= now()", "action": "warn"}}},
            r"without now\(\), which depends on when",
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "b <= timestamp'now'", "action": "warn"}}},
            "without 'now', a time that depends on when",
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "b < ' Tomorrow CET'", "action": "warn"}}},
            "without ' Tomorrow CET', a time that depends",
        ),
        *(
            (StubTable, {"expect": {"r": {"condition": f"b < {now}", "action": "warn"}}}, "without 'now', a time that")
            for now in ("r'now'", "'no' 'w'", "cast('n' || 'ow' AS timestamp)", "concat('n', 'ow')")
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "a = user", "action": "warn"}}},
            "without user: a column of that name goes in backticks",
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "explode(array(true))", "action": "warn"}}},
            "which is not of one row",
        ),
        (
            StubTable,
            {"expect": {"r": {"condition": "reflect('java.lang.Math', 'random') > 0", "action": "warn"}}},
            "runs a program",
        ),
        (StubTable, {"expect": {"no-name": rule("a > 0", "warn")}}, "a name of letters, digits and _"),
        (StubTable, {"expect": {"unexplained": rule("a > 0", "warn")}}, "no rule can be called unexplained"),
        (DeephavenTable, {"mode": "updates_only", "expect": {"r": rule("a > 0", "warn")}}, "a log has changes"),
    ],
)
def test_rules_that_cannot_be_kept_are_no_settings(
    model: type[StubTable], settings: dict[str, object], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        model.model_validate({"source": "T", **settings})


@pytest.mark.parametrize("condition", ["`user` <> 'x'", "a RLIKE '^today$'", "a <> 'nowhere'", "b > date'2020-01-01'"])
def test_what_only_looks_like_a_time_is_a_condition(condition: str) -> None:
    rules = {"r": {"condition": condition, "action": "warn"}}

    assert StubTable.model_validate({"source": "T", "expect": rules}).expect["r"].condition == condition
