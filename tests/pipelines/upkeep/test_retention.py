"""Which frames bronze may lose, that it loses them in one commit, and that everything goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import silverfold.pipelines.upkeep.retention
from silverfold.conf.errors import StoreUnavailable
from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.frames import mark
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.bronze import last_position, read_small_columns
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.landing.writer import BronzeWriter, compact
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.plan import Planner
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.reading.connection_log import epoch_marks
from silverfold.pipelines.reading.status import read_status
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.upkeep.retention import (
    Retention,
    describe,
    drop_frames,
    keep_append_only,
    plan_retention,
    remove_doubles,
)
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.landing import landed
from tests.support.written_silver import write_silver

FEED = "market"
SCHEMA = pa.schema([("_row_key", pa.int64()), ("Qty", pa.int64()), ("_position", pa.int64())])
LANDED_AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
LONG_AFTER = LANDED_AT + timedelta(days=30)


class Market:
    """A feed whose silver is written by hand: table → quantity of row 1, at a position."""

    def __init__(self, root: Path, tables: Mapping[str, DeephavenTable]) -> None:
        self.places = Places(str(root))
        self.bronze = self.places.bronze(FEED)
        self.feed = Feed(FEED, "deephaven", "unused", DeephavenOptions(), tables)
        self.history = LandedHistory({name: {"Qty": "Long"} for name in tables})

    def land(self) -> int:
        return self.history.land(self.bronze, FEED)

    def built(self, table: str, qty: int, position: int, landed_at: datetime = LANDED_AT) -> None:
        row = {"_row_key": 1, "Qty": qty, "_position": 0}
        note = CommitNote(
            feed=FEED,
            table=table,
            epoch=1,
            first_position=0,
            last_position=position,
            replaced=True,
            updates=1,
            landed_at=landed_at,
        )
        write_silver(self.places, FEED, table, [row], position=position, schema=SCHEMA, note=note)

    def plan(self, keep_since: datetime = LONG_AFTER) -> Retention:
        return plan_retention(self.places, CONNECTOR, self.feed, keep_since=keep_since)

    def drop(self) -> Retention:
        retention = self.plan()
        drop_frames(self.bronze, FEED, retention)
        return retention

    def positions(self) -> list[int]:
        return [frame.frame_seq for frame in landed(self.bronze)]

    def verdict(self, table: str = "quotes") -> Verdict:
        return verify_table(self.places, CONNECTOR, self.feed, table).verdict

    def planned_anew(self, table: str = "quotes") -> Any:
        """The first cut of a table that is built from the beginning."""
        floor = retained_from(self.bronze, FEED)
        rules = {name: StreamRules.of(CONNECTOR, self.feed, name) for name in self.feed.tables}
        planner = Planner(FEED, rules, floor=floor)
        for batch in read_small_columns(self.bronze, after=planner.start - 1):
            planner.add_frames(batch)
        return planner.plan(table, CutLimits()).cut


def quotes(**settings: Any) -> DeephavenTable:
    return DeephavenTable(source="Quotes", **settings)


def snapshot(qty: int) -> dict[int, dict[str, Any]]:
    return {1: {"Qty": qty}}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    """Two epochs, 0 to 9 and 10 to 19, silver at the end of the second: snapshot at 13, update from 16 to 18."""
    market = Market(tmp_path, {"quotes": quotes()})
    for epoch in (1, 2):
        market.history.connect()
        market.history.snapshot("quotes", snapshot(epoch))
        market.history.update("quotes", modified=snapshot(10 * epoch))
        market.history.close()
    assert market.land() == 19
    market.built("quotes", 20, 18)
    return market


def test_frames_before_the_last_snapshot_go_but_for_what_later_frames_are_read_by(market: Market):
    retention = market.drop()

    assert (retention.dropped_to, retention.floor, retention.epoch) == (0, 13, 2)
    assert describe(retention) == "frames 0 to 12: quotes stands on the snapshot at 13"
    assert market.positions() == [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
    assert retained_from(market.bronze, FEED) == 13


def test_what_is_left_verifies_and_plans_as_the_whole_did(market: Market):
    before = market.planned_anew()
    market.drop()

    assert market.verdict() is Verdict.EQUAL
    assert market.planned_anew() == before
    assert (before.spans, before.replaces) == (((13, 18),), True)


def test_dropping_twice_changes_nothing(market: Market):
    market.drop()
    version = DeltaTable(market.bronze.url).version()

    again = market.plan()

    assert (again.drops, again.dropped_to, again.floor) == (False, 13, 13)
    assert describe(again) == "nothing to drop: quotes stands on the snapshot at 13"
    assert DeltaTable(market.bronze.url).version() == version


def test_nothing_goes_while_a_table_stands_on_another_bronze(market: Market):
    market.built("quotes", 20, 18, LANDED_AT - timedelta(seconds=1))

    assert describe(market.drop()) == "nothing to drop: quotes was built from another bronze: it needs every frame"


def test_a_receiver_that_starts_again_goes_on_where_it_was(market: Market):
    market.drop()
    market.history.connect()
    market.history.snapshot("quotes", snapshot(3))

    assert last_position(market.bronze, FEED) == 19
    assert market.land() == 25
    assert market.positions()[-7:] == [19, 20, 21, 22, 23, 24, 25]
    marks = epoch_marks(market.bronze, 3).of_feed
    assert marks is not None
    assert marks[0].position == 20


def test_a_receiver_that_runs_meanwhile_commits_at_its_second_try(market: Market):
    writer = BronzeWriter.open(market.bronze, FEED, token="running")
    market.drop()
    rows = Batch(20)
    rows.add([mark("opened")], 3, 1_700_000_000_000_000)
    tries = 0
    while writer.last < 20:
        tries += 1
        assert tries < 5
        try:
            writer.append(rows.prepare().table)
        except StoreUnavailable:
            continue

    assert market.positions()[-2:] == [19, 20]
    assert retained_from(market.bronze, FEED) == 13


def test_a_compaction_afterwards_keeps_frames_and_floor(market: Market):
    market.drop()
    before = landed(market.bronze)
    compact(market.bronze)

    assert landed(market.bronze) == before
    assert retained_from(market.bronze, FEED) == 13
    assert market.verdict() is Verdict.EQUAL


def test_bronze_refuses_deletes_again(market: Market):
    market.drop()

    assert appends_only(market)
    with pytest.raises(Exception, match="append-only"):
        DeltaTable(market.bronze.url).delete("frame_seq = 14")


def appends_only(market: Market) -> bool:
    return DeltaTable(market.bronze.url).metadata().configuration["delta.appendOnly"] == "true"


class Died(BaseException):
    """The process is gone: nobody may catch this."""


@pytest.mark.parametrize(("after", "left"), [(False, list(range(20))), (True, list(range(10, 20)))])
def test_a_death_at_the_drop_leaves_all_or_what_is_needed(
    market: Market, monkeypatch: pytest.MonkeyPatch, after: bool, left: list[int]
):
    write: Callable[..., None] = silverfold.pipelines.upkeep.retention.write_deltalake

    def dying(*args: Any, **kwargs: Any) -> None:
        if after:
            write(*args, **kwargs)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(silverfold.pipelines.upkeep.retention, "write_deltalake", dying)
        patch.setattr(silverfold.pipelines.upkeep.retention, "keep_append_only", lambda _: None)
        with pytest.raises(Died):
            market.drop()
    died = (market.positions(), appends_only(market), market.verdict())
    keep_append_only(market.bronze)
    market.drop()

    assert died == (left, False, Verdict.EQUAL)
    assert (market.positions(), appends_only(market)) == (list(range(10, 20)), True)
    assert market.verdict() is Verdict.EQUAL


def test_young_frames_are_kept(market: Market):
    retention = market.plan(LANDED_AT - timedelta(days=7))

    assert (retention.drops, retention.floor) == (False, 0)
    assert describe(retention) == "nothing to drop: frames are kept since 2023-11-07 22:13 UTC"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mode": "updates_only"}, "trades has no snapshots: it needs every frame"),
        ({"stored_as_scd_type": 2}, "trades keeps history: it needs every frame"),
        ({}, "trades is not built: it needs every frame"),
    ],
)
def test_a_table_that_needs_every_frame_lets_none_go(tmp_path: Path, settings: dict[str, Any], reason: str):
    market = Market(tmp_path, {"quotes": quotes(), "trades": quotes(**settings)})
    for _ in range(2):
        market.history.connect()
        market.history.snapshot("quotes", snapshot(1))
        market.history.update("trades", added=snapshot(1))
    market.history.streams |= {"trades": CONNECTOR.stream(market.feed, "trades")}
    market.built("quotes", 1, market.land())

    retention = market.plan()

    assert (retention.drops, describe(retention)) == (False, f"nothing to drop: {reason}")


def test_a_table_without_snapshots_that_has_taken_nothing_lets_all_go(tmp_path: Path):
    market = Market(tmp_path, {"quotes": quotes(), "trades": quotes(mode="updates_only")})
    for _ in range(2):
        market.history.connect()
        market.history.snapshot("quotes", snapshot(1))
    market.built("quotes", 1, market.land())

    assert market.drop().floor > 0
    market.history.streams |= {"trades": CONNECTOR.stream(market.feed, "trades")}
    market.history.update("trades", added=snapshot(1))
    last = market.land()
    (trades,) = (table for table in read_status(market.places, CONNECTOR, market.feed, now=LONG_AFTER).tables[1:])
    assert (trades.begins_at_position, trades.lag_updates, trades.landed_position) == (None, 1, last)


def test_a_table_that_lags_behind_keeps_what_it_stands_on(market: Market):
    market.built("quotes", 10, 8)

    assert market.plan().floor == 3


def test_what_has_landed_and_is_not_applied_stays(market: Market):
    market.drop()
    for epoch in (3, 4):
        market.history.connect()
        market.history.snapshot("quotes", snapshot(epoch))
    market.land()

    assert market.plan().floor == 13


def two_snapshots_in_an_epoch(market: Market, between: Sequence[str]) -> None:
    """Quotes: 4 to 6, updates between, then a second snapshot; of trades one snapshot alone, at 7 to 9."""
    market.history.connect()
    market.history.snapshot("quotes", snapshot(1))
    market.history.snapshot("trades", snapshot(1))
    for table in between:
        market.history.update(table, modified=snapshot(2))
    market.history.snapshot("quotes", snapshot(3))
    last = market.land()
    market.built("quotes", 3, last)


def test_a_second_snapshot_of_an_epoch_lets_the_first_go(tmp_path: Path):
    market = Market(tmp_path, {"quotes": quotes(), "trades": quotes()})
    two_snapshots_in_an_epoch(market, [])
    market.built("trades", 1, 9)

    assert market.drop().floor == 7
    assert (market.verdict("quotes"), market.verdict("trades")) == (Verdict.EQUAL, Verdict.EQUAL)


def test_updates_of_a_snapshot_that_would_go_do_not_overlay_the_next(tmp_path: Path):
    market = Market(tmp_path, {"quotes": quotes(), "trades": quotes()})
    two_snapshots_in_an_epoch(market, ["quotes"])
    market.built("trades", 1, 9)

    retention = market.drop()

    assert retention.floor == 4, "the first snapshot of quotes stays, since trades keeps the update after it"
    assert (market.verdict("quotes"), market.verdict("trades")) == (Verdict.EQUAL, Verdict.EQUAL)
    assert market.planned_anew().spans == ((13, 15),)


def test_an_epoch_is_kept_whole_where_updates_overlay_its_first_snapshot(tmp_path: Path):
    market = Market(tmp_path, {"quotes": quotes()})
    market.history.connect()
    market.history.snapshot("quotes", snapshot(1))
    market.history.connect()
    market.history.update("quotes", modified=snapshot(2))
    market.history.snapshot("quotes", snapshot(1))
    market.built("quotes", 2, market.land())
    before = market.planned_anew()

    floor = market.drop().floor

    assert floor == 5, "the last frame of the epoch before is kept too: by it a plan sees where this one begins"
    assert (market.planned_anew(), market.verdict()) == (before, Verdict.EQUAL)


def test_a_table_that_comes_back_keeps_every_frame_until_a_snapshot_makes_it_whole(tmp_path: Path):
    market = Market(tmp_path, {"quotes": quotes(), "trades": quotes()})
    for epoch in (1, 2):
        market.history.connect()
        market.history.snapshot("quotes", snapshot(epoch))
        market.history.snapshot("trades", snapshot(epoch))
    last = market.land()
    market.built("quotes", 2, last)
    market.built("trades", 1, 9)
    with_all, market.feed = market.feed, replace(market.feed, tables={"quotes": quotes()})
    market.drop()
    market.feed = with_all

    waits = market.plan()
    market.built("trades", 2, last)

    assert describe(waits) == (
        "nothing to drop: trades waits for a snapshot since frames were dropped without it: it needs every frame"
    )
    assert describe(market.plan()) == f"nothing to drop: quotes stands on the snapshot at {waits.floor}"
    assert market.verdict("trades") is Verdict.EQUAL


def doubled(market: Market) -> None:
    """Put every frame into bronze once more."""
    table = DeltaTable(market.bronze.url)
    write_deltalake(table, table.to_pyarrow_table(), mode="append")


def test_frames_that_are_there_twice_are_left_once(market: Market):
    before = landed(market.bronze)
    doubled(market)

    retention = market.plan()
    verdict = verify_table(market.places, CONNECTOR, market.feed, "quotes")
    remove_doubles(market.bronze, *(retention.doubled or ()))

    assert (verdict.verdict, verdict.reason) == (
        Verdict.UNKNOWN,
        "bronze of feed market has frames twice from position 13 to 18: "
        "`silverfold maintain market` removes the second of each",
    )
    assert (retention.doubled, retention.drops) == ((0, 19), False)
    assert describe(retention) == "nothing to drop: frames 0 to 19 are there twice"
    assert (landed(market.bronze), market.verdict(), appends_only(market)) == (before, Verdict.EQUAL, True)
    assert last_position(market.bronze, FEED) == 19


def test_a_feed_that_has_landed_nothing_drops_nothing(tmp_path: Path):
    market = Market(tmp_path, {"quotes": quotes()})
    assert not market.plan().drops
    keep_append_only(market.bronze)
