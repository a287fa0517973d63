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

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias, assert_never

import numpy as np

from conf.errors import InvalidValue
from connectors.deephaven.cells import Cells, null_mask
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
    parse_filter,
)
from connectors.deephaven.rowkeys import Mask
from connectors.deephaven.rows import Rows
from connectors.deephaven.types import ColumnType, Shape

Test: TypeAlias = Callable[[Rows], Mask]

UNKNOWN_COLUMN = "filter-column"

_INTEGERS = frozenset({"Byte", "Short", "Int", "Long"})
_FLOATS = frozenset({"Float", "Double"})
_NUMBERS = _INTEGERS | _FLOATS
_COMPARABLE = _NUMBERS | {"Boolean", "Char", "DateTime", "String", "Decimal"}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?Z")
_NULL, _VALUE, _NAN = 0, 1, 2


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
            raise InvalidValue(f"no column {column.name}", offset=column.position, reason=UNKNOWN_COLUMN)
        self.named[column.name] = None
        return kind

    def _null_test(self, column: Column) -> Test:
        kind, name = self._type(column), column.name
        return lambda rows: null_mask(kind, rows.columns[name])

    def _membership(self, membership: Membership) -> Test:
        kind, name = self._type(membership.column), membership.column.name
        wanted = [_constant(kind, constant) for constant in membership.constants]
        has_null = None in wanted
        values = {value for value in wanted if value is not None and not isinstance(value, _Between)}

        def test(rows: Rows) -> Mask:
            cells = rows.columns[name]
            null = null_mask(kind, cells)
            found = _one_of(kind, cells, values) & ~null
            return (found | null if has_null else found) ^ membership.negated

        return test

    def _comparison(self, comparison: Comparison) -> Test:
        left, right = comparison.left, comparison.right
        if isinstance(left, Column) and isinstance(right, Column):
            return self._columns_compared(comparison, left, right)
        if isinstance(left, Column) and isinstance(right, Constant):
            return self._compared(comparison.operator, left, right)
        if isinstance(right, Column) and isinstance(left, Constant):
            return self._compared(_MIRRORED[comparison.operator], right, left)
        raise _mismatch("a comparison needs a column", comparison.position)

    def _compared(self, sign: str, column: Column, constant: Constant) -> Test:
        kind, name = self._type(column), column.name
        bound = _constant(kind, constant)
        if sign not in {"=", "!="} and (kind.name == "Boolean" or kind.name not in _COMPARABLE):
            raise _mismatch(f"{kind.name} values have no order", constant.position)
        if bound is None:
            return lambda rows: _OPERATORS[sign](_rank(kind, rows.columns[name]), _NULL)
        if isinstance(bound, _Between):
            return _against_gap(kind, name, sign, bound)
        return _against_value(kind, name, sign, bound)

    def _columns_compared(self, comparison: Comparison, left: Column, right: Column) -> Test:
        kinds = self._type(left), self._type(right)
        alike = kinds[0].name == kinds[1].name and kinds[0].name in _COMPARABLE
        if not alike and not {kinds[0].name, kinds[1].name} <= _NUMBERS:
            raise _mismatch(f"{kinds[0].name} and {kinds[1].name} do not compare", comparison.position)
        if comparison.operator not in {"=", "!="} and kinds[0].name == "Boolean":
            raise _mismatch("Boolean values have no order", comparison.position)

        def test(rows: Rows) -> Mask:
            one, other = rows.columns[left.name], rows.columns[right.name]
            ranks = _rank(kinds[0], one), _rank(kinds[1], other)
            values = _sortable(kinds[0], one), _sortable(kinds[1], other)
            return _ordered(comparison.operator, ranks, values)

        return test


@dataclass(frozen=True)
class _Between:
    """A number between two whole ones, as integer columns see it: ``floor`` is the largest below."""

    floor: int


