"""Seeded updates of a table: inserts, partial updates, deletes and moves of keys, several rows at once.

Changes depend only on the seed and the table's rows. A table with keys stays about as large as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from silverfold.connectors.tengi.server.feed.tables import Key, Row, RowChanges, SourceTable
from silverfold.connectors.tengi.server.workload.values import new_value, next_key, random_like

_KINDS: Final = ("insert", "update", "delete", "move")
_WEIGHTS: Final = (25, 45, 25, 5)
_MOST: Final = 12
_SINGLE_CHANCE: Final = 0.4
_REUSED_CHANCE: Final = 0.2
_ROOM: Final = 50
"""Rows by which a table may grow, in addition to a quarter of its first rows."""
_TRIES: Final = 8
"""Attempts to find an unused key. A small type may have none."""
_REMEMBERED: Final = 64
"""Number of deleted keys that may be used again."""


class Changer:
    """Makes one update after another. Must be the only writer of its table.

    Args:
        apply: Makes an update of the table.
    """

    def __init__(self, table: SourceTable, apply: Callable[[SourceTable, RowChanges], object], seed: int | str) -> None:
        self._table, self._apply = table, apply
        self._chance = Random(seed)  # noqa: S311 - repeatable, not secret
        self._order = list(table.rows)
        """Keys in no particular order, so that one is drawn in constant time."""
        self._deleted = deque[Key](maxlen=_REMEMBERED)
        self._most_rows = len(self._order) * 5 // 4 + _ROOM
        self._highest = [max((each[at] for each in self._order), default=0) for at in range(len(table.keys))]

    def change(self) -> int:
        """Make one update of one to twelve changes, of different rows; return their number."""
        wanted = 1 if self._chance.random() < _SINGLE_CHANCE else self._chance.randint(2, _MOST)
        changes = self._keyed(wanted) if self._table.keys else self._keyless(wanted)
        if changes:
            self._apply(self._table, changes)
        return max(1, len(changes))  # 1 for no change, when all keys are used up: the rate needs time to pass

    def _keyless(self, wanted: int) -> RowChanges:
        names = self._table.columns
        model = next(reversed(self._table.rows.values()), dict.fromkeys(names))
        return RowChanges(added=[self._varied(model, list(names)) for _ in range(wanted)])

    def _keyed(self, wanted: int) -> RowChanges:
        kinds = self._chance.choices(_KINDS, _WEIGHTS, k=wanted)
        if len(self._order) > self._most_rows:
            kinds = ["delete" if each == "insert" else each for each in kinds]
        removed, updated, moved = (self._draw(kinds.count(each)) for each in ("delete", "update", "move"))
        self._deleted += removed
        rows, free = self._table.rows, list(removed)
        models = [*self._order[-1:], *updated, *removed]
        modified = [(key, self._partial(rows[key])) for key in updated]
        self._order += updated
        for key in moved:
            target = self._unused_key(key, free)
            modified.append((key, {**self._partial(rows[key]), **self._key_values(target)}))
            self._order.append(target or key)
        added: list[Row] = []
        for _ in range(wanted - len(removed) - len(modified)):
            model = self._chance.choice(models) if models else None
            target = self._unused_key(model, free)
            if target is not None:
                row = rows[model] if model else dict.fromkeys(self._table.columns)
                added.append({**self._varied(row, self._others()), **self._key_values(target)})
                self._order.append(target)
        return RowChanges(removed, modified, added)

    def _others(self) -> list[str]:
        return [name for name in self._table.columns if name not in self._table.keys]

    def _partial(self, row: Row) -> Row:
        """Return new values of some columns. If all columns are keys, return the row as it is."""
        others = self._others()
        chosen = self._chance.sample(others, self._chance.randint(1, len(others))) if others else []
        return self._varied(row, chosen) if chosen else row

    def _varied(self, row: Row, names: list[str]) -> dict[str, Any]:
        return {name: random_like(self._table.columns[name], row[name], self._chance) for name in names}

    def _key_values(self, key: Key | None) -> Row:
        return {} if key is None else dict(zip(self._table.keys, key, strict=True))

    def _unused_key(self, model: Key | None, free: list[Key]) -> Key | None:
        """Return an unused key; None if none was found.

        Args:
            model: Key from which all columns but one are copied; None to make all of them.
            free: Keys of rows that this update deletes. A returned one is removed from it.
        """
        for _ in range(_TRIES):
            found = self._candidate(model, free)
            if found in free:
                free.remove(found)
                return found
            if found not in self._table.rows and found not in self._order[-_MOST:]:
                return found
        return None

    def _candidate(self, model: Key | None, free: list[Key]) -> Key:
        if self._deleted and self._chance.random() < _REUSED_CHANCE:
            return self._chance.choice(free or self._deleted)
        kinds = [self._table.columns[name] for name in self._table.keys]
        key = [new_value(kind, None, self._chance) for kind in kinds] if model is None else list(model)
        at = self._chance.randrange(len(kinds))
        key[at] = next_key(kinds[at], key[at], self._highest[at], self._chance)
        if isinstance(key[at], int):
            self._highest[at] = max(self._highest[at], key[at])
        return tuple(key)

    def _draw(self, count: int) -> list[Key]:
        """Remove random keys from the order, and return them."""
        drawn = []
        for _ in range(min(count, len(self._order))):
            at = self._chance.randrange(len(self._order))
            self._order[at], self._order[-1] = self._order[-1], self._order[at]
            drawn.append(self._order.pop())
        return drawn
