"""Live tables: typed columns, rows by row key, changed in atomic updates that listeners can follow without a gap.

Invariants: an update is applied completely or, if its block raises, not at all; a listener gets every update after its
snapshot exactly once, in order; what listeners are given never changes afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import LocalProtocolError
from silverfold.connectors.deephaven.protocol.types import TYPES, ColumnType
from silverfold.connectors.deephaven.server.tables.cells import to_arrow, to_python
from silverfold.connectors.deephaven.server.tables.rowkeys import Longs
from silverfold.connectors.deephaven.server.tables.rows import NetChange, Rows, Snapshot
from silverfold.connectors.deephaven.server.tables.storage import Storage
from silverfold.connectors.deephaven.server.tables.table_update import TableUpdate

Listener: TypeAlias = Callable[[NetChange], None]
Detach: TypeAlias = Callable[[], None]

ROW_KEY = "_row_key"


class LiveTable:
    """A table that changes. Safe to use from several threads; one update is made at a time.

    Args:
        columns: Column names and their types (names of `connectors.deephaven.protocol.types.TYPES`), in order.
        partial_columns: Send modified rows only with the columns that were written to. By default all columns are sent.

    Raises:
        LocalProtocolError: No columns, or an unknown type.
    """

    def __init__(self, columns: Mapping[str, str], *, partial_columns: bool = False) -> None:
        unknown = {name: kind for name, kind in columns.items() if kind not in TYPES or not name}
        if unknown or not columns:
            raise LocalProtocolError(f"no such column types: {unknown or 'a table has at least one column'}")
        self.columns: Mapping[str, ColumnType] = MappingProxyType({name: TYPES[columns[name]] for name in columns})
        self.partial_columns = partial_columns
        self._storage = Storage(self.columns)
        self._listeners: dict[object, tuple[Listener, frozenset[str]]] = {}
        self._state = threading.RLock()  # held briefly: reading, applying, (de)registering
        self._writer = threading.Lock()  # held while an update's block runs
        self._writing_thread: int | None = None
        self._updates = 0
        self._next_key = 0

    def __len__(self) -> int:
        with self._state:
            return len(self._storage)

    @property
    def updates(self) -> int:
        """Number of updates applied."""
        return self._updates

    @contextmanager
    def update(self) -> Iterator[TableUpdate]:
        """Collect changes and apply them as one update when the block ends; none of them if it raises.

        A block without a net effect is not an update. Other threads wait meanwhile; only one block may be open per
        thread.
        """
        if self._writing_thread == threading.get_ident():
            raise LocalProtocolError("an update is open in this thread already")
        with self._writer:
            self._writing_thread = threading.get_ident()
            update = TableUpdate(self.columns, self._storage, self._next_key)
            try:
                yield update
                self._apply(update)
            finally:
                update.is_open = False
                self._writing_thread = None

    @contextmanager
    def pause_updates(self) -> Iterator[None]:
        """Block updates meanwhile. Hold it only briefly."""
        with self._state:
            yield

    def snapshot(self, columns: Collection[str] | None = None) -> Snapshot:
        """Return a copy of the current rows, with these columns (default: all)."""
        names = self.columns if columns is None else columns
        with self._state:
            return Snapshot(self._updates, self._storage.read(None, names))

    def read(self, keys: Longs) -> Rows:
        """Return a copy of the rows with these keys, which must be ascending and all present."""
        with self._state:
            if not self._storage.holds(keys).all():
                raise LocalProtocolError("some of the row keys to read are not there")
            return self._storage.read(keys, self.columns)

    def listen(self, listener: Listener, *, before: Collection[str] = ()) -> Detach:
        """Call ``listener`` with every update from now on; return a function that ends this.

        It is called in the updating thread, which waits for it, and must neither raise nor block. ``before`` names the
        columns whose previous values it needs for removed and modified rows.
        """
        token = object()
        with self._state:
            self._listeners[token] = (listener, frozenset(before))

        def detach() -> None:
            with self._state:
                self._listeners.pop(token, None)

        return detach

    def listen_from(
        self, listener: Listener, columns: Collection[str], *, before: Collection[str] = ()
    ) -> tuple[Snapshot, Detach]:
        """Return a snapshot of ``columns`` and listen: the first update delivered is the one after the snapshot."""
        with self._state:
            return self.snapshot(columns), self.listen(listener, before=before)

    def rows(self) -> dict[int, dict[str, Any]]:
        """Return every row by its key as Python values, null as None: see `cells.to_python`."""
        rows = self.snapshot().rows
        columns = [to_python(self.columns[name], cells) for name, cells in rows.columns.items()]
        values = (dict(zip(self.columns, row, strict=True)) for row in zip(*columns, strict=True))
        return dict(zip(rows.keys.tolist(), values, strict=True))

    def to_arrow(self) -> pa.Table:
        """Return the rows by ascending key: the key as ``_row_key``, then each column in its type's Arrow type."""
        rows = self.snapshot().rows
        arrays = [pa.array(rows.keys), *(to_arrow(self.columns[name], cells) for name, cells in rows.columns.items())]
        return pa.table(arrays, names=[ROW_KEY, *self.columns])

    def _apply(self, update: TableUpdate) -> None:
        with self._state:
            self._next_key = update.next_key
            if update.is_empty:
                return
            before = self._storage.read(np.union1d(update.removed, update.modified), self._wanted_before())
            for step in update.steps:
                step(self._storage)
            self._updates += 1
            if self._listeners:
                delta = self._delta(update, before)
                for listener, _ in list(self._listeners.values()):
                    listener(delta)

    def _delta(self, update: TableUpdate, before: Rows) -> NetChange:
        return NetChange(
            update=self._updates,
            removed=update.removed,
            added=self._storage.read(update.added, self.columns),
            modified=self._storage.read(update.modified, self.columns),
            written=update.written,
            before=before,
        )

    def _wanted_before(self) -> Sequence[str]:
        wanted = {name for _, names in self._listeners.values() for name in names}
        return [name for name in self.columns if name in wanted]


def load(columns: Mapping[str, str], values: Mapping[str, Any] | pa.Table, keys: Longs | None = None) -> LiveTable:
    """Return a table with these rows, added in one update."""
    table = LiveTable(columns)
    with table.update() as update:
        update.add_columns(values, keys)
    return table
