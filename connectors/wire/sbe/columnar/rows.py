"""Columns of a complete message: its fields, its groups as lists of structs, its data."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from connectors.wire.sbe.columnar.blocks import Blocks
from connectors.wire.sbe.columnar.byte_arrays import Longs
from connectors.wire.sbe.columnar.composites import FieldColumn
from connectors.wire.sbe.columnar.levels import FIRST_GROUP, BlockTable
from connectors.wire.sbe.columnar.numeric import struct_of
from connectors.wire.sbe.columnar.options import BLOCK_LENGTH, VERSION, ColumnOptions
from connectors.wire.sbe.columnar.state import WalkState
from connectors.wire.sbe.columnar.texts import DataValues
from connectors.wire.sbe.schema.model import Body, ByteOrder


class BodyRows:
    """Builds one struct for each body of a level; its children are in schema order."""

    def __init__(self, body: Body, order: ByteOrder, options: ColumnOptions) -> None:
        self._fields = [FieldColumn(field, order, options) for field in body.fields]
        self._groups: list[BodyRows] = [BodyRows(group, order, options) for group in body.groups]
        self._data = [DataValues(data, options) for data in body.data]
        self._size = max((field.end for field in self._fields), default=0)
        columns = [(field.name, field.type) for field in self._fields]
        columns += [(part.name, pa.list_(group.type)) for part, group in zip(body.groups, self._groups, strict=True)]
        columns += [(part.name, data.type) for part, data in zip(body.data, self._data, strict=True)]
        self._shapes = options.shapes
        columns += [(VERSION, pa.int64()), (BLOCK_LENGTH, pa.int64())] if options.shapes else []
        self.type: pa.DataType = pa.struct(columns)

    def make(self, level: BlockTable, state: WalkState) -> pa.Array:
        """Return the structs of a finalized level, in order. Marks messages with invalid values as bad."""
        blocks = Blocks(level, state, self._size)
        columns = [field.make(blocks) for field in self._fields]
        for number, group in enumerate(self._groups):
            entries = group.make(level.groups[number], state)
            columns.append(_list_array(level.rows[FIRST_GROUP + number], entries))
        for number, data in enumerate(self._data):
            column = level.data_column(number)
            columns.append(data.make(blocks, level.rows[column], level.rows[column + 1]))
        if self._shapes:
            columns += [pa.array(blocks.version), pa.array(blocks.length)]
        return struct_of(columns, self.type, blocks.count)


def _list_array(counts: Longs, entries: pa.Array) -> pa.Array:
    """Return the entries of each body as a list; NULL where the count is negative."""
    absent = counts < 0
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(np.where(absent, 0, counts), out=offsets[1:])
    mask = pa.array(absent) if absent.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), entries, mask=mask)
