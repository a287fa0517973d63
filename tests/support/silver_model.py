"""Reference model of silver in dictionaries: a naive implementation of the laws, without frames or Spark.

Receives the source's calls like `LandedHistory`, and holds each table as of its last complete update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rows = Mapping[int, Mapping[str, Any]]


@dataclass
class _Open:
    """An open update."""

    snapshot: bool
    removed: list[tuple[int, int]] = field(default_factory=list)
    added: dict[int, dict[str, Any]] = field(default_factory=dict)
    modified: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass
class ModelTable:
    """One silver table.

    Args:
        columns: Names of the source's columns, in order.
        log: The table is a log of changes.
        upsert: Modifying a row that does not exist inserts it.
    """

    columns: Sequence[str]
    log: bool = False
    upsert: bool = False
    rows: dict[int, dict[str, Any]] | None = None
    """By row key; None before the first complete update."""
    changes: list[tuple[Any, ...]] = field(default_factory=list)
    """Entries of a log: op, row key, last row key, columns sent, and the columns."""
    _open: _Open | None = None

    def connect(self) -> None:
        """Begin a new connection; discards the open update."""
        self._open = None

    def begin(self, *, snapshot: bool) -> None:
        self._open = _Open(snapshot)

    def send(self, verb: str, sent: Any) -> None:
        """Send ``removed`` with ranges, or ``added`` or ``modified`` with rows. The last value sent counts."""
        assert self._open is not None
        if verb == "removed":
            self._open.removed += sent
            return
        into = self._open.added if verb == "added" else self._open.modified
        for key, row in sent.items():
            into.setdefault(key, {}).update(row)

    def end(self) -> None:
        assert self._open is not None
        if self.log:
            self.changes += self._logged(self._open)
            self.rows = {}
        else:
            self.rows = self.after(self._open)
        self._open = None

    def after(self, update: _Open) -> dict[int, dict[str, Any]]:
        """Return the rows after the update: removals first, then added, then modified rows."""
        before = {} if update.snapshot or self.rows is None else self.rows
        rows = {
            key: dict(row)
            for key, row in before.items()
            if not any(first <= key <= last for first, last in update.removed)
        }
        for key, row in update.added.items():
            rows[key] = self._blank() | row
        for key, row in update.modified.items():
            if key in rows:
                rows[key] |= row
            elif self.upsert:
                rows[key] = self._blank() | row
        return rows

    def _blank(self) -> dict[str, Any]:
        return dict.fromkeys(self.columns)

    def _logged(self, update: _Open) -> list[tuple[Any, ...]]:
        nothing = tuple(None for _ in self.columns)
        logged: list[tuple[Any, ...]] = [("delete", first, last, None, *nothing) for first, last in update.removed]
        for key, row in update.added.items():
            cells = self._blank() | row | update.modified.get(key, {})
            logged.append(("insert", key, None, None, *cells.values()))
        for key, row in update.modified.items():
            if key not in update.added:
                names = [name for name in self.columns if name in row]
                present = None if len(names) == len(self.columns) else names
                logged.append(("update", key, None, present, *(self._blank() | row).values()))
        return logged
