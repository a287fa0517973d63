"""Tables made anew from bronze: what stands afterwards, what builds make of it, and what a death leaves behind."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import silverfold.pipelines.storage.swap
import silverfold.pipelines.upkeep.rebuild
from silverfold.conf.errors import ApplyError, PositionGap, StoreUnavailable
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.spark.session import own_session
from silverfold.pipelines.storage.companions import Part
from silverfold.pipelines.storage.cuts import read_cuts
from silverfold.pipelines.storage.swap import version_of
from silverfold.pipelines.upkeep.rebuild import Rebuild, Rebuilt
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, verify_table
from tests.support.building import FEED, Built, table
from tests.support.copies import BuiltMarket
from tests.support.deaths import Died, dying
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.polling import wait_until

NIGHTLY = pytest.mark.nightly
COLUMNS = {"Sym": "String", "Qty": "Long"}
SNAPSHOT = {1: {"Sym": "AAPL", "Qty": 5}, 2: {"Sym": "IBM", "Qty": 6}}


class Market(BuiltMarket):
    """A feed with the table quotes, built up to position 10: a snapshot, and an update of row 1."""

    def __init__(self, spark: SparkSession, warehouse: Path, **settings: Any) -> None:
        self.spark, self.warehouse, self.logs_set_aside = spark, warehouse, list[str]()
        self.built = Built(spark, warehouse, {"quotes": table(source="quotes", **settings)})
        self.history = LandedHistory({"quotes": COLUMNS})
        self.history.connect()
        if "mode" in settings:
            self.history.update("quotes", added=SNAPSHOT)
        else:
            self.history.snapshot("quotes", SNAPSHOT)
        self.update(7)

    def update(self, qty: int) -> int:
        self.history.update("quotes", modified={1: {"Qty": qty}})
        return self.built.land(self.history)

    def rebuild(self, token: str = "a") -> Rebuilt:
        feed, callbacks = self.built.feed, (lambda *_: None, self.logs_set_aside.append)
        return Rebuild(self.spark, self.built.settings, CONNECTOR, feed, "quotes", token, *callbacks).run()

    def verify(self) -> TableVerification:
        return verify_table(self.built.places, CONNECTOR, self.built.feed, "quotes")

    def verdict(self) -> tuple[Verdict, int | None]:
        found = self.verify()
        return found.verdict, found.position

    def spoil(self) -> None:
        """Change a row behind the build's back."""
        target = f"delta.`{self.built.places.silver(FEED, 'quotes').url}`"
        own_session(self.spark).sql(f"UPDATE {target} SET Sym = 'spoilt' WHERE _row_key = 2").collect()

    def left_over(self) -> list[str]:
        return [folder.name for folder in (self.warehouse / "silver" / FEED).iterdir() if folder.name != "quotes"]


@pytest.fixture(scope="module")
def market_built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Market:
    """Build the table once; each test has a copy."""
    market = Market(spark, tmp_path_factory.mktemp("market"))
    assert market.built.build() == {}
    return market


@pytest.fixture
def market(market_built: Market, warehouse: Path) -> Market:
    return market_built.copied_to(warehouse, logs_set_aside=[])


def test_a_spoilt_table_is_right_again_and_stands_where_it_stood(market: Market):
    market.spoil()
    spoilt = market.verdict()
    later = market.update(8)  # landed, and not built: the table does not get ahead of its position

    done = market.rebuild()

    assert spoilt == (Verdict.DIFFERENT, 9)
    assert (done.position, done.updates, market.verdict()) == (9, 2, (Verdict.EQUAL, 9))
    assert market.built.build() == {}
    assert (market.verdict(), market.built.rows("quotes")[1]["Qty"]) == ((Verdict.EQUAL, later), 8)
    assert market.left_over() == []


