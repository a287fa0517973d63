"""Applies filter expressions to columns of rows, as a mask: which rows satisfy it.

The syntax is that of `connectors.deephaven.filter_syntax`. What a comparison means, following Deephaven:

- null equals null and is less than everything else; NaN equals NaN and is greater than everything else.
- A number compared with a column of integers counts exactly (``X > 1.5`` holds from 2 on); with a column of floats it
  is read at the column's precision first, so that a float column holding 0.1 satisfies ``X = 0.1``.
- Text is compared with String by UTF-16 code units, as Java does; with Char if it is one code unit; with DateTime if
  it is ``2017-08-25T13:30:00.123456789Z``, time and fraction optional. true and false are compared for equality only.
- Two columns compare if both are numbers of fixed width, or both of the same type.
- Arrays and string sets can only be tested for null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import numpy as np

from conf.errors import InvalidValue
from connectors.deephaven.cells import null_mask
from connectors.deephaven.filter_syntax import (
    AllOf,
    AnyOf,
    Column,
    Comparison,
    Constant,
    Expression,
    Membership,
    Not,
    NullTest,
    Operator,
    parse_filter,
)
from connectors.deephaven.filter_values import (
    COMPARABLE,
    NUMBERS,
    bound,
    compare,
    compare_columns,
    is_one_of,
    mismatch,
)
from connectors.deephaven.rowkeys import Mask
from connectors.deephaven.rows import Rows
from connectors.deephaven.types import ColumnType

Test: TypeAlias = Callable[[Rows], Mask]

_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class RowFilter:
    """A filter bound to the columns of a table.

    Args:
        columns: The columns it looks at, in the order in which it names them.
        mask: Tells which of some rows satisfy it; the rows must have these columns. Pure.
    """

    columns: tuple[str, ...]
    mask: Callable[[Rows], Mask]


def bind_filter(text: str, types: Mapping[str, ColumnType]) -> RowFilter:
    """Return the filter that ``text`` describes, for rows with columns of these types.

    Raises:
        InvalidValue: reason ``filter-syntax``, ``filter-column`` (no such column) or ``filter-type`` (such values do
            not compare); ``offset`` is the place in the text as UTF-8, in bytes.
    """
    binder = _Binder(types)
    test = binder.bind(parse_filter(text))
    return RowFilter(tuple(binder.named), test)


class _Binder:
    def __init__(self, types: Mapping[str, ColumnType]) -> None:
        self._types = types
        self.named: dict[str, None] = {}

    def bind(self, expression: Expression) -> Test:
        match expression:
            case AllOf(parts):
                return _folded(np.logical_and, [self.bind(part) for part in parts])
            case AnyOf(parts):
                return _folded(np.logical_or, [self.bind(part) for part in parts])
            case Not(part):
                negated = self.bind(part)
                return lambda rows: ~negated(rows)
            case NullTest(column):
                return self._null_test(column)
            case Membership():
                return self._membership(expression)
            case Comparison():
                return self._comparison(expression)
        assert_never(expression)

    def _type(self, column: Column) -> ColumnType:
        kind = self._types.get(column.name)
        if kind is None:
            raise InvalidValue(f"no column {column.name}", offset=column.position, reason="filter-column")
        self.named[column.name] = None
        return kind

    def _null_test(self, column: Column) -> Test:
        kind, name = self._type(column), column.name
        return lambda rows: null_mask(kind, rows.columns[name])

    def _membership(self, membership: Membership) -> Test:
        kind, name, negated = self._type(membership.column), membership.column.name, membership.negated
        values = [bound(kind, constant) for constant in membership.constants]
        return lambda rows: is_one_of(kind, rows.columns[name], values) ^ negated

    def _comparison(self, comparison: Comparison) -> Test:
        left, right = comparison.left, comparison.right
        if isinstance(left, Column) and isinstance(right, Column):
            return self._columns_compared(comparison, left, right)
        if isinstance(left, Column) and isinstance(right, Constant):
            return self._compared(comparison.operator, left, right)
        if isinstance(right, Column) and isinstance(left, Constant):
            return self._compared(_MIRRORED[comparison.operator], right, left)
        raise mismatch("a comparison needs a column", comparison.position)

    def _compared(self, sign: Operator, column: Column, constant: Constant) -> Test:
        kind, name = self._type(column), column.name
        value = bound(kind, constant)
        if sign not in {"=", "!="} and (kind.name == "Boolean" or kind.name not in COMPARABLE):
            raise mismatch(f"{kind.name} values have no order", constant.position)
        return lambda rows: compare(kind, rows.columns[name], sign, value)

    def _columns_compared(self, comparison: Comparison, left: Column, right: Column) -> Test:
        kinds, sign = (self._type(left), self._type(right)), comparison.operator
        alike = kinds[0].name == kinds[1].name and kinds[0].name in COMPARABLE
        if not alike and not {kinds[0].name, kinds[1].name} <= NUMBERS:
            raise mismatch(f"{kinds[0].name} and {kinds[1].name} do not compare", comparison.position)
        if sign not in {"=", "!="} and kinds[0].name == "Boolean":
            raise mismatch("Boolean values have no order", comparison.position)
        return lambda rows: compare_columns(kinds, (rows.columns[left.name], rows.columns[right.name]), sign)


def _folded(join: np.ufunc, tests: list[Test]) -> Test:
    return lambda rows: join.reduce([test(rows) for test in tests])
