"""A table with history that holds until a snapshot passes what it could not take: what its history lacks is known."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import ExpectationFailed
from silverfold.conf.load import load_settings
from silverfold.connectors.base import Feed
from silverfold.pipelines.applying import apply_cut
from silverfold.pipelines.holding.quarantine import Quarantine
from silverfold.pipelines.holding.quarantine_log import quarantined, skip
from silverfold.pipelines.reading.time_travel import as_of_position
from silverfold.pipelines.upkeep.rebuild import Rebuild, Rebuilt
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from silverfold.transforms.sql import path_table
from tests.support.change_model import Change
from tests.support.deaths import Died
from tests.support.stub_connector import FEED, STREAM, StubConnector, StubOptions, StubTable
from tests.support.stub_warehouse import StubWarehouse, change
from tests.support.versioned_table import rows_of

HISTORY: Mapping[str, Any] = {"stored_as_scd_type": 2}
FAILS: Mapping[str, Any] = {**HISTORY, "expect": {"small": {"condition": "b < 100", "action": "fail"}}}
JUDGES: Mapping[str, Any] = {**HISTORY, "on_unexplained": "error"}
BAD = {
    "a row that fails a rule": (FAILS, change("update", 1, b=500)),
    "an update of nothing": (JUDGES, change("update", 9, b=5)),
}
COLUMNS = ("k", "b", "__START_AT", "__END_AT")


class Tried(StubWarehouse):
    """A told table with history, and what is known of it."""

    def tell(self, bad: Change) -> None:
        """Tell what the table cannot take, and what comes after it; then a new connection's snapshot."""
        self.snapshot(b=1)
        self.history.update([change("update", 1, b=2)])
        self.history.update([bad])
        self.history.update([change("update", 2, b=3)])

    def snapshot(self, *, b: int) -> None:
        self.history.begin_snapshot()
        self.history.snapshot_rows([change("snapshot", 1, a="x", b=b), change("snapshot", 2, a="y", b=0)])
        self.history.end_snapshot()

    def again(self) -> None:
        self.history.connect()
        self.snapshot(b=7)
        self.history.update([change("update", 2, b=8)])

    def dies_behind_its_history(self, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, Any]) -> None:
        """Build, and die when the history is written and the table is not."""
        with monkeypatch.context() as patch:
            patch.setattr(apply_cut, "table_write", dies)
            with pytest.raises(Died):
                self.build(**settings)

    def feed(self, settings: Mapping[str, Any]) -> Feed:
        return Feed(FEED, FEED, "unused", StubOptions(), {STREAM: StubTable(source="T", **settings)})

    def rebuild(self, settings: Mapping[str, Any]) -> Rebuilt:
        conf = load_settings(None, "local", {}).model_copy(update={"warehouse": self.places.warehouse})
        return Rebuild(self.spark, conf, self.connector, self.feed(settings), STREAM, "a").run()

    def verdicts(self) -> set[Verdict]:
        given = (self.places, self.connector, self.feed(HISTORY), STREAM)
        return {verify_table(*given).verdict, verify_history(*given).verdict}

    def resolutions(self) -> list[str | None]:
        return [each.resolution for each in quarantined(self.places, FEED, STREAM)]

    def versions(self) -> list[tuple[Any, ...]]:
        return rows_of(self.places.history(FEED, STREAM), COLUMNS)


@pytest.fixture
def tried(spark: SparkSession, warehouse: Path) -> Tried:
    return Tried(spark, warehouse, StubConnector())


