"""Decides whether a snapshot, overlaid by what was notified while it was taken, comes to what the table is.

A snapshot is not taken at a known moment. It is read after the first notification of its window has been asked for, so
it may hold some of their changes already; applied again over it, in order, all of them come to the table as it is at
the window's end. There are two exceptions, and both void the attempt:

- An update that moves a row to another key and does not carry every column: the row may have moved in the snapshot
  already, and then what was not sent cannot be found.
- An update of a row that is neither in the snapshot nor explained by the end of the window: something was lost.

The first snapshot of an epoch has for its window all notifications since the table was listened to. One that is asked
for later in the epoch, also after a void attempt, has those since it was asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import numpy as np

from conf.errors import InvalidValue
from connectors.sqlitecloud.control import Description
from connectors.sqlitecloud.messages import Value
from connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from connectors.sqlitecloud.payload import Change, TableUpdate
from connectors.sqlitecloud.values import columns_of

PARTIAL_MOVE: Final = "partial_move"
UNEXPLAINED: Final = "unexplained_update"
OTHER_COLUMNS: Final = "other_columns"
UNFIT_KEY: Final = "unfit_key"
"""Why an attempt is void. With other columns or key columns than described, the table itself has changed."""


class _Stands(Enum):
    """What stands at a key, as far as was notified."""

    ROW = auto()
    NONE = auto()
    IF_SELECTED = auto()
    """A row was updated of which only the snapshot can tell that it is there."""
    NOWHERE = auto()
    """A row was updated that had been deleted."""


_UPDATED: Final = {None: _Stands.IF_SELECTED, _Stands.NONE: _Stands.NOWHERE}
"""What an update makes of what stood; of anything else the same."""

TypedKey: TypeAlias = tuple[Any, ...]


class SnapshotWindow:
    """One attempt at a snapshot of one table. Feed it in the order in which frames land; ask at the end.

    Keeps eight bytes for each row of the snapshot, and the keys that were notified.

    Args:
        described: The table, as the control frame tells.
    """

    def __init__(self, described: Description, table: SqliteCloudTable, options: SqliteCloudOptions) -> None:
        columns = {column.name: column for column in columns_of(described, table, options)}
        self._names, self._keys = frozenset(columns), described.keys
        self._known = frozenset(column.name for column in described.columns)
        self._columns = [columns[name] for name in self._keys]
        self._places = [described.names.index(name) for name in self._keys]
        self._whole_updates = options.update_columns == "full"
        self._rows = array("q")
        self._stands: dict[TypedKey, _Stands] = {}
        self.void: str | None = None
        """Why the attempt is void, as far as that is known already; None as long as it may become whole."""

    def select(self, rows: Iterable[Sequence[Value]]) -> None:
        """Take rows of the snapshot, as they come."""
        try:
            self._rows.extend([_identity(self._typed([row[at] for at in self._places], sent=False)) for row in rows])
        except InvalidValue:
            self.void = self.void or UNFIT_KEY

    def notify(self, update: TableUpdate) -> None:
        """Take a notification of the table that is part of the window."""
        if not self.knows(update):
            self.void = self.void or OTHER_COLUMNS
            return
        order = [update.keys.index(name) for name in self._keys]
        try:
            for change in update.changes:
                self._follow(change, order)
        except InvalidValue:
            self.void = self.void or UNFIT_KEY

    def knows(self, update: TableUpdate) -> bool:
        """Tell whether a notification has no other columns, and no other key, than described. Also after the window."""
        known = self._known
        return set(update.keys) == set(self._keys) and all(known.issuperset(each.columns) for each in update.changes)

    def close(self) -> str | None:
        """Return why the attempt is void at the end of its window; None: the snapshot is complete."""
        alone = [_identity(key) for key, stands in self._stands.items() if stands is _Stands.IF_SELECTED]
        selected = np.isin(np.array(alone, np.int64), np.array(self._rows, np.int64))
        if not selected.all() or _Stands.NOWHERE in self._stands.values():
            self.void = self.void or UNEXPLAINED
        return self.void

    def _follow(self, change: Change, order: Sequence[int]) -> None:
        """Note what stands at the change's key now, and at the one it takes the row from."""
        key = self._typed([change.key[place] for place in order], sent=True)
        if change.op != "update":
            self._stands[key] = _Stands.ROW if change.op == "insert" else _Stands.NONE
            return
        old_key = change.old_key and self._typed([change.old_key[place] for place in order], sent=True)
        if old_key is None or old_key == key:
            stood = self._stands.get(key)
            self._stands[key] = _UPDATED.get(stood) or stood or _Stands.ROW
        elif self._whole_updates or not self._names.difference(change.columns, self._keys):
            self._stands |= {old_key: _Stands.NONE, key: _Stands.ROW}
        else:
            self.void = self.void or PARTIAL_MOVE

    def _typed(self, key: Sequence[Any], *, sent: bool) -> TypedKey:
        return tuple([column.value(part, sent=sent) for column, part in zip(self._columns, key, strict=True)])


def _identity(key: TypedKey) -> int:
    """Return 64 bits that tell keys apart: those of a text, since the hashes of -1 and -2 are one."""
    return hash(repr(key))
