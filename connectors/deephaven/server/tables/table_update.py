"""Collects the changes of one update and checks each against the table and the changes before it.

The table's rows are not touched until the update is applied; any failure happens before. The net effect is tracked as
changes come: a row added and removed in one update leaves no trace, a row removed and added again is both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, LocalProtocolError
from silverfold.connectors.deephaven.protocol.types import ColumnType
from silverfold.connectors.deephaven.server.tables.cells import Cells, nulls, to_cells
from silverfold.connectors.deephaven.server.tables.rowkeys import NOWHERE, Longs, Mask, RowIndex
from silverfold.connectors.deephaven.server.tables.storage import Storage

Keys: TypeAlias = Sequence[int] | Longs
Step: TypeAlias = Callable[[Storage], None]


class TableUpdate:
    """Changes that will be one update. Created by `LiveTable.update`, used inside its block only."""

    def __init__(self, types: Mapping[str, ColumnType], storage: Storage, next_key: int) -> None:
        self.next_key = next_key
        self.steps: list[Step] = []
        self.is_open = True
        self._types = types
        self._storage = storage
        self._removed, self._added, self._modified = RowIndex(), RowIndex(), RowIndex()
        self._written: defaultdict[str, RowIndex] = defaultdict(RowIndex)

    @property
    def is_empty(self) -> bool:
        """Whether applying the update would change nothing."""
        return not (len(self._removed) or len(self._added) or len(self._modified))

    @property
    def removed(self) -> Longs:
        """Keys of existing rows that are removed, including those added again."""
        return self._removed.keys()

    @property
    def added(self) -> Longs:
        """Keys of added rows."""
        return self._added.keys()

    @property
    def modified(self) -> Longs:
        """Keys of existing rows that stay and are written to."""
        return self._modified.keys()

    @property
    def written(self) -> dict[str, Longs]:
        """Per column, the modified keys in which it is written; columns never written are left out."""
        return {name: keys.keys() for name, keys in self._written.items() if len(keys)}

    def add(self, rows: Sequence[Mapping[str, Any]], keys: Keys | None = None) -> Longs:
        """Add rows and return their keys, in the order of ``rows``. A missing column is null.

        Without ``keys``, the keys follow the largest ever used. Values: see
        `connectors.deephaven.server.tables.cells.to_cells`.

        Raises:
            LocalProtocolError: An unknown column, or a key that is negative, repeated or in use.
            InvalidValue: A value is not of its column's type.
        """
        named = {name for row in rows for name in row}
        return self.add_columns({name: [row.get(name) for row in rows] for name in named}, keys, count=len(rows))

    def add_columns(
        self, values: Mapping[str, Any] | pa.Table, keys: Keys | None = None, *, count: int | None = None
    ) -> Longs:
        """Add rows given by columns: lists, numpy or Arrow arrays of equal length; otherwise like `add`."""
        cells = self._cells(values)
        rows = _common_length(cells, count)
        new = np.arange(self.next_key, self.next_key + rows) if keys is None else _row_keys(keys)
        order = _order(new, rows)
        if self._exist(new).any():
            raise LocalProtocolError(f"row key {new[self._exist(new)][0]} is in use")
        everything = {name: cells[name] if name in cells else nulls(kind, rows) for name, kind in self._types.items()}
        ascending, ordered = _reorder(new, order), {name: _reorder(cell, order) for name, cell in everything.items()}
        self._added.insert(ascending, np.zeros(rows, np.int64))
        if rows:
            self.next_key = max(self.next_key, int(ascending[-1]) + 1)
            self.steps.append(lambda storage: storage.add(ascending, ordered))
        return new

    def modify(self, changes: Mapping[int, Mapping[str, Any]]) -> None:
        """Write some columns of some rows: key to column to value. Raises as `add`, also for unknown keys."""
        keys_by_columns: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for key, change in changes.items():
            keys_by_columns[tuple(change)].append(key)
        for names, keys in keys_by_columns.items():
            self.modify_columns(keys, {name: [changes[key][name] for key in keys] for name in names})

    def modify_columns(self, keys: Keys, values: Mapping[str, Any] | pa.Table) -> None:
        """Write some columns of the rows ``keys``, given by columns; otherwise like `modify`."""
        cells = self._cells(values)
        given = self._require_rows(keys)
        order = _order(given, _common_length(cells, len(given)))
        ascending, ordered = _reorder(given, order), {name: _reorder(cell, order) for name, cell in cells.items()}
        existing = ascending[self._added.find(ascending) == NOWHERE]
        _include(self._modified, existing)
        for name in ordered:
            _include(self._written[name], existing)
        self.steps.append(lambda storage: storage.write(ascending, ordered))

    def remove(self, keys: Keys) -> None:
        """Remove rows. Raises LocalProtocolError for a repeated or unknown key."""
        given = self._require_rows(keys)
        self._remove(_reorder(given, _order(given, len(given))))

    def remove_range(self, first: int, last: int) -> None:
        """Remove all rows with keys from ``first`` to ``last``, both inclusive; there may be none."""
        self._check_open()
        stored = self._storage.between(first, last)
        stored = stored[self._removed.find(stored) == NOWHERE]
        self._remove(np.union1d(stored, self._added.between(first, last)))

    def _remove(self, keys: Longs) -> None:
        fresh = self._added.find(keys) != NOWHERE
        self._added.remove(keys[fresh])
        self._removed.insert(keys[~fresh], np.zeros(np.count_nonzero(~fresh), np.int64))
        for held in (self._modified, *self._written.values()):
            held.remove(keys[held.find(keys) != NOWHERE])
        self.steps.append(lambda storage: storage.remove(keys))

    def _exist(self, keys: Longs) -> Mask:
        self._check_open()
        stored = self._storage.holds(keys) & (self._removed.find(keys) == NOWHERE)
        existing: Mask = stored | (self._added.find(keys) != NOWHERE)
        return existing

    def _check_open(self) -> None:
        if not self.is_open:
            raise LocalProtocolError("the update's block has ended")

    def _require_rows(self, keys: Keys) -> Longs:
        given = _row_keys(keys)
        existing = self._exist(given)
        if not existing.all():
            raise LocalProtocolError(f"there is no row with key {given[~existing][0]}")
        return given

    def _cells(self, values: Mapping[str, Any] | pa.Table) -> dict[str, Cells]:
        names = values.column_names if isinstance(values, pa.Table) else list(values)
        for name in names:
            if name not in self._types:
                raise LocalProtocolError(f"there is no column {name!r}; the columns are {', '.join(self._types)}")
        return {name: self._convert(name, values[name]) for name in names}

    def _convert(self, name: str, values: Any) -> Cells:
        try:
            return to_cells(self._types[name], values)
        except InvalidValue as error:
            raise InvalidValue(f"column {name}: {error.detail}", reason=error.reason) from error


def _row_keys(keys: Keys) -> Longs:
    given = np.asarray(keys)
    if given.ndim != 1 or (len(given) and given.dtype != np.int64):
        raise LocalProtocolError("row keys are 64-bit integers")
    return given.astype(np.int64)


def _order(keys: Longs, expected: int) -> npt.NDArray[np.intp] | None:
    """Return the indices that sort the keys, None when sorted; check number, uniqueness and that none is negative."""
    if len(keys) != expected:
        raise LocalProtocolError(f"{len(keys)} row keys for {expected} rows")
    if not len(keys) or (keys[0] >= 0 and (np.diff(keys) > 0).all()):
        return None
    order = np.argsort(keys)
    ascending = keys[order]
    if ascending[0] < 0 or (np.diff(ascending) == 0).any():
        raise LocalProtocolError("row keys must not be negative or repeat")
    return order


def _reorder(values: Cells, order: npt.NDArray[np.intp] | None) -> Cells:
    return values if order is None else values[order]


def _common_length(cells: Mapping[str, Cells], count: int | None) -> int:
    lengths = {len(column) for column in cells.values()} | (set() if count is None else {count})
    if len(lengths) != 1:
        raise LocalProtocolError(f"columns must be of one length, not {sorted(lengths)}")
    return lengths.pop()


def _include(index: RowIndex, keys: Longs) -> None:
    missing = keys[index.find(keys) == NOWHERE]
    index.insert(missing, np.zeros(len(missing), np.int64))
