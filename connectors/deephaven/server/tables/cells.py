"""Converts column values to and from *cells*, the form in which a table stores them.

Cells of fixed-width types are numpy arrays of the native type; null is Deephaven's sentinel. Other types are object
arrays with None for null: str for String, `decimal.Decimal` for Decimal, a sorted tuple of str for StringSet, a tuple
of ``str | None`` for StringArray, a read-only native numpy array for the other arrays. Cells are never modified in
place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.protocol.types import ColumnType, Shape
from silverfold.connectors.deephaven.server.tables.cell_values import CONVERTERS, FLOATS, INTEGERS, elements
from silverfold.connectors.deephaven.server.tables.rowkeys import Mask

Cells: TypeAlias = npt.NDArray[Any]


def dtype_of(kind: ColumnType) -> np.dtype[Any]:
    """Return the numpy type of cells of ``kind``."""
    return np.dtype(object) if kind.dtype is None else kind.dtype


def nulls(kind: ColumnType, count: int) -> Cells:
    """Return ``count`` null cells."""
    return np.full(count, kind.null, dtype_of(kind))


def null_mask(kind: ColumnType, cells: Cells) -> Mask:
    """Return a mask of the null cells."""
    if kind.shape is Shape.FIXED:
        mask: Mask = cells == kind.null
        return mask
    return np.fromiter((cell is None for cell in cells), np.bool_, len(cells))


def to_cells(kind: ColumnType, values: Iterable[Any]) -> Cells:
    """Return values as cells: Python values, a numpy array, or an Arrow array whose type converts without loss.

    None is null. Integers must fit their type; a DateTime is nanoseconds since 1970 or a datetime with a time zone; a
    Char is one UTF-16 code unit or its number. A fixed-width value equal to the type's sentinel *is* null.

    Raises:
        InvalidValue: reason ``column-value``: a value is not of the column's type.
    """
    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Array):
            return _from_arrow(kind, values)
        if isinstance(values, np.ndarray):
            return _from_numpy(kind, values)
        with np.errstate(over="raise"):
            return _from_python(kind, list(values))
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise InvalidValue(f"not of type {kind.name}: {error}", reason="column-value") from error


def to_python(kind: ColumnType, cells: Cells) -> list[Any]:
    """Return cells as Python values: None for null, lists for arrays and (sorted) string sets, int for DateTime."""
    if kind.element is not None:
        element = kind.element
        if element.shape is Shape.FIXED:
            return [None if cell is None else to_python(element, cell) for cell in cells]
        return [None if cell is None else list(cell) for cell in cells]
    values: list[Any] = cells.tolist()
    if kind.shape is not Shape.FIXED:
        return values
    if kind.name == "Boolean":
        values = [bool(value) for value in values]
    elif kind.name == "Char":
        values = [chr(value) for value in values]
    for at in np.flatnonzero(null_mask(kind, cells)):
        values[at] = None
    return values


def to_arrow(kind: ColumnType, cells: Cells) -> pa.Array:
    """Return cells as an Arrow array of ``kind.arrow``: decimals as text, sets as sorted lists.

    Raises:
        InvalidValue: reason ``column-value``: a lone surrogate, which Arrow text cannot hold.
    """
    if kind.shape is Shape.FIXED and kind.name not in {"Boolean", "Char"}:
        return pa.array(cells, kind.arrow, mask=null_mask(kind, cells))
    values = to_python(kind, cells)
    if kind.shape is Shape.DECIMAL:
        values = [None if value is None else str(value) for value in values]
    try:
        return pa.array(values, kind.arrow)
    except UnicodeEncodeError as error:
        raise InvalidValue(f"not text: {error}", reason="column-value") from error


def size_of(kind: ColumnType, cells: Cells) -> int:
    """Return the approximate size of the cells in bytes, values included."""
    if kind.shape is Shape.FIXED:
        return cells.nbytes
    if kind.shape is Shape.DECIMAL:
        return 128 * len(cells)
    width = 1 if kind.element is None else 64 if kind.element.dtype is None else kind.element.dtype.itemsize
    return 64 * len(cells) + width * sum(len(cell) for cell in cells if cell is not None)


def _from_python(kind: ColumnType, values: Sequence[Any]) -> Cells:
    convert = _converter(kind)
    if kind.shape is Shape.FIXED:
        return kind.native([None if value is None else convert(value) for value in values])
    return _objects([None if value is None else convert(value) for value in values])


def _from_numpy(kind: ColumnType, values: npt.NDArray[Any]) -> Cells:
    if values.dtype == kind.dtype:
        return values.copy()
    if kind.name == "DateTime" and values.dtype.kind == "M":
        return values.astype("datetime64[ns]").astype(np.int64)  # NaT equals the sentinel
    if kind.name in INTEGERS and values.dtype.kind in "iu":
        fitted = values.astype(dtype_of(kind))
        if not np.array_equal(fitted, values):
            raise OverflowError("an integer is too large")
        return fitted
    if kind.name in FLOATS and np.can_cast(values.dtype, dtype_of(kind), "safe"):
        return values.astype(dtype_of(kind))
    return _from_python(kind, values.tolist())


def _from_arrow(kind: ColumnType, values: pa.Array) -> Cells:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind.shape is Shape.FIXED_ARRAY:
        return _arrays_from_arrow(kind, values)
    if kind.shape is Shape.STRING and (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        texts: Cells = values.to_numpy(zero_copy_only=False)
        return texts
    if kind.dtype is None or kind.null is None or kind.name == "Char":
        return _from_python(kind, values.to_pylist())
    if kind.name == "DateTime" and pa.types.is_temporal(values.type):
        values = values.cast(pa.timestamp("ns"))
    fixed = values.cast(pa.from_numpy_dtype(kind.dtype))
    return np.asarray(pc.fill_null(fixed, kind.null.item())).copy()


def _arrays_from_arrow(kind: ColumnType, values: pa.Array) -> Cells:
    assert kind.element is not None
    flat = to_cells(kind.element, values.flatten())
    flat.flags.writeable = False
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0)).astype(np.int64)
    ends = np.cumsum(lengths)
    missing = np.asarray(values.is_null())
    return _objects(
        [None if null else flat[end - length : end] for null, end, length in zip(missing, ends, lengths, strict=True)]
    )


def _objects(values: Sequence[Any]) -> Cells:
    return np.fromiter(values, np.dtype(object), len(values))


def _converter(kind: ColumnType) -> Callable[[Any], Any]:
    if kind.shape is Shape.FIXED_ARRAY:
        return lambda value: _fixed_array(kind, value)
    return CONVERTERS[kind.name]


def _fixed_array(kind: ColumnType, value: Any) -> Cells:
    assert kind.element is not None
    cells = to_cells(kind.element, value if isinstance(value, np.ndarray) else elements(value))
    cells.flags.writeable = False
    return cells
