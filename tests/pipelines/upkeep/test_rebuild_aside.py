"""Rows kept aside by a table that is rebuilt with another rule: none is lost, none doubled, wherever it dies.

Rows are named by the rules they meet (``b``): 10 the old one, 200 the new one, 60 both, 300 neither. There are four of
each: one is left alone, one updated, one deleted, one written anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import silverfold.pipelines.upkeep.rebuild
from silverfold.conf.errors import SilverfoldError, StoreUnavailable
from silverfold.conf.load import load_settings
from silverfold.connectors.base import Feed
from silverfold.pipelines.reading.views import register_views
from silverfold.pipelines.storage.remove_tree import remove_tree
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.commits import Commits, Interrupted, counting
from tests.support.deaths import Died, dying
from tests.support.stub_connector import FEED, STREAM, StubConnector, StubOptions, StubTable
from tests.support.stub_warehouse import StubWarehouse, change
from tests.support.versioned_table import rows_of

OLD = {"expect": {"old": {"condition": "b < 100", "action": "quarantine"}}}
HISTORY = {"stored_as_scd_type": 2}
NEW = {"expect": {"new": {"condition": "b BETWEEN 50 AND 250", "action": "quarantine"}}}
ROWS = {k: ("x", b) for k, b in enumerate(b for b in (10, 200, 60, 300) for _ in range(4))}


class Warehouse(StubWarehouse):
    """A table that has taken a snapshot by the old rule."""

    def __init__(self, spark: SparkSession, warehouse: Path, **settings: Any) -> None:
        super().__init__(spark, warehouse, StubConnector())
        self.history.begin_snapshot()
        self.history.snapshot_rows([change("snapshot", k, a=a, b=b) for k, (a, b) in ROWS.items()])
        self.history.end_snapshot()
        assert self.build(**(settings or OLD)) == {}

    def feed(self, settings: Mapping[str, Any]) -> Feed:
        return Feed(FEED, FEED, "unused", StubOptions(), {STREAM: StubTable(source="T", **settings)})

    def rebuilding(self, settings: Mapping[str, Any], token: str = "a") -> Rebuild:
        local = load_settings(None, "local", {}).model_copy(update={"warehouse": self.places.warehouse})
        return Rebuild(self.spark, local, self.connector, self.feed(settings), STREAM, token)

    def rebuild(self, settings: Mapping[str, Any], token: str = "a") -> None:
        self.rebuilding(settings, token).run()

    def versions(self) -> list[tuple[Any, ...]]:
        """Return what its history has."""
        place = self.places.history(FEED, STREAM)
        return rows_of(place, ("k", "a", "b", "__START_AT", "__END_AT")) if open_table(place) else []

    def both(self) -> tuple[dict[int, tuple[str, int]], dict[int, tuple[str, int]]]:
        """Return the rows of the table, and those aside."""
        session = self.spark.newSession()
        register_views(session, self.places, {FEED: [STREAM, f"{STREAM}__aside"]})
        found = []
        for name in (STREAM, f"{STREAM}__aside"):
            rows = session.sql(f"SELECT k, a, b FROM {name}").collect()
            found.append({row.k: (row.a, row.b) for row in rows})
            assert len(found[-1]) == len(rows), "a key is there once"
        inside, outside = found
        return inside, outside

    def verdict(self, settings: Mapping[str, Any]) -> Verdict:
        return verify_table(self.places, self.connector, self.feed(settings), STREAM).verdict


def split(rows: Mapping[int, tuple[str, int]], low: int, high: int) -> list[dict[int, tuple[str, int]]]:
    """Return the rows that meet a rule, and the others."""
    return [{k: row for k, row in rows.items() if (low <= row[1] <= high) is meets} for meets in (True, False)]


def test_a_rebuild_whose_rows_aside_somebody_removes_changes_nothing(spark: SparkSession, warehouse: Path):
    stub = Warehouse(spark, warehouse)
    before = stub.both()
    note = Rebuild._note

    def taking_away(self: Rebuild, *given: Any) -> Any:
        remove_tree(self._side.side_table(FEED, STREAM))
        return note(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rebuild, "_note", taking_away)
        with pytest.raises(StoreUnavailable, match="somebody has removed it"):
            stub.rebuild(OLD)

    assert before[1]
    assert stub.both() == before


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [OLD, HISTORY], ids=["aside", "history"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("what", ["another one", "a loss of its files"])
def test_whatever_happens_at_any_commit_of_a_rebuild_leaves_the_table_right(
    spark: SparkSession, warehouse: Path, settings: Mapping[str, Any], after: bool, what: str
):
    stub = Warehouse(spark, warehouse, **settings)
    stub.history.update([change("update", 0, b=11), change("update", 3, a="w")])
    assert stub.build(**settings) == {}
    before = stub.both(), stub.versions()
    at, commits = 0, Commits(-1, after=True)

    while at <= commits.made:
        first = stub.rebuilding(settings, f"first {at}")
        other = partial(stub.rebuild, settings, f"other {at}") if what == "another one" else first._discard
        may_fail = nullcontext() if what == "another one" else suppress(SilverfoldError)
        with counting(Interrupted(at, other, after=after)) as commits, may_fail:
            first.run()
        assert (stub.both(), stub.versions(), stub.verdict(settings)) == (*before, Verdict.EQUAL)
        at += 1

    assert at > 5, "a rebuild has at least three commits of what it builds, and as many that swap"


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["replace_companion", "swap_in"])
def test_rows_aside_outlive_the_death_of_a_rebuild_by_another_rule(spark: SparkSession, warehouse: Path, step: str):
    stub = Warehouse(spark, warehouse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            silverfold.pipelines.upkeep.rebuild, step, dying(getattr(silverfold.pipelines.upkeep.rebuild, step), True)
        )
        with pytest.raises(Died):
            stub.rebuild(NEW, token=step)
    swapped = step == "swap_in"
    left, verdict = stub.both(), stub.verdict(NEW)
    stub.history.update(
        [op for k in range(0, 16, 4) for op in (change("update", k + 1, a="y"), change("delete", k + 2))]
    )
    stub.history.update([change("insert", k + 3, a="z", b=ROWS[k][1]) for k in range(0, 16, 4)])
    assert stub.build(**NEW) == {}
    changed = {k: ({1: "y", 3: "z"}.get(k % 4, "x"), b) for k, (_, b) in ROWS.items() if k % 4 != 2}
    then = stub.both()
    after = stub.verdict(NEW)
    stub.history.update([change("delete", k) for k in range(0, 16, 4)])
    assert stub.build(**NEW) == {}
    ended = stub.both()
    stub.rebuild(NEW)

    assert (left, verdict) == (tuple(split(ROWS, 50, 250) if swapped else split(ROWS, 0, 99)), Verdict.EQUAL)
    inside, outside = split(changed, 50, 250)
    untouched = {} if swapped else {0: changed[0]}  # met the old rule; nobody has looked at it since
    assert then == ({**inside, **untouched}, {k: row for k, row in outside.items() if k not in untouched})
    assert after is Verdict.EQUAL
    rest = split({k: row for k, row in changed.items() if k % 4}, 50, 250)
    assert (ended, stub.both(), stub.verdict(NEW)) == (tuple(rest), tuple(rest), Verdict.EQUAL)
