from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession

from silverfold.conf.errors import PositionGap
from silverfold.conf.model import Table
from silverfold.pipelines.holding.quarantine_log import Hold, hold
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.plan import Plan, State
from silverfold.pipelines.reading.connection_log import Mark
from silverfold.pipelines.reading.status import (
    Built,
    Fault,
    FeedStatus,
    ReceiverState,
    ReceiverStatus,
    TableState,
    read_status,
    receiver_status,
    table_status,
)
from silverfold.pipelines.storage.cuts import record
from silverfold.pipelines.storage.silver_position import SilverPosition
from silverfold.pipelines.store import count_rows
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import cut_row
from tests.support.scripted_feed import Snapshots, feed, land
from tests.support.statuses import last_cut, status_of

NOW = BEGAN + timedelta(seconds=100)


def build(places: Places, table: str, position: int, *numbers: int) -> None:
    """Commit rows and a position to a silver table, as a build does."""
    write_deltalake(
        places.silver("market", table).url,
        pa.table({"n": pa.array(numbers, pa.int64())}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(f"apply/market/{table}", position)]),
    )


CUT = cut_row(
    first_position=1,
    last_position=2,
    replaced=True,
    inserted=3,
    landed_at=BEGAN + timedelta(seconds=2),
    committed_at=BEGAN + timedelta(seconds=4),
    seconds=1.25,
)
SYNCED = Plan(None, State.SYNCED, 1, 2, 2, 0, None, 0, 1)
BUILT = Built(exists=True, now=SilverPosition(2), rows=3, last_cut=CUT)
LAST_CUT = last_cut(position=2, committed_at=BEGAN + timedelta(seconds=4), seconds=1.25, replaced=True, inserted=3)
SYNCED_STATUS = status_of(
    "quotes", state=TableState.SYNCED, epoch=1, landed_position=2, applied_position=2, rows=3, last_cut=LAST_CUT
)
BAD_FRAME = Hold(
    position=7, update_position=5, error_class="TRUNCATED_MESSAGE", reason="ends at byte 40", found_at=BEGAN
)


def test_a_table_that_has_everything_is_synced():
    assert table_status("quotes", BUILT, SYNCED, now=NOW) == SYNCED_STATUS


def test_lag_is_the_updates_waiting_and_the_age_of_the_oldest():
    behind = replace(
        SYNCED, state=State.BEHIND, landed=9, backlog_updates=4, oldest_waiting=BEGAN + timedelta(seconds=93.5)
    )

    status = table_status("quotes", BUILT, behind, now=NOW)

    assert (status.state, status.landed_position, status.lag_updates, status.lag_seconds) == (
        TableState.BEHIND,
        9,
        4,
        6.5,
    )


def test_a_receivers_clock_ahead_of_ours_gives_no_negative_lag():
    behind = replace(SYNCED, state=State.BEHIND, backlog_updates=1, oldest_waiting=NOW + timedelta(seconds=3))

    assert table_status("quotes", BUILT, behind, now=NOW).lag_seconds == 0.0


@pytest.mark.parametrize("state", [State.WAITING_FOR_SNAPSHOT, State.WAITING_FOR_UPDATE_END])
def test_what_a_table_waits_for_is_told(state: State):
    assert table_status("quotes", BUILT, replace(SYNCED, state=state), now=NOW).state.value == state.value


def test_a_table_without_a_silver_table_is_not_built():
    planned = Plan(None, State.WAITING_FOR_SNAPSHOT, 1, 0, -1, 0, None, 0, None)

    assert table_status("quotes", Built(), planned, now=NOW) == status_of("quotes", landed_position=0)


def test_a_held_table_says_where_and_why():
    status = table_status("quotes", replace(BUILT, quarantined=[BAD_FRAME]), SYNCED, now=NOW)

    assert (status.state, status.fault) == (
        TableState.HELD,
        Fault(error_class="TRUNCATED_MESSAGE", reason="ends at byte 40", position=7, since=BEGAN),
    )


def test_a_table_that_went_beyond_what_held_it_is_not_held():
    status = table_status("quotes", replace(BUILT, now=SilverPosition(8), quarantined=[BAD_FRAME]), SYNCED, now=NOW)

    assert (status.state, status.fault) == (TableState.SYNCED, None)


SKIPPED = replace(BAD_FRAME, resolved_at=NOW, resolution="skipped")


