"""Two builds of one feed at once: each goes on from where the other has come, and neither takes that for a fault."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.frames import Frame
from silverfold.connectors.sqlitecloud.connector import CONNECTOR as SQLITE
from silverfold.pipelines.applying import apply_cut, write
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.storage.cuts import read_cuts
from silverfold.pipelines.storage.swap import Live
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.running import run_once
from tests.support.sqlitecloud.feed import SqliteCloudFeed, notified, selected, snapshot_begins, snapshot_ends
from tests.support.sqlitecloud.notices import described

HEAD = {"channel": "foo", "type": "TABLE", "pk": ["id"]}
SMALL = {"small": {"condition": "Qty < 3", "action": "quarantine"}}


def message(text: str) -> Frame:
    return notified({"channel": "c", "type": "MESSAGE", "payload": text})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"expect": SMALL}, marks=pytest.mark.nightly),
        pytest.param({"stored_as_scd_type": 2}, marks=pytest.mark.nightly),
    ],
)
def test_two_builds_at_once_come_to_the_table(
    spark: SparkSession, warehouse: Path, settings: dict[str, object]
) -> None:
    built = Built(spark, warehouse, {"t": table(**settings)}, max_frames=6)
    history = LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {key: {"Qty": 0} for key in range(6)})
    for number in range(5):
        history.update("t", modified={number: {"Qty": number}}, added={10 + number: {"Qty": number}})
    built.land(history)
    both = [built.start(), built.start()]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(built.build, both))

    assert found == [{}, {}]
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
    assert len(built.rows("t")) == (7 if "expect" in settings else 11)
    cuts = [cut.last_position for cut in read_cuts(built.places, FEED)]
    assert len(cuts) == len(set(cuts)), "whoever commits a cut lists it, and nobody else"


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.nightly), "during"])
@pytest.mark.parametrize("table", ["foo", pytest.param("said", marks=pytest.mark.nightly)])
def test_a_cut_never_takes_in_again_what_another_build_applied(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, when: str
) -> None:
    feed = SqliteCloudFeed(tmp_path, {"foo": {"keys": ["id"]}, "said": {"channel": "c"}})
    foo = described("foo", {"id": "INTEGER", "n": "INT"}, ["id"])
    feed.connect(*snapshot_begins(foo), selected(foo, [[1, 10], [2, 20]]), snapshot_ends(foo), message("begin"))
    first, other = (FeedBuild.open(lambda: spark, feed.settings, SQLITE, feed.feed) for _ in range(2))
    if when == "before":
        assert run_once(first) == {}
    swaps = [{"type": "UPDATE", "pv": [old], "id": new} for old, new in ((1, 3), (2, 1), (3, 2))]
    feed.land(notified(HEAD | {"payload": swaps}), message("one"))
    other.refresh()
    feed.land(notified(HEAD | {"payload": [{"type": "UPDATE", "id": 1, "n": 21}]}), message("two"))
    original, calls = write.unless_moved, []

    def after_another(rows: DataFrame, live: Live) -> DataFrame:
        if not calls and live.place == feed.places.silver("shop", table):
            calls.append(live)
            assert other.step(table).error is None
        return original(rows, live)

    if when == "before":
        assert other.step(table).error is None
    else:
        monkeypatch.setattr(write, "unless_moved", after_another)
    assert run_once(first) == {}

    assert sorted(feed.rows("foo"), key=lambda row: row["id"]) == [{"id": 1, "n": 21}, {"id": 2, "n": 10}]
    assert sorted(row["payload"] for row in feed.rows("said")) == ["begin", "one", "two"]
    assert {feed.verify(each).verdict for each in ("foo", "said")} == {Verdict.EQUAL}


def test_a_build_that_others_have_overtaken_misses_nothing_in_bronze(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, history = Built(spark, warehouse, {"t": table()}), LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Qty": 1}})
    built.land(history)
    running, original = built.start(), write.unless_moved

    def after_another(rows: DataFrame, live: Live) -> DataFrame:
        monkeypatch.undo()
        history.update("t", modified={1: {"Qty": 2}})
        assert built.land_and_build(history) == {}
        return original(rows, live)

    monkeypatch.setattr(write, "unless_moved", after_another)
    steps = [running.step("t") for _ in range(3)]

    assert [step.error for step in steps] == [None] * 3
    assert {key: row["Qty"] for key, row in built.rows("t").items()} == {1: 2}


def test_a_running_build_begins_anew_where_its_table_is_gone(spark: SparkSession, warehouse: Path) -> None:
    built, history = Built(spark, warehouse, {"t": table()}), LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Qty": 1}, 2: {"Qty": 2}})
    built.land(history)
    running = built.start()
    assert built.build(running) == {}
    shutil.rmtree(built.places.silver(FEED, "t").url)
    history.update("t", modified={2: {"Qty": 22}})
    built.land(history)

    assert built.build(running) == {}
    assert {key: row["Qty"] for key, row in built.rows("t").items()} == {1: 1, 2: 22}
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL


@pytest.mark.nightly
@pytest.mark.parametrize("first_has_it", [False, True])
def test_builds_under_other_rules_do_not_mix(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch, first_has_it: bool
) -> None:
    small = {"small": {"condition": "Qty < 60", "action": "quarantine"}}
    built, history = Built(spark, warehouse, {"t": table()}), LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Qty": 5}, 2: {"Qty": 6}})
    assert built.land_and_build(history) == {}
    unruled, ruled = table(), table(expect=small)
    history.update("t", modified={1: {"Qty": 99}})
    built.land(history)
    built.settle(unruled if first_has_it else ruled)
    other = built.start()
    history.update("t", modified={1: {"Qty": 98}})
    built.land(history)
    built.settle(ruled if first_has_it else unruled)
    original, calls = apply_cut.table_write, []

    def after_another(*arguments: Any) -> Any:
        if not calls:
            calls.append(arguments)
            assert other.step("t").error is None
        return original(*arguments)

    monkeypatch.setattr(apply_cut, "table_write", after_another)
    assert built.build() == {}

    history.update("t", modified={1: {"Qty": 97}, 2: {"Qty": 7}})
    built.settle(ruled)
    assert built.land_and_build(history) == {}
    assert Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "again").run().updates
    assert {key: row["Qty"] for key, row in built.rows("t").items()} == {2: 7}
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
