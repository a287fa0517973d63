"""Applies seeded updates of several rows each to live tables; `connectors.common.rate` decides when.

The changes depend only on the seed and the table's rows. Two runs with one seed make the same sequence of updates, and
a run stopped early makes a prefix of it. A changer must be the only writer of its table.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

import numpy as np

from silverfold.connectors.deephaven.server.random_values import random_like
from silverfold.connectors.deephaven.server.tables.cells import to_python
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.tables.rowkeys import Longs

_FEWEST, _MOST = 2, 20
_REMOVED, _ADDED = 0.25, 0.25
_REUSED = 0.125
_REMEMBERED_KEYS = 64


class Changer:
    """Makes one update after another: about a quarter of the changes add rows, a quarter remove, half modify.

    Args:
        numbered: Integer columns, not all columns of the table, that identify a row: a new row gets the next number and
            keeps it.
    """

    def __init__(self, table: LiveTable, seed: int | str, *, numbered: Collection[str] = ()) -> None:
        self._table = table
        self._rng = Random(seed)  # noqa: S311 - repeatable, not secret
        rows = table.snapshot(numbered).rows
        self._keys: list[int] = rows.keys.tolist()
        self._removed_keys: list[int] = []
        self._next_number = {name: max(cells.tolist(), default=0) + 1 for name, cells in rows.columns.items()}
        self._varied_columns = [name for name in table.columns if name not in self._next_number]

    def change(self) -> int:
        """Make one update of 2 to 20 changes to distinct rows; return the number of changes."""
        kinds = self._rng.choices("-+*", (_REMOVED, _ADDED, 1 - _REMOVED - _ADDED), k=self._rng.randint(_FEWEST, _MOST))
        removed = self._draw(kinds.count("-"))
        touched = self._draw(kinds.count("*"))
        written = self._rng.sample(self._varied_columns, self._rng.randint(1, len(self._varied_columns)))
        added = self._modelled_rows(len(kinds) - len(removed) - len(touched), self._varied_columns, touched)
        self._assign_numbers(added)
        modified = self._modelled_rows(len(touched), written, touched)
        self._removed_keys = (self._removed_keys + removed)[-_REMEMBERED_KEYS:]
        reused = self._reused_keys(len(added))
        with self._table.update() as update:
            update.remove(removed)
            self._keys += update.add(added[: len(reused)], reused).tolist()
            self._keys += update.add(added[len(reused) :]).tolist()
            update.modify_columns(touched, {name: [row[name] for row in modified] for name in written})
        self._keys += touched
        return len(kinds)

    def _reused_keys(self, most: int) -> list[int]:
        """Return recently removed keys to use again; rarely any."""
        wanted = sum(self._rng.random() < _REUSED for _ in range(most))
        self._rng.shuffle(self._removed_keys)
        reused, self._removed_keys = self._removed_keys[:wanted], self._removed_keys[wanted:]
        return reused

    def _assign_numbers(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row.update(self._next_number)
            self._next_number = {name: number + 1 for name, number in self._next_number.items()}

    def _draw(self, count: int) -> list[int]:
        """Take random keys out of the pool."""
        drawn = []
        for _ in range(min(count, len(self._keys))):
            at = self._rng.randrange(len(self._keys))
            self._keys[at], self._keys[-1] = self._keys[-1], self._keys[at]
            drawn.append(self._keys.pop())
        return drawn

    def _modelled_rows(self, count: int, names: list[str], touched: list[int]) -> list[dict[str, Any]]:
        """Return new rows with these columns, modelled on random existing rows."""
        pool = self._keys or touched
        if not pool:
            return [self._new_row(names, {}, {}) for _ in range(count)]
        drawn = [(self._rng.choice(pool), self._rng.choice(pool)) for _ in range(count)]
        rows = self._read(np.unique(np.array(drawn, np.int64)))
        return [self._new_row(names, rows[model], rows[neighbour]) for model, neighbour in drawn]

    def _new_row(self, names: list[str], model: dict[str, Any], neighbour: dict[str, Any]) -> dict[str, Any]:
        kinds = self._table.columns
        return {name: random_like(kinds[name], model.get(name), neighbour.get(name), self._rng) for name in names}

    def _read(self, keys: Longs) -> dict[int, dict[str, Any]]:
        rows = self._table.read(keys)
        columns = [to_python(self._table.columns[name], cells) for name, cells in rows.columns.items()]
        values = (dict(zip(rows.columns, row, strict=True)) for row in zip(*columns, strict=True))
        return dict(zip(keys.tolist(), values, strict=True))