def test_a_build_that_was_running_goes_on_from_the_rebuilt_table(market: Market):
    running = market.built.start()
    market.spoil()
    market.rebuild()
    market.update(8)
    running.refresh()

    assert market.built.build(running) == {}
    assert market.verdict() == (Verdict.EQUAL, 12)
    assert [cut.last_position for cut in read_cuts(market.built.places, FEED)] == [9, 9, 12]


@pytest.mark.parametrize("lost", ["everything", pytest.param("its files", marks=NIGHTLY)])
def test_a_table_that_is_gone_or_has_lost_files_is_made_anew(market: Market, lost: str):
    folder = market.warehouse / "silver" / FEED / "quotes"
    if lost == "everything":
        shutil.rmtree(folder)
    for file in folder.glob("*.parquet"):
        file.unlink()

    assert market.rebuild().position == 9
    assert market.verdict() == (Verdict.EQUAL, 9)
    assert market.update(8) == 12
    assert market.built.build() == {}
    assert market.verdict() == (Verdict.EQUAL, 12)


@pytest.mark.parametrize(
    "damage", ["garbage", *(pytest.param(each, marks=NIGHTLY) for each in ("no action", "a commit is gone", "a file"))]
)
def test_a_table_whose_log_is_damaged_is_made_anew_and_the_log_set_aside(market: Market, damage: str):
    market.update(8)
    market.built.build()
    log = market.warehouse / "silver" / FEED / "quotes" / "_delta_log"
    newest = max(log.glob("*.json"))
    if damage == "a file":
        shutil.rmtree(log)
        log.write_text("garbage")
    elif damage == "a commit is gone":
        (log / f"{1:020}.json").unlink()
    else:
        newest.write_text('{"add": 1}' if damage == "no action" else "garbage")
    with pytest.raises(StoreUnavailable):
        market.verify()

    assert market.rebuild().position == 12

    assert market.logs_set_aside == [f"{log}.damaged-a"]
    assert Path(market.logs_set_aside[0]).exists()
    assert market.verdict() == (Verdict.EQUAL, 12)
    assert market.update(9) == 15
    assert market.built.build() == {}
    assert market.verdict() == (Verdict.EQUAL, 15)


def test_a_damaged_list_of_cuts_stops_nothing(market: Market):
    for entry in Path(market.built.places.cuts(FEED).url).glob("_delta_log/*.json"):
        entry.write_text("garbage")

    assert market.rebuild().position == 9
    assert [cut.last_position for cut in read_cuts(market.built.places, FEED)] == [9, 9]
    assert market.update(8) == 12
    for entry in Path(market.built.places.cuts(FEED).url).glob("*.parquet"):
        entry.write_bytes(b"garbage")
    assert market.built.build() == {}
    assert [cut.last_position for cut in read_cuts(market.built.places, FEED)] == [9, 9, 12]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"keys": ("Sym",)}, marks=NIGHTLY),
        {"mode": "updates_only"},
        pytest.param({"mode": "updates_only", "apply": "upsert"}, marks=NIGHTLY),
    ],
)
def test_tables_of_every_kind_can_be_rebuilt(spark: SparkSession, warehouse: Path, settings: dict[str, Any]):
    market = Market(spark, warehouse, **settings)
    market.built.build()
    market.spoil()

    market.rebuild()

    assert market.verdict() == (Verdict.EQUAL, 9)


def test_a_table_of_other_columns_gets_those_of_the_source(market: Market):
    target = f"delta.`{market.built.places.silver(FEED, 'quotes').url}`"
    own_session(market.spark).sql(f"ALTER TABLE {target} ADD COLUMNS (stray STRING)").collect()

    market.rebuild()

    assert market.built.silver("quotes").columns == ["_row_key", "Sym", "Qty"]


