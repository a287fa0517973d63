"""Live tables derived from others: the rows that satisfy a filter, the last row of each group. They change with those.

An update of the table is one update of the view, in the same thread, or none if it does not concern the view. Nothing
else may change a view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from silverfold.conf.errors import LocalProtocolError
from silverfold.connectors.deephaven.server.filters.filters import bind_filter
from silverfold.connectors.deephaven.server.tables.cells import to_python
from silverfold.connectors.deephaven.server.tables.live_table import Detach, LiveTable
from silverfold.connectors.deephaven.server.tables.rowkeys import Longs
from silverfold.connectors.deephaven.server.tables.rows import NetChange, Rows


class View(LiveTable):
    """A table derived from another."""

    _detach: Detach

    def __init__(self, table: LiveTable) -> None:
        types = {name: kind.name for name, kind in table.columns.items()}
        super().__init__(types, partial_columns=table.partial_columns)

    def close(self) -> None:
        """Stop following the table. Safe to repeat."""
        self._detach()


def where(table: LiveTable, filter: str) -> View:
    """Return a view of the rows that satisfy a filter, with the same row keys.

    Raises:
        InvalidValue: As `connectors.deephaven.server.filters.filters.bind_filter`.
    """
    return _Where(table, filter)


def last_by(table: LiveTable, *columns: str) -> View:
    """Return a view of the last row, the one with the largest row key, of each group of rows equal in ``columns``.

    Each group has its own row key in the view, for as long as it has a row. Without columns all rows are one group.

    Raises:
        LocalProtocolError: There is no such column, or its values are arrays.
    """
    return _LastBy(table, columns)


class _Where(View):
    def __init__(self, table: LiveTable, filter: str) -> None:
        super().__init__(table)
        self._filter = bind_filter(filter, table.columns)
        with table.pause_updates():
            self._follow(NetChange(0, _NONE, table.snapshot().rows, table.read(_NONE), {}, table.read(_NONE)))
            self._detach = table.listen(self._follow)

    def _follow(self, delta: NetChange) -> None:
        now, held = self._filter.mask(delta.modified), self._storage.holds(delta.modified.keys)
        removed = delta.removed[self._storage.holds(delta.removed)]
        with self.update() as update:
            update.remove(np.union1d(removed, delta.modified.keys[held & ~now]))
            for rows in (delta.added.where(self._filter.mask(delta.added)), delta.modified.where(now & ~held)):
                update.add_columns(rows.columns, rows.keys)
            remaining = delta.modified.where(now & held)
            for name, keys in delta.written.items():
                written = np.isin(remaining.keys, keys)
                update.modify_columns(remaining.keys[written], {name: remaining.columns[name][written]})


class _LastBy(View):
    def __init__(self, table: LiveTable, columns: Sequence[str]) -> None:
        super().__init__(table)
        for name in columns:
            if name not in table.columns or table.columns[name].element is not None:
                raise LocalProtocolError(f"rows cannot be grouped by {name}: there is no such column of single values")
        self._table, self._by = table, columns
        self._group_of: dict[int, Hashable] = {}
        self._rows_of: dict[Hashable, set[int]] = {}
        self._shown: dict[Hashable, tuple[int, int]] = {}
        """Per group, its own row key and that of its last row."""
        with table.pause_updates():
            self._follow(NetChange(0, _NONE, table.snapshot().rows, table.read(_NONE), {}, table.read(_NONE)))
            self._detach = table.listen(self._follow)

    def _follow(self, delta: NetChange) -> None:
        touched: dict[Hashable, None] = dict.fromkeys(self._remove_from_group(key) for key in delta.removed.tolist())
        for rows in (delta.modified, delta.added):
            for key, group in zip(rows.keys.tolist(), self._groups(rows), strict=True):
                if key in self._group_of:
                    touched[self._remove_from_group(key)] = None
                self._group_of[key] = group
                self._rows_of.setdefault(group, set()).add(key)
                touched[group] = None
        self._update_view(touched, set(delta.modified.keys.tolist()) | set(delta.added.keys.tolist()))

    def _remove_from_group(self, key: int) -> Hashable:
        group = self._group_of.pop(key)
        self._rows_of[group].discard(key)
        return group

    def _groups(self, rows: Rows) -> list[Hashable]:
        if not self._by:
            return [()] * len(rows)
        values = [to_python(self._table.columns[name], rows.columns[name]) for name in self._by]
        return [tuple(map(_group_value, row)) for row in zip(*values, strict=True)]

    def _update_view(self, touched: Collection[Hashable], written: Collection[int]) -> None:
        ended, changed, begun = [], {}, {}
        for group in touched:
            last = max(self._rows_of[group], default=None)
            own, before = self._shown.get(group, (None, None))
            if last is None:
                del self._rows_of[group]
                if own is not None:
                    ended.append(own)
                    del self._shown[group]
            elif own is None:
                begun[last] = group
            elif last != before or last in written:
                changed[last] = own
                self._shown[group] = own, last
        with self.update() as update:
            update.remove(sorted(ended))
            self._write_rows(changed, lambda keys, cells: update.modify_columns([changed[key] for key in keys], cells))
            self._write_rows(
                begun, lambda keys, cells: self._add_groups(begun, keys, update.add_columns(cells).tolist())
            )

    def _write_rows(self, rows: Mapping[int, object], put: Callable[[list[int], Mapping[str, Any]], None]) -> None:
        if rows:
            found = self._table.read(np.array(sorted(rows), np.int64))
            put(found.keys.tolist(), found.columns)

    def _add_groups(self, groups: Mapping[int, Hashable], keys: Sequence[int], own: Sequence[int]) -> None:
        for key, each in zip(keys, own, strict=True):
            self._shown[groups[key]] = each, key


_NONE: Longs = np.empty(0, np.int64)


def _group_value(value: Any) -> Hashable:
    """Return a value to group rows by: all NaN are one group, although NaN is unequal to itself."""
    return ("NaN",) if isinstance(value, float) and math.isnan(value) else value
