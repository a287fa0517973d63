"""Comparing rows in Python with a table in Arrow."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import silverfold.pipelines.verifying.compare
from silverfold.pipelines.verifying.compare import Cell, Comparison, KeyRange, as_stored, compare


def found(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema([("k", pa.int64()), ("v", pa.float64()), ("s", pa.string())]))


def compared(expected: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Comparison:
    return compare(("k",), ("k", "v", "s"), expected, found(rows))


def row(key: int | None, v: float | None = 1.0, s: str | None = "a") -> dict[str, Any]:
    return {"k": key, "v": v, "s": s}


def test_cells_are_compared_by_key_where_columns_are_alike_under_other_keys():
    """Key 6 became a second 7: the column b has the same values in the same order."""
    expected = [{"a": key, "b": key * 10} for key in (6, 7)]
    found = pa.table({"a": [7, 7], "b": [60, 70]})

    result = compare(["a"], ["a", "b"], expected, found)

    assert (result.missing, result.extra, result.cells) == (1, 1, 1)


def test_a_map_is_its_entries_whatever_their_order_and_nan_is_one_value():
    kind = pa.map_(pa.string(), pa.float64())
    found = pa.table({"k": [1, 2], "v": pa.array([[("a", math.nan), ("b", 1.0)], [("a", 1.0)]], kind)})
    entries = [[("b", 1.0), ("a", math.nan)], [("a", 2.0)]]

    result = compare(["k"], ["k", "v"], [{"k": at, "v": each} for at, each in enumerate(entries, 1)], found)

    assert [each.key for each in result.first] == [(2,)]


def test_rows_in_another_order_are_equal():
    result = compared([row(1), row(2)], [row(2), row(1)])

    assert (result.equal, result.expected_rows, result.found_rows) == (True, 2, 2)
    assert (result.ranges, result.first) == ([], [])


def test_a_cell_that_differs_is_named_with_both_values():
    result = compared([row(1), row(2, s="new")], [row(1), row(2, s="old")])

    assert (result.equal, result.missing, result.extra, result.cells) == (False, 0, 0, 1)
    assert result.first == [Cell((2,), "s", "new", "old")]
    assert result.ranges == [KeyRange((1,), (2,), 2, 2, ("s",))]


def test_a_row_that_one_side_lacks_is_named():
    result = compared([row(1), row(2)], [row(2), row(3)])

    assert (result.missing, result.extra, result.cells) == (1, 1, 0)
    assert [(each.key, each.expected is None, each.found is None) for each in result.first] == [
        ((1,), False, True),
        ((3,), True, False),
    ]


def test_a_key_that_is_there_twice_is_one_row_too_many():
    result = compared([row(1)], [row(1), row(1)])

    assert (result.missing, result.extra, result.cells) == (0, 1, 0)


def test_a_null_key_is_a_row_too_many():
    result = compared([row(1)], [row(1), row(None)])

    assert (result.extra, result.first[0].key) == (1, (None,))


@pytest.mark.parametrize(("mine", "theirs"), [(math.nan, math.nan), (0.0, -0.0), (None, None)])
def test_values_that_are_one_do_not_differ(mine: float | None, theirs: float | None):
    assert compared([row(1, mine)], [row(1, theirs)]).equal


@pytest.mark.parametrize(("mine", "theirs"), [(None, 0.0), (math.nan, None), (1, 1.0), (True, 1.0)])
def test_values_of_another_kind_differ(mine: Any, theirs: float | None):
    assert compared([row(1, mine)], [row(1, theirs)]).cells == 1


@pytest.mark.parametrize(
    ("value", "kind", "held"),
    [
        (8, pa.decimal128(24, 2), Decimal("8.00")),
        (Decimal("8.5"), pa.decimal128(24, 2), Decimal("8.50")),
        (Decimal("8.125"), pa.decimal128(24, 2), Decimal("8.125")),  # it does not fit
        (Decimal("3.00"), pa.int64(), 3),
        (Decimal("3.5"), pa.int64(), Decimal("3.5")),
        (7, pa.float64(), 7.0),
        (True, pa.float64(), True),
        ("8", pa.decimal128(24, 2), "8"),
        (date(2024, 5, 1), pa.timestamp("us"), datetime(2024, 5, 1)),
        (None, pa.decimal128(24, 2), None),
    ],
)
def test_numbers_and_days_are_as_a_column_of_another_width_has_them(value: Any, kind: pa.DataType, held: Any):
    (found,) = (row["v"] for row in as_stored([{"k": 1, "v": value}], pa.schema([("k", pa.int32()), ("v", kind)])))
    assert (found, type(found)) == (held, type(held))


def test_a_column_the_table_lacks_is_null_there():
    result = compare(("k",), ("k", "new"), [{"k": 1, "new": None}, {"k": 2, "new": 5}], pa.table({"k": [1, 2]}))

    assert result.first == [Cell((2,), "new", 5, None)]


def test_a_column_only_the_table_has_must_be_null():
    result = compare(("k",), ("k",), [{"k": 1}, {"k": 2}], pa.table({"k": [1, 2], "more": pa.array([None, 7])}))

    assert result.first == [Cell((2,), "more", None, 7)]


def test_only_ranges_that_differ_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(silverfold.pipelines.verifying.compare, "RANGE_ROWS", 3)
    expected = [row(key) for key in range(0, 20, 2)]  # ranges begin at 0, 6, 12 and 18
    rows = [row(key, s="b" if key == 8 else "a") for key in range(0, 20, 2)] + [row(13), row(99)]

    result = compared(expected, rows)

    assert (result.missing, result.extra, result.cells) == (0, 2, 1)
    assert result.ranges == [
        KeyRange((6,), (10,), 3, 3, ("s",)),
        KeyRange((12,), (16,), 3, 4, ("k", "v", "s")),
        KeyRange((18,), (99,), 1, 2, ("k", "v", "s")),
    ]


def test_no_more_than_ten_differences_are_kept():
    result = compared([row(key) for key in range(50)], [row(key, 2.0) for key in range(50)])

    assert (result.cells, len(result.first), result.first[9]) == (50, 10, Cell((9,), "v", 1.0, 2.0))


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ({"a": 1, "x": None}, {"a": 1}),
        ({"a": 1, "x": 2}, {"a": 1, "x": 2}),
        ({"a": None}, {"a": None}),
        ([{"a": 1, "x": None}, None], [{"a": 1}, None]),
        (None, None),
    ],
)
def test_a_field_inside_that_the_column_is_yet_to_get_is_null_there(value: Any, held: Any) -> None:
    struct = pa.struct([("a", pa.int32())])
    kind = pa.list_(struct) if isinstance(value, list) else struct

    assert as_stored([{"k": 1, "v": value}], pa.schema([("k", pa.int32()), ("v", kind)])) == [{"k": 1, "v": held}]
