"""What metrics read of real stores, written by hand: no source, no Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from silverfold.conf.model import Expectation, Table
from silverfold.connectors.base import Feed
from silverfold.jobs.metrics.readings import CutTotals, read_feeds
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.status import TableState
from silverfold.pipelines.storage.cuts import record
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import CUT
from tests.support.scripted_feed import Snapshots, feed, land
from tests.support.written_silver import write_silver


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path))


def with_rules(fed: Feed, *names: str) -> Feed:
    rules = {name: Expectation(condition="n > 0", action="warn") for name in names}
    return replace(fed, tables={name: Table(source=name.title(), expect=rules) for name in fed.tables})


def fill(places: Places) -> None:
    """Land three updates of quotes, of which silver has the first, the snapshot."""
    land(places, "1 quotes snapshot begin", "1 quotes snapshot inside", "1 quotes snapshot end")
    land(places, "1 quotes data whole", "1 quotes data whole", start=3)
    write_silver(places, "market", "quotes", [{"n": 1}], position=2, schema=pa.schema([("n", pa.int64())]))
    record(places, "market", CUT)


def test_a_feed_is_read_with_its_lag_and_the_totals_of_all_its_cuts(places: Places):
    fill(places)
    later = {"delta_version": 1, "last_position": 4, "committed_at": BEGAN + timedelta(seconds=9)}
    record(places, "market", replace(CUT, **later, inserted=1, deleted=2, seconds=None, notes={"failed.old": 1}))
    record(places, "market", replace(CUT, table="removed", notes={"failed.small": 50}))

    (read,) = read_feeds(places, [(Snapshots(), with_rules(feed("quotes", "trades"), "small", "other"))])

    assert (read.feed, read.is_whole) == ("market", True)
    assert [(table.table, table.state, table.lag_updates) for table in read.status.tables] == [
        ("quotes", TableState.BEHIND, 2),
        ("trades", TableState.NOT_BUILT, 0),
    ]
    assert read.cuts == {
        "quotes": CutTotals(1, 1.25, 4, 0, 2, failures={"small": 2, "other": 0, "old": 1}),
        "trades": CutTotals(failures={"small": 0, "other": 0}),
    }


def test_a_feed_that_has_never_run_is_read(places: Places):
    (read,) = read_feeds(places, [(Snapshots(), feed("quotes"))])

    assert (read.is_whole, read.status.landed_position, read.cuts) == (True, None, {"quotes": CutTotals()})


def test_what_cannot_be_read_leaves_other_tables_and_feeds(places: Places):
    fill(places)
    (places.silver("market", "trades").local / "_delta_log").mkdir(parents=True)
    (places.silver("market", "trades").local / "_delta_log" / f"{0:020}.json").write_text("no commit")
    (places.bronze("gone").local / "_delta_log").mkdir(parents=True)
    (places.bronze("gone").local / "_delta_log" / f"{0:020}.json").write_text("no commit")

    with capture_logs() as logged:
        market, gone, other = read_feeds(
            places,
            [
                (Snapshots(), feed("quotes", "trades")),
                (Snapshots(), replace(feed("quotes"), name="gone")),
                (Snapshots(), replace(feed("quotes"), name="other")),
            ],
        )

    assert (market.is_whole, [table.table for table in market.status.tables]) == (False, ["quotes"])
    assert (gone.is_whole, gone.status, other.is_whole) == (False, None, True)
    assert [(line["event"], line["feed"]) for line in logged] == [
        ("cannot be read", "market"),
        ("cannot be read", "gone"),
    ]


def test_a_bug_with_one_feed_leaves_the_others(places: Places):
    class Broken(Snapshots):
        def stream(self, fed: Feed, table: str) -> str:
            raise ZeroDivisionError

    with capture_logs() as logged:
        broken, other = read_feeds(places, [(Broken(), feed("quotes")), (Snapshots(), feed("quotes"))])

    assert (broken.is_whole, broken.status, other.is_whole) == (False, None, True)
    assert [(line["log_level"], type(line["exc_info"])) for line in logged] == [("error", ZeroDivisionError)]
