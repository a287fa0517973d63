"""A table built under other settings, or that lacks what it was built with: it goes on only where it comes right."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import silverfold.pipelines.upkeep.rebuild
from silverfold.conf.model import Table
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.connectors.sbe.options import SbeTable
from silverfold.connectors.sqlitecloud.options import SqliteCloudTable
from silverfold.pipelines.reading.status import TableStatus, read_status
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.cuts import newest_note
from silverfold.pipelines.storage.row_settings import differing
from silverfold.pipelines.storage.swap import Live
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.building import Built, table
from tests.support.copies import BuiltMarket
from tests.support.deaths import Died
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.deephaven.vectors import VECTORS
from tests.support.sizes import as_if_large

SMALL = {"small": {"condition": "Qty < 100", "action": "quarantine"}}
WARNS = {"small": {"condition": "Qty < 100", "action": "warn"}}


class Market(BuiltMarket):
    """A table of three rows, two of which have one quantity."""

    def __init__(self, spark: SparkSession, warehouse: Path, *, max_frames: int = 200_000, **settings: Any) -> None:
        self.spark, self.warehouse = spark, warehouse
        self.built = Built(spark, warehouse, {"t": table(source="t", **settings)}, max_frames=max_frames)
        self.history = LandedHistory({"t": {"Sym": "String", "Qty": "Long"}})
        self.snapshot(0)
        assert self.built.land_and_build(self.history) == {}

    def snapshot(self, more: int) -> None:
        self.history.connect()
        rows = {1: ("AAPL", 10 + more), 2: ("IBM", 20), 3: ("MSFT", 20)}
        self.history.snapshot("t", {key: {"Sym": sym, "Qty": qty} for key, (sym, qty) in rows.items()})

    def change(self, **settings: Any) -> None:
        """Give the table other settings, as the next process has them."""
        self.built.feed = replace(self.built.feed, tables={"t": table(source="t", **settings)})

    def update(self, key: int, qty: int) -> Any:
        """Let a row have another quantity; return what holds the table then."""
        self.history.update("t", modified={key: {"Qty": qty}})
        return self.built.land_and_build(self.history).get("t")

    def rows(self) -> dict[str, int]:
        return {row["Sym"]: row["Qty"] for row in self.built.rows("t").values()}

    def rebuild(self) -> None:
        """Build the table anew, as far as it was; then what it was held before."""
        Rebuild(self.spark, self.built.settings, CONNECTOR, self.built.feed, "t", "again").run()
        assert self.built.build() == {}

    def is_equal(self) -> bool:
        proofs = [verify_table, *([verify_history] if self.table.keeps_history else [])]
        found = [proof(self.built.places, CONNECTOR, self.built.feed, "t").verdict for proof in proofs]
        return set(found) == {Verdict.EQUAL}

    def status(self) -> TableStatus:
        """Read how the table stands."""
        (found,) = read_status(self.built.places, CONNECTOR, self.built.feed, now=datetime.now(UTC)).tables
        return found

    @property
    def table(self) -> DeephavenTable:
        found = self.built.feed.tables["t"]
        assert isinstance(found, DeephavenTable)
        return found


@pytest.fixture(scope="module")
def market_built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Market:
    """Build the table once; each test has a copy."""
    return Market(spark, tmp_path_factory.mktemp("market"))


@pytest.fixture
def market(market_built: Market, warehouse: Path) -> Market:
    return market_built.copied_to(warehouse)


def test_other_keys_hold_a_table_until_it_is_rebuilt(market: Market) -> None:
    market.change(keys=("Sym",))
    held = market.update(1, 11)
    assert (
        str(held)
        == "t: keys is Sym, the table was built with _row_key: put that back, or run silverfold rebuild market t"
    )
    assert market.rows() == {"AAPL": 10, "IBM": 20, "MSFT": 20}
    assert market.status().fault is not None

    running = market.built.start()
    assert list(market.built.build(running)) == ["t"]
    market.rebuild()
    market.history.update("t", modified={2: {"Qty": 21}})
    market.built.land(market.history)
    running.refresh()
    assert market.built.build(running) == {}, "a build that runs goes on by itself"
    assert (market.rows(), market.is_equal()) == ({"AAPL": 11, "IBM": 21, "MSFT": 20}, True)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"keys": ("nope",)}, "keys is nope, the table was built with _row_key"),
        ({"mode": "updates_only"}, "mode is updates_only, the table was built with snapshot_with_updates"),
    ],
)
def test_rows_built_under_other_settings_are_not_compared(
    spark: SparkSession, warehouse: Path, now: dict[str, Any], reason: str
) -> None:
    market = Market(spark, warehouse, expect={"few": {"condition": "Qty < 15", "action": "quarantine"}})
    market.change(**now)
    found = verify_table(market.built.places, CONNECTOR, market.built.feed, "t")
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, reason)


def test_a_snapshot_gives_a_table_other_keys(market: Market) -> None:
    """Rows that had a key of their own before may share one of today's: none is left over."""
    market.change(keys=("Qty",))
    market.history.connect()
    market.history.snapshot("t", {1: {"Sym": "AAPL", "Qty": 20}})
    assert market.built.land_and_build(market.history) == {}
    assert (market.rows(), market.is_equal()) == ({"AAPL": 20}, True)
    assert market.update(1, 21) is None
    assert (market.rows(), market.is_equal()) == ({"AAPL": 21}, True)


