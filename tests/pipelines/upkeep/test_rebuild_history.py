"""Histories and tombstones made anew with their table: what stands afterwards, and what a death between leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import silverfold.pipelines.applying.write
import silverfold.pipelines.upkeep.rebuild
from silverfold.conf.errors import ApplyError
from silverfold.pipelines.holding.quarantine import read_quarantine
from silverfold.pipelines.holding.quarantine_log import HoldState, skip
from silverfold.pipelines.storage.remove_tree import remove_tree
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.compared_rows import read_side_table
from silverfold.pipelines.verifying.verify import Verdict
from silverfold.transforms.merge import merge
from tests.support.change_model import Change
from tests.support.deaths import Died, dying
from tests.support.stub_connector import FEED, STREAM, StubConnector, gone, partial_update, put
from tests.support.versioned_table import VersionedTable, rows_of

VERSION = ("k", "a", "__START_AT", "__END_AT")
EQUAL = (Verdict.EQUAL, Verdict.EQUAL)


def rebuild_dying_after(versioned: VersionedTable, writes: int) -> None:
    """Rebuild by a process that dies once it has written so many of history, tombstones, side table and table."""
    left = iter(range(writes - 1, -1, -1))

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            done = write(*args, **kwargs)
            if next(left) == 0:
                raise Died
            return done

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace_companion", "swap_in"):
            patch.setattr(
                silverfold.pipelines.upkeep.rebuild, name, counted(getattr(silverfold.pipelines.upkeep.rebuild, name))
            )
        patch.setattr(Rebuild, "_clean_up", lambda self: None)
        with pytest.raises(Died):
            versioned.rebuild(token=f"dies after {writes}")


@pytest.mark.nightly
def test_a_history_made_anew_is_what_it_was_and_a_death_leaves_the_old_one(spark: SparkSession, warehouse: Path):
    versioned = VersionedTable(spark, warehouse, StubConnector())
    source = versioned.source
    source.connect()  # 0
    source.begin_snapshot()
    source.snapshot_rows([put(1, "x", op="snapshot"), put(2, "y", op="snapshot")])
    source.end_snapshot()
    versioned.build()
    source.update([partial_update(1, "z")])  # 4
    source.update([Change(0, "update", (0, 3), {"k": 3}, (0, 2))])
    source.connect()  # 6: nobody builds in between, and all of it counts
    source.begin_snapshot()
    source.snapshot_rows([put(1, "z", op="snapshot"), put(4, "w", op="snapshot")])
    source.end_snapshot()  # 9
    versioned.build()
    versions = rows_of(versioned.history, VERSION)
    versioned.sql(versioned.history, "UPDATE {t} SET a = 'spoilt' WHERE k = 2")
    versioned.sql(versioned.table, "UPDATE {t} SET a = 'spoilt' WHERE k = 1")
    spoilt = versioned.verdicts()

    rebuild_dying_after(versioned, 1)

    assert versions == [(1, "x", 2, 4), (1, "z", 4, None), (2, "y", 2, 5), (3, "y", 5, 9), (4, "w", 8, None)]
    assert (spoilt, versioned.verdicts()) == ((Verdict.DIFFERENT,) * 2, (Verdict.DIFFERENT,) * 2)
    assert (rows_of(versioned.history, VERSION), versioned.reached()) == (versions, [9, 9])
    source.update([partial_update(4, "v"), gone(1)])  # 10
    versioned.build()
    assert versioned.verdicts() == (Verdict.EQUAL, Verdict.DIFFERENT)  # the spoilt row of the table is gone
    assert (2, "spoilt", 2, 5) in rows_of(versioned.history, VERSION)
    done = versioned.rebuild()
    assert (done.position, done.updates, versioned.verdicts(), versioned.reached()) == (10, 5, EQUAL, [10, 10])
    source.update([partial_update(3, "nobody"), put(1, "again")])  # 11
    versioned.build()
    assert (versioned.verdicts(), versioned.reached()) == (EQUAL, [11, 11])
    assert rows_of(versioned.history, VERSION) == [
        (1, "again", 11, None),
        (1, "x", 2, 4),
        (1, "z", 4, 10),
        (2, "y", 2, 5),
        (3, "y", 5, 9),
        (4, "v", 10, None),
        (4, "w", 8, 10),
    ]


@pytest.mark.nightly
def test_what_moves_while_a_snapshot_is_read_begins_where_it_was_spoken_of_last(spark: SparkSession, warehouse: Path):
    versioned = VersionedTable(spark, warehouse, StubConnector())
    source = versioned.source
    for moved, by in ((2, 20), (20, 21)):  # the first snapshot, and one that versions stand before
        source.connect()
        source.begin_snapshot()
        source.update([Change(0, "update", (0, by), {"k": by}, (0, moved)), put(by, "b")])  # as a hook tells it, whole
        source.update([Change(0, "update", (0, 9), {"k": 9}, (0, 8)), Change(0, "update", (0, 10), {"k": 10}, (0, 9))])
        source.snapshot_rows([put(1, "a", op="snapshot"), put(by, "b", op="snapshot"), put(8, "c", op="snapshot")])
        source.end_snapshot()
        versioned.build()

        assert (versioned.verdicts(), len(rows_of(versioned.table, ("k",)))) == (EQUAL, 3)


@pytest.mark.nightly
def test_a_history_that_is_lost_or_ahead_of_its_table_is_made_anew(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
):
    versioned = VersionedTable(spark, warehouse, StubConnector())
    versioned.source.connect()
    versioned.source.begin_snapshot()
    versioned.source.snapshot_rows([put(1, "x", op="snapshot"), put(2, "y", op="snapshot")])
    versioned.source.end_snapshot()  # 3
    versioned.build()
    swap = [Change(0, "update", (0, 2), {"k": 2}, (0, 1)), Change(0, "update", (0, 1), {"k": 1}, (0, 2))]
    versioned.source.update(swap)  # 4
    with monkeypatch.context() as patch:
        patch.setattr(silverfold.pipelines.applying.write, "merge", dying(merge, False))
        with pytest.raises(Died):
            versioned.build()
    before = versioned.reached()
    versioned.source.update([partial_update(1, "z")])  # 5: landed, and not built
    versioned.source.land()

    ahead = versioned.rebuild()

    assert (before, ahead.position, versioned.verdicts()) == ([3, 4], 3, EQUAL)
    versioned.build()
    versions = [(1, "x", 2, 4), (1, "y", 4, 5), (1, "z", 5, None), (2, "x", 4, None), (2, "y", 2, 4)]
    assert (rows_of(versioned.history, VERSION), versioned.verdicts()) == (versions, EQUAL)
    remove_tree(versioned.history)
    assert versioned.verdicts() == (Verdict.EQUAL, Verdict.DIFFERENT)
    assert versioned.rebuild().position == 5
    assert (rows_of(versioned.history, VERSION), versioned.verdicts()) == (versions, EQUAL)
    monkeypatch.setattr(silverfold.pipelines.upkeep.rebuild, "retained_from", lambda *_: 4)
    with pytest.raises(
        ApplyError, match=r"the history before it cannot be made anew.*, remove .*/silver/told/t__history"
    ):
        versioned.rebuild()


@pytest.mark.nightly
def test_tombstones_made_anew_or_maintained_keep_late_changes_out_whatever_death_leaves(
    spark: SparkSession, warehouse: Path
):
    versioned = VersionedTable(spark, warehouse, StubConnector(snapshots=False, source_ordered=True))
    versioned.source.connect()
    versioned.source.update([put(1, "x"), put(2, "y"), put(3, "z"), gone(1)], sequences=["b", "b", "b", "d"])
    versioned.build()
    versioned.source.update([gone(2), put(1, "late")], sequences=["e", "c"])
    versioned.build()
    sane = (versioned.verdicts(), rows_of(versioned.tombstones, ("k", "_position")))
    versioned.sql(versioned.tombstones, "DELETE FROM {t} WHERE k = 1")
    versioned.sql(versioned.table, "UPDATE {t} SET a = 'spoilt'")
    versioned.sql(versioned.history, "UPDATE {t} SET a = 'spoilt' WHERE k = 2")

    rebuild_dying_after(versioned, 2)
    between = (versioned.verdicts(), rows_of(versioned.tombstones, ("k", "_position")))
    versioned.source.update([put(1, "later still"), put(2, "y")], sequences=["a", "b"])  # 3
    versioned.build()
    then = versioned.verdicts()
    versioned.rebuild()
    done = [each for each in versioned.maintain() if each.table.endswith(("t__history", "tombstones/t"))]

    stones = [(1, "d"), (2, "e")]
    assert sane == (EQUAL, stones)
    assert between == ((Verdict.DIFFERENT, Verdict.DIFFERENT), stones)
    assert then == (Verdict.DIFFERENT, Verdict.EQUAL)  # the spoilt version was sent again
    assert ([each.failed for each in done], versioned.verdicts(), versioned.reached()) == (
        [False] * 4,
        EQUAL,
        [3, 3, 3],
    )
    assert rows_of(versioned.tombstones, ("k", "_position")) == stones
    assert rows_of(versioned.table, ("k", "a", "_position")) == [(3, "z", "b")]
    assert rows_of(versioned.history, VERSION) == [
        (1, "late", "c", "d"),
        (1, "later still", "a", "b"),
        (1, "x", "b", "c"),
        (2, "y", "b", "e"),
        (3, "z", "b", None),
    ]


@pytest.mark.nightly
def test_a_skipped_frame_stays_out_of_the_history_whatever_snapshot_and_rebuild_come_later(
    spark: SparkSession, warehouse: Path
):
    versioned = VersionedTable(spark, warehouse, StubConnector())
    source = versioned.source
    source.connect()  # 0
    source.begin_snapshot()
    source.snapshot_rows([put(1, "x", op="snapshot"), put(9, "y", op="snapshot")])
    source.end_snapshot()  # 3
    source.update([partial_update(1, "z")])  # 4
    source.raw(b"nonsense")  # 5
    source.update([partial_update(1, "w")])  # 6
    versioned.build(holds=True)
    (held,) = read_quarantine(versioned.places, FEED, [STREAM])
    skip(versioned.places, FEED, STREAM, held.hold, now=held.hold.found_at)
    versioned.build()
    skipped = versioned.verdicts()
    source.begin_snapshot()
    source.snapshot_rows([put(1, "w", op="snapshot"), put(9, "v", op="snapshot")])
    source.end_snapshot()  # 9
    versioned.build()
    versions = [(1, "w", 6, None), (1, "x", 2, 4), (1, "z", 4, 6), (9, "v", 8, None), (9, "y", 2, 8)]

    passed = (versioned.verdicts(), rows_of(versioned.history, VERSION), versioned.quarantined())
    versioned.rebuild()

    assert skipped == EQUAL
    assert passed == (EQUAL, versions, [("left out", HoldState.RESOLVED)])
    assert (versioned.verdicts(), rows_of(versioned.history, VERSION), versioned.quarantined()) == passed
    for place in (versioned.table, versioned.history):
        remove_tree(place)
    versioned.rebuild()
    assert (versioned.verdicts(), rows_of(versioned.history, VERSION), versioned.quarantined()) == passed


@pytest.mark.nightly
def test_tombstones_that_hold_nothing_can_be_made_anew(spark: SparkSession, warehouse: Path):
    versioned = VersionedTable(spark, warehouse, StubConnector(snapshots=False, source_ordered=True))
    versioned.source.connect()
    versioned.source.update([put(1, "x")], sequences=["b"])
    versioned.build()

    done = versioned.rebuild()

    assert (done.position, versioned.verdicts(), versioned.reached()) == (1, EQUAL, [1, 1, 1])


@pytest.mark.nightly
def test_updates_that_wait_for_their_row_outlive_a_rebuild_that_dies_between_any_two_writes(
    spark: SparkSession, warehouse: Path
):
    versioned = VersionedTable(spark, warehouse, StubConnector(continuity="resume", source_ordered=True), scd_type=1)
    source = versioned.source
    source.connect()
    source.begin_snapshot()
    source.snapshot_rows([put(1, "x", op="snapshot")], sequences=["01"])
    source.end_snapshot()
    pending = [partial_update(k, "late") for k in range(2, 6)]
    source.update([*pending, put(9, "y"), gone(9)], sequences=[*["05"] * 4, "06", "07"])
    versioned.build()

    verdicts = []
    for writes in range(1, 4):
        rebuild_dying_after(versioned, writes)
        verdicts.append(versioned.verdicts()[0])
        source.update([put(1 + writes, "early"), put(9, "too late")], sequences=["03", "06"])
        versioned.build()
        verdicts.append(versioned.verdicts()[0])
    versioned.rebuild()

    assert [*verdicts, versioned.verdicts()[0]] == [Verdict.EQUAL] * 7
    assert rows_of(versioned.table, ("k", "a")) == [(1, "x"), (2, "late"), (3, "late"), (4, "late")]
    side_rows = read_side_table(versioned.places, FEED, STREAM)
    assert side_rows is not None
    assert side_rows["k"].to_pylist() == [5]
