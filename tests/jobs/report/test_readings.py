"""What a report reads of real stores, written by hand: no source, no Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from silverfold.conf.errors import StoreUnavailable
from silverfold.jobs.report import readings
from silverfold.jobs.report.readings import read_feed
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.cuts import CutRow, record
from silverfold.pipelines.verifying import verify_log
from silverfold.pipelines.verifying.verify import Verdict, Verification, unknown
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import cuts
from tests.support.scripted_feed import Snapshots, feed, land
from tests.support.written_silver import write_silver

NOW = BEGAN + timedelta(hours=1)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


def fill(places: Places, *rows: CutRow) -> None:
    """Land a snapshot of quotes, list cuts, and build their tables."""
    land(places, "1 quotes snapshot begin", "1 quotes snapshot inside", "1 quotes snapshot end")
    for table in {row.table for row in rows}:
        write_silver(places, "market", table, [{"n": 1}], position=2, schema=pa.schema([("n", pa.int64())]))
    for row in rows:
        record(places, "market", row)


def verification(at: datetime) -> Verification:
    return Verification(
        at=at,
        warehouse="lake",
        feed="market",
        against="bronze",
        equal=False,
        tables=(unknown("quotes", "its log is gone", verdict=Verdict.DIFFERENT),),
    )


def test_a_feed_is_read_with_its_cuts_rules_and_verifications(places: Places):
    listed = cuts(3)
    fill(places, *listed)
    verify_log.record(places, verification(BEGAN))

    read = read_feed(places, Snapshots(), feed("quotes", "trades"), now=NOW)

    assert [table.table for table in read.status.tables] == ["quotes", "trades"]
    (quotes,) = read.charted
    assert (quotes.status.table, quotes.cuts, quotes.listed) == ("quotes", listed, 3)
    assert read.failures == {"quotes": {"small": 6}, "trades": {}}
    assert [(each.table, each.verdict, each.at) for each in read.verified] == [("quotes", "different", BEGAN)]
    assert read.faults == []


def test_of_many_tables_and_cuts_the_newest_are_read(places: Places, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(readings, "MOST_CHARTED", 2)
    monkeypatch.setattr(readings, "MOST_CUTS", 6)
    late = cuts(5, table="late", committed_at=BEGAN + timedelta(days=1))
    fill(places, *cuts(5), *late, *cuts(5, table="early", committed_at=BEGAN))

    read = read_feed(places, Snapshots(), feed("early", "late", "quotes"), now=NOW)

    assert [(table.status.table, len(table.cuts), table.listed) for table in read.charted] == [
        ("late", 3, 5),
        ("quotes", 3, 5),
    ]
    assert read.charted[0].cuts == late[2:]


def test_what_cannot_be_read_is_told_beside_the_rest(places: Places):
    fill(places, *cuts(1))
    for broken in (places.silver("market", "trades"), places.verified("market")):
        (broken.local / "_delta_log").mkdir(parents=True)
        (broken.local / "_delta_log" / f"{0:020}.json").write_text("no commit")

    read = read_feed(places, Snapshots(), feed("quotes", "trades"), now=NOW)

    assert [table.table for table in read.status.tables] == ["quotes"]
    assert [each.status.table for each in read.charted] == ["quotes"]
    trades, verified = map(str, read.faults)
    assert "`silverfold rebuild market trades` makes it anew" in trades
    assert "its folder can be removed: reports then lack what was verified" in verified


def test_a_feed_of_which_nothing_can_be_read_is_an_error(places: Places):
    (places.bronze("market").local / "_delta_log").mkdir(parents=True)
    (places.bronze("market").local / "_delta_log" / f"{0:020}.json").write_text("no commit")

    with pytest.raises(StoreUnavailable):
        read_feed(places, Snapshots(), feed("quotes"), now=NOW)


def test_a_feed_that_has_never_run_is_read(places: Places):
    read = read_feed(places, Snapshots(), replace(feed("quotes"), name="other"), now=NOW)

    assert (read.epochs, read.charted, read.verified, read.status.landed_position) == ([], [], [], None)
