from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from silverfold.conf.errors import StoreUnavailable
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.commit_note import NOT_RECORDED, CommitNote
from silverfold.pipelines.storage.cuts import (
    all_cuts,
    current_cuts,
    cuts_in_log,
    from_commit,
    last_cuts,
    later_than,
    read_cuts,
    record,
    restore,
)
from tests.support.cut_rows import cut_row

NOTE = CommitNote(
    feed="market",
    table="quotes",
    epoch=2,
    first_position=40,
    last_position=71,
    replaced=True,
    updates=3,
    ignored=1,
    landed_at=datetime(2024, 5, 1, 11, 59, 59, 250000, tzinfo=UTC),
    notes={"truncated_nanoseconds": 5},
)
CUT = cut_row(
    delta_version=6,
    epoch=2,
    first_position=40,
    last_position=71,
    replaced=True,
    updates=3,
    inserted=128,
    updated=86,
    deleted=2,
    ignored=1,
    landed_at=datetime(2024, 5, 1, 11, 59, 59, 250000, tzinfo=UTC),
    committed_at=datetime(2024, 5, 1, 12, tzinfo=UTC),
    seconds=1.5,
    notes={"truncated_nanoseconds": 5},
)
# As Delta 4.4.0 wrote it, metrics that nobody reads left out.
MERGE_COMMIT = {
    "timestamp": 1714564800000,
    "operation": "MERGE",
    "operationMetrics": {
        "numTargetRowsDeleted": "2",
        "numTargetRowsUpdated": "86",
        "numTargetRowsInserted": "128",
        "numSourceRows": "900",
        "executionTimeMs": "1500",
    },
    "userMetadata": NOTE.to_json(),
    "version": 6,
}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


def silver_commit(places: Places, table: str, note: str, rows: int) -> None:
    """Commit to a silver table as an append does, with user metadata."""
    write_deltalake(
        places.silver("market", table).url,
        pa.table({"n": list(range(rows))}),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": note}),
    )


def test_a_feed_without_cuts_has_none(places: Places):
    assert read_cuts(places, "market") == []
    assert last_cuts(places, "market") == {}


def test_of_a_damaged_list_it_is_told_that_it_can_be_made_anew(places: Places):
    record(places, "market", CUT)
    for entry in Path(places.cuts("market").url).glob("_delta_log/*.json"):
        entry.write_text("garbage")
    with pytest.raises(StoreUnavailable, match=r"cuts: .*: put back what it lacks; else the next build makes it anew"):
        last_cuts(places, "market")


def test_a_recorded_cut_is_read_back(places: Places):
    record(places, "market", CUT)

    assert read_cuts(places, "market") == [CUT]


def test_cuts_come_oldest_first_and_can_be_chosen(places: Places):
    first = replace(CUT, committed_at=datetime(2024, 5, 1, 10, tzinfo=UTC), last_position=30)
    other = replace(CUT, table="trades", committed_at=datetime(2024, 5, 1, 11, tzinfo=UTC))
    for row in (CUT, other, first):
        record(places, "market", row)

    assert read_cuts(places, "market") == [first, other, CUT]
    assert read_cuts(places, "market", table="quotes") == [first, CUT]
    assert read_cuts(places, "market", newest=2) == [other, CUT]


def test_the_last_cut_of_every_table_is_found(places: Places):
    long_ago = replace(CUT, table="trades", committed_at=datetime(2023, 1, 1, tzinfo=UTC), last_position=7)
    before = replace(CUT, committed_at=datetime(2024, 4, 30, tzinfo=UTC), last_position=30)
    for row in (long_ago, before, CUT):
        record(places, "market", row)

    assert last_cuts(places, "market") == {"quotes": CUT, "trades": long_ago}


def test_the_last_cut_is_the_newest_also_after_a_rebuild_started_over(places: Places):
    rebuilt = replace(CUT, committed_at=datetime(2024, 5, 2, tzinfo=UTC), delta_version=1, last_position=12)
    for row in (CUT, rebuilt):
        record(places, "market", row)

    assert last_cuts(places, "market") == {"quotes": rebuilt}


def test_a_commit_note_is_read_back_from_its_text():
    assert CommitNote.from_json(NOTE.to_json()) == NOTE


