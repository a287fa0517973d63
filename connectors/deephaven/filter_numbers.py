"""Computes with numbers of columns for row filters.

Whole numbers are of 64 bits, and run over as Java's do; all others are doubles, and so is what a division gives, as
Deephaven has it. A null makes all null that is made of it, and so does the rest of a division of whole numbers by 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from connectors.deephaven.cells import Cells, null_mask
from connectors.deephaven.filter_tree import Sign
from connectors.deephaven.types import TYPES, ColumnType

LONG, DOUBLE = TYPES["Long"], TYPES["Double"]

_STEPS: Mapping[Sign, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "%": np.fmod,
}

Number: TypeAlias = tuple[ColumnType, Cells]
"""`LONG` or `DOUBLE`, and its cells."""


def kind_of(sign: Sign, left: ColumnType, right: ColumnType) -> ColumnType:
    """Return of which type what is computed is."""
    return DOUBLE if sign == "/" or DOUBLE in (left, right) else LONG


def widened(kind: ColumnType, to: ColumnType, cells: Cells) -> Cells:
    """Return the cells of a column of numbers as those of a wider type."""
    wide = cells.astype(to.dtype)
    wide[null_mask(kind, cells)] = to.null
    return wide


def computed(sign: Sign, left: Number, right: Number) -> Number:
    """Return what comes of two columns of numbers, row by row."""
    kind = kind_of(sign, left[0], right[0])
    nulls = null_mask(*left) | null_mask(*right)
    if sign == "%" and kind is LONG:
        nulls |= right[1] == 0
    with np.errstate(all="ignore"):
        found = _STEPS[sign](widened(*_to(left, kind)), widened(*_to(right, kind)))
    found[nulls] = kind.null
    return kind, found


def _to(number: Number, kind: ColumnType) -> tuple[ColumnType, ColumnType, Cells]:
    return number[0], kind, number[1]