@pytest.mark.nightly
def test_keys_that_are_named_or_not_are_the_same_keys(market: Market) -> None:
    market.change(keys=("Sym",))
    market.rebuild()
    market.change(keys=("Sym",), expect=SMALL)
    assert market.update(1, 500) is None
    assert (market.rows(), market.is_equal()) == ({"IBM": 20, "MSFT": 20}, True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param({"keys": ("Sym",)}, "keys is Sym, the table was built with _row_key", marks=pytest.mark.nightly),
        ({"stored_as_scd_type": 2}, "it is to keep a history, and was built without"),
    ],
)
def test_status_says_that_settings_will_hold_a_table_though_nothing_comes(
    market: Market, settings: dict[str, Any], reason: str
) -> None:
    assert market.status().built_otherwise is None
    market.change(**settings)
    assert market.built.build() == {}

    assert market.status().built_otherwise == reason
    market.rebuild()
    assert market.status().built_otherwise is None
    if market.table.keeps_history:
        shutil.rmtree(market.built.places.history("market", "t").local or "")
        assert market.status().built_otherwise == "its history is gone"


@pytest.mark.nightly
def test_a_history_that_begins_after_its_table_holds_it_until_it_is_rebuilt(market: Market) -> None:
    market.change(stored_as_scd_type=2)
    held = market.update(1, 11)
    assert "its newest cut was applied without a history" in str(held)

    market.rebuild()
    assert market.update(1, 12) is None
    assert market.is_equal()

    market.change()
    assert market.update(1, 13) is None
    market.change(stored_as_scd_type=2)
    assert "its newest cut was applied without a history" in str(market.update(1, 14))
    market.rebuild()
    assert (market.rows()["AAPL"], market.is_equal()) == (14, True)


def test_a_table_whose_rows_aside_are_gone_holds_until_it_is_rebuilt(spark: SparkSession, warehouse: Path) -> None:
    market = Market(spark, warehouse, expect=SMALL)
    assert market.update(1, 500) is None
    shutil.rmtree(market.built.places.side_table(market.built.feed.name, "t").url)
    assert market.status().built_otherwise == "the rows that were kept aside are gone"
    assert "the rows that were kept aside are gone" in str(market.update(2, 21))

    market.rebuild()
    assert (market.rows(), market.is_equal()) == ({"IBM": 21, "MSFT": 20}, True)


@pytest.mark.parametrize(
    ("apply", "now", "stream"),
    [
        pytest.param("log", {"source": "B"}, "t/B", marks=pytest.mark.nightly),
        ("upsert", {"source": "A", "filter": "Qty > 1"}, "t/A?Qty > 1"),
    ],
)
def test_updates_of_another_source_or_filter_alone_are_rows_of_a_table_that_is_rebuilt(
    spark: SparkSession, warehouse: Path, apply: str, now: dict[str, Any], stream: str
) -> None:
    """No snapshot tells where the updates of the one end and those of the other begin."""
    settings = {"mode": "updates_only", "apply": apply}
    built = Built(spark, warehouse, {"t": table(source="A", **settings)})
    history = LandedHistory({"t/A": {"Qty": "Long"}, stream: {"Qty": "Long"}})
    history.connect(streams=["t/A"])
    history.update("t/A", added={1: {"Qty": 1}})
    assert built.land_and_build(history) == {}

    built.settle(table(**now, **settings))
    history.connect(streams=[stream])
    history.update(stream, added={2: {"Qty": 2}})
    (held,) = built.land_and_build(history).values()
    (changed,) = now.items() - {"source": "A"}.items()
    assert f"t: {changed[0]} is {changed[1]}, the table was built with" in str(held)
    built.settle(table(source="A", **settings))  # put back, as it says
    assert built.build() == {}
    assert built.holds("t") == []
    built.settle(table(**now, **settings))
    assert list(built.build()) == ["t"]
    Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "again").run()
    assert built.build() == {}

    assert [row["Qty"] for row in built.records("t")] == [2]
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL


@pytest.mark.nightly
def test_a_table_without_rows_is_of_its_settings_too(market: Market) -> None:
    market.history.update("t", removed=[1, 2, 3])
    assert market.built.land_and_build(market.history) == {}
    market.change(keys=("Sym",))
    market.history.update("t", added={4: {"Sym": "SAP", "Qty": 1}})
    assert "keys is Sym" in str(market.built.land_and_build(market.history)["t"])

    market.rebuild()
    assert (market.rows(), market.is_equal()) == ({"SAP": 1}, True)


