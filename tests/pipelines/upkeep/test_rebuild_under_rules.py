"""Tables made anew under rules that were set after much had been applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import ApplyError
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.storage.remove_tree import remove_tree
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory

LATE = {"n": {"condition": "N IS NULL OR N < 100", "action": "warn"}}
"""Names a column that only the second epoch has."""


def grown(spark: SparkSession, warehouse: Path, **settings: Any) -> Built:
    """Return a table that was built in two epochs, the second with one column more."""
    built, history = Built(spark, warehouse, {"t": table(source="t", **settings)}), LandedHistory({"t": {"Q": "Int"}})
    for number, columns in enumerate([{"Q": "Int"}, {"Q": "Int", "N": "Int"}]):
        history.columns = {"t": columns}
        history.connect()
        rows = {1 + number: {"Q": 2, **({"N": 500} if number else {})}}
        if "mode" in settings:
            history.update("t", added=rows)
        else:
            history.snapshot("t", {1: {"Q": 1}, **rows} if number else rows)
        history.update("t", modified={1 + number: {"Q": 7}})
        history.close()
        assert built.land_and_build(history) == {}
    return built


def rebuild(built: Built, token: str) -> None:
    Rebuild(built.spark, built.settings, CONNECTOR, built.feed, "t", token).run()


def sorted_reprs(versions: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, versions))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"stored_as_scd_type": 2}, marks=pytest.mark.nightly),
        {"mode": "updates_only", "apply": "upsert"},
    ],
    ids=["history", "upsert"],
)
def test_a_column_that_came_later_is_null_to_the_rules_of_what_came_before(
    spark: SparkSession, warehouse: Path, settings: dict[str, Any]
):
    built = grown(spark, warehouse, **settings)
    before, versions = built.rows("t"), built.versions("t")
    assert bool(versions) is ("mode" not in settings)

    built.settle(table(source="t", **settings, expect=LATE))
    rebuild(built, "a")

    assert built.rows("t") == before
    assert sorted_reprs(built.versions("t")) == sorted_reprs(versions)
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL


@pytest.mark.parametrize("follows", [True, False])
def test_a_rule_may_name_a_column_that_is_still_to_come(spark: SparkSession, warehouse: Path, follows: bool):
    settings = {"mode": "updates_only", "apply": "upsert", "expect": LATE}
    built, history = Built(spark, warehouse, {"t": table(source="t", **settings)}), LandedHistory({"t": {"Q": "Int"}})
    history.connect()
    history.update("t", added={1: {"Q": 2}})
    history.close()
    running, held = built.start(), {}
    if follows:
        built.land(history)
        running.refresh()
        held = built.build(running)
    history.columns = {"t": {"Q": "Int", "N": "Int"}}
    history.connect()
    history.update("t", added={2: {"Q": 1, "N": 5}})
    built.land(history)
    running.refresh()

    assert [fault.error_class for fault in held.values()] == ["UNUSABLE_EXPECTATION"] * follows
    assert built.build(running) == {}
    assert {key: (row["Q"], row["N"]) for key, row in built.rows("t").items()} == {1: (2, None), 2: (1, 5)}
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["fails", "cannot be judged"])
def test_versions_that_could_not_be_applied_today_are_not_lost(spark: SparkSession, warehouse: Path, how: str):
    built, history = Built(spark, warehouse, {"t": table(stored_as_scd_type=2)}), LandedHistory({"t": {"Q": "Int"}})
    history.connect()
    history.snapshot("t", {1: {"Q": 1}})
    history.update("t", modified={1: {"Q": 2}})
    history.snapshot("t", {1: {"Q": 4}})
    assert built.land_and_build(history) == {}
    before = built.versions("t")
    assert len(before) == 3

    fail = {"q": {"condition": "Q <> 2" if how == "fails" else "CAST(1 / (Q - 2) AS INT) < 9", "action": "fail"}}
    built.settle(table(stored_as_scd_type=2, expect=fail))
    with pytest.raises(ApplyError, match="its history would lack what came from there to the next snapshot") as refused:
        rebuild(built, "a")
    assert sorted_reprs(built.versions("t")) == sorted_reprs(before)

    remove_tree(built.places.history(FEED, "t"))
    assert str(built.places.history(FEED, "t")) in str(refused.value)
    rebuild(built, "b")
    assert len(built.versions("t")) == 2
    assert verify_history(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
    rebuild(built, "c")
