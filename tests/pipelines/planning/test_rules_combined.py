"""Rules together with what else a table may have: keys, upserts, new columns, odd names, history, other rows aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from silverfold.conf.errors import Overtaken
from silverfold.conf.model import Expectation
from silverfold.pipelines.applying import build, write
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.verifying.compared_rows import read_side_table
from tests.support.building import Built, table
from tests.support.deaths import Died, dying
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.running import run_once
from tests.support.stub_connector import FEED, ROW, STREAM, StubConnector
from tests.support.stub_warehouse import StubWarehouse, change


def rule(condition: str, action: str) -> dict[str, Expectation]:
    return {"rule": Expectation.model_validate({"condition": condition, "action": action})}


def deephaven(
    spark: SparkSession, warehouse: Path, columns: dict[str, str], **settings: Any
) -> tuple[Built, LandedHistory]:
    history = LandedHistory({"t": columns})
    history.connect()
    return Built(spark, warehouse, {"t": table(source="t", **settings)}), history


def side_rows(built: Built) -> list[dict[str, Any]]:
    session = built.spark.newSession()
    rows = session.read.format("delta").load(built.places.side_table(built.feed.name, "t").url)
    return [row.asDict() for row in rows.collect()]


def stub(spark: SparkSession, warehouse: Path, connector: StubConnector | None = None) -> StubWarehouse:
    feed = StubWarehouse(spark, warehouse, connector or StubConnector())
    feed.history.begin_snapshot()
    feed.history.snapshot_rows([change("snapshot", 1, a="x", b=1), change("snapshot", 2, a="y", b=2)])
    feed.history.end_snapshot()
    return feed


def test_a_row_that_an_update_begins_has_its_key_and_is_found_by_the_next(spark: SparkSession, warehouse: Path) -> None:
    settings = {"mode": "updates_only", "apply": "upsert", "expect": rule("A > 0", "quarantine")}
    built, history = deephaven(spark, warehouse, {"A": "Long", "B": "Long"}, **settings)
    history.update("t", modified={1: {"A": -1, "B": 1}, 2: {"A": 1, "B": 1}})
    assert built.land_and_build(history) == {}

    for modified in ({7: {"A": 3}}, {7: {"B": 4}}):
        history.update("t", modified=modified)
        assert built.land_and_build(history) == {}

    assert built.rows("t") == {2: {"A": 1, "B": 1}, 7: {"A": 3, "B": 4}}
    assert [(row["_row_key"], row["A"], row["B"]) for row in side_rows(built)] == [(1, -1, 1)]


def test_a_row_aside_holds_its_key_against_another(spark: SparkSession, warehouse: Path) -> None:
    settings = {"keys": ("K",), "expect": rule("V > 0", "quarantine")}
    built, history = deephaven(spark, warehouse, {"K": "Long", "V": "Long"}, **settings)
    history.snapshot("t", {1: {"K": 5, "V": -1}, 2: {"K": 6, "V": 1}})
    assert built.land_and_build(history) == {}
    history.update("t", added={3: {"K": 5, "V": 7}})

    assert built.land_and_build(history)["t"].error_class == "DUPLICATE_KEY"
    assert [row["_row_key"] for row in side_rows(built)] == [1]

    history.update("t", modified={1: {"K": 8}})
    assert built.land_and_build(history) == {}
    history.update("t", modified={1: {"V": 2}})
    assert built.land_and_build(history) == {}
    assert {key: row["K"] for key, row in built.rows("t").items()} == {1: 8, 2: 6, 3: 5}


@pytest.mark.parametrize(
    "action", ["quarantine", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("warn", "fail"))]
)
def test_rules_hold_in_cuts_that_are_no_snapshots(spark: SparkSession, warehouse: Path, action: str) -> None:
    feed, rules = stub(spark, warehouse), rule("b < 10", action)
    assert feed.build(expect=rules) == {}
    feed.history.update([change("insert", 3, a="z", b=11), change("update", 1, b=12), change("update", 2, a="yy")])

    held = feed.build(expect=rules)

    everything = {1: ("x", 12), 2: ("yy", 2), 3: ("z", 11)}
    assert list(held) == ([STREAM] if action == "fail" else [])
    assert feed.rows() == {"warn": everything, "quarantine": {2: ("yy", 2)}, "fail": {1: ("x", 1), 2: ("y", 2)}}[action]
    if action != "fail":
        assert feed.notes()["failed.rule"] == 2

    feed.history.update([change("update", 1, b=3), change("delete", 3)])
    assert feed.build(expect=rules) == {}
    assert feed.rows() == {1: ("x", 3), 2: ("yy", 2)}


def test_a_rule_means_what_spark_reads(spark: SparkSession, warehouse: Path) -> None:
    """Wherever the row stands: in a snapshot, in a cut by itself, beside one that fails."""
    rules = rule("a <> 'it''s' AND date_format(DATE '2020-01-31', 'yyyy|MM') = '2020|01'", "quarantine")
    feed = stub(spark, warehouse)
    assert feed.build(expect=rules) == {}
    for changes in ([("insert", 3, "it's")], [("insert", 4, "its")], [("insert", 5, "it's"), ("insert", 6, "is")]):
        feed.history.update([change(op, k, a=a, b=0) for op, k, a in changes])
        assert feed.build(expect=rules, on_unexplained="error") == {}

    (text,) = spark.sql("SELECT 'it''s'").first() or ()  # Spark 4.0 reads two texts in a row as one
    assert sorted(feed.rows()) == sorted([1, 2, 6, *({"it's": [4], "its": [3, 5]}[text])])


@pytest.mark.nightly
def test_a_source_gains_a_column_while_a_row_is_aside(spark: SparkSession, warehouse: Path) -> None:
    rules = rule("b < 10", "quarantine")
    feed = stub(spark, warehouse, StubConnector(has_partial_updates=False))
    assert feed.build(expect=rules) == {}
    feed.history.update([change("update", 1, a="x", b=12)])
    assert feed.build(expect=rules) == {}

    wide = T.StructType(
        [*ROW.fields[:-1], T.StructField("b", T.DecimalType(25, 0)), T.StructField("c", T.StringType())]
    )
    feed.connector = StubConnector(has_partial_updates=False, row=wide)
    feed.history.update([change("update", 2, a="y", b=2, c="new")])
    assert feed.build(expect=rules) == {}
    feed.history.update([change("update", 1, a="x", b=3, c="more")])
    assert feed.build(expect=rules) == {}

    rows = spark.read.format("delta").load(feed.places.silver(FEED, STREAM).url).collect()
    assert sorted((row.k, row.b, row.c) for row in rows) == [(1, 3, "more"), (2, 2, "new")]


@pytest.mark.parametrize(
    "name",
    [
        "key",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("n", "row", "ended", "position", "after", "s")),
    ],
)
def test_a_column_may_be_called_as_we_call_ours(spark: SparkSession, warehouse: Path, name: str) -> None:
    columns, rules = {name: "Long", "V": "Long"}, rule(f"V > 0 AND {name} IS NOT NULL", "quarantine")
    built, history = deephaven(spark, warehouse, columns, keys=(name,), expect=rules)
    history.snapshot("t", {1: {name: 1, "V": 1}, 2: {name: 2, "V": -1}})
    assert built.land_and_build(history) == {}
    history.update("t", modified={1: {name: 3}, 2: {"V": 2}})
    assert built.land_and_build(history) == {}

    assert built.rows("t") == {1: {name: 3, "V": 1}, 2: {name: 2, "V": 2}}


@pytest.mark.nightly
def test_the_key_of_a_positional_source_may_be_called_row(spark: SparkSession, warehouse: Path) -> None:
    built, history = deephaven(spark, warehouse, {"Row": "Long", "N": "Long"}, keys=("Row", "N"))
    history.snapshot("t", {1: {"Row": 1, "N": 1}})
    assert built.land_and_build(history) == {}
    history.update("t", modified={1: {"N": 2}}, added={2: {"Row": 1, "N": 1}})
    assert built.land_and_build(history) == {}

    assert built.rows("t") == {1: {"Row": 1, "N": 2}, 2: {"Row": 1, "N": 1}}


def test_a_rule_on_a_column_of_ours_is_refused_by_name(spark: SparkSession, warehouse: Path) -> None:
    feed = stub(spark, warehouse)

    assert feed.build(expect=rule("_position > 0", "warn"))[STREAM].error_class == "UNUSABLE_EXPECTATION"


@pytest.mark.nightly
def test_history_has_nothing_of_a_cut_that_a_rule_refuses(spark: SparkSession, warehouse: Path) -> None:
    rules = rule("b < 10", "fail")
    feed = stub(spark, warehouse)
    assert feed.build(stored_as_scd_type=2, expect=rules) == {}
    reached = last_cuts(feed.places, FEED)[STREAM].last_position
    feed.history.update([change("insert", 3, a="z", b=11)])

    assert STREAM in feed.build(stored_as_scd_type=2, expect=rules)

    versions = spark.read.format("delta").load(feed.places.history(FEED, STREAM).url).collect()
    assert sorted((row.k, row["__START_AT"]) for row in versions) == [(1, reached - 1), (2, reached - 1)]


def test_rows_aside_are_written_again_only_by_what_changes_them_and_let_in_when_their_rule_is_gone(
    spark: SparkSession, warehouse: Path
) -> None:
    feed, rules = stub(spark, warehouse), rule("b < 2", "quarantine")
    assert feed.build(expect=rules) == {}
    assert feed.rows() == {1: ("x", 1)}
    version = DeltaTable(side_table_url(feed)).version()
    feed.history.update([change("update", 1, a="x again")])
    assert feed.build(expect=rules) == {}
    assert (feed.rows(), DeltaTable(side_table_url(feed)).version()) == ({1: ("x again", 1)}, version)
    feed.history.update([change("update", 1, a="xx")])

    assert feed.build() == {}

    assert feed.rows() == {1: ("xx", 1), 2: ("y", 2)}
    feed.history.update([change("update", 2, b=5), change("delete", 1)])
    assert feed.build() == {}
    assert feed.rows() == {2: ("y", 5)}


@pytest.mark.nightly
def test_a_build_that_others_overtake_again_and_again_says_so_and_the_next_one_goes_on(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, rules = stub(spark, warehouse), rule("b < 2", "quarantine")
    assert feed.build(expect=rules) == {}
    feed.history.update([change("update", 1, b=5)])

    def overtaken(*_: object, table: str) -> int:
        raise Overtaken("another process has written the table meanwhile; try again", table=table)

    monkeypatch.setattr(write, "replace_companion", overtaken)
    monkeypatch.setattr(build, "_TRIES", 2)
    assert "try again" in str(feed.build(expect=rules)[STREAM])
    assert feed.rows() == {1: ("x", 1)}

    monkeypatch.undo()
    assert feed.build(expect=rules) == {}
    assert (feed.rows(), feed.shown(feed.places.side_table(FEED, STREAM))) == ({}, {1: ("x", 5), 2: ("y", 2)})


@pytest.mark.nightly
def test_rows_aside_that_a_cut_changed_before_it_died_are_put_back_by_a_longer_one(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, rules = stub(spark, warehouse), rule("b < 2", "quarantine")
    assert feed.build(expect=rules) == {}
    feed.history.update([change("insert", 3, a="z", b=7)])
    monkeypatch.setattr(write, "_write_side_table", dying(write._write_side_table, after=True))
    with pytest.raises(Died):
        feed.build(expect=rules)
    monkeypatch.undo()
    feed.history.update([change("delete", 3)])

    assert feed.build(expect=rules) == {}

    found = read_side_table(feed.places, FEED, STREAM)
    assert found is not None
    assert found.select(["k", "b"]).to_pylist() == [{"k": 2, "b": 2}]


def side_table_url(feed: StubWarehouse) -> str:
    return feed.places.side_table(FEED, STREAM).url


@pytest.mark.parametrize("action", [pytest.param("warn", marks=pytest.mark.nightly), "quarantine"])
def test_a_rule_that_raises_an_error_of_a_row_holds_before_it_and_names_itself_until_the_row_is_mended(
    spark: SparkSession, warehouse: Path, action: str
) -> None:
    feed, expect = stub(spark, warehouse), {"fine": rule("b < 1000", "warn")["rule"], **rule("10 / b > 1", action)}
    feed.history.update([change("update", 1, b=3)])
    feed.history.update([change("update", 2, b=0)])

    (held,) = feed.build(expect=expect).values()

    assert "rule rule cannot be judged of a row: DIVIDE_BY_ZERO" in str(held)
    assert feed.rows() == {1: ("x", 3), 2: ("y", 2)}
    assert [each.error_class for each in quarantined(feed.places, FEED, STREAM)] == ["EXPECTATION_FAILED"]
    feed.history.update([change("update", 2, b=4)])
    assert feed.build(expect=expect) == {}
    assert feed.rows() == {1: ("x", 3), 2: ("y", 4)}


@pytest.mark.parametrize("max_frames", [pytest.param(1, marks=pytest.mark.nightly), 200_000])
def test_a_table_goes_to_the_last_update_behind_which_every_row_can_be_judged_however_it_is_cut(
    spark: SparkSession, warehouse: Path, max_frames: int
) -> None:
    history = LandedHistory({"t": {"A": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"A": 1}, 2: {"A": 1}})
    for number in (0, 2, 0):
        history.update("t", modified={1: {"A": number}})
    built = Built(spark, warehouse, {"t": table(expect=rule("10 / A > 1", "warn"))}, max_frames=max_frames)

    (held,) = built.land_and_build(history).values()

    assert "rule rule cannot be judged of a row: DIVIDE_BY_ZERO" in str(held)
    assert built.rows("t") == {1: {"A": 2}, 2: {"A": 1}}


@pytest.mark.nightly
def test_what_holds_a_table_is_passed_by_what_mends_it_however_short_its_cuts_are(
    spark: SparkSession, warehouse: Path
) -> None:
    history = LandedHistory({"t": {"A": "Long"}})
    history.connect()
    settings = {"t": table(expect=rule("A > 0", "fail"))}
    history.snapshot("t", {1: {"A": 1}, 2: {"A": 1}})
    for number in (0, 2, 3, 4, 5):  # three frames each
        history.update("t", modified={2: {"A": number}})
    history.update("t", modified={1: {"A": 0}})
    built = Built(spark, warehouse, settings, max_frames=3)

    (held,) = built.land_and_build(history).values()

    assert (held.error_class, built.rows("t")) == ("EXPECTATION_FAILED", {1: {"A": 1}, 2: {"A": 5}})
    for number in (0, 0, 7):
        history.update("t", modified={1: {"A": number}})
    assert built.land_and_build(history) == {}
    assert built.rows("t") == {1: {"A": 7}, 2: {"A": 5}}


def test_a_history_passes_a_snapshot_that_what_cannot_be_read_overlays(spark: SparkSession, warehouse: Path) -> None:
    """An update that landed before the first snapshot of its epoch overlays it: so neither can be taken."""
    feed = StubWarehouse(spark, warehouse, StubConnector())
    feed.history.raw(b"{")
    snapshot(feed, b=1)
    assert feed.build(stored_as_scd_type=2)[STREAM].error_class == "UNDECODABLE_FRAME"

    snapshot(feed, b=2)
    assert feed.build(stored_as_scd_type=2) == {}
    assert feed.rows() == {1: ("x", 2)}


def snapshot(feed: StubWarehouse, *, b: int) -> None:
    feed.history.begin_snapshot()
    feed.history.snapshot_rows([change("snapshot", 1, a="x", b=b)])
    feed.history.end_snapshot()


@pytest.mark.nightly
def test_a_history_without_snapshots_waits_at_what_cannot_be_read(spark: SparkSession, warehouse: Path) -> None:
    feed = StubWarehouse(spark, warehouse, StubConnector(snapshots=False))
    feed.history.update([change("insert", 1, a="x", b=1)])
    feed.history.raw(b"{")
    feed.history.update([change("insert", 2, a="y", b=2)])

    assert feed.build(stored_as_scd_type=2)[STREAM].error_class == "UNDECODABLE_FRAME"
    assert feed.rows() == {1: ("x", 1)}


@pytest.mark.parametrize("follows", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_table_goes_as_far_as_nothing_is_wrong_however_it_is_cut(
    spark: SparkSession, warehouse: Path, *, follows: bool
) -> None:
    built, history = deephaven(spark, warehouse, {"B": "Long"}, expect=rule("B < 100", "fail"))
    history.snapshot("t", {0: {"B": 0}})
    built.land(history)
    running = built.start()
    assert built.build(running) == {}
    history.update("t", added={1: {"B": 500}})
    for key in (1, 2):  # each mends one row, and begins one that fails
        built.land(history)
        running = running if follows else built.start()
        running.refresh()
        assert built.build(running)["t"].error_class == "EXPECTATION_FAILED"
        history.update("t", modified={key: {"B": key}})
        history.update("t", added={key + 1: {"B": 500}})
    built.land(history)
    running.refresh()

    assert built.build(running)["t"].error_class == "EXPECTATION_FAILED"
    assert {key: row["B"] for key, row in built.rows("t").items()} == {0: 0, 1: 1, 2: 2}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("other", "follows"),
    [("unexplained", False), ("unexplained", True), ("unjudgeable", False), ("unjudgeable", True)],
)
def test_a_mended_row_is_passed_though_something_else_is_wrong_behind_it(
    spark: SparkSession, warehouse: Path, other: str, *, follows: bool
) -> None:
    condition = "b < 10" if other == "unexplained" else "b < 10 AND cast(a AS int) > 0"
    feed = StubWarehouse(spark, warehouse, StubConnector())
    settings = {"on_unexplained": "error", "expect": rule(condition, "fail")}
    feed.history.begin_snapshot()
    feed.history.snapshot_rows([change("snapshot", 0, a="1", b=1)])
    feed.history.end_snapshot()
    feed.history.update([change("insert", 1, a="1", b=500)])
    build = feed.started(**settings)
    if follows:
        assert run_once(build)[STREAM].error_class == "EXPECTATION_FAILED"
    for k in (2, 3, 4):
        feed.history.update([change("insert", k, a="1", b=2)])
    feed.history.update([change("update", 1, b=1)])
    feed.history.update([change("insert", 5, a="1", b=2)])
    feed.history.update([change("delete", 77) if other == "unexplained" else change("insert", 7, a="x", b=2)])
    feed.history.update([change("insert", 6, a="1", b=2)])
    feed.history.land()
    build.refresh()

    held = run_once(build)[STREAM]

    assert sorted(feed.rows()) == [0, 1, 2, 3, 4, 5]
    assert held.error_class == ("UNEXPLAINED" if other == "unexplained" else "EXPECTATION_FAILED")