def test_a_table_that_went_on_without_a_frame_is_degraded_and_names_it():
    status = table_status("quotes", replace(BUILT, now=SilverPosition(8), quarantined=[SKIPPED]), SYNCED, now=NOW)

    assert (status.state, status.fault) == (TableState.SYNCED, None)
    assert (status.degraded, status.skipped_positions) == (True, (7,))


def test_a_table_that_is_still_before_a_skipped_frame_is_neither_held_nor_degraded():
    status = table_status("quotes", replace(BUILT, now=SilverPosition(4), quarantined=[SKIPPED]), SYNCED, now=NOW)

    assert (status.fault, status.degraded, status.skipped_positions) == (None, False, ())


def test_a_snapshot_that_passed_a_skipped_frame_ends_the_degradation():
    passed = replace(SKIPPED, resolution="passed")

    status = table_status("quotes", replace(BUILT, now=SilverPosition(30), quarantined=[passed]), SYNCED, now=NOW)

    assert (status.degraded, status.skipped_positions) == (False, ())


def test_missing_positions_stop_a_table_and_are_named():
    status = table_status("quotes", BUILT, PositionGap(feed="market", first=3, last=5), now=NOW)

    assert (status.state, status.fault) == (
        TableState.STOPPED,
        Fault(
            error_class="POSITION_GAP", reason="bronze of feed market lacks positions 3 to 5", position=3, since=None
        ),
    )


OPENED = Mark(10, 2, BEGAN, "opened", {})


def test_a_receiver_with_frames_after_its_first_mark_is_connected():
    assert receiver_status(OPENED, OPENED, landed=11) == ReceiverStatus(
        state=ReceiverState.CONNECTED, since=BEGAN, reason=None, error_class=None
    )


def test_a_receiver_that_has_only_begun_an_epoch_is_connecting():
    assert receiver_status(OPENED, OPENED, landed=10).state is ReceiverState.CONNECTING
    assert receiver_status(OPENED, OPENED, landed=10, listens=True).state is ReceiverState.LISTENING


def test_a_closed_connection_says_since_when_and_why():
    closed = Mark(30, 2, NOW, "closed", {"reason": "reset by peer", "error_class": "SOURCE_UNAVAILABLE"})

    assert receiver_status(OPENED, closed, landed=30) == ReceiverStatus(
        state=ReceiverState.CLOSED, since=NOW, reason="reset by peer", error_class="SOURCE_UNAVAILABLE"
    )


def test_a_feed_nobody_has_received_has_nothing(tmp_path: Path):
    status = read_status(Places(str(tmp_path)), Snapshots(), feed("quotes"), now=NOW)

    assert status == FeedStatus(
        feed="market",
        connector="scripted",
        epoch=None,
        landed_position=None,
        landed_at=None,
        receiver=None,
        tables=(status_of("quotes"),),
    )


