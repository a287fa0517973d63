"""Compares cells for row filters: with a constant of the filter's text, or with another column's cells.

`connectors.deephaven.server.filters.filters` defines the meaning of comparisons. Here, every cell has a rank (null,
value, NaN), and only where both ranks are value do the values decide.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.protocol.types import ColumnType, Shape
from silverfold.connectors.deephaven.server.filters.times import nanoseconds
from silverfold.connectors.deephaven.server.filters.tree import Constant, Operator
from silverfold.connectors.deephaven.server.tables.cells import Cells, null_mask
from silverfold.connectors.deephaven.server.tables.rowkeys import Mask

INTEGERS = frozenset({"Byte", "Short", "Int", "Long"})
FLOATS = frozenset({"Float", "Double"})
NUMBERS = INTEGERS | FLOATS
COMPARABLE = NUMBERS | {"Boolean", "Char", "DateTime", "String", "Decimal"}

_NULL, _VALUE, _NAN = 0, 1, 2
_OPERATORS: Mapping[Operator, Callable[[Any, Any], Mask]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Between:
    """A fractional number, as integer columns see it: ``floor`` is the largest integer below."""

    floor: int


BoundConstant: TypeAlias = Any
"""A constant in the form of cells; None for null, `Between` where no cell can equal it."""


def bind_constant(kind: ColumnType, constant: Constant) -> BoundConstant:
    """Return the constant for comparison with cells of ``kind``.

    Raises:
        InvalidValue: ``filter-type``: such cells do not compare with it.
    """
    value = constant.value
    if value is None:
        return None
    if isinstance(value, bool) and kind.name == "Boolean":
        return int(value)
    if isinstance(value, Decimal) and (kind.name in NUMBERS or kind.name == "Decimal"):
        return _number(kind, value)
    if isinstance(value, str):
        return _text(kind, value, constant.position)
    raise mismatch(f"{kind.name} values do not compare with {value!s}", constant.position)


def compare(kind: ColumnType, cells: Cells, sign: Operator, value: BoundConstant) -> Mask:
    """Return a mask of the cells that satisfy a comparison with a bound constant."""
    if value is None:
        return _OPERATORS[sign](_rank(kind, cells), _NULL)
    if isinstance(value, Between):
        if sign in {"=", "!="}:
            return np.full(len(cells), sign == "!=")
        return compare(kind, cells, "<=" if sign in {"<", "<="} else ">", value.floor)
    return _ordered(sign, (_rank(kind, cells), np.int8(_VALUE)), (_sortable(kind, cells), _sort_scalar(kind, value)))


def compare_columns(kinds: tuple[ColumnType, ColumnType], cells: tuple[Cells, Cells], sign: Operator) -> Mask:
    """Return a mask of the rows in which the first column's cell satisfies a comparison with the second's."""
    ranks = _rank(kinds[0], cells[0]), _rank(kinds[1], cells[1])
    return _ordered(sign, ranks, (_sortable(kinds[0], cells[0]), _sortable(kinds[1], cells[1])))


def is_one_of(kind: ColumnType, cells: Cells, values: list[BoundConstant]) -> Mask:
    """Return a mask of the cells that equal one of the bound constants."""
    null = null_mask(kind, cells)
    wanted = {value for value in values if value is not None and not isinstance(value, Between)}
    found = _is_among(kind, cells, wanted) & ~null if wanted else np.zeros(len(cells), np.bool_)
    return found | null if None in values else found


def mismatch(detail: str, position: int) -> InvalidValue:
    """Return the error for values that do not compare."""
    return InvalidValue(detail, offset=position, reason="filter-type")


def _ordered(sign: Operator, ranks: tuple[Any, Any], values: tuple[Any, Any]) -> Mask:
    both: Mask = (ranks[0] == _VALUE) & (ranks[1] == _VALUE)
    with np.errstate(invalid="ignore"):
        by_value = _OPERATORS[sign](values[0], values[1])
    return np.where(both, by_value, _OPERATORS[sign](ranks[0], ranks[1])).astype(np.bool_)


def _rank(kind: ColumnType, cells: Cells) -> Cells:
    rank = np.where(null_mask(kind, cells), np.int8(_NULL), np.int8(_VALUE))
    if kind.name in FLOATS:
        rank[np.isnan(cells)] = _NAN
    return rank


def _sortable(kind: ColumnType, cells: Cells) -> Cells:
    """Return the cells in a form that orders as in Deephaven; null cells as an arbitrary comparable value."""
    if kind.shape is Shape.FIXED:
        return cells
    blank = _sort_key(kind, "" if kind.shape is Shape.STRING else Decimal())
    keys = [blank if cell is None else _sort_key(kind, cell) for cell in cells]
    return np.fromiter(keys, np.dtype(object), len(cells))


def _sort_key(kind: ColumnType, value: Any) -> Any:
    return value.encode("utf-16-be", "surrogatepass") if kind.shape is Shape.STRING else value


def _sort_scalar(kind: ColumnType, value: Any) -> Any:
    if kind.shape is Shape.FIXED:
        return value
    scalar = np.empty((), object)  # numpy would convert bytes to its own type and drop trailing zeros
    scalar[()] = _sort_key(kind, value)
    return scalar


def _is_among(kind: ColumnType, cells: Cells, values: set[Any]) -> Mask:
    if kind.shape is Shape.FIXED:
        fitting = [value for value in values if kind.name in FLOATS or _fits(kind, value)]
        return np.isin(cells, np.array(fitting, kind.dtype))
    return np.fromiter((cell in values for cell in cells), np.bool_, len(cells))


def _fits(kind: ColumnType, value: int) -> bool:
    limits = np.iinfo(kind.dtype or np.int64)
    return int(limits.min) <= value <= int(limits.max)


def _number(kind: ColumnType, value: Decimal) -> Any:
    if kind.name == "Decimal":
        return value
    if kind.name in FLOATS:
        with np.errstate(over="ignore"):
            return kind.dtype.type(float(value)) if kind.dtype is not None else float(value)
    return int(value) if value == value.to_integral_value() else Between(math.floor(value))


def _text(kind: ColumnType, value: str, position: int) -> Any:
    if kind.name == "String":
        return value
    if kind.name == "Char" and len(value) == 1 and ord(value) <= 0xFFFF:
        return ord(value)
    if kind.name == "DateTime":
        return nanoseconds(value, position)
    raise mismatch(f"{kind.name} values do not compare with this text", position)