def test_a_commit_note_may_leave_out_what_is_not_known():
    text = (
        '{"feed": "market", "table": "quotes", "epoch": 1, "first_position": 0, "last_position": 4,'
        ' "replaced": false, "updates": 2, "by_a_later_version": true}'
    )

    assert CommitNote.from_json(text) == CommitNote(
        feed="market",
        table="quotes",
        epoch=1,
        first_position=0,
        last_position=4,
        replaced=False,
        updates=2,
        history=NOT_RECORDED,
        tombstones=NOT_RECORDED,
    )


@pytest.mark.parametrize("text", [None, "", "nightly run", "7", "[]", '{"feed": "market"}', '{"landed_at": "soon"}'])
def test_other_user_metadata_is_no_commit_note(text: str | None):
    assert CommitNote.from_json(text) is None


def test_a_merge_commit_tells_its_cut():
    assert from_commit(MERGE_COMMIT) == CUT


def test_an_append_commit_tells_its_cut():
    append = {
        "timestamp": 1714564800000,
        "operation": "WRITE",
        "operationMetrics": {"numFiles": "2", "numOutputRows": "10", "numOutputBytes": "2151"},
        "userMetadata": NOTE.to_json(),
        "version": 6,
    }

    assert from_commit(append) == replace(CUT, inserted=10, updated=0, deleted=0, seconds=None)


def test_a_maintenance_commit_is_no_cut():
    assert from_commit({"timestamp": 1, "operation": "OPTIMIZE", "version": 7}) is None


def test_lost_cuts_are_restored_from_the_silver_tables_own_log(places: Places):
    silver_commit(places, "quotes", replace(NOTE, last_position=50).to_json(), rows=2)
    silver_commit(places, "quotes", NOTE.to_json(), rows=3)
    silver_commit(places, "trades", replace(NOTE, table="trades").to_json(), rows=1)

    added = restore(places, "market", ["quotes", "trades", "not_built"])

    assert added == 3
    assert [(row.table, row.delta_version, row.last_position) for row in read_cuts(places, "market")] == [
        ("quotes", 0, 50),
        ("quotes", 1, 71),
        ("trades", 0, 71),
    ]


def test_restoring_adds_only_what_is_missing(places: Places):
    silver_commit(places, "quotes", replace(NOTE, last_position=50).to_json(), rows=2)
    silver_commit(places, "quotes", NOTE.to_json(), rows=3)
    record(places, "market", replace(CUT, delta_version=1, deleted=77))

    assert restore(places, "market", ["quotes"]) == 1
    assert restore(places, "market", ["quotes"]) == 0
    assert {(row.delta_version, row.deleted) for row in read_cuts(places, "market")} == {(0, 0), (1, 77)}


def test_a_cut_after_a_clock_that_was_set_back_comes_after_the_one_before(places: Places):
    early = replace(CUT, delta_version=0, last_position=50, committed_at=datetime(2100, 1, 1, tzinfo=UTC))
    silver_commit(places, "quotes", replace(NOTE, last_position=50).to_json(), rows=2)
    silver_commit(places, "quotes", NOTE.to_json(), rows=3)
    record(places, "market", early)

    cuts = current_cuts(all_cuts(places, "market", ["quotes"]))
    restore(places, "market", ["quotes"])

    assert [row.last_position for row in cuts] == [50, 71]
    assert cuts[1].committed_at > early.committed_at
    assert [row.last_position for row in current_cuts(read_cuts(places, "market"))] == [50, 71]
    now = replace(CUT, committed_at=datetime(2099, 1, 1, tzinfo=UTC))
    assert later_than(now, early.committed_at).committed_at > early.committed_at
    assert (later_than(now, CUT.committed_at), later_than(now, None)) == (now, now)


def test_a_table_that_began_anew_at_its_place_is_restored_whole(places: Places):
    record(places, "market", replace(CUT, delta_version=400))
    silver_commit(places, "quotes", replace(NOTE, last_position=50).to_json(), rows=2)
    silver_commit(places, "quotes", NOTE.to_json(), rows=3)

    assert restore(places, "market", ["quotes"]) == 2


def test_losing_the_list_loses_nothing_but_who_counted_the_rows(places: Places):
    silver_commit(places, "quotes", NOTE.to_json(), rows=3)
    restore(places, "market", ["quotes"])
    before = read_cuts(places, "market")

    shutil.rmtree(places.cuts("market").url)
    restore(places, "market", ["quotes"])

    assert read_cuts(places, "market") == before


def test_a_place_without_a_table_has_no_cuts_in_its_log(places: Places):
    assert cuts_in_log(places.silver("market", "quotes"), "quotes") == []