def test_versions_and_tombstones_are_counted_where_they_are_kept(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 quotes snapshot whole", "1 trades snapshot whole")
    for table in ("quotes", "trades"):
        build(places, table, 0, 7)
        write_deltalake(places.history("market", table).url, pa.table({"n": [1, 2, 3]}))
    write_deltalake(places.tombstones("market", "trades").url, pa.table({"n": [1, 2]}))
    keeping = {"quotes": Table(source="Q", stored_as_scd_type=2), "trades": Table(source="T")}
    status = read_status(places, Snapshots(source_ordered=True), replace(feed(), tables=keeping), now=NOW)

    assert [(each.versions, each.tombstones) for each in status.tables] == [(3, None), (None, 2)]


def test_everything_is_read_from_the_store(tmp_path: Path):
    places = Places(str(tmp_path))
    land(
        places,
        "1 - mark none",
        "1 quotes snapshot begin",
        "1 quotes snapshot end",
        "1 log data whole",
        "1 quotes data whole",
        "1 quotes mark none",
        bodies=[b'{"mark": "opened"}'],
    )
    build(places, "quotes", 2, 7, 8, 9)
    record(places, "market", CUT)
    hold(places, "market", "log", Hold(**{**vars(BAD_FRAME), "position": 3, "update_position": 3}))

    status = read_status(places, Snapshots(), feed("quotes", "log"), now=NOW)

    assert (status.epoch, status.landed_position, status.landed_at) == (1, 5, BEGAN + timedelta(seconds=5))
    assert status.receiver == ReceiverStatus(state=ReceiverState.CONNECTED, since=BEGAN, reason=None, error_class=None)
    quotes, log = status.tables
    assert quotes == status_of(
        "quotes",
        state=TableState.BEHIND,
        epoch=1,
        landed_position=4,
        applied_position=2,
        lag_updates=1,
        lag_seconds=96.0,
        rows=3,
        last_cut=LAST_CUT,
    )
    assert (log.state, log.applied_position, log.lag_updates, log.lag_seconds) == (TableState.HELD, None, 1, 97.0)


def test_a_table_has_the_warning_that_is_the_newest_mark_of_its_stream_in_the_newest_epoch(tmp_path: Path):
    places = Places(str(tmp_path))
    warning = {"mark": "snapshot void", "level": "warning", "reason": "partial\nmove", "attempts": 2}
    complete = {"mark": "snapshot complete"}
    streams = ("quotes", "quotes", "trades", "trades", "log")
    marks = (complete, warning, warning, complete, warning)
    land(
        places,
        *(f"{1 if stream == 'log' else 2} {stream} mark none" for stream in reversed(streams)),
        bodies=[json.dumps(each).encode() for each in reversed(marks)],
    )

    found = read_status(places, Snapshots(), feed("quotes", "trades", "log"), now=NOW)

    assert [table.warning for table in found.tables] == [None, r"snapshot void: partial\nmove", None]


def test_the_newest_epoch_tells_of_the_connection(tmp_path: Path):
    places = Places(str(tmp_path))
    closed = {"mark": "closed", "reason": "stopped here", "error_class": None}
    land(
        places,
        "1 - mark none",
        "1 - mark none",
        "2 - mark none",
        "2 - control none",
        "2 - mark none",
        bodies=[b'{"mark": "opened"}', b"not JSON", b'{"mark": "opened"}', b"", json.dumps(closed).encode()],
    )

    status = read_status(places, Snapshots(), feed("quotes"), now=NOW)

    assert status.receiver == ReceiverStatus(
        state=ReceiverState.CLOSED, since=BEGAN + timedelta(seconds=4), reason="stopped here", error_class=None
    )


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_receivers_report_on_its_source_counts_until_it_reports_something_else(
    tmp_path: Path, *, is_closed: bool
) -> None:
    places, parts = Places(str(tmp_path)), {"shard 7": {"batches_behind": 3}}
    marks = [{"mark": "opened"}, {"mark": "progress", "parts": parts}, *[{"mark": "closed"}] * is_closed]
    land(places, *["1 - mark none"] * len(marks), bodies=[json.dumps(each).encode() for each in marks])

    found = read_status(places, Snapshots(), feed("quotes"), now=NOW)

    assert found.source == ({} if is_closed else parts)


def test_a_gap_in_bronze_stops_the_tables_that_have_yet_to_pass_it(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 quotes snapshot whole")
    land(places, "1 quotes data whole", start=4)
    build(places, "quotes", 0, 1)

    (quotes,) = read_status(places, Snapshots(), feed("quotes"), now=NOW).tables

    assert quotes.state is TableState.STOPPED
    assert quotes.fault is not None
    assert quotes.fault.reason.startswith("bronze of feed market lacks positions 1 to 3: put its files back")


def test_frames_that_maintenance_removed_are_no_gap_for_a_table_that_has_yet_to_begin(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 quotes snapshot whole", start=4, kept_from=4)

    (quotes,) = read_status(places, Snapshots(), feed("quotes"), now=NOW).tables

    assert (quotes.state, quotes.lag_updates) == (TableState.NOT_BUILT, 1)


def test_rows_deleted_by_deletion_vectors_are_not_counted(spark: SparkSession, warehouse: Path):
    session, target = spark.newSession(), f"delta.`{warehouse}/quotes`"
    session.sql(f"CREATE TABLE {target} (n BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    session.range(0, 1000, 1, 2).selectExpr("id AS n").write.format("delta").mode("append").save(f"{warehouse}/quotes")
    session.sql(f"DELETE FROM {target} WHERE n % 10 = 3")

    assert count_rows(DeltaTable(f"{warehouse}/quotes")) == 900


def test_moments_are_in_utc(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 - mark none")

    assert read_status(places, Snapshots(), feed("quotes"), now=NOW).landed_at == datetime(2024, 5, 1, tzinfo=UTC)
