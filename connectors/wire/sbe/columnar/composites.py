"""Columns of composites, as structs; and the choice of a column for each field of a block."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from connectors.wire.sbe.codec.blocks import field_ends
from connectors.wire.sbe.columnar.blocks import Blocks, block_ends
from connectors.wire.sbe.columnar.byte_arrays import Bools
from connectors.wire.sbe.columnar.logical_types import logical_composite, logical_number
from connectors.wire.sbe.columnar.names import EnumNames, SetInteger, SetNames
from connectors.wire.sbe.columnar.numeric import Constant, Number, NumberList, number_type, struct_of
from connectors.wire.sbe.columnar.options import ColumnOptions
from connectors.wire.sbe.columnar.texts import FixedText
from connectors.wire.sbe.schema.model import (
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