@pytest.mark.parametrize(
    "kind", ["a row that fails a rule", pytest.param("an update of nothing", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("at_once", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["in parts", "at once"])
@pytest.mark.nightly
def test_the_history_lacks_what_was_passed_over_and_verify_and_rebuild_know(
    tried: Tried, kind: str, at_once: bool
) -> None:
    settings, bad = BAD[kind]
    tried.tell(bad)
    if not at_once:
        assert tried.build(**settings).keys() == {STREAM}
    tried.again()

    assert tried.build(**settings) == {}
    before = tried.versions()
    known = (tried.resolutions(), tried.verdicts())
    tried.rebuild(settings)

    assert known == (["passed over"], {Verdict.EQUAL})
    assert (tried.resolutions(), tried.verdicts(), tried.versions()) == (*known, before)


@pytest.mark.nightly
def test_a_rebuild_brings_back_what_nothing_holds_any_more(tried: Tried) -> None:
    tried.tell(change("update", 1, b=500))
    tried.again()
    assert tried.build(**FAILS) == {}

    assert [tried.rebuild(settings).begins for settings in (FAILS, HISTORY)] == [None, None]

    assert (tried.resolutions(), tried.verdicts()) == (["passed"], {Verdict.EQUAL})
    assert [b for k, b, *_ in tried.versions() if k == 1] == [1, 2, 500, 7]


@pytest.mark.nightly
def test_a_process_that_dies_before_it_notes_it_leaves_the_note_to_the_next(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.tell(change("update", 1, b=500))
    assert tried.build(**FAILS).keys() == {STREAM}
    tried.again()
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "record_cut", dies)
        with pytest.raises(Died):
            tried.build(**FAILS)

    assert tried.build(**FAILS) == {}
    assert (tried.resolutions(), tried.verdicts()) == (["passed over"], {Verdict.EQUAL})


@pytest.mark.nightly
def test_what_a_dead_build_wrote_into_the_history_is_no_more_than_what_the_table_comes_to(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.tell(change("update", 1, b=500))
    assert tried.build(**FAILS).keys() == {STREAM}
    tried.again()
    tried.dies_behind_its_history(monkeypatch, FAILS)  # it has passed over what failed

    assert tried.build(**HISTORY) == {}

    assert (tried.resolutions(), tried.verdicts()) == (["passed"], {Verdict.EQUAL})
    assert [b for k, b, *_ in tried.versions() if k == 1] == [1, 2, 500, 7]


@pytest.mark.nightly
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_table_that_may_not_stand_where_its_history_does_goes_on_with_what_mends_it(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, rebuilt: bool
) -> None:
    tried.snapshot(b=1)
    assert tried.build(**HISTORY) == {}
    tried.history.update([change("update", 1, b=500)])
    tried.dies_behind_its_history(monkeypatch, HISTORY)
    assert tried.build(**FAILS).keys() == {STREAM}
    assert [b for k, b, *_ in tried.versions() if k == 1] == [1], "a version that the table never had is taken back"
    if rebuilt:
        tried.rebuild(FAILS)
        assert tried.rows() == {1: ("x", 1), 2: ("y", 0)}
    tried.history.update([change("update", 1, b=3)])

    assert tried.build(**FAILS) == {}

    assert (tried.rows(), tried.verdicts()) == ({1: ("x", 3), 2: ("y", 0)}, {Verdict.EQUAL})
    assert {b: until for k, b, _, until in tried.versions() if k == 1} == {1: 4, 500: 5, 3: None}


@pytest.mark.nightly
def test_a_table_without_rows_is_rebuilt_again_though_its_history_was_ahead(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that is taken back to nothing records a position above its table's."""
    tried.history.begin_snapshot()
    tried.history.end_snapshot()
    assert tried.build(**HISTORY) == {}
    tried.history.update([change("insert", 1, a="x", b=500)])
    tried.dies_behind_its_history(monkeypatch, HISTORY)
    assert tried.build(**FAILS).keys() == {STREAM}

    for _ in range(2):
        tried.rebuild(FAILS)

    assert (tried.rows(), tried.versions()) == ({}, [])
    tried.history.update([change("update", 1, b=3)])
    assert tried.build(**FAILS) == {}
    assert (tried.rows(), tried.verdicts()) == ({1: ("x", 3)}, {Verdict.EQUAL})


@pytest.mark.nightly
def test_what_a_history_is_ahead_by_may_have_been_read_otherwise_and_is_told_anew(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.snapshot(b=1)
    assert tried.build(**HISTORY) == {}
    tried.history.update([change("update", 1, b=2), change("insert", 3, a="z", b=0)])
    tried.dies_behind_its_history(monkeypatch, HISTORY)
    ahead = path_table(tried.places.history(FEED, STREAM).url)
    tried.spark.sql(f"UPDATE {ahead} SET b = 99, k = k + 10 WHERE __START_AT > 4").collect()

    assert tried.build(**HISTORY) == {}

    assert [(k, b) for k, b, *_ in tried.versions()] == [(1, 1), (1, 2), (2, 0), (3, 0)]
    assert tried.verdicts() == {Verdict.EQUAL}


@pytest.mark.nightly
def test_a_history_that_a_table_went_on_without_is_not_gone_on_with(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.snapshot(b=1)
    assert tried.build(**HISTORY) == {}
    position = tried.history.position
    tried.history.update([change("update", 1, b=2)])
    tried.dies_behind_its_history(monkeypatch, HISTORY)
    assert tried.build() == {}
    tried.history.update([change("update", 1, b=3)])

    (held,) = tried.build(**HISTORY).values()

    assert "its newest cut was applied without a history" in str(held)
    assert tried.build() == {}
    then = as_of_position(tried.places, tried.connector, tried.feed(HISTORY), tried.history.position)
    assert (then.versions.keys(), then.missing.keys()) == ({STREAM}, {f"{STREAM}__history"})
    assert as_of_position(tried.places, tried.connector, tried.feed(HISTORY), position).until == {
        f"{STREAM}__history": position
    }


@pytest.mark.nightly
def test_a_table_that_never_came_to_be_is_rebuilt_whatever_its_history_recorded(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.snapshot(b=500)
    tried.dies_behind_its_history(monkeypatch, HISTORY)
    assert tried.build(**FAILS).keys() == {STREAM}

    tried.rebuild(HISTORY)

    assert (tried.rows(), tried.verdicts()) == ({1: ("x", 500), 2: ("y", 0)}, {Verdict.EQUAL})


@pytest.mark.parametrize("settings", [FAILS, {"expect": FAILS["expect"]}], ids=["history", "state"])
def test_two_snapshots_that_cannot_be_taken_nor_shortened_hold_the_table(
    tried: Tried, settings: Mapping[str, Any]
) -> None:
    """What overlays a snapshot inside it is one with it: a shorter cut would be the other snapshot's."""
    for _ in range(2):
        tried.history.begin_snapshot()
        tried.history.snapshot_rows([change("snapshot", 1, a="x", b=500)])
        tried.history.update([change("update", 1, b=501)])
        tried.history.end_snapshot()
        tried.history.connect()
    build = tried.started(**settings)

    steps = [build.step(STREAM) for _ in range(8)]

    assert not steps[-1].unfinished
    assert isinstance(steps[-1].error, ExpectationFailed)


def test_a_skip_outlives_whatever_else_holds_the_table_there(tried: Tried) -> None:
    tried.snapshot(b=1)
    bad = tried.history.raw(b"no JSON")
    tried.history.update([change("update", 1, b=3)])
    assert tried.build(**HISTORY)[STREAM].error_class == "UNDECODABLE_FRAME"
    (hold,) = quarantined(tried.places, FEED, STREAM)
    skip(tried.places, FEED, STREAM, hold, now=datetime.now(UTC))
    unusable = {"unusable": {"condition": "c > 0", "action": "warn"}}
    assert tried.build(**HISTORY, expect=unusable)[STREAM].error_class == "UNUSABLE_EXPECTATION"

    assert tried.build(**HISTORY) == {}

    assert (tried.rows()[1], tried.verdicts()) == (("x", 3), {Verdict.EQUAL})
    known = {each.position: each.resolution for each in quarantined(tried.places, FEED, STREAM)}
    assert known == {bad: "skipped", bad + 1: "passed"}


def dies(*_: object, **__: object) -> None:
    raise Died