def test_a_rebuild_that_dies_at_any_step_leaves_the_old_table_or_the_new_one(market: Market):
    market.spoil()
    shown = []
    steps: list[tuple[Any, str, bool]] = [
        (FeedBuild, "step", True),
        (silverfold.pipelines.storage.swap, "_overwrite", False),
        (silverfold.pipelines.storage.swap, "_overwrite", True),
    ]
    for owner, name, after in steps:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), after))
            patch.setattr(Rebuild, "_clean_up", lambda self: None)
            with pytest.raises(Died):
                market.rebuild(token=name)
        shown.append(market.verdict())
    left_over = market.left_over()
    market.rebuild()
    day_old = time.time() - timedelta(days=1, seconds=1).total_seconds()
    for path in (market.warehouse / "silver" / FEED / "quotes__rebuild").rglob("*"):
        os.utime(path, (day_old, day_old))
    running = market.warehouse / "silver" / FEED / "quotes__rebuild" / "begun"
    running.mkdir()

    market.rebuild()

    assert [folder.name for folder in running.parent.iterdir()] == ["begun"]
    running.rmdir()
    market.rebuild()
    assert shown == [(Verdict.DIFFERENT, 9), (Verdict.DIFFERENT, 9), (Verdict.EQUAL, 9)]
    assert left_over == ["quotes__rebuild"]
    assert (market.verdict(), market.left_over()) == ((Verdict.EQUAL, 9), [])


@pytest.mark.nightly
@pytest.mark.parametrize("times", [1, 3])
def test_a_build_that_moves_the_table_before_the_swap_is_not_undone(
    market: Market, monkeypatch: pytest.MonkeyPatch, times: int
):
    market.spoil()
    overwrite, updates = silverfold.pipelines.storage.swap._overwrite, iter(range(1, times + 1))

    def overtaken(*args: Any) -> None:
        if (number := next(updates, None)) is not None:
            market.update(7 + number)
            assert market.built.build() == {}
        overwrite(*args)

    monkeypatch.setattr(silverfold.pipelines.storage.swap, "_overwrite", overtaken)

    done = market.rebuild()

    position = 9 + 3 * times
    assert (done.position, market.verdict()) == (position, (Verdict.EQUAL, position))
    assert market.built.rows("quotes")[1]["Qty"] == 7 + times


@pytest.mark.nightly
def test_a_rebuild_goes_no_further_than_a_build_that_makes_the_table_meanwhile(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
):
    expect = {"other": {"condition": "Qty <> 6", "action": "quarantine"}}
    market = Market(spark, warehouse, expect=expect)
    replaced, calls = Rebuild._replaced, iter([True])

    def overtaken(rebuild: Rebuild, part: Part, metadata: str) -> int | None:
        if next(calls, False):
            short = Built(spark, warehouse, {"quotes": table(expect=expect)}, max_frames=1)
            assert short.start().step("quotes").applied is not None
        return replaced(rebuild, part, metadata)

    monkeypatch.setattr(Rebuild, "_replaced", overtaken)

    done = market.rebuild()

    assert (done.position, market.verdict()) == (6, (Verdict.EQUAL, 6))
    assert market.built.build() == {}
    assert market.verdict() == (Verdict.EQUAL, 9)


