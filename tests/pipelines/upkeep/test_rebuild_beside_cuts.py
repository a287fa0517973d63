"""Rebuilds beside builds: a cut that was begun before one does not count; one that is overtaken keeps builds out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import Overtaken
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.applying import apply_cut
from silverfold.pipelines.storage import swap
from silverfold.pipelines.storage.cuts import app_id, from_record, recorded_in
from silverfold.pipelines.storage.lease import sole_writer
from silverfold.pipelines.storage.swap import TableMoved
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.rebuild import Rebuild, Rebuilt
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory

SMALL = {"small": {"condition": "Qty < 60", "action": "quarantine"}}


@pytest.mark.parametrize(
    "settings",
    [*(pytest.param(each, marks=pytest.mark.nightly) for each in ({"expect": SMALL}, {"stored_as_scd_type": 2})), {}],
)
@pytest.mark.parametrize("step", ["table_write", pytest.param("companion_writes", marks=pytest.mark.nightly)])
def test_a_cut_that_was_begun_before_a_rebuild_is_done_again_after_it(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], step: str
) -> None:
    earlier = {name: value for name, value in settings.items() if name != "expect"}
    built, history = Built(spark, warehouse, {"t": table(**earlier)}), LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Qty": 99}, 2: {"Qty": 5}, 4: {"Qty": 1}})
    assert built.land_and_build(history) == {}
    built.settle(table(**settings))
    history.update("t", added={3: {"Qty": 77}}, modified={4: {"Qty": 2}})
    original, rebuilds = getattr(apply_cut, step), []

    def after_a_rebuild(*arguments: Any) -> Any:
        if not rebuilds:
            rebuilds.append(Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "again"))
            monkeypatch.setattr(apply_cut, step, original)
            rebuilds[0].run()
        return original(*arguments)

    monkeypatch.setattr(apply_cut, step, after_a_rebuild)
    assert built.land_and_build(history) == {}

    side_rows = {1: 99, 3: 77} if "expect" in settings else {}
    everything = {1: 99, 2: 5, 3: 77, 4: 2}
    expected = {key: qty for key, qty in everything.items() if key not in side_rows}
    assert {key: row["Qty"] for key, row in built.rows("t").items()} == expected
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
    if built.feed.tables["t"].keeps_history:
        assert verify_history(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
    _, generation = from_record(recorded_in(open_table(built.places.silver(FEED, "t")), app_id(FEED, "t")))
    assert (len(rebuilds), generation) == (1, 1)


@pytest.mark.nightly
def test_a_rebuild_of_a_table_that_has_no_position_takes_no_cut_back(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, history = Built(spark, warehouse, {"t": table()}), LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Qty": 1}, 2: {"Qty": 2}})
    built.land(history)
    running, original, calls = built.start(), swap._overwrite, []

    def after_cuts(*arguments: Any) -> None:
        if not calls:
            calls.append(built.build(running))
            history.update("t", added={3: {"Qty": 3}}, removed=[1])
            built.land(history)
            calls.append(built.build(running))
        original(*arguments)

    monkeypatch.setattr(swap, "_overwrite", after_cuts)
    Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "again").run()
    history.update("t", modified={2: {"Qty": 22}})
    built.land(history)

    assert [*calls, built.build(running)] == [{}, {}, {}]
    assert {key: row["Qty"] for key, row in built.rows("t").items()} == {2: 22, 3: 3}
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL


def test_a_rebuild_that_builds_overtake_lets_them_wait_and_comes_to_its_end(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
):
    built, attempts = Built(None, warehouse, {"quotes": table()}), []
    done = Rebuilt("quotes", 9, 4, 1, None, None)

    def beside_a_steady_build(*_: object) -> Rebuilt:
        attempts.append(None)
        try:
            with sole_writer(built.places, FEED, "quotes", patience=0.0):
                raise TableMoved
        except Overtaken:  # the build waits
            return done

    monkeypatch.setattr(Rebuild, "_attempt", beside_a_steady_build)
    assert Rebuild(None, built.settings, CONNECTOR, built.feed, "quotes", "a").run() == done
    assert len(attempts) == 4
