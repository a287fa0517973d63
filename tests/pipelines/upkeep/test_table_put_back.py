"""Tables that were not in the feed while frames were dropped: how they go on, and what can be said of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import ApplyError
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.reading.status import TableState, TableStatus, read_status
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.upkeep.retention import Retention, drop_frames, plan_retention
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, verify_history, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory

COLUMNS = {"Sym": "String", "Qty": "Long"}
LATER = datetime(2030, 1, 1, tzinfo=UTC)


class Market:
    """Quotes, which is in the feed all the time, and trades, which is out while frames are dropped."""

    def __init__(self, spark: SparkSession, warehouse: Path, trades: DeephavenTable) -> None:
        self.spark, self.warehouse, self.trades = spark, warehouse, trades
        self.built = Built(spark, warehouse, {"quotes": table(), "trades": trades})
        streams = {"trades": trades.stream("trades")}  # also while it is out of the feed
        self.history = LandedHistory({"quotes": COLUMNS, "trades": COLUMNS}, streams=streams)

    def tell(self, qty: int, *, snapshot: bool = True) -> None:
        """Begin an epoch; both tables have a row that is ``qty`` in the end."""
        self.history.connect()
        for name in ("quotes", "trades"):
            row = {1: {"Sym": "AAPL", "Qty": qty}}
            if snapshot and (name == "quotes" or self.trades.mode != "updates_only"):
                self.history.snapshot(name, {1: {"Sym": "AAPL", "Qty": 0}})
            self.history.update(name, added={qty: row[1]}, modified=row)
        self.built.land(self.history)

    def without_trades(self) -> None:
        self.built.feed = replace(self.built.feed, tables={"quotes": table()})

    def with_trades(self) -> None:
        self.built.feed = replace(self.built.feed, tables={"quotes": table(), "trades": self.trades})

    def retention(self) -> Retention:
        return plan_retention(self.built.places, CONNECTOR, self.built.feed, keep_since=LATER)

    def drop(self) -> int:
        """Drop what no table of the feed needs; return where bronze begins then."""
        drop_frames(self.built.places.bronze(FEED), FEED, self.retention())
        return retained_from(self.built.places.bronze(FEED), FEED)

    def rebuild(self) -> None:
        Rebuild(self.spark, self.built.settings, CONNECTOR, self.built.feed, "trades", "a").run()

    def verify(self) -> TableVerification:
        return verify_table(self.built.places, CONNECTOR, self.built.feed, "trades")

    def status(self) -> TableStatus:
        return read_status(self.built.places, CONNECTOR, self.built.feed, now=LATER).tables[1]


def put_back(spark: SparkSession, warehouse: Path, **settings: Any) -> tuple[Market, int]:
    """Trades was built, taken out while frames after its position were dropped, and put back."""
    market = Market(spark, warehouse, table(source="trades", **settings))
    market.tell(1)
    assert market.built.build() == {}
    market.without_trades()
    market.tell(2)
    market.tell(3)
    assert market.built.build() == {}
    (left_out,) = (reason for reason in market.retention().reasons if reason.startswith("trades"))
    assert "is not in the settings" in left_out
    floor = market.drop()
    market.with_trades()
    return market, floor


@pytest.mark.parametrize("by_rebuild", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["build", "rebuild"])
def test_a_table_that_is_put_back_goes_on_with_the_next_whole_snapshot(
    spark: SparkSession, warehouse: Path, by_rebuild: bool
):
    market, floor = put_back(spark, warehouse)

    if by_rebuild:
        market.rebuild()
    faults = market.built.build()

    assert (faults, market.status().state) == ({}, TableState.SYNCED)
    assert market.built.rows("trades") == market.built.rows("quotes")
    assert market.verify().verdict is Verdict.EQUAL
    market.tell(4)
    assert market.built.build() == {}
    assert market.drop() > floor
    assert market.verify().verdict is Verdict.EQUAL


@pytest.mark.nightly
def test_a_history_that_is_put_back_stops_and_says_what_to_do_and_that_does_it(spark: SparkSession, warehouse: Path):
    market, floor = put_back(spark, warehouse, stored_as_scd_type=2)

    (fault,) = market.built.build().values()
    history = market.built.places.history(FEED, "trades").local
    shutil.rmtree(history)
    market.rebuild()

    assert str(fault).endswith(
        f"its history lacks what was dropped. To begin that anew at position {floor}, remove it and run "
        "`silverfold rebuild market trades`"
    )
    assert market.built.build() == {}
    assert market.built.rows("trades") == market.built.rows("quotes")
    given = (market.built.places, CONNECTOR, market.built.feed, "trades")
    assert (verify_table(*given).verdict, verify_history(*given).verdict) == (Verdict.EQUAL, Verdict.EQUAL)


def test_a_log_that_is_added_late_says_where_it_begins_and_is_verified_and_rebuilt_from_there(
    spark: SparkSession, warehouse: Path
):
    market = Market(spark, warehouse, table(source="trades", mode="updates_only"))
    market.without_trades()
    market.tell(1)
    market.tell(2)
    assert market.built.build() == {}
    floor = market.drop()
    market.with_trades()
    before = market.status()

    assert market.built.build() == {}
    built = market.verify()
    market.rebuild()
    rebuilt = market.verify()

    assert (before.state, before.begins_at_position) == (TableState.NOT_BUILT, floor)
    assert (market.status().state, market.status().begins_at_position) == (TableState.SYNCED, floor)
    reason = f"begins at position {floor}, what landed before was dropped and is not compared"
    assert [(each.verdict, each.reason, each.found_rows) for each in (built, rebuilt)] == [
        (Verdict.EQUAL, reason, 2)
    ] * 2


def test_a_log_that_is_put_back_lacks_what_was_dropped_and_says_what_to_do(spark: SparkSession, warehouse: Path):
    market, floor = put_back(spark, warehouse, mode="updates_only")

    (fault,) = market.built.build().values()
    verified = market.verify()
    shutil.rmtree(market.built.places.silver(FEED, "trades").local)

    assert str(fault).endswith(
        f"they were dropped while the table was not in the feed. To begin anew at position {floor}, remove it"
    )
    assert (verified.verdict, verified.reason) == (
        Verdict.UNKNOWN,
        f"bronze of feed market lacks positions 0 to {floor - 1}: `silverfold status` says what can be done",
    )
    assert market.built.build() == {}
    assert (market.verify().verdict, market.status().begins_at_position) == (Verdict.EQUAL, floor)


def test_a_table_whose_snapshot_was_dropped_while_it_was_away_cannot_be_compared(spark: SparkSession, warehouse: Path):
    """It stands behind the floor, and nothing it was built from is left."""
    market = Market(spark, warehouse, table())
    market.tell(1)
    market.history.snapshot("quotes", {1: {"Sym": "AAPL", "Qty": 2}})
    market.history.update("trades", modified={1: {"Qty": 2}})
    market.built.land(market.history)
    assert market.built.build() == {}
    market.without_trades()
    floor = market.drop()
    market.with_trades()

    assert 0 < floor < (market.status().applied_position or 0)
    assert market.verify().verdict is Verdict.UNKNOWN
    assert f"lacks positions 0 to {floor - 1}" in str(market.verify().reason)
    with pytest.raises(ApplyError, match=f"frames before position {floor} were dropped while it was not in the feed"):
        market.rebuild()
    market.tell(3)
    assert market.built.build() == {}
    assert market.verify().verdict is Verdict.EQUAL
