"""The column types of Deephaven's SBE transport: one per ``ColumnData`` message.

A column's type follows from the *name* of the message that carries it, never from a template id. Nulls of fixed-width
types are Deephaven's own sentinels: -MAX for float and double (so NaN is a value), 0xFFFE for char (so 0xFFFF is a
value), -1 for Boolean, the smallest number for the rest. They apply whatever null the schema declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Shape(StrEnum):
    """Form of one value of a column on the wire."""

    FIXED = "fixed"
    """A block of fixed width; null is a sentinel."""
    STRING = "string"
    """A null flag and text."""
    DECIMAL = "decimal"
    """A null flag, a scale and the unscaled integer, big-endian two's complement."""
    FIXED_ARRAY = "fixed array"
    """A null flag and a group of fixed-width elements, each with the sentinel of its type."""
    STRING_ARRAY = "string array"
    """A null flag and a group of strings, each with its own null flag."""
    STRING_SET = "string set"
    """Like a string array, but without order."""


@dataclass(frozen=True)
class ColumnType:
    """One column type.

    Args:
        name: Name of its message without ``ColumnData``.
        shape: Form of a value on the wire.
        arrow: Arrow type of decoded values. Decimals are text in the form of ``str(decimal.Decimal)``, which keeps
            every digit and the scale; date-times are int64 nanoseconds since 1970-01-01 UTC; chars are text of one
            UTF-16 code unit.
        dtype: numpy type of the native values, in the machine's byte order; None unless the shape is fixed.
        null: The sentinel, as a ``dtype`` scalar; None unless the shape is fixed.
        element: Type of an array's elements; None for the rest.
    """

    name: str
    shape: Shape
    arrow: pa.DataType
    dtype: np.dtype[Any] | None = None
    null: np.generic | None = None
    element: ColumnType | None = None

    @property
    def message(self) -> str:
        """Name of the message that carries such columns."""
        return f"{self.name}ColumnData"

    def native(self, values: Iterable[Any]) -> npt.NDArray[Any]:
        """Return Python values as the numpy array for the wire: None becomes the sentinel.

        Only for fixed types. Booleans become int8 0, 1 and -1; a char may be a string of one code unit or a number. A
        value equal to the sentinel means null, as in Deephaven. Raises OverflowError for a number outside the type,
        TypeError for a value of another kind.
        """
        if isinstance(values, np.ndarray) and values.dtype == self.dtype:
            return values
        assert self.dtype is not None
        assert self.null is not None
        null = self.null.item()
        numbers = [null if value is None else ord(value) if isinstance(value, str) else value for value in values]
        return np.array(numbers, dtype=self.dtype)


def _fixed(name: str, dtype: str, null: float, arrow: pa.DataType) -> ColumnType:
    kind = np.dtype(dtype)
    return ColumnType(name, Shape.FIXED, arrow, kind, kind.type(null))


def _array_of(element: ColumnType) -> ColumnType:
    return ColumnType(f"{element.name}Array", Shape.FIXED_ARRAY, pa.list_(element.arrow), element=element)


_FIXED = (
    _fixed("Byte", "int8", -(2**7), pa.int8()),
    _fixed("Boolean", "int8", -1, pa.bool_()),
    _fixed("Char", "uint16", 0xFFFE, pa.string()),
    _fixed("Short", "int16", -(2**15), pa.int16()),
    _fixed("Int", "int32", -(2**31), pa.int32()),
    _fixed("Long", "int64", -(2**63), pa.int64()),
    _fixed("Float", "float32", float(-np.finfo(np.float32).max), pa.float32()),
    _fixed("Double", "float64", float(-np.finfo(np.float64).max), pa.float64()),
    _fixed("DateTime", "int64", -(2**63), pa.int64()),
)

STRING = ColumnType("String", Shape.STRING, pa.string())
DECIMAL = ColumnType("Decimal", Shape.DECIMAL, pa.string())
STRING_ARRAY = ColumnType("StringArray", Shape.STRING_ARRAY, pa.list_(pa.string()), element=STRING)
STRING_SET = ColumnType("StringSet", Shape.STRING_SET, pa.list_(pa.string()), element=STRING)

TYPES: Mapping[str, ColumnType] = MappingProxyType(
    {
        kind.name: kind
        for kind in (*_FIXED, STRING, DECIMAL, STRING_SET, *(_array_of(kind) for kind in _FIXED), STRING_ARRAY)
    }
)
"""All 22 column types, by name."""
