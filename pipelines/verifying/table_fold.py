"""Fold reference changes into a table's rows, one by one, in dictionaries: what silver is verified against.

A row that moves to a taken key displaces the row there. The next move or delete of the same frame at that key refers to
the displaced row, so rows can be swapped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.key_span import EVERY_KEY, Key, KeySpan, NotBySpans
from silverfold.connectors.verification import ReferenceChange

Row: TypeAlias = dict[str, Any]


@dataclass
class TableFold:
    """A table's state in a dictionary.

    Args:
        own_columns: The source's keys, which each row carries.
        within: The keys whose rows are retained; nothing is known of others.
        upserts: An update without an existing row inserts one.
        snapshot_end: Position up to which a snapshot is overlaid. For an update that moves a row and carries all of it,
            a reader also yields an insert with its ``old_key``, since the snapshot may lack the moved row. After this
            position such an insert is ignored.
    """

    own_columns: tuple[str, ...]
    within: KeySpan = EVERY_KEY
    upserts: bool = False
    snapshot_end: int = sys.maxsize
    rows: dict[Key, Row] = field(default_factory=dict)
    _displaced: dict[Key, Row] = field(default_factory=dict)
    _frame: int = -1

    def apply(self, changes: Iterable[ReferenceChange], columns: Sequence[str] = (), *, snapshot: bool = False) -> None:
        """Apply one complete update."""
        if snapshot:
            for key in list(self.rows):
                self.put(key, None)
        for change in filter(self.concerns, changes):
            self.take(change)

    def concerns(self, change: ReferenceChange) -> bool:
        """Return whether a change may affect a key in the span. Raises NotBySpans."""
        if self.within == EVERY_KEY or change.last_key is not None:
            return True
        inside = self.within.holds(change.key)
        if change.old_key is not None and self.within.holds(change.old_key) is not inside:
            raise NotBySpans
        return inside

    def all_rows(self) -> list[Row]:
        """Return the rows, keys included."""
        return list(self.rows.values())

    def put(self, key: Key, row: Row | None) -> None:
        """Set the row at a key, or delete it with None."""
        if row is None:
            del self.rows[key]
        else:
            self.rows[key] = row

    def take(self, change: ReferenceChange) -> None:
        """Apply one change."""
        if change.position != self._frame:
            self._frame, self._displaced = change.position, {}
        existing = self.rows.get(change.key)
        if change.op == "delete":
            self._delete(change)
        elif change.op == "update" and change.old_key is not None:
            self._move(change, change.old_key)
        elif change.op == "insert" and change.old_key is not None and change.position > self.snapshot_end:
            return
        elif change.op == "insert" or (existing is None and self.upserts):
            self.put(change.key, {**self._key_columns(change.key), **change.row})
        elif existing is not None:
            self.put(change.key, {**existing, **change.row})

    def _delete(self, change: ReferenceChange) -> None:
        if self._displaced.pop(change.key, None) is None:
            for key in list(self._deleted_keys(change)):
                self.put(key, None)

    def _move(self, change: ReferenceChange, old_key: Key) -> None:
        """Move a row to another key. A row already there is displaced: the same frame may yet move or delete it."""
        row = self._displaced.pop(old_key, None)
        if row is None and old_key in self.rows:
            row = self.rows[old_key]
            self.put(old_key, None)
        if row is None and not self.upserts:
            return
        if change.key in self.rows:
            self._displaced[change.key] = self.rows[change.key]
        self.put(change.key, {**(row or {}), **self._key_columns(change.key), **change.row})

    def _key_columns(self, key: Key) -> Row:
        if len(key) != len(self.own_columns):  # columns cannot change so, but of updates that the table passed over
            raise InvalidValue(f"a key is not that of {', '.join(self.own_columns)} alone", reason="other_keys")
        return dict(zip(self.own_columns, key, strict=True))

    def _deleted_keys(self, change: ReferenceChange) -> Iterator[Key]:
        """Yield the keys of existing rows that a delete names."""
        first, last = change.key, change.last_key
        if last is None:
            yield from [first] if first in self.rows else []
            return
        whole = all(isinstance(end, int) for end in (*first, *last)) and len(first) == 1
        if whole and last[0] - first[0] < len(self.rows):
            yield from (key for number in range(first[0], last[0] + 1) if (key := (number,)) in self.rows)
        else:
            yield from (key for key in self.rows if first <= key <= last)


@dataclass
class LogFold:
    """A changelog: per update one row for each row key written, and one for each removed range.

    Args:
        within: Rows whose ``keys`` are in this span are retained.
    """

    source_keys: tuple[str, ...]
    within: KeySpan
    keys: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns that a changelog has in addition to the source's."""
        return ("_op", "_position", *self.source_keys, "_last_row_key", "_present")

    def apply(self, changes: Iterable[ReferenceChange], columns: Sequence[str] = (), *, snapshot: bool = False) -> None:
        """Append the rows of one complete update."""
        net: dict[Key, ReferenceChange] = {}
        for change in changes:
            if change.op == "delete":
                self._add(self._row(change) | {"_last_row_key": (change.last_key or change.key)[0]})
                continue
            before = net.get(change.key, change)
            position = max(before.position, change.position)
            net[change.key] = ReferenceChange(before.op, position, change.key, {**before.row, **change.row})
        for change in net.values():
            sent = [name for name in columns if name in change.row]
            partial = change.op == "update" and len(sent) < len(columns)
            self._add({**self._row(change), **change.row, "_present": sent if partial else None})

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Append rows as they are."""
        for row in rows:
            self._add(row)

    def concerns(self, _change: ReferenceChange) -> bool:
        """Return True: the rows that a change makes are known only at the end of its update."""
        return True

    def all_rows(self) -> list[Row]:
        """Return the rows in the order in which they were added."""
        return self.rows

    def _add(self, row: Row) -> None:
        if self.within == EVERY_KEY or self.within.holds(tuple(row.get(name) for name in self.keys)):
            self.rows.append(row)

    def _row(self, change: ReferenceChange) -> Row:
        return {"_op": change.op, "_position": change.position, **dict(zip(self.source_keys, change.key, strict=True))}
