"""Verifying silver that is written by hand: what is found, and what is not taken for a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.base import Feed
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.pipelines.holding.quarantine_log import Hold, skip
from silverfold.pipelines.landing.bronze_table import SCHEMA
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.cuts import record
from silverfold.pipelines.verifying.reference_fold import LandedTable, fold_bronze
from silverfold.pipelines.verifying.reference_history import fold_history
from silverfold.pipelines.verifying.verify import Difference, TableVerification, Verdict, verify_table
from tests.support.cut_rows import cut_row
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.written_silver import write_silver

FEED = "market"
COLUMNS = {"Sym": "String", "Qty": "Long"}
STATE = pa.schema([("_row_key", pa.int64()), ("Sym", pa.string()), ("Qty", pa.int64()), ("_position", pa.int64())])
LOG = pa.schema(
    [
        ("_op", pa.string()),
        ("_position", pa.int64()),
        ("_row_key", pa.int64()),
        ("_last_row_key", pa.int64()),
        ("_present", pa.list_(pa.string())),
        ("Sym", pa.string()),
        ("Qty", pa.int64()),
    ]
)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Warehouse:
    """A feed with the table quotes."""

    def __init__(self, root: Path, columns: Mapping[str, str] = COLUMNS, **settings: Any) -> None:
        self.places = Places(str(root))
        self.settings = DeephavenTable(source="quotes", **settings)
        self.feed = Feed(FEED, "deephaven", "unused", DeephavenOptions(), {"quotes": self.settings})
        self.history = LandedHistory({"quotes": columns}, streams={"quotes": self.settings.stream("quotes")})

    def land(self) -> int:
        return self.history.land(self.places.bronze(FEED), FEED)

    def write(self, rows: Sequence[dict[str, Any]], position: int, schema: pa.Schema = STATE) -> None:
        write_silver(self.places, FEED, "quotes", rows, position=position, schema=schema)

    def verify(self) -> TableVerification:
        return verify_table(self.places, CONNECTOR, self.feed, "quotes")


def quote(key: int, sym: str | None, qty: int | None) -> dict[str, Any]:
    return {"_row_key": key, "Sym": sym, "Qty": qty, "_position": 0}


pytestmark = pytest.mark.usefixtures("rows_at_once")
either_way = pytest.mark.parametrize("rows_at_once", [None, 1], ids=["at once", "a row at a time"], indirect=True)


@pytest.fixture
def market(tmp_path: Path) -> Warehouse:
    """Snapshot at positions 3 to 6, an update at 7 to 10."""
    market = Warehouse(tmp_path)
    market.history.connect()
    market.history.snapshot("quotes", {1: {"Sym": "AAPL", "Qty": 5}, 2: {"Sym": "IBM", "Qty": 6}})
    market.history.update("quotes", removed=[1], modified={2: {"Qty": 7}})
    assert market.land() == 10
    return market


def test_a_table_is_compared_at_the_position_it_has_reached(market: Warehouse):
    market.write([quote(1, "AAPL", 5), quote(2, "IBM", 6)], position=6)
    before = market.verify()
    market.write([quote(2, "IBM", 7)], position=10)
    after = market.verify()

    assert (before.verdict, before.position, before.found_rows) == (Verdict.EQUAL, 6, 2)
    assert (after.verdict, after.position, after.found_rows) == (Verdict.EQUAL, 10, 1)
    assert (after.folded_from, after.delta_version) == (3, 1)


@either_way
def test_a_wrong_cell_is_named_with_key_column_and_both_values(market: Warehouse):
    market.write([quote(2, "IBM", 6)], position=10)

    found = market.verify()

    assert (found.verdict, found.different_cells) == (Verdict.DIFFERENT, 1)
    assert found.differences == (Difference(key={"_row_key": 2}, column="Qty", expected=7, found=6),)


def test_a_column_is_compared_whatever_its_letter_case_became(market: Warehouse):
    market.history.columns = {"quotes": {"SYM": "String", "Qty": "Long"}}
    market.history.connect()
    market.history.snapshot("quotes", {1: {"SYM": "AAPL", "Qty": 5}, 2: {"SYM": "IBM", "Qty": 6}})
    position = market.land()

    market.write([quote(1, "AAPL", 5), quote(2, "MSFT", 6)], position=position)
    wrong = market.verify()
    market.write([quote(1, "AAPL", 5), quote(2, "IBM", 6)], position=position)

    assert market.verify().verdict is Verdict.EQUAL
    assert wrong.differences == (Difference(key={"_row_key": 2}, column="Sym", expected="IBM", found="MSFT"),)


def test_keys_of_another_type_are_told(tmp_path: Path):
    market = Warehouse(tmp_path, keys=("Sym",))
    market.history.connect()
    market.history.snapshot("quotes", {1: {"Sym": "7", "Qty": 5}})
    kinds = pa.schema([("Sym", pa.int64()), ("Qty", pa.int64()), ("_position", pa.int64())])
    market.write([{"Sym": 7, "Qty": 5, "_position": 0}], position=market.land(), schema=kinds)

    found = market.verify()

    assert (found.verdict, found.found_rows) == (Verdict.DIFFERENT, 1)
    assert "keys are of another type" in str(found.reason)


def test_a_row_that_should_be_gone_and_one_that_should_be_there_are_counted(market: Warehouse):
    market.write([quote(1, "AAPL", 5)], position=10)

    found = market.verify()

    assert (found.missing_rows, found.extra_rows, found.different_cells) == (1, 1, 0)
    assert [(each.key, each.column) for each in found.differences] == [({"_row_key": 1}, None), ({"_row_key": 2}, None)]


@either_way
def test_what_differs_is_told_with_its_range_whichever_rows_are_looked_at_together(tmp_path: Path):
    market = Warehouse(tmp_path)
    market.history.connect()
    market.history.snapshot("quotes", {key: {"Sym": "x", "Qty": key} for key in range(10)})
    market.history.update("quotes", removed=[3, 4, 5], added={20: {"Sym": "y", "Qty": 20}})
    rows = [quote(key, "x", key) for key in (0, 1, 2, 6, 7, 8)] + [quote(20, "y", 20)]
    rows[3], twice = quote(6, "z", 6), quote(8, "x", 8)
    market.write([*rows, twice, quote(4, "x", 4)], position=market.land())

    found = market.verify()

    assert (found.expected_rows, found.found_rows) == (8, 9)
    assert (found.missing_rows, found.extra_rows, found.different_cells) == (1, 2, 1)
    named = [(each.key["_row_key"], each.column, each.expected is None) for each in found.differences]
    assert named == [(4, None, True), (6, "Sym", False), (8, None, True), (9, None, False)]
    assert (found.ranges[0].first_key["_row_key"], found.ranges[-1].last_key["_row_key"]) in ((0, 20), (4, 9))


@either_way
def test_rows_without_a_key_are_too_many_whichever_rows_are_looked_at_together(market: Warehouse):
    rows = [quote(2, "IBM", 7)] + [quote(1, "x", 0) | {"_row_key": None}] * 3
    market.write(rows, position=10)

    found = market.verify()

    assert (found.verdict, found.missing_rows, found.extra_rows) == (Verdict.DIFFERENT, 0, 3)


def test_where_a_row_was_written_last_does_not_count_in_a_state(market: Warehouse):
    market.write([quote(2, "IBM", 7) | {"_position": 99}], position=10)

    assert market.verify().verdict is Verdict.EQUAL


def test_what_came_before_the_last_whole_snapshot_of_the_epoch_does_not_count(market: Warehouse):
    market.history.snapshot("quotes", {9: {"Sym": "new", "Qty": 1}})
    last = market.land()
    market.write([quote(9, "new", 1)], position=last)

    found = market.verify()

    assert (found.verdict, found.folded_from) == (Verdict.EQUAL, 11)


def test_a_table_stands_in_its_epoch_until_the_next_has_a_whole_snapshot(market: Warehouse):
    market.history.connect()
    market.history.begin("quotes")
    market.history.rows("quotes", {2: {"Qty": 1000}}, modified=True)
    market.history.end("quotes")
    market.land()
    market.write([quote(2, "IBM", 7)], position=10)

    assert market.verify().verdict is Verdict.EQUAL


def test_rows_are_named_by_the_keys_that_are_configured(tmp_path: Path):
    market = Warehouse(tmp_path, keys=("Sym",))
    market.history.connect()
    market.history.snapshot("quotes", {1: {"Sym": "AAPL", "Qty": 5}, 2: {"Sym": "IBM", "Qty": 6}})
    market.history.update("quotes", modified={1: {"Sym": "IBM"}, 2: {"Sym": "AAPL"}})
    position = market.land()
    market.write([quote(2, "AAPL", 5), quote(1, "IBM", 5)], position=position)

    found = market.verify()

    assert found.differences == (Difference(key={"Sym": "AAPL"}, column="Qty", expected=6, found=5),)


def test_a_log_is_compared_row_by_row_and_position_by_position(tmp_path: Path):
    market = Warehouse(tmp_path, mode="updates_only")
    market.history.connect()  # 0 to 2
    market.history.update("quotes", removed=[7, 8], added={1: {"Sym": "AAPL", "Qty": 5}})  # 3 to 7
    market.history.update("quotes", modified={1: {"Qty": 6}})  # 8 to 10
    market.land()
    removed = {"_op": "delete", "_position": 4, "_row_key": 7, "_last_row_key": 8}
    added = {"_op": "insert", "_position": 6, "_row_key": 1, "Sym": "AAPL", "Qty": 5}
    modified = {"_op": "update", "_position": 9, "_row_key": 1, "_present": ["Qty"], "Qty": 6}
    market.write([removed, added, modified], position=10, schema=LOG)
    right = market.verify()
    market.write([removed, added | {"_position": 5}, modified], position=10, schema=LOG)
    wrong = market.verify()

    assert (right.verdict, right.found_rows) == (Verdict.EQUAL, 3)
    assert (wrong.verdict, wrong.missing_rows, wrong.extra_rows) == (Verdict.DIFFERENT, 1, 1)


def test_an_upserted_row_begins_where_it_is_first_modified(tmp_path: Path):
    market = Warehouse(tmp_path, mode="updates_only", apply="upsert")
    market.history.connect()
    market.history.update("quotes", modified={1: {"Qty": 6}})
    position = market.land()
    market.write([quote(1, None, 6)], position=position)

    assert market.verify().verdict is Verdict.EQUAL


def test_a_removed_range_wider_than_the_table_costs_nothing(tmp_path: Path):
    market = Warehouse(tmp_path)
    market.history.connect()
    market.history.snapshot("quotes", {1: {"Sym": "AAPL", "Qty": 5}, 10**15: {"Sym": "IBM", "Qty": 6}})
    market.history.begin("quotes")
    market.history.removed("quotes", [(2, 10**14)])
    market.history.removed("quotes", [(10**15, 10**15 + 1)])
    market.history.end("quotes")
    position = market.land()
    market.write([quote(1, "AAPL", 5)], position=position)

    assert market.verify().verdict is Verdict.EQUAL


def test_positions_missing_where_they_are_needed_leave_it_unknown(market: Warehouse):
    market.write([quote(2, "IBM", 7)], position=10)
    drop(market, "frame_seq = 8")

    found = market.verify()

    reason = "lacks positions 8 to 8: `silverfold status` says what can be done"
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, f"bronze of feed market {reason}")


def test_positions_missing_before_the_snapshot_are_not_needed(market: Warehouse):
    market.write([quote(2, "IBM", 7)], position=10)
    drop(market, "frame_seq = 0")

    assert market.verify().verdict is Verdict.EQUAL


def drop(market: Warehouse, condition: str) -> None:
    bronze = DeltaTable(market.places.bronze(FEED).url)
    bronze.alter.set_table_properties({"delta.appendOnly": "false"})
    write_deltalake(bronze, SCHEMA.empty_table(), mode="overwrite", predicate=condition)


def test_a_frame_that_cannot_be_read_leaves_it_unknown_unless_it_is_skipped(market: Warehouse):
    market.history.begin("quotes")  # 11
    market.history.inside("quotes", b"nonsense")
    market.history.rows("quotes", {2: {"Qty": 8}}, modified=True)
    market.history.end("quotes")
    market.write([quote(2, "IBM", 8)], position=market.land())
    unread = market.verify()
    bad = Hold(position=12, update_position=11, error_class="WIRE_ERROR", reason="nonsense", found_at=NOON)
    skip(market.places, FEED, "quotes", bad, now=NOON)
    skipped = market.verify()

    assert unread.verdict is Verdict.UNKNOWN
    assert skipped.verdict is Verdict.EQUAL


@either_way
def test_a_cell_that_cannot_be_read_leaves_its_whole_update_unread_whichever_rows_are_looked_at(tmp_path: Path):
    market = Warehouse(tmp_path, {"Sym": "String", "Qty": "Decimal"}, decimals={"Qty": 1}, stored_as_scd_type=2)
    rows = {1: {"Sym": "A", "Qty": Decimal("0.5")}, 2: {"Sym": "B", "Qty": Decimal("0.5")}}
    market.history.connect()
    market.history.snapshot("quotes", rows)
    before = market.land()
    market.history.update("quotes", modified={1: {"Qty": Decimal("1.5")}, 2: {"Qty": Decimal("0.25")}})
    landed = LandedTable(market.places.bronze(FEED), CONNECTOR, market.feed, "quotes", market.land())
    market.history.connect()
    market.history.snapshot("quotes", rows)
    passed = replace(landed, through=market.land())

    spans = [EVERY_KEY, KeySpan(None, (2,)), KeySpan((2,), None)]
    versions = [fold_history(passed).expected(span).rows for span in spans]
    for fold, span in product((fold_bronze(landed), fold_history(landed)), spans):
        with pytest.raises(InvalidValue):
            fold.expected(span)

    assert [len(rows) for rows in versions] == [2, 1, 1]
    assert {row["__START_AT"] for rows in versions for row in rows} == {before}


def test_a_table_that_was_never_built_is_told_from_one_that_is_gone(market: Warehouse):
    never = market.verify()
    cut = cut_row(delta_version=4, first_position=3, last_position=10, replaced=True, updates=2, committed_at=NOON)
    record(market.places, FEED, cut)
    gone = market.verify()

    assert never.verdict is Verdict.NOT_BUILT
    assert (gone.verdict, gone.reason) == (Verdict.DIFFERENT, "the table is gone: it had reached position 10")


def test_rows_without_a_position_should_not_be_there(market: Warehouse):
    rows = pa.Table.from_pylist([quote(1, "AAPL", 5)], schema=STATE)
    write_deltalake(market.places.silver(FEED, "quotes").url, rows)

    found = market.verify()

    assert (found.verdict, found.position, found.extra_rows) == (Verdict.DIFFERENT, None, 1)


MOMENT = pa.timestamp("us", "UTC")
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
VALUES = {
    "DateTime": (
        1_700_000_000_123_456_789,
        datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC),
        pa.timestamp("us", "UTC"),
    ),
    "Decimal": ("1.50", "1.50", pa.string()),
    "Boolean": (True, True, pa.bool_()),
    "Char": ("é", "é", pa.string()),
    "Float": (0.5, 0.5, pa.float32()),
    "DateTimeArray": (
        [-1, None],
        [datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None],
        pa.list_(pa.timestamp("us", "UTC")),
    ),
    "StringSet": (["a"], ["a"], pa.list_(pa.string())),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_expected_in_the_form_silver_has(tmp_path: Path, kind: str):
    sent, stored, arrow = VALUES[kind]
    market = Warehouse(tmp_path, columns={"v": kind})
    market.history.connect()
    market.history.snapshot("quotes", {1: {"v": Decimal(sent) if kind == "Decimal" else sent}})
    schema = pa.schema([("_row_key", pa.int64()), ("v", arrow), ("_position", pa.int64())])
    market.write([{"_row_key": 1, "v": stored, "_position": 4}], position=market.land(), schema=schema)

    found = market.verify()

    assert (found.verdict, found.differences) == (Verdict.EQUAL, ())
