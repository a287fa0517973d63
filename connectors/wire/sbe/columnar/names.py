"""Columns of names: of enum values, and of set bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from connectors.wire.sbe.columnar.blocks import Blocks
from connectors.wire.sbe.columnar.byte_arrays import Bools
from connectors.wire.sbe.columnar.numeric import array_of, number_type
from connectors.wire.sbe.columnar.options import ColumnOptions
from connectors.wire.sbe.schema.model import ByteOrder, Enum, Primitive, Set
from connectors.wire.sbe.schema.primitives import TRAITS


class EnumNames:
    """Column of enum names: NULL for the null value; the raw form as text for a value without a name.

    The raw form is the decimal number, or a char's character (its code read as ISO 8859-1) unless that is itself a name
    (`Enum.unnamed`).
    """

    type = pa.string()

    def __init__(self, enum: Enum, offset: int, order: ByteOrder) -> None:
        self._offset = offset
        code = "B" if enum.encoding.primitive is Primitive.CHAR else TRAITS[enum.encoding.primitive].code
        self._dtype = np.dtype(order + code)
        self._enum, self._names = enum, {**enum.values, enum.null: None}
        self._octets = None
        if enum.size == 1:
            self._octets = pa.array(
                [self._name(raw) for raw in np.arange(256, dtype=np.uint8).view(self._dtype).tolist()]
            )

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        if self._octets is not None:
            return self._octets.take(array_of(blocks.read(np.uint8, self._offset), pa.uint8(), missing))
        raw = blocks.read(self._dtype, self._offset)
        return map_distinct(array_of(raw, _arrow_type(self._dtype), missing), self._name, self.type)

    def _name(self, raw: int) -> str | None:
        return self._names.get(raw, str(self._enum.unnamed(raw)))


class SetNames:
    """Column of sorted lists of names of the set bits. Bits without a name are left out."""

    type = pa.list_(pa.string())

    def __init__(self, choices: Set, offset: int, order: ByteOrder) -> None:
        self._offset = offset
        self._dtype = np.dtype(order + TRAITS[choices.encoding.primitive].code)
        self._choices = sorted(choices.choices.items(), key=lambda choice: choice[1])
        self._known = sum(1 << bit for bit in choices.choices)
        self._octets = pa.array(map(self._names, range(256)), self.type) if choices.size == 1 else None

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        if self._octets is not None:
            return self._octets.take(array_of(blocks.read(np.uint8, self._offset), pa.uint8(), missing))
        native = self._dtype.newbyteorder("=")
        raw = blocks.read(self._dtype, self._offset) & native.type(self._known)
        return map_distinct(array_of(raw, _arrow_type(native), missing), self._names, self.type)

    def _names(self, raw: int) -> list[str]:
        return [name for bit, name in self._choices if raw >> bit & 1]


class SetInteger:
    """Column of sets as integers, unknown bits included."""

    def __init__(self, choices: Set, offset: int, order: ByteOrder, options: ColumnOptions) -> None:
        self.type = number_type(choices.encoding.primitive, options)
        self._offset = offset
        self._dtype = np.dtype(order + TRAITS[choices.encoding.primitive].code)

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        return array_of(blocks.read(self._dtype, self._offset), self.type, missing)


def map_distinct(raw: pa.Array, meaning: Callable[[int], object], kind: pa.DataType) -> pa.Array:
    """Map numbers through ``meaning``, called once for each distinct number. NULL stays NULL."""
    coded = raw.dictionary_encode()
    meanings = [meaning(number) for number in coded.dictionary.to_pylist()]
    return pa.array(meanings, kind).take(coded.indices)


def _arrow_type(dtype: np.dtype[np.int64]) -> pa.DataType:
    return pa.from_numpy_dtype(dtype.newbyteorder("="))
