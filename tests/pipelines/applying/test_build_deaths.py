"""A build that dies at any step, and another that goes on: silver is whole in between and ends as if nothing was."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

import silverfold.pipelines.applying.apply_cut
import silverfold.pipelines.applying.build
import silverfold.pipelines.applying.cut_job
import silverfold.pipelines.applying.decode
import silverfold.pipelines.applying.write
import silverfold.pipelines.holding.quarantine
from silverfold.conf.errors import ApplyError, SparkUnavailable
from silverfold.conf.model import Expectation
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.run import run
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.plan import Planner
from silverfold.pipelines.spark.session import raising_if_ended
from silverfold.pipelines.storage.cuts import read_cuts
from tests.support.building import FEED, Built, table
from tests.support.commits import begin_log
from tests.support.deaths import Died, dying
from tests.support.deephaven.landed_history import LandedHistory

COLUMNS = {"Sym": "String", "Qty": "Long"}
SNAPSHOT = {1: {"Sym": "AAPL", "Qty": 0}, 2: {"Sym": "IBM", "Qty": 0}}

BEFORE, AFTER = False, True
DEATHS_IN_THE_SNAPSHOT = [
    (silverfold.pipelines.applying.apply_cut, "open_rolled_back", AFTER),
    (silverfold.pipelines.applying.decode, "check_names", AFTER),
    (silverfold.pipelines.applying.write, "append", BEFORE),
    (silverfold.pipelines.applying.write, "append", AFTER),
]
DEATHS_IN_UPDATES = [
    (Planner, "plan", AFTER),
    (silverfold.pipelines.applying.cut_job, "statistics_of", AFTER),
    (silverfold.pipelines.applying.write, "merge", BEFORE),
    (silverfold.pipelines.applying.write, "merge", AFTER),
    (silverfold.pipelines.applying.apply_cut, "read_back", AFTER),
    (Planner, "advance_to", AFTER),
    (silverfold.pipelines.holding.quarantine, "resolve", AFTER),
    (silverfold.pipelines.applying.build, "record", BEFORE),
    (silverfold.pipelines.applying.build, "record", AFTER),
]


def die_at(built: Built, owner: Any, name: str, after: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dying(getattr(owner, name), after))
        with pytest.raises(Died):
            built.build()


@pytest.mark.nightly
def test_a_build_that_dies_at_step_after_step_ends_as_one_that_never_died(spark: SparkSession, tmp_path: Path):
    tables = {"quotes": table()}
    built = Built(spark, tmp_path / "dying", tables)
    history = LandedHistory({"quotes": COLUMNS})
    history.connect()
    history.snapshot("quotes", SNAPSHOT)
    built.land(history)
    for owner, name, after in DEATHS_IN_THE_SNAPSHOT:
        die_at(built, owner, name, after)
        assert not built.exists("quotes") or built.rows("quotes") in ({}, SNAPSHOT), name
    for number, (owner, name, after) in enumerate(DEATHS_IN_UPDATES, start=1):
        history.update("quotes", modified={1: {"Qty": number}}, added={10 + number: {"Sym": "new", "Qty": number}})
        built.land(history)
        die_at(built, owner, name, after)
        seen = built.rows("quotes")
        assert len(seen) == 2 + seen[1]["Qty"], f"{name}: part of an update shows"

    faults = built.build()

    shutil.copytree(tmp_path / "dying/bronze", tmp_path / "undisturbed/bronze")
    undisturbed = Built(spark, tmp_path / "undisturbed", tables)
    undisturbed.build()
    assert faults == {}
    assert positions(built) == positions(undisturbed)
    assert built.rows("quotes") == undisturbed.rows("quotes")
    assert built.rows("quotes")[1] == {"Sym": "AAPL", "Qty": len(DEATHS_IN_UPDATES)}
    cuts = read_cuts(built.places, FEED)
    assert [cut.last_position for cut in cuts] == sorted({cut.last_position for cut in cuts}), (
        "none missing, none twice"
    )
    assert sum(cut.updates for cut in cuts) == 1 + len(DEATHS_IN_UPDATES)


def test_tables_whose_first_commits_were_begun_and_never_made_are_made(spark: SparkSession, warehouse: Path):
    small = Expectation.model_validate({"condition": "Qty < 100", "action": "quarantine"})
    kinds: dict[str, dict[str, Any]] = {"kept": {"stored_as_scd_type": 2}, "judged": {"expect": {"small": small}}}
    tables = {name: table(source=name, mode="updates_only", apply="upsert", **kind) for name, kind in kinds.items()}
    built = Built(spark, warehouse, tables)
    for place, name in itertools.product((Places.silver, Places.history, Places.side_table), tables):
        begin_log(Path(place(built.places, FEED, name).url))
    history = LandedHistory(dict.fromkeys(tables, COLUMNS))
    history.connect()
    for name in tables:
        history.update(name, added={1: {"Sym": "AAPL", "Qty": 1}, 2: {"Sym": "IBM", "Qty": 100}})

    assert built.land_and_build(history) == {}
    assert {version["Sym"] for version in built.versions("kept")} == {"AAPL", "IBM"}
    assert built.rows("judged") == {1: {"Sym": "AAPL", "Qty": 1}}


def positions(built: Built) -> dict[int, int]:
    rows = built.with_positions("quotes").select("_row_key", "_position").collect()
    return {row["_row_key"]: row["_position"] for row in rows}


class _Jvm:
    """A Spark context as it is once its JVM has got a signal, or is gone."""

    def __init__(self, stopped: Exception | bool) -> None:
        self._stopped, self._jsc = stopped, self

    def sc(self) -> _Jvm:
        return self

    def isStopped(self) -> bool:  # noqa: N802 - Java's name
        if isinstance(self._stopped, Exception):
            raise self._stopped
        return self._stopped


@pytest.mark.parametrize("answer", [True, ConnectionRefusedError(111, "refused"), Py4JError("gone")], ids=repr)
def test_whatever_fails_once_spark_has_ended_fails_for_that(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | bool
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", _Jvm(answer))
    with pytest.raises(SparkUnavailable, match="Spark has ended before its work was done"), raising_if_ended():
        raise ConnectionRefusedError
    monkeypatch.setattr(SparkContext, "_active_spark_context", _Jvm(stopped=False))
    with pytest.raises(ConnectionRefusedError), raising_if_ended():
        raise ConnectionRefusedError


def test_a_spark_that_ends_first_holds_no_table(spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch):
    built = Built(spark, warehouse, {"quotes": table()})
    history = LandedHistory({"quotes": COLUMNS})
    history.connect()
    history.snapshot("quotes", SNAPSHOT)
    built.land(history)
    with monkeypatch.context() as patch:
        patch.setattr(SparkContext, "_active_spark_context", _Jvm(stopped=True))
        patch.setattr(
            silverfold.pipelines.applying.build,
            "apply_cut",
            raising(ApplyError("Spark: NullPointerException", table="quotes")),
        )
        stopped = threading.Event()
        with pytest.raises(SparkUnavailable, match="Spark has ended before its work was done"):
            run([built.start()], stopped)
        stop_first = built.start()
        patch.setattr(FeedBuild, "step", stopping(stopped, FeedBuild.step))
        assert run([stop_first], stopped) == {}  # not that Spark has ended
    assert quarantined(built.places, FEED, "quotes") == []
    assert built.build() == {}


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **_more: object) -> None:
        raise error

    return fail


def stopping(stop: threading.Event, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step during which the signal comes that stops the build."""

    def stopped(*args: object) -> Any:
        stop.set()
        return step(*args)

    return stopped
