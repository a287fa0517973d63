"""Applies filter expressions to columns of rows, giving a mask of the rows that satisfy them.

`connectors.deephaven.server.filters.syntax` defines the syntax. Comparisons follow Deephaven:

- null equals null and is less than everything else; NaN equals NaN and is greater than everything else.
- A number compares exactly with a column of integers (``X > 1.5`` holds from 2 on). With a column of floats it is first
  rounded to the column's precision, so that a float column holding 0.1 satisfies ``X = 0.1``.
- Text compares with String by UTF-16 code units, as in Java; with Char if it is one code unit; with DateTime if it is a
  date-time (`connectors.deephaven.server.filters.times`). true and false compare for equality only.
- Two columns compare if both are fixed-width numbers, or both have the same type. Arithmetic takes fixed-width numbers
  (`connectors.deephaven.server.filters.filters`); a result compares like a column of its type.
- A Boolean column by itself holds where it is true.
- `connectors.deephaven.server.filters.texts` defines the tests of text.
- Arrays and string sets can only be tested for null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.protocol.types import TYPES, ColumnType
from silverfold.connectors.deephaven.server.filters.syntax import parse_filter
from silverfold.connectors.deephaven.server.filters.texts import inclusion_test, membership_test, method_test
from silverfold.connectors.deephaven.server.filters.tree import (
    AllOf,
    AnyOf,
    Column,
    Comparison,
    Constant,
    Expression,
    Includes,
    Membership,
    NanTest,
    Not,
    NullTest,
    Operator,
    Sign,
    TextTest,
    Truth,
    Value,
)
from silverfold.connectors.deephaven.server.filters.values import (
    COMPARABLE,
    FLOATS,
    INTEGERS,
    NUMBERS,
    bind_constant,
    compare,
    compare_columns,
    is_one_of,
    mismatch,
)
from silverfold.connectors.deephaven.server.tables.cells import Cells, null_mask
from silverfold.connectors.deephaven.server.tables.rowkeys import Mask
from silverfold.connectors.deephaven.server.tables.rows import Rows

LONG, DOUBLE = TYPES["Long"], TYPES["Double"]

_OPERATIONS: Mapping[Sign, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "%": np.fmod,
}

Number: TypeAlias = tuple[ColumnType, Cells]
"""`LONG` or `DOUBLE`, and the cells."""


def result_type(sign: Sign, left: ColumnType, right: ColumnType) -> ColumnType:
    """Return the result type of an operation."""
    return DOUBLE if sign == "/" or DOUBLE in (left, right) else LONG


def widen(kind: ColumnType, to: ColumnType, cells: Cells) -> Cells:
    """Return the cells of a numeric column converted to a wider type."""
    wide = cells.astype(to.dtype)
    wide[null_mask(kind, cells)] = to.null
    return wide


def compute(sign: Sign, left: Number, right: Number) -> Number:
    """Return the result of an operation on two numeric columns, row by row."""
    kind = result_type(sign, left[0], right[0])
    nulls = null_mask(*left) | null_mask(*right)
    if sign == "%" and kind is LONG:
        nulls |= right[1] == 0
    with np.errstate(all="ignore"):
        found = _OPERATIONS[sign](widen(*_to(left, kind)), widen(*_to(right, kind)))
    found[nulls] = kind.null
    return kind, found


def _to(number: Number, kind: ColumnType) -> tuple[ColumnType, ColumnType, Cells]:
    return number[0], kind, number[1]


Test: TypeAlias = Callable[[Rows], Mask]

_Cells: TypeAlias = Callable[[Rows], Cells]

_LONG_ENDS = 1 << 63

_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class RowFilter:
    """A filter bound to the columns of a table.

    Args:
        columns: The columns it reads, in order of first mention.
        mask: Returns a mask of the rows that satisfy it; the rows must have these columns. Pure.
    """

    columns: tuple[str, ...]
    mask: Callable[[Rows], Mask]


def bind_filter(text: str, types: Mapping[str, ColumnType]) -> RowFilter:
    """Return the filter that ``text`` describes, for rows with columns of these types.

    Raises:
        InvalidValue: reason ``filter-syntax``, ``filter-column`` (no such column) or ``filter-type`` (such values do
            not compare); ``offset`` is the position in the text as UTF-8, in bytes.
    """
    binder = _Binder(types)
    test = binder.bind(parse_filter(text))
    return RowFilter(tuple(binder.columns), test)


class _Binder:
    def __init__(self, types: Mapping[str, ColumnType]) -> None:
        self._types = types
        self.columns: dict[str, None] = {}

    def bind(self, expression: Expression) -> Test:
        match expression:
            case AllOf(parts):
                return _combine(np.logical_and, [self.bind(part) for part in parts])
            case AnyOf(parts):
                return _combine(np.logical_or, [self.bind(part) for part in parts])
            case Not(part):
                negated = self.bind(part)
                return lambda rows: ~negated(rows)
        return self._bind_test(expression)

    def _bind_test(self, expression: Expression) -> Test:
        tests: Mapping[type, Callable[[Any], Test]] = {
            Comparison: self._comparison,
            Includes: self._includes,
            Membership: self._membership,
            NanTest: self._nan_test,
            NullTest: self._null_test,
            TextTest: self._text_test,
            Truth: self._truth,
        }
        return tests[type(expression)](expression)

    def _type(self, column: Column) -> ColumnType:
        kind = self._types.get(column.name)
        if kind is None:
            raise InvalidValue(f"no column {column.name}", offset=column.position, reason="filter-column")
        self.columns[column.name] = None
        return kind

    def _text(self, column: Column) -> str:
        """Return the name of a String column."""
        kind = self._type(column)
        if kind.name != "String":
            raise mismatch(f"{kind.name} values are no text", column.position)
        return column.name

    def _text_test(self, test: TextTest) -> Test:
        name, tester = self._text(test.column), method_test(test.method, test.text)
        return lambda rows: tester(rows.columns[name])

    def _null_test(self, test: NullTest) -> Test:
        kind, name = self._type(test.column), test.column.name
        return lambda rows: null_mask(kind, rows.columns[name])

    def _nan_test(self, test: NanTest) -> Test:
        kind, cells = self._operand(test.value, test.position)
        if kind.name not in NUMBERS:
            raise mismatch(f"{kind.name} values are no numbers", test.position)
        if kind.name in INTEGERS:
            return lambda rows: np.zeros(len(rows), np.bool_)
        return lambda rows: np.isnan(cells(rows))

    def _truth(self, test: Truth) -> Test:
        kind, name = self._type(test.column), test.column.name
        if kind.name != "Boolean":
            raise mismatch(f"{kind.name} values are no conditions", test.column.position)
        return lambda rows: rows.columns[name] == 1

    def _includes(self, includes: Includes) -> Test:
        name, wanted = self._text(includes.column), [str(text.value) for text in includes.texts]
        tester = inclusion_test(wanted, every=includes.every, any_case=includes.any_case, negated=includes.negated)
        return lambda rows: tester(rows.columns[name])

    def _membership(self, membership: Membership) -> Test:
        kind, name, negated = self._type(membership.column), membership.column.name, membership.negated
        values = [bind_constant(kind, constant) for constant in membership.constants]
        if membership.any_case and kind.name == "String":
            is_member, nulls = membership_test([value for value in values if value is not None]), None in values
            return lambda rows: (
                (is_member(rows.columns[name]) | (null_mask(kind, rows.columns[name]) & nulls)) ^ negated
            )
        return lambda rows: is_one_of(kind, rows.columns[name], values) ^ negated

    def _comparison(self, comparison: Comparison) -> Test:
        left, right = comparison.left, comparison.right
        if isinstance(left, Constant) and isinstance(right, Constant):
            raise mismatch("a comparison needs a column", comparison.position)
        if isinstance(right, Constant):
            return self._compare_constant(comparison.operator, left, right)
        if isinstance(left, Constant):
            return self._compare_constant(_MIRRORED[comparison.operator], right, left)
        return self._compare_values(comparison, left, right)

    def _compare_constant(self, sign: Operator, operand: Value, constant: Constant) -> Test:
        kind, cells = self._operand(operand, constant.position)
        value = bind_constant(kind, constant)
        if sign not in {"=", "!="} and (kind.name == "Boolean" or kind.name not in COMPARABLE):
            raise mismatch(f"{kind.name} values have no order", constant.position)
        return lambda rows: compare(kind, cells(rows), sign, value)

    def _compare_values(self, comparison: Comparison, left: Value, right: Value) -> Test:
        (one, cells), (other, others) = (self._operand(each, comparison.position) for each in (left, right))
        same_type = one.name == other.name and one.name in COMPARABLE
        if not same_type and not {one.name, other.name} <= NUMBERS:
            raise mismatch(f"{one.name} and {other.name} do not compare", comparison.position)
        if comparison.operator not in {"=", "!="} and one.name == "Boolean":
            raise mismatch("Boolean values have no order", comparison.position)
        return lambda rows: compare_columns((one, other), (cells(rows), others(rows)), comparison.operator)

    def _operand(self, value: Value, position: int) -> tuple[ColumnType, _Cells]:
        """Return the type of a value, and a function that returns its cells.

        Args:
            position: Position of the expression that contains it.
        """
        if isinstance(value, Column):
            name = value.name
            return self._type(value), lambda rows: rows.columns[name]
        if isinstance(value, Constant):
            return self._number(value, position)
        first = self._number(value.first, value.position)
        steps = [(sign, *self._number(part, value.position)) for sign, part in value.rest]
        kind = reduce(lambda kind, step: result_type(step[0], kind, step[1]), steps, first[0])

        def cells(rows: Rows) -> Cells:
            found = first[0], first[1](rows)
            for sign, other, others in steps:
                found = compute(sign, found, (other, others(rows)))
            return found[1]

        return kind, cells

    def _number(self, value: Value, position: int) -> tuple[ColumnType, _Cells]:
        """Return the same for a value in arithmetic: as `LONG` or `DOUBLE`."""
        if isinstance(value, Constant):
            if not isinstance(value.value, Decimal):
                raise mismatch(f"{value.value!s} is no number to compute with", value.position)
            number = value.value
            kind = LONG if number == number.to_integral_value() and abs(number) < _LONG_ENDS else DOUBLE
            cell = int(number) if kind is LONG else float(number)
            return kind, lambda rows: np.full(len(rows), cell, kind.dtype)
        kind, cells = self._operand(value, position)
        if kind.name not in NUMBERS:
            raise mismatch(f"{kind.name} values are no numbers to compute with", position)
        wide = DOUBLE if kind.name in FLOATS else LONG
        return wide, lambda rows: widen(kind, wide, cells(rows))


def _combine(join: np.ufunc, tests: list[Test]) -> Test:
    return lambda rows: join.reduce([test(rows) for test in tests])
