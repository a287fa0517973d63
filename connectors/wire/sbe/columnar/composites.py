"""Columns of composites, as structs; and the choice of a column for each field of a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from silverfold.connectors.wire.sbe.codec.blocks import field_ends
from silverfold.connectors.wire.sbe.columnar.blocks import Blocks, block_ends
from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bools
from silverfold.connectors.wire.sbe.columnar.logical_types import logical_composite, logical_number
from silverfold.connectors.wire.sbe.columnar.numeric import (
    Constant,
    Number,
    NumberList,
    array_of,
    number_type,
    struct_of,
)
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.columnar.texts import FixedText
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    ByteOrder,
    Composite,
    Encoding,
    Enum,
    Field,
    Member,
    Presence,
    Primitive,
    Scalar,
    Set,
)
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS


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


class Column(Protocol):
    """Builds a column with one value for each block."""

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """Return the column, NULL where the value is null or missing."""


class FieldColumn:
    """Column of a field of a block."""

    def __init__(self, field: Field, order: ByteOrder, options: ColumnOptions) -> None:
        self.name = field.name
        self._since = field.since_version
        self._ends = field_ends(field)
        self.end = self._ends[-1][1]
        """End of the field in its block, in bytes; 0 for constants. A composite may end earlier in older versions."""
        self._column = column_of(field, field.offset, order, options, optional=False)
        self.type = self._column.type

    def make(self, blocks: Blocks) -> pa.Array:
        """Return the column, NULL where the field is null, newer than the message, or beyond the block's end."""
        return self._column.make(blocks, blocks.missing(self._since, block_ends(self._ends, blocks.version)))


class Struct:
    """Column of a composite. A member newer than the message is NULL; a null composite has a NULL first member."""

    def __init__(
        self, composite: Composite, offset: int, order: ByteOrder, options: ColumnOptions, *, optional: bool
    ) -> None:
        self._members: list[tuple[int, Column]] = []
        for member in composite.members:
            column = column_of(member, offset + member.offset, order, options, optional=optional)
            self._members.append((member.since_version, column))
            optional = optional and member.presence is Presence.CONSTANT
        names = [member.name for member in composite.members]
        types = [column.type for _, column in self._members]
        self.type = pa.struct(list(zip(names, types, strict=True)))

    def make(self, blocks: Blocks, missing: Bools | None) -> pa.Array:
        """See `Column.make`."""
        columns = [column.make(blocks, blocks.missing(since, 0, missing)) for since, column in self._members]
        return struct_of(columns, self.type, blocks.count, missing)


def column_of(part: Field | Member, offset: int, order: ByteOrder, options: ColumnOptions, *, optional: bool) -> Column:
    """Return the column of a field or member at ``offset`` of its block.

    Args:
        optional: It may be null because its enclosing element may be; its own presence can also allow it.
    """
    if part.presence is Presence.CONSTANT:
        return Constant(part.constant, _constant_type(part.encoding, options))
    optional = optional or part.presence is Presence.OPTIONAL
    if isinstance(part.encoding, Composite):
        struct = Struct(part.encoding, offset, order, options, optional=optional)
        return logical_composite(part, offset, order, options, optional=optional) or struct
    if isinstance(part.encoding, Enum | Set):
        return _names_of(part.encoding, offset, order, options)
    return _value_of(part, part.encoding, offset, order, options, optional=optional)


def _names_of(encoding: Enum | Set, offset: int, order: ByteOrder, options: ColumnOptions) -> Column:
    if isinstance(encoding, Enum):
        return EnumNames(encoding, offset, order)
    if options.sets == "names":
        return SetNames(encoding, offset, order)
    return SetInteger(encoding, offset, order, options)


def _value_of(
    part: Field | Member,
    encoding: Scalar | Array,
    offset: int,
    order: ByteOrder,
    options: ColumnOptions,
    *,
    optional: bool,
) -> Column:
    element = encoding.element if isinstance(encoding, Array) else encoding
    if element.primitive is Primitive.CHAR:
        return FixedText(encoding, offset, options, optional=optional)
    if isinstance(encoding, Array):
        return NumberList(encoding, offset, order, options, optional=optional)
    number = Number(encoding, offset, order, options, optional=optional)
    return logical_number(part, number, options) or number


def _constant_type(encoding: Encoding, options: ColumnOptions) -> pa.DataType:
    if isinstance(encoding, Scalar) and encoding.primitive is not Primitive.CHAR:
        return number_type(encoding.primitive, options)
    return pa.string()
