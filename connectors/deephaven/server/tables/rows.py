"""Immutable views of a table's rows, used by snapshots and updates; listeners may retain them.

Row keys ascend; the cells of every column (`connectors.deephaven.server.tables.cells`) are parallel to them, read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from silverfold.connectors.deephaven.protocol.types import ColumnType
from silverfold.connectors.deephaven.server.tables.cells import Cells, size_of
from silverfold.connectors.deephaven.server.tables.rowkeys import Longs, Mask


@dataclass(frozen=True, eq=False)
class Rows:
    """Row keys and cells."""

    types: Mapping[str, ColumnType]
    keys: Longs
    columns: Mapping[str, Cells]

    def __len__(self) -> int:
        return len(self.keys)

    def where(self, mask: Mask) -> Rows:
        """Return the rows where ``mask`` is true."""
        if mask.all():
            return self
        return Rows(self.types, self.keys[mask], {name: cells[mask] for name, cells in self.columns.items()})

    def only(self, names: Iterable[str]) -> Rows:
        """Return the rows with only these columns, in this order."""
        return Rows(self.types, self.keys, {name: self.columns[name] for name in names})

    def size(self) -> int:
        """Return the approximate size of the rows in bytes."""
        return self.keys.nbytes + sum(size_of(self.types[name], cells) for name, cells in self.columns.items())


@dataclass(frozen=True)
class Snapshot:
    """A table at one moment: after ``update`` updates."""

    update: int
    rows: Rows


@dataclass(frozen=True, eq=False)
class NetChange:
    """The net effect of one atomic update: rows removed, then rows added, then rows modified.

    Args:
        update: Number of the update, from 1.
        removed: Keys of rows that existed before and were removed, including those added again.
        added: Added rows, all columns.
        modified: Rows that existed before, still exist and were written to: all columns, current values.
        written: Per column, the keys of the modified rows in which it was written, whether to a new value or not.
        before: Previous values of the removed and modified rows, only in the columns that a listener requested.
    """

    update: int
    removed: Longs
    added: Rows
    modified: Rows
    written: Mapping[str, Longs]
    before: Rows

    @cached_property
    def size(self) -> int:
        """Approximate size in bytes."""
        return 1024 + self.removed.nbytes + self.added.size() + self.modified.size() + self.before.size()


def rows_at(rows: Rows, keys: Longs) -> Rows:
    """Return the rows with these keys, each of which must be present."""
    if len(keys) == len(rows):
        return rows
    at = np.searchsorted(rows.keys, keys)
    return Rows(rows.types, keys, {name: cells[at] for name, cells in rows.columns.items()})
