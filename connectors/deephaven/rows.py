"""Immutable views of a table's rows: what snapshots and updates are made of, and what listeners may keep.

Row keys are ascending; every column's cells (`connectors.deephaven.cells`) lie beside them, read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from connectors.deephaven.cells import Cells, size_of
from connectors.deephaven.rowkeys import Longs, Mask
from connectors.deephaven.types import ColumnType


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
        """Return the rows with these columns, in this order."""
        return Rows(self.types, self.keys, {name: self.columns[name] for name in names})

    def size(self) -> int:
        """Return about how many bytes the rows take."""
        return self.keys.nbytes + sum(size_of(self.types[name], cells) for name, cells in self.columns.items())


@dataclass(frozen=True)
class Snapshot:
    """A table at one moment: after ``update`` updates."""

    update: int
    rows: Rows


@dataclass(frozen=True, eq=False)
class Delta:
    """One atomic update, as net effect: what was removed, then what was added, then what was modified.

    Args:
        update: The update's number, from 1.
        removed: Keys of rows that existed before and are gone, or were removed and added again.
        added: Added rows, all columns.
        modified: Rows that existed before and still do and were written to, all columns, as they are now.
        written: Per column, the keys of the modified rows in which it was written, whether to a new value or not.
        before: The removed and the modified rows as they were, only the columns that a listener asked for.
    """

    update: int
    removed: Longs
    added: Rows
    modified: Rows
    written: Mapping[str, Longs]
    before: Rows

    @cached_property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 1024 + self.removed.nbytes + self.added.size() + self.modified.size() + self.before.size()


def rows_at(rows: Rows, keys: Longs) -> Rows:
    """Return the rows with these keys; each must be among them."""
    if len(keys) == len(rows):
        return rows
    at = np.searchsorted(rows.keys, keys)
    return Rows(rows.types, keys, {name: cells[at] for name, cells in rows.columns.items()})