_OPERATORS: Mapping[str, Callable[[Any, Any], Mask]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _folded(join: np.ufunc, tests: list[Test]) -> Test:
    return lambda rows: join.reduce([test(rows) for test in tests])


def _against_value(kind: ColumnType, name: str, sign: str, value: Any) -> Test:
    bound = value
    if kind.shape is not Shape.FIXED:
        bound = np.empty((), object)  # numpy would take bytes for its own, and drop zeros at their end
        bound[()] = _sort_key(kind, value)

    def test(rows: Rows) -> Mask:
        cells = rows.columns[name]
        return _ordered(sign, (_rank(kind, cells), np.int8(_VALUE)), (_sortable(kind, cells), bound))

    return test


def _against_gap(kind: ColumnType, name: str, sign: str, gap: _Between) -> Test:
    if sign in {"=", "!="}:
        return lambda rows: np.full(len(rows), sign == "!=")
    below = sign in {"<", "<="}
    return _against_value(kind, name, "<=" if below else ">", gap.floor)


def _ordered(sign: str, ranks: tuple[Any, Any], values: tuple[Any, Any]) -> Mask:
    """Compare by rank first (null, value, NaN), then by value where both have one."""
    both: Mask = (ranks[0] == _VALUE) & (ranks[1] == _VALUE)
    with np.errstate(invalid="ignore"):
        by_value = _OPERATORS[sign](values[0], values[1])
    return np.where(both, by_value, _OPERATORS[sign](ranks[0], ranks[1])).astype(np.bool_)


def _rank(kind: ColumnType, cells: Cells) -> Cells:
    rank = np.where(null_mask(kind, cells), np.int8(_NULL), np.int8(_VALUE))
    if kind.name in _FLOATS:
        rank[np.isnan(cells)] = _NAN
    return rank


def _sortable(kind: ColumnType, cells: Cells) -> Cells:
    """Return the cells in a form whose order is Deephaven's; null cells as anything that compares."""
    if kind.shape is Shape.FIXED:
        return cells
    blank = _sort_key(kind, "" if kind.shape is Shape.STRING else Decimal())
    keys = [blank if cell is None else _sort_key(kind, cell) for cell in cells]
    return np.fromiter(keys, np.dtype(object), len(cells))


def _sort_key(kind: ColumnType, value: Any) -> Any:
    return value.encode("utf-16-be", "surrogatepass") if kind.shape is Shape.STRING else value


def _one_of(kind: ColumnType, cells: Cells, values: set[Any]) -> Mask:
    if kind.shape is Shape.FIXED:
        fitting = [value for value in values if kind.name in _FLOATS or _fits(kind, value)]
        return np.isin(cells, np.array(fitting, kind.dtype))
    return np.fromiter((cell in values for cell in cells), np.bool_, len(cells))


def _fits(kind: ColumnType, value: int) -> bool:
    limits = np.iinfo(kind.dtype or np.int64)
    return int(limits.min) <= value <= int(limits.max)


def _constant(kind: ColumnType, constant: Constant) -> Any:
    """Return the constant as cells of ``kind`` hold it; None for null, `_Between` for what no integer equals."""
    value = constant.value
    if value is None:
        return None
    if isinstance(value, bool) and kind.name == "Boolean":
        return int(value)
    if isinstance(value, Decimal) and (kind.name in _NUMBERS or kind.name == "Decimal"):
        return _number(kind, value)
    if isinstance(value, str):
        return _text(kind, value, constant.position)
    raise _mismatch(f"{kind.name} values do not compare with {value!s}", constant.position)


def _number(kind: ColumnType, value: Decimal) -> Any:
    if kind.name == "Decimal":
        return value
    if kind.name in _FLOATS:
        with np.errstate(over="ignore"):
            return kind.dtype.type(float(value)) if kind.dtype is not None else float(value)
    return int(value) if value == value.to_integral_value() else _Between(math.floor(value))


def _text(kind: ColumnType, value: str, position: int) -> Any:
    if kind.name == "String":
        return value
    if kind.name == "Char" and len(value) == 1 and ord(value) <= 0xFFFF:
        return ord(value)
    if kind.name == "DateTime":
        return _nanoseconds(value, position)
    raise _mismatch(f"{kind.name} values do not compare with this text", position)


def _nanoseconds(text: str, position: int) -> int:
    match = _DATE_TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError("expected such as 2017-08-25T13:30:00.5Z")
        moment = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}").replace(tzinfo=UTC)
    except ValueError as error:
        raise _mismatch(f"not a date-time: {error}", position) from error
    seconds = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    return seconds * 10**9 + int((match[3] or "").ljust(9, "0"))


def _mismatch(detail: str, position: int) -> InvalidValue:
    return InvalidValue(detail, offset=position, reason="filter-type")
