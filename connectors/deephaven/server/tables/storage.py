"""Stores a table's cells by row key: columns of slots, and an index from row key to slot.

Not thread-safe, and without a notion of updates; `connectors.deephaven.server.tables.live_table` adds both. Slots of
removed rows are reused. Capacity doubles, so that the cost of adding is proportional to the rows added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from silverfold.connectors.deephaven.protocol.types import ColumnType, Shape
from silverfold.connectors.deephaven.server.tables.cells import Cells, dtype_of
from silverfold.connectors.deephaven.server.tables.rowkeys import NOWHERE, Longs, Mask, RowIndex
from silverfold.connectors.deephaven.server.tables.rows import Rows


class Storage:
    """Rows of typed columns."""

    def __init__(self, types: Mapping[str, ColumnType]) -> None:
        self._types = types
        self._index = RowIndex()
        self._columns = {name: np.empty(0, dtype_of(kind)) for name, kind in types.items()}
        self._capacity = 0
        self._used = 0
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._index)

    def holds(self, keys: Longs) -> Mask:
        """Return a mask of the keys that have a row."""
        mask: Mask = self._index.find(keys) != NOWHERE
        return mask

    def between(self, first: int, last: int) -> Longs:
        """Return the keys from ``first`` to ``last``, both inclusive, that have a row."""
        return self._index.between(first, last)

    def keys(self) -> Longs:
        """Return all keys, ascending."""
        return self._index.keys()

    def add(self, keys: Longs, cells: Mapping[str, Cells]) -> None:
        """Store new rows: keys ascending, none held, every column given."""
        slots = self._allocate(len(keys))
        self._index.insert(keys, slots)
        self._write(slots, cells)

    def write(self, keys: Longs, cells: Mapping[str, Cells]) -> None:
        """Overwrite some columns of held rows."""
        self._write(self._index.find(keys), cells)

    def remove(self, keys: Longs) -> None:
        """Remove held rows and release their values."""
        slots = self._index.find(keys)
        self._index.remove(keys)
        self._free.extend(slots.tolist())
        for name, kind in self._types.items():
            if kind.shape is not Shape.FIXED:
                self._columns[name][slots] = None

    def read(self, keys: Longs | None, names: Iterable[str]) -> Rows:
        """Return a copy of held rows with these columns, keys ascending; all rows when ``keys`` is None."""
        slots = self._index.slots() if keys is None else self._index.find(keys)
        held = self._index.keys() if keys is None else keys
        take = _selection(slots)
        columns = {name: self._columns[name][take].copy() for name in names}
        for cells in (held, *columns.values()):
            cells.flags.writeable = False
        return Rows(self._types, held, columns)

    def _write(self, slots: Longs, cells: Mapping[str, Cells]) -> None:
        put = _selection(slots)
        for name, values in cells.items():
            self._columns[name][put] = values

    def _allocate(self, count: int) -> Longs:
        reused = self._free[len(self._free) - min(count, len(self._free)) :]
        del self._free[len(self._free) - len(reused) :]
        fresh = count - len(reused)
        self._reserve(self._used + fresh)
        self._used += fresh
        return np.concatenate([np.array(reused, np.int64), np.arange(self._used - fresh, self._used)])

    def _reserve(self, slots: int) -> None:
        if slots <= self._capacity:
            return
        self._capacity = max(slots, 2 * self._capacity)
        for name, cells in self._columns.items():
            grown = np.empty(self._capacity, cells.dtype)
            grown[: self._used] = cells[: self._used]
            self._columns[name] = grown


def _selection(slots: Longs) -> slice | Longs:
    """Return a slice where slots are consecutive: copying a slice is several times faster."""
    if len(slots) and slots[-1] - slots[0] + 1 == len(slots) and (np.diff(slots) == 1).all():
        return slice(int(slots[0]), int(slots[-1]) + 1)
    return slots
