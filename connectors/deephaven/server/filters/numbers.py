"""Arithmetic on numeric columns, for row filters.

Whole numbers have 64 bits and overflow as in Java. All others are doubles, and so is the result of any division, as in
Deephaven. An operation on a null gives null, and so does the remainder of a division of whole numbers by 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from connectors.deephaven.server.tables.cells import Cells, null_mask
from connectors.deephaven.server.filters.tree import Sign
from connectors.deephaven.protocol.types import TYPES, ColumnType

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
