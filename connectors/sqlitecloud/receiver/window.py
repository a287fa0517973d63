"""Validation of a snapshot: whether, overlaid by the notifications received meanwhile, it equals the table.

A snapshot has no known moment. It is read after its window of notifications has opened, so it may already contain some
of their changes. Applied over it again, in order, they all lead to the table as of the window's end. Two exceptions
void the attempt:

- An update that moves a row to another key without carrying every column: the row may already have moved in the
  snapshot, and the missing columns cannot be recovered.
- An update of a row that is neither in the snapshot nor explained by the end of the window: a change was lost.

The window of an epoch's first snapshot contains all notifications since the table was listened to. The window of a
later one, also after a void attempt, starts when it is requested.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import numpy as np

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Change, TableUpdate
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column, columns_of
from silverfold.connectors.sqlitecloud.protocol.messages import Value

PARTIAL_MOVE: Final = "partial_move"
UNEXPLAINED: Final = "unexplained_update"
OTHER_COLUMNS: Final = "other_columns"
"""Reasons that void an attempt. With other columns or key columns than described, the table itself has changed."""


class _KeyState(Enum):
    """The state of a key, according to notifications."""

    ROW = auto()
    NONE = auto()
    IF_SELECTED = auto()
    """A row was updated whose existence only the snapshot can show."""
    NOWHERE = auto()
    """A deleted row was updated."""


_UPDATED: Final = {None: _KeyState.IF_SELECTED, _KeyState.NONE: _KeyState.NOWHERE}
"""The state after an update, by the state before; other states are unchanged."""

TypedKey: TypeAlias = tuple[Any, ...]


class _Unfit(str):
    """A part of a key that does not fit its column. In a snapshot and in a notification the same may look otherwise."""


class SnapshotWindow:
    """One attempt at a snapshot of one table. Feed it in the order in which frames land; close it at the end.

    Memory: eight bytes per snapshot row, plus the notified keys.

    Args:
        described: The table, from its control frame.
    """

    def __init__(self, described: Description, table: SqliteCloudTable, options: SqliteCloudOptions) -> None:
        columns = {column.name: column for column in columns_of(described, table, options)}
        self._names, self._keys = frozenset(columns), described.keys
        self._known = frozenset(column.name for column in described.columns)
        self._columns = [columns[name] for name in self._keys]
        self._key_indexes = [described.names.index(name) for name in self._keys]
        self._has_full_updates = options.update_columns == "full"
        self._rows = array("q")
        self._states: dict[TypedKey, _KeyState] = {}
        self.void: str | None = None
        """Why the attempt is void, as far as known; None while it may still succeed."""

    def select(self, rows: Iterable[Sequence[Value]]) -> None:
        """Add rows of the snapshot."""
        self._rows.extend([_identity(self._typed([row[at] for at in self._key_indexes], sent=False)) for row in rows])

    def notify(self, update: TableUpdate) -> None:
        """Add a notification of the table from inside the window."""
        if not self.matches(update):
            self.void = self.void or OTHER_COLUMNS
            return
        order = [update.keys.index(name) for name in self._keys]
        for change in update.changes:
            self._apply(change, order)

    def matches(self, update: TableUpdate) -> bool:
        """Return whether a notification has the described key and no other columns. Also valid after the window."""
        known = self._known
        return set(update.keys) == set(self._keys) and all(known.issuperset(each.columns) for each in update.changes)

    def close(self) -> str | None:
        """Close the window; return why the attempt is void, or None if the snapshot is complete."""
        known = {key: state for key, state in self._states.items() if not any(type(part) is _Unfit for part in key)}
        updated_only = [_identity(key) for key, state in known.items() if state is _KeyState.IF_SELECTED]
        selected = np.isin(np.array(updated_only, np.int64), np.array(self._rows, np.int64))
        if not selected.all() or _KeyState.NOWHERE in known.values():
            self.void = self.void or UNEXPLAINED
        return self.void

    def _apply(self, change: Change, order: Sequence[int]) -> None:
        """Update the state of the change's key, and of its old key."""
        key = self._typed([change.key[at] for at in order], sent=True)
        if change.op != "update":
            self._states[key] = _KeyState.ROW if change.op == "insert" else _KeyState.NONE
            return
        old_key = change.old_key and self._typed([change.old_key[at] for at in order], sent=True)
        if old_key is None or old_key == key:
            previous = self._states.get(key)
            self._states[key] = _UPDATED.get(previous) or previous or _KeyState.ROW
        elif self._has_full_updates or not self._names.difference(change.columns, self._keys):
            self._states |= {old_key: _KeyState.NONE, key: _KeyState.ROW}
        else:
            self.void = self.void or PARTIAL_MOVE

    def _typed(self, key: Sequence[Any], *, sent: bool) -> TypedKey:
        return tuple([_typed(column, part, sent=sent) for column, part in zip(self._columns, key, strict=True)])


def _typed(column: Column, part: Any, *, sent: bool) -> Any:
    """Return a key's value in its column's type; as it came if it does not fit, which holds the table until it does."""
    try:
        return column.value(part, sent=sent)
    except InvalidValue:
        return _Unfit(repr(part))


def _identity(key: TypedKey) -> int:
    """Return a 64-bit identity of a key, from its text, since hash(-1) equals hash(-2)."""
    return hash(repr(key))
