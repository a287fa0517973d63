"""What becomes of a table that met a frame it cannot decode: tried again after a fix, skipped, or left to a snapshot.

Every test begins with one table: a snapshot, a good update, an update with a bad frame between two good ones, and a
good update. Positions: 0 to 2 the connection, 3 to 6 the snapshot, 7 to 9, 10 to 14 with the bad frame at 12, 15 to 17.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import ApplyError
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.frames import Kind
from silverfold.pipelines.applying import build, write
from silverfold.pipelines.applying.apply_cut import apply_cut
from silverfold.pipelines.holding.quarantine_log import quarantined, skip, undo_skip
from silverfold.pipelines.reading.status import TableState, TableStatus, read_status
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.upkeep.rebuild import Rebuild
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.deephaven.vectors import VECTORS
from tests.support.misreading import misreading

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
COLUMNS = {"Sym": "String", "Qty": "Long"}
SNAPSHOT = {1: {"Sym": "AAPL", "Qty": 10}, 2: {"Sym": "IBM", "Qty": 20}}
BAD = 12
HELD = {1: ("AAPL", 11), 2: ("IBM", 20)}
WITHOUT_THE_FRAME = {1: ("AAPL", 12), 2: ("SUN", 22)}


def story(spark: SparkSession, warehouse: Path, body: bytes, **settings: Any) -> tuple[Built, LandedHistory]:
    built, history = Built(spark, warehouse, {"t": table(**settings)}), LandedHistory({"t": COLUMNS})
    history.connect()
    history.snapshot("t", SNAPSHOT)
    history.update("t", modified={1: {"Qty": 11}})
    history.begin("t")
    history.rows("t", {1: {"Qty": 12}}, modified=True)
    history.inside("t", body)
    history.rows("t", {2: {"Sym": "SUN"}}, modified=True)
    history.end("t")
    history.update("t", modified={2: {"Qty": 22}})
    assert built.land(history) == 17
    return built, history


@pytest.fixture
def held(spark: SparkSession, warehouse: Path) -> tuple[Built, LandedHistory]:
    """The story with a frame that no decoder reads, built until it holds."""
    built, history = story(spark, warehouse, VECTORS["unknown-template"].body)
    assert built.build()["t"].error_class == "UNDECODABLE_FRAME"
    assert (shown(built), [hold.position for hold in built.holds("t")]) == (HELD, [BAD])
    return built, history


def shown(built: Built) -> dict[int, tuple[Any, ...]]:
    return {key: (row["Sym"], row["Qty"]) for key, row in built.rows("t").items()}


def status(built: Built) -> TableStatus:
    (found,) = read_status(built.places, CONNECTOR, built.feed, now=NOW).tables
    return found


def skip_bad(built: Built) -> None:
    (hold,) = built.holds("t")
    skip(built.places, FEED, "t", hold, now=NOW)


def test_a_table_that_goes_on_without_a_frame_is_degraded_until_a_snapshot_passes_it(
    held: tuple[Built, LandedHistory],
):
    built, history = held
    skip_bad(built)

    errors = built.build()

    assert (errors, shown(built)) == ({}, WITHOUT_THE_FRAME), "all else of its update was applied"
    found = status(built)
    assert (found.state, found.degraded, found.skipped_positions) == (TableState.SYNCED, True, (BAD,))
    assert last_cuts(built.places, FEED)["t"].notes == {"skipped_frames": 1}

    Rebuild(built.spark, built.settings, CONNECTOR, built.feed, "t", "a").run()
    assert (shown(built), status(built)) == (
        WITHOUT_THE_FRAME,
        found.model_copy(update={"last_cut": status(built).last_cut}),
    )

    history.close()
    history.connect()
    history.snapshot("t", SNAPSHOT)
    assert built.land_and_build(history) == {}

    found = status(built)
    assert (found.degraded, found.skipped_positions) == (False, ())
    assert [each.resolution for each in quarantined(built.places, FEED, "t")] == ["passed"]


def test_a_build_that_follows_notices_a_skip(spark: SparkSession, warehouse: Path):
    built, _ = story(spark, warehouse, VECTORS["unknown-template"].body)
    follows = built.start()
    before = built.build(follows)
    skip_bad(built)
    follows.refresh()

    after = built.build(follows)

    assert (list(before), after, shown(built)) == (["t"], {}, WITHOUT_THE_FRAME)


def test_a_snapshot_that_lacks_a_skipped_frame_itself_leaves_the_table_degraded(spark: SparkSession, warehouse: Path):
    built, history = Built(spark, warehouse, {"t": table(on_bad_frame="skip")}), LandedHistory({"t": COLUMNS})
    history.connect()
    history.begin("t", Kind.SNAPSHOT)
    history.rows("t", SNAPSHOT, modified=False, kind=Kind.SNAPSHOT)
    history.inside("t", VECTORS["bad-range-count"].body, Kind.SNAPSHOT)
    history.end("t", Kind.SNAPSHOT)
    last = built.land(history)

    assert built.build() == {}

    assert shown(built) == {1: ("AAPL", 10), 2: ("IBM", 20)}
    assert status(built).skipped_positions == (last - 1,)


def test_a_table_may_be_set_to_skip_bad_frames_by_itself(spark: SparkSession, warehouse: Path):
    built, history = story(spark, warehouse, VECTORS["unknown-template"].body, on_bad_frame="skip")
    history.begin("t")
    history.inside("t", VECTORS["bad-range-count"].body)
    history.rows("t", {1: {"Qty": 13}}, modified=True)
    history.end("t")
    built.land(history)

    errors = built.build()

    assert (errors, built.holds("t"), shown(built)) == ({}, [], {1: ("AAPL", 13), 2: ("SUN", 22)})
    assert status(built).skipped_positions == (BAD, 19)


def test_many_bad_frames_of_a_cut_are_skipped_by_a_look_at_each_and_not_by_as_many_attempts(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
):
    built, history = story(spark, warehouse, VECTORS["unknown-template"].body, on_bad_frame="skip")
    for _ in range(10):
        history.begin("t")
        history.inside("t", VECTORS["bad-range-count"].body)
        history.end("t")
    last = built.land(history)
    attempts = list[int]()
    monkeypatch.setattr(build, "apply_cut", lambda job: attempts.append(job.cut.last) or apply_cut(job))

    assert built.build() == {}

    assert shown(built) == WITHOUT_THE_FRAME
    assert status(built).skipped_positions == (BAD, *range(19, last, 3))
    assert last_cuts(built.places, FEED)["t"].notes == {"skipped_frames": 11}
    assert len(attempts) <= 3


@pytest.mark.parametrize("beside", [False, True], ids=["before a build", "beside one"])
def test_a_skip_undone_before_the_table_went_on_holds_it_again(held: tuple[Built, LandedHistory], beside: bool):
    built, _ = held
    skip_bad(built)
    running = built.start() if beside else None
    (skipped,) = quarantined(built.places, FEED, "t")
    undo_skip(built.places, FEED, "t", skipped, now=NOW)

    errors = built.build(running)

    assert (list(errors), shown(built)) == (["t"], HELD)
    found = status(built)
    assert (found.state, found.degraded) == (TableState.HELD, False)
    assert found.fault is not None
    assert found.fault.since == skipped.found_at


def test_after_a_fix_elsewhere_a_build_that_holds_goes_on_where_the_other_ended(spark: SparkSession, warehouse: Path):
    readable = LandedHistory({"t": COLUMNS})
    readable.column("t", 0, [1], ["MSFT"], modified=True)
    built, history = story(spark, warehouse, readable.frames[0][1].body)
    holds = misreading(built.start(), lambda position: position == BAD)
    before = built.build(holds)
    built.build()
    history.update("t", added={3: {"Sym": "ORCL", "Qty": 30}})
    built.land(history)
    holds.refresh()

    after = built.build(holds)

    assert (before["t"].error_class, after) == ("UNDECODABLE_FRAME", {})
    assert shown(built) == {1: ("MSFT", 12), 2: ("SUN", 22), 3: ("ORCL", 30)}
    assert status(built).degraded is False


def test_what_spark_refuses_is_told_until_it_is_done(spark: SparkSession, warehouse: Path, monkeypatch: Any):
    def refuse(*_args: Any, **_settings: Any) -> None:
        raise ApplyError("Spark: OUT_OF_LUCK", table="t")

    built, history = Built(spark, warehouse, {"t": table()}), LandedHistory({"t": COLUMNS})
    history.connect()
    history.snapshot("t", SNAPSHOT)
    with monkeypatch.context() as patch:
        patch.setattr(write, "append", refuse)
        assert built.land_and_build(history)["t"].error_class == "APPLY_ERROR"
    refused = status(built)

    assert (refused.state, refused.fault and refused.fault.reason) == (TableState.HELD, "t: Spark: OUT_OF_LUCK")
    assert built.build() == {}
    assert (status(built).state, status(built).fault, built.holds("t")) == (TableState.SYNCED, None, [])
