"""Compares the rows of two DataFrames on chispa, which has the comparison of schemas and the table of differences.

chispa compares rows one by one, in an order that maps do not have, and takes a NaN inside a map for another value. Here
each row is matched with an equal one of the other side first, so that chispa only has to show the rows left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Final

from chispa import DataFramesNotEqualError, SchemasNotEqualError
from chispa.rows_comparer import assert_basic_rows_equality
from chispa.schema_comparer import assert_schema_equality
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructField, StructType

from silverfold.transforms.sql import quoted

_SHOWN: Final = 20
"""Maximum number of differing rows of each side in a message."""


class _NotANumber:
    """Equal to itself only, as NaN is in SQL, of which there is one."""

    def __repr__(self) -> str:
        return "nan"


_NAN: Final = _NotANumber()


def assert_rows_equal(
    spark: SparkSession,
    called: str,
    found: DataFrame,
    expected: DataFrame | Iterable[Mapping[str, Any]],
    *,
    optional: AbstractSet[str] = frozenset(),
    note: str = "",
) -> None:
    """Assert that a DataFrame has the expected columns and rows, both in any order.

    Args:
        called: The DataFrame in messages.
        expected: A DataFrame; or rows by column, where a column that a row lacks is NULL.
        optional: Lower-case names of columns that are compared only if they are expected.
        note: The end of the message.

    Raises:
        AssertionError: They differ.
        TypeError: What is expected are no rows.
    """
    if isinstance(expected, DataFrame):
        found = _compared(found, expected.columns, optional)
        if set(expected.columns) == set(found.columns):
            expected = expected.select(*map(quoted, found.columns))
    else:
        rows = listed(expected)
        names = {name for row in rows for name in row}
        found = _compared(found, names, optional)
        if unknown := sorted(names.difference(found.columns)):
            there = ", ".join(found.columns)
            raise AssertionError(f"{called} has no column {', '.join(unknown)}; its columns: {there}{note}")
        expected = _dataframe(spark, rows, found.schema)
    try:
        assert_schema_equality(found.schema, expected.schema, ignore_nullable=True, ignore_metadata=True)
    except SchemasNotEqualError as error:
        raise AssertionError(f"{called} has other columns (left) than expected (right):{error}{note}") from None
    assert_same_rows(called, found.collect(), expected.collect(), note)


def _compared(found: DataFrame, expected: Collection[str], optional: AbstractSet[str]) -> DataFrame:
    """Return a DataFrame without the optional columns that are not expected."""
    return found.select(*(quoted(name) for name in found.columns if name in expected or name.lower() not in optional))


def listed(expected: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows as a list, since an iterator has them only once. Raises TypeError if they are none."""
    rows = list(expected)
    if isinstance(expected, Mapping) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError("rows are expected as a DataFrame, or as a list of mappings of values by column")
    return rows


def _dataframe(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: StructType) -> DataFrame:
    """Return rows by column as a DataFrame, with NULL in columns that a row lacks."""
    nullable = StructType([StructField(each.name, each.dataType) for each in schema])
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], nullable)


def assert_same_rows(called: str, found: Sequence[Row], expected: Sequence[Row], note: str = "") -> None:
    """Assert that both have the same rows, as often, in any order. Arguments are as in `assert_rows_equal`."""
    more, less = _without(found, expected), _without(expected, found)
    if not more and not less:
        return
    counts = f"{len(more)} rows (left) that are not expected, and lacks {len(less)} that are (right)"
    shown = "" if max(len(more), len(less)) <= _SHOWN else f", of which up to {_SHOWN} of each are shown"
    raise AssertionError(f"{called} has {counts}{shown}:{_differences(more[:_SHOWN], less[:_SHOWN])}{note}")


def _without(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """Return the rows without those that are equal to another one of the others, each of which counts once."""
    counts = Counter(map(_comparable, others))
    left = list[Row]()
    for row in rows:
        value = _comparable(row)
        if counts[value]:
            counts[value] -= 1
        else:
            left.append(row)
    return sorted(left, key=str)


def _comparable(value: Any) -> Any:
    """Return a hashable value, the same for all values that SQL takes for equal."""
    match value:
        case float() if math.isnan(value):
            return _NAN
        case list() | tuple():  # a struct is a tuple, too
            return tuple(map(_comparable, value))
        case dict():
            return frozenset((_comparable(key), _comparable(each)) for key, each in value.items())
        case bytearray():
            return bytes(value)
        case datetime():  # twice the same in the hour in which a clock is set back
            return value, value.fold
        case _:
            return value


def _differences(more: Sequence[Row], less: Sequence[Row]) -> str:
    """Return a table of rows that are equal to none of the other side, each beside the one that is most like it."""
    pairs, rest = list[tuple[Row | None, Row | None]](), list(less)
    for row in more:
        other = max(rest, key=lambda each: _likeness(row, each), default=None)
        if other is not None and _likeness(row, other):
            rest.remove(other)
            pairs.append((row, other))
        else:
            pairs.append((row, None))
    pairs += [(None, row) for row in rest]
    left, right = list[Any](), list[Any]()  # chispa takes None for a row that is missing, which its types do not say
    for one, another in pairs:
        left.append(_shown(one))
        right.append(_shown(another))
    try:
        assert_basic_rows_equality(left, right)
    except DataFramesNotEqualError as error:
        return str(error)
    return f"\n{pairs}"


def _likeness(row: Row, other: Row) -> int:
    """Return the number of equal cells."""
    return sum(_comparable(one) == _comparable(another) for one, another in zip(row, other, strict=True))


def _shown(row: Row | None) -> Row | None:
    """Return a row in which a NaN is equal to another."""
    return (
        None
        if row is None
        else Row(*row.__fields__)(*(_NAN if isinstance(each, float) and math.isnan(each) else each for each in row))
    )
