"""Columns of numbers, of lists of numbers, and of constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from silverfold.connectors.wire.sbe.codec.blocks import wire_null
from silverfold.connectors.wire.sbe.columnar.blocks import Blocks
from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bools
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.model import Array, ByteOrder, Primitive, Scalar
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS

_ARROW = {
    Primitive.INT8: pa.int8(),
    Primitive.UINT8: pa.uint8(),
    Primitive.INT16: pa.int16(),
    Primitive.UINT16: pa.uint16(),
    Primitive.INT32: pa.int32(),
    Primitive.UINT32: pa.uint32(),
    Primitive.INT64: pa.int64(),
    Primitive.UINT64: pa.uint64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
}
_SPARK = _ARROW | {
    Primitive.UINT8: pa.int16(),
    Primitive.UINT16: pa.int32(),
    Primitive.UINT32: pa.int64(),
    Primitive.UINT64: pa.decimal128(20, 0),
}


def number_type(primitive: Primitive, options: ColumnOptions) -> pa.DataType:
    """Return the column type for a primitive."""
    return (_ARROW if options.types == "arrow" else _SPARK)[primitive]


def array_of(
    values: npt.NDArray[Any], kind: pa.DataType, missing: Bools | None = None, null: float | None = None
) -> pa.Array:
    """Copy numbers to an Arrow array of a fixed-width type, NULL where they are missing or the null value.

    The memory is allocated by Arrow, which reuses it when the array is dropped; numpy returns it to the system.
    """
    if pa.types.is_decimal(kind):
        buffer, copy = _memory(len(values) * 2, np.dtype(np.int64))
        _widen(values, copy.reshape(-1, 2))
        copy = values
    else:
        width = np.int64 if pa.types.is_timestamp(kind) else kind.to_pandas_dtype()
        buffer, copy = _memory(len(values), np.dtype(width))
        np.copyto(copy, values, casting="unsafe")
    if null is not None:
        missing = nulls(copy, null, missing)
    return pa.Array.from_buffers(kind, len(values), [validity(missing), buffer])


def _memory(count: int, dtype: np.dtype[Any]) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    buffer = pa.allocate_buffer(count * dtype.itemsize)
    return buffer, np.frombuffer(buffer, dtype) if count else np.empty(0, dtype)


def struct_of(columns: list[pa.Array], kind: pa.DataType, count: int, missing: Bools | None = None) -> pa.Array:
    """Return structs of the columns, of which there may be none; NULL where missing."""
    return pa.Array.from_buffers(kind, count, [validity(missing)], children=columns)


def validity(missing: Bools | None) -> pa.Buffer | None:
    """Return Arrow's validity bitmap; None if nothing is missing."""
    return None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))


def _widen(values: npt.NDArray[Any], wide: npt.NDArray[np.int64]) -> None:
    """Write integers in Arrow's decimal format: 128-bit two's complement, low half first."""
    np.copyto(wide[:, 0], values, casting="unsafe")
    wide[:, 1] = wide[:, 0] >> 63 if values.dtype.kind == "i" else 0


class Number:
    """Column of one number per block; the null value is NULL if the number is optional."""

    def __init__(
        self, scalar: Scalar, offset: int, order: ByteOrder, options: ColumnOptions, *, optional: bool
    ) -> None:
        self.type = number_type(scalar.primitive, options)
        self.dtype = np.dtype(order + TRAITS[scalar.primitive].code)
        self.offset = offset
        self._null = wire_null(scalar) if optional else None

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        return array_of(blocks.read(self.dtype, self.offset), self.type, missing, self._null)

    def values(self, blocks: Blocks, missing: Bools | None) -> tuple[npt.NDArray[Any], Bools | None]:
        """Return the numbers, and a mask of those missing or null."""
        values = blocks.read(self.dtype, self.offset)
        return values, missing if self._null is None else nulls(values, self._null, missing)


def nulls(values: npt.NDArray[Any], null: float, missing: Bools | None) -> Bools | None:
    """Return a mask of the values that are null or missing; None if there are none."""
    found: Bools = np.isnan(values) if math.isnan(null) else np.equal(values, null)
    if not found.any():
        return missing
    return combine(found, missing)


def combine(found: Bools, missing: Bools | None) -> Bools:
    """Combine two masks, the second of which may be None."""
    return found if missing is None else found | missing


class NumberList:
    """Column of arrays of numbers; in an optional array, elements may be null, and the array is if all are."""

    def __init__(self, array: Array, offset: int, order: ByteOrder, options: ColumnOptions, *, optional: bool) -> None:
        self._element = number_type(array.element.primitive, options)
        self.type = pa.list_(self._element)
        self._dtype = np.dtype((order + TRAITS[array.element.primitive].code, (array.count,)))
        self._offset, self._width = offset, array.count
        self._null = wire_null(array.element) if optional else None

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        values = blocks.read(self._dtype, self._offset).reshape(-1)
        absent = None if self._null is None else nulls(values, self._null, None)
        if absent is not None:
            all_null: Bools = np.all(absent.reshape(-1, self._width), axis=1)
            missing = combine(all_null, missing)
        offsets = np.arange(blocks.count + 1, dtype=np.int32) * self._width
        elements = array_of(values, self._element, absent)
        return pa.ListArray.from_arrays(
            pa.array(offsets), elements, mask=None if missing is None else pa.array(missing)
        )


class Constant:
    """Column of a constant, which is not on the wire."""

    def __init__(self, value: float | str | None, kind: pa.DataType) -> None:
        self.type = kind
        self._value = pa.array([value], kind)

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        return self._value.take(pa.array(np.zeros(blocks.count, np.int8), mask=missing))
