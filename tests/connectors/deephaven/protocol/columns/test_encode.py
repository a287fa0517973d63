"""Columns split over messages: every row once, in order, within the buffer."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import InvalidValue, LocalProtocolError, SourceRefused
from silverfold.connectors.deephaven.protocol.columns.decode import decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.columns.encode import encode_column, encode_removed
from silverfold.connectors.deephaven.protocol.messages import ErrorCode
from silverfold.connectors.deephaven.protocol.types import TYPES
from tests.support.deephaven.columns import encoded, pairs
from tests.support.deephaven.vectors import builtin_roles, other_roles

SCHEMAS = {"builtin": builtin_roles, "other": other_roles}


@st.composite
def row_ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    ranges, at = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=12)):
        ranges.append((at + gap, at + gap + length - 1))
        at += gap + length
    return ranges


@given(ranges=row_ranges(), limit=st.integers(90, 400), schema=st.sampled_from(sorted(SCHEMAS)))
def test_a_fixed_column_is_cut_into_messages_that_hold_every_row_once(
    ranges: list[tuple[int, int]], limit: int, schema: str
) -> None:
    roles = SCHEMAS[schema]()
    keys = [key for first, last in ranges for key in range(first, last + 1)]

    bodies = encoded(roles, "Long", np.array(keys) * 3, *ranges, limit=limit)
    columns = [decode_column(roles, body) for body in bodies]

    assert max(map(len, bodies)) <= limit
    assert [key for column in columns for key in column.row_keys.tolist()] == keys
    assert [value for column in columns for value in column.values.to_pylist()] == [key * 3 for key in keys]
    assert not any(column.warnings for column in columns)


@given(
    texts=st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=60),
    limit=st.integers(200, 500),
    schema=st.sampled_from(sorted(SCHEMAS)),
)
def test_a_text_column_is_cut_between_values(texts: list[str | None], limit: int, schema: str) -> None:
    roles = SCHEMAS[schema]()

    bodies = encoded(roles, "String", texts, limit=limit)

    assert max(map(len, bodies)) <= limit
    assert [value for body in bodies for value in decode_column(roles, body).values.to_pylist()] == texts


def test_messages_hold_as_many_rows_as_the_formula_says() -> None:
    bodies = encoded(builtin_roles(), "Long", np.arange(8187))

    assert [len(decode_column(builtin_roles(), body).row_keys) for body in bodies] == [8186, 1]
    assert len(bodies[0]) == 25 + 16 + 8 * 8186


@pytest.mark.parametrize(("name", "ranges", "rows"), [("Byte", 1, 65495), ("Long", 2, 8184), ("Double", 100, 7988)])
def test_every_range_costs_its_room(name: str, ranges: int, rows: int) -> None:
    single = [(2 * row, 2 * row) for row in range(ranges - 1)]
    long = (2 * ranges, 2 * ranges + rows - len(single))

    bodies = encoded(builtin_roles(), name, np.zeros(rows + 1, TYPES[name].dtype), *single, long)

    assert [len(decode_column(builtin_roles(), body).row_keys) for body in bodies] == [rows, 1]


def test_no_message_holds_more_rows_than_a_count_can_say() -> None:
    bodies = encoded(builtin_roles(), "Byte", np.zeros(70_000, np.int8), limit=1 << 20)

    assert [len(decode_column(builtin_roles(), body).row_keys) for body in bodies] == [65534, 4466]


def test_no_message_holds_more_ranges_than_a_count_can_say() -> None:
    ranges = [(2 * row, 2 * row) for row in range(65_600)]

    bodies = encoded(builtin_roles(), "Byte", np.zeros(65_600, np.int8), *ranges, limit=1 << 22)

    assert [len(decode_column(builtin_roles(), body).ranges) for body in bodies] == [65534, 66]


def test_removed_ranges_are_cut_between_ranges() -> None:
    ranges = [(10 * row, 10 * row + 5) for row in range(10)]

    bodies = list(
        encode_removed(builtin_roles(), subscription_id=7, ranges=pairs(*ranges), limit=8 + 4 + 4 + 16 * 4 + 15)
    )

    found = [decode_removed(builtin_roles(), body).ranges.tolist() for body in bodies]
    assert [len(part) for part in found] == [4, 4, 2]
    assert [tuple(pair) for part in found for pair in part] == ranges


def test_nothing_is_sent_for_no_rows() -> None:
    nothing = pairs()

    assert list(encode_removed(builtin_roles(), subscription_id=7, ranges=nothing, limit=100)) == []
    assert encoded(builtin_roles(), "String", [], *map(tuple, nothing.tolist())) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("String", "x" * 100),
        ("StringArray", ["x" * 20] * 5),
        ("LongArray", [1] * 20),
        ("StringSet", {"a" * 50, "b" * 50}),
        ("LongArray", np.zeros(70_000, np.int64)),
    ],
)
def test_a_value_that_fits_into_no_message_is_refused_before_anything_is_sent(name: str, value: Any) -> None:
    with pytest.raises(SourceRefused) as caught:
        encode_column(
            builtin_roles(),
            TYPES[name],
            [None, value],
            subscription_id=7,
            column_id=0,
            modified=False,
            ranges=pairs((0, 1)),
            limit=120,
        )

    assert caught.value.code == ErrorCode.OBJECT_OVERFLOW


def test_a_text_longer_than_the_schema_allows_is_refused() -> None:
    with pytest.raises(SourceRefused) as caught:
        encoded(other_roles(), "String", ["x" * 65_535], limit=1 << 20)

    assert caught.value.code == ErrorCode.OBJECT_OVERFLOW


def test_a_buffer_without_room_for_a_range_is_refused() -> None:
    with pytest.raises(SourceRefused):
        encode_removed(builtin_roles(), subscription_id=7, ranges=pairs((0, 0)), limit=31)


def test_values_must_be_as_many_as_their_ranges_hold() -> None:
    with pytest.raises(LocalProtocolError, match="ranges hold 3 rows, there are 2 values"):
        encoded(builtin_roles(), "Int", [1, 2], (0, 2))


def test_a_subscription_id_that_the_schema_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidValue, match="subscriptionId 4294967296"):
        encode_removed(builtin_roles(), subscription_id=1 << 32, ranges=pairs((0, 0)), limit=100)


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_a_decimal_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encoded(builtin_roles(), "Decimal", [Decimal(value)])

    assert caught.value.reason == "decimal"


def test_a_set_is_written_sorted_and_a_list_as_it_is() -> None:
    (as_set,) = encoded(builtin_roles(), "StringSet", [{"b", "a"}])
    (as_list,) = encoded(builtin_roles(), "StringSet", [["b", "a"]])

    assert as_set.index(b"a", 40) < as_set.index(b"b", 40)
    assert as_list.index(b"b", 40) < as_list.index(b"a", 40)