def test_a_build_that_moves_the_table_during_the_swap_is_not_undone(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looked, go_on = tmp_path / "looked", tmp_path / "go on"
    unmoved = silverfold.pipelines.storage.swap._Unmoved

    def slow(*args: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        def look(batches: Iterator[Any]) -> Iterator[Any]:
            found = unmoved(*args)(batches)
            if not looked.exists():
                looked.touch()
                until = time.monotonic() + 60  # written out: a worker of Spark does not import the tests
                while not go_on.exists() and time.monotonic() < until:
                    time.sleep(0.05)
            return found

        return look

    def overtake() -> None:
        wait_until(looked.exists, "the swap to look")
        market.update(8)
        faults.update(market.built.build())
        go_on.touch()

    faults: dict[str, Any] = {}
    market.spoil()
    monkeypatch.setattr(silverfold.pipelines.storage.swap, "_Unmoved", slow)
    overtaking = threading.Thread(target=overtake)
    overtaking.start()

    done = market.rebuild()

    overtaking.join()
    assert (faults, done.position, market.verdict()) == ({}, 12, (Verdict.EQUAL, 12))


def test_a_frame_that_cannot_be_decoded_leaves_everything_as_it_was(market: Market):
    shutil.rmtree(market.warehouse / "bronze")  # as if a frame had decayed
    other = LandedHistory({"quotes": COLUMNS})
    other.connect()
    other.snapshot("quotes", SNAPSHOT)
    other.begin("quotes")
    other.inside("quotes", b"nonsense")
    other.end("quotes")
    market.built.land(other)
    before = market.built.rows("quotes")

    with pytest.raises(ApplyError, match="frame 8 cannot be decoded"):
        market.rebuild()

    assert (market.built.rows("quotes"), market.left_over()) == (before, [])


@pytest.mark.nightly
def test_a_history_begins_behind_other_columns_though_a_frame_before_them_cannot_be_decoded(
    spark: SparkSession, warehouse: Path
):
    market = Market(spark, warehouse, stored_as_scd_type=2)
    market.built.build()
    market.history.begin("quotes")
    market.history.inside("quotes", b"nonsense")  # 11
    market.history.end("quotes")
    market.history.columns = {"quotes": {"Sym": "String", "Price": "Double"}}
    market.history.connect()
    market.history.snapshot("quotes", {1: {"Sym": "AAPL", "Price": 1.5}})  # 16 to 19
    last = market.built.land(market.history)
    held = market.built.build()

    done = market.rebuild()

    assert list(held) == ["quotes"]
    assert (done.position, done.begins) == (last, 16)
    assert market.built.silver("quotes").columns == ["_row_key", "Sym", "Price"]
    assert (market.built.build(), market.verdict()) == ({}, (Verdict.EQUAL, last))


def test_a_log_is_not_rebuilt_from_a_part_of_its_frames(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
):
    market = Market(spark, warehouse, mode="updates_only")
    market.built.build()
    monkeypatch.setattr(silverfold.pipelines.upkeep.rebuild, "retained_from", lambda *_: 5)

    with pytest.raises(PositionGap, match="positions 0 to 4"):
        market.rebuild()
    log = warehouse / "silver" / FEED / "quotes" / "_delta_log"
    max(log.glob("*.json")).write_text("garbage")
    with pytest.raises(PositionGap):  # it has what nothing else has
        market.rebuild()
    assert market.logs_set_aside == []


def test_nothing_landed_is_nothing_to_build_from(spark: SparkSession, warehouse: Path):
    built = Built(spark, warehouse, {"quotes": table()})

    with pytest.raises(ApplyError, match="nothing to build it from has landed"):
        Rebuild(spark, built.settings, CONNECTOR, built.feed, "quotes", "a").run()


@pytest.mark.parametrize(
    ("before", "after"), [*(pytest.param(before, (), marks=NIGHTLY) for before in ((), (1,))), ((), (1,))]
)
def test_a_table_may_be_empty_before_and_after(
    spark: SparkSession, warehouse: Path, before: tuple[int, ...], after: tuple[int, ...]
):
    market = Market(spark, warehouse)
    market.history.update("quotes", removed=[key for key in (1, 2) if key not in after])
    last = market.built.land(market.history)
    market.built.build()
    if before != after:
        target = f"delta.`{market.built.places.silver(FEED, 'quotes').url}`"
        change = f"INSERT INTO {target} VALUES (1, 'spoilt', 0, {last})" if before else f"DELETE FROM {target}"
        own_session(spark).sql(change).collect()

    done = market.rebuild()

    assert (done.position, done.delta_version, market.verdict()) == (
        last,
        version_of(market.built.places.silver(FEED, "quotes")),
        (Verdict.EQUAL, last),
    )
    assert sorted(market.built.rows("quotes")) == list(after)
