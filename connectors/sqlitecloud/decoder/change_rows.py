"""The Arrow layout of one table's change rows, shared by notifications and snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import WireError
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column

NAMES: Final = pa.list_(pa.string())
ERROR: Final = pa.struct([("error_class", pa.string()), ("reason", pa.string())])

CHANGES_AT_ONCE: Final = 1 << 13
"""Approximate number of changes per batch; slightly more if a notification has many."""


@dataclass(frozen=True)
class ChangeRows:
    """The layout of a table's change rows. Picklable.

    Args:
        columns: The silver table's columns, in order.
        keys: The key columns, in the order in which notifications list old keys.
    """

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    type: pa.Schema = field(init=False)
    """Schema of the change rows, limited to what `transforms.changes` needs: its other columns are always NULL."""

    def __post_init__(self) -> None:
        row = pa.struct([(column.name, column.arrow) for column in self.columns])
        key = pa.struct([row.field(name) for name in self.keys])
        own = [("frame_seq", pa.int64()), ("ordinal", pa.int32()), ("op", pa.string()), ("key", key), ("old_key", key)]
        object.__setattr__(self, "type", pa.schema([*own, ("row", row), ("present", NAMES), ("error", ERROR)]))

    def batch(
        self,
        positions: pa.Array,
        ordinals: pa.Array,
        ops: pa.Array,
        *,
        cells: Sequence[pa.Array],
        old_keys: Sequence[pa.Array] | None = None,
        present: pa.Array,
    ) -> pa.RecordBatch:
        """Return changes as one batch.

        Args:
            positions: int64, of the frame of each change.
            ordinals: int32, index of the change within its frame.
            ops: string, see `transforms.changes`.
            cells: The values of each column, a delete's key included.
            old_keys: The values of each key column that an update moves its row from, null where none was sent.
            present: Lists of the names of known columns, null for all.
        """
        named = {column.name: array for column, array in zip(self.columns, cells, strict=True)}
        keys = [named[name] for name in self.keys]
        old_key = pa.nulls(len(ops), self.type.field("old_key").type)
        if old_keys is not None:
            old_key = self._struct("old_key", old_keys, mask=_is_same_key(keys, old_keys))
        row = self._struct("row", cells, mask=pc.equal(ops, "delete"))
        error = pa.nulls(len(ops), ERROR)
        arrays = [positions, ordinals, ops, self._struct("key", keys), old_key, row, present, error]
        return pa.RecordBatch.from_arrays(arrays, schema=self.type)

    def _struct(self, name: str, fields: Iterable[pa.Array], *, mask: pa.Array | None = None) -> pa.Array:
        return pa.StructArray.from_arrays(list(fields), fields=list(self.type.field(name).type), mask=mask)


def take_lists(lists: Sequence[Sequence[str]], codes: npt.NDArray[np.int64]) -> pa.Array:
    """Return the list at each code's index; null for codes below 0."""
    return pa.array(lists, NAMES).take(pa.array(np.maximum(codes, 0), mask=codes < 0))


def error_rows(positions: Sequence[int], errors: Sequence[WireError], schema: pa.Schema) -> pa.RecordBatch:
    """Return one error row for each unreadable frame."""
    values = [{"error_class": error.error_class, "reason": str(error)} for error in errors]
    nulls = [pa.nulls(len(values), kind) for kind in schema.types[1:-1]]
    return pa.RecordBatch.from_arrays([pa.array(positions, pa.int64()), *nulls, pa.array(values, ERROR)], schema=schema)


def without(batch: pa.RecordBatch, positions: Collection[int]) -> pa.RecordBatch:
    """Return the batch without the change rows of the given frames."""
    if not positions:
        return batch
    return batch.filter(pc.invert(pc.is_in(batch.column("frame_seq"), pa.array(list(positions), pa.int64()))))


def _is_same_key(keys: Sequence[pa.Array], old: Sequence[pa.Array]) -> pa.Array:
    """Return the mask of changes that keep their key: no old key was sent, or it is equal once typed."""
    same = reduce(pc.and_, [pc.equal(now, before) for now, before in zip(keys, old, strict=True)])
    return pc.fill_null(same, True)