@pytest.mark.nightly
def test_a_list_of_keys_in_another_order_is_the_same_list(market: Market) -> None:
    market.change(keys=("Sym", "Qty"))
    market.rebuild()
    market.change(keys=("Qty", "Sym"))
    assert market.update(1, 11) is None
    assert (market.rows()["AAPL"], market.is_equal()) == (11, True)


@pytest.mark.nightly
def test_a_rebuild_in_several_cuts_that_ends_with_no_row_aside_asks_for_none(
    spark: SparkSession, warehouse: Path
) -> None:
    market = Market(spark, warehouse, max_frames=3)
    for qty in (500, 5, 6):
        assert market.update(1, qty) is None
    market.change(expect=SMALL)
    with as_if_large():
        market.rebuild()
        assert market.update(2, 21) is None
    assert (market.rows(), market.is_equal()) == ({"AAPL": 6, "IBM": 21, "MSFT": 20}, True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("settings", "other"), [({"stored_as_scd_type": 2}, {"expect": WARNS}), ({"expect": SMALL}, {"keys": ("Sym",)})]
)
def test_what_a_rebuild_by_other_settings_has_put_beside_the_table_counts_for_nothing_once_it_died(
    spark: SparkSession,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    other: dict[str, Any],
) -> None:
    market = Market(spark, warehouse, **settings)
    assert market.update(1, 500) is None
    market.change(**settings, **other)
    swap_in = silverfold.pipelines.upkeep.rebuild.swap_in

    def dying(rows: DataFrame, note: CommitNote, live: Live) -> int:
        if live.place.url == market.built.places.silver(market.built.feed.name, "t").url:
            raise Died
        return swap_in(rows, note, live)

    with monkeypatch.context() as patched:
        patched.setattr(silverfold.pipelines.upkeep.rebuild, "swap_in", dying)
        with pytest.raises(Died):
            market.rebuild()
    market.change(**settings)
    assert market.update(2, 21) is None
    assert (market.rows()["IBM"], market.is_equal()) == (21, True)

    market.rebuild()
    assert market.update(2, 22) is None
    assert (market.rows()["IBM"], market.is_equal()) == (22, True)


def test_however_much_upkeep_came_after_the_last_cut_its_note_is_found(market: Market) -> None:
    place = market.built.places.silver(market.built.feed.name, "t")
    known = newest_note(open_table(place))
    for number in range(110):
        DeltaTable(place.url).alter.set_table_properties({"delta.logRetentionDuration": f"interval {30 + number} days"})
    assert (newest_note(open_table(place)), known is None) == (known, False)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (DeephavenTable(source="T"), {"mode": "snapshot_with_updates", "apply": "log"}),
        (
            DeephavenTable(source="T", mode="updates_only", apply="upsert"),
            {"mode": "updates_only", "apply": "upsert", "source": "T", "filter": ""},
        ),
        (
            SbeTable(template="M", keys=("a",), operation="op", deletes=("X",)),
            {"group": "", "operation": "op", "inserts": [], "updates": [], "deletes": ["X"]}
            | {"unknown_values": "keep", "absent": "null", "time_unit": "nanosecond"},
        ),
        (SqliteCloudTable(key_collation="nocase"), {"key_collation": "nocase"}),
    ],
)
def test_each_connector_says_what_else_makes_other_rows(settings: Table, expected: dict[str, object]) -> None:
    assert settings.row_settings == expected


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["a rule", "a frame"])
def test_a_table_whose_settings_changed_is_rebuilt_up_to_what_holds_it_later(
    spark: SparkSession, warehouse: Path, fault: str
) -> None:
    market = Market(spark, warehouse)
    market.update(1, 11)
    market.history.update("t", modified={2: {"Qty": 22}})
    if fault == "a frame":
        market.history.begin("t")
        market.history.inside("t", VECTORS["unknown-template"].body)
        market.history.end("t")
    else:
        market.history.update("t", modified={3: {"Qty": 500}})
    rules = {"few": {"condition": "Qty < 100", "action": "fail"}}
    market.change(stored_as_scd_type=2, expect=rules)
    assert market.built.land_and_build(market.history)["t"].error_class == "REBUILD_NEEDED"

    Rebuild(spark, market.built.settings, CONNECTOR, market.built.feed, "t", "again").run()

    assert market.rows() == {"AAPL": 11, "IBM": 22, "MSFT": 20}
    assert market.is_equal()
    held = market.built.build()["t"]
    assert held.error_class == {"a rule": "EXPECTATION_FAILED", "a frame": "UNDECODABLE_FRAME"}[fault]


def test_keys_are_the_same_in_any_order_and_letter_case() -> None:
    assert differing({"keys": ["id", "b"]}, {"keys": ["B", "ID"]}) == []
    assert differing({"deletes": ["Cancel"]}, {"deletes": ["cancel"]}) == ["deletes"]
