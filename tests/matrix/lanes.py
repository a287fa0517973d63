"""Lanes: small independent histories sharing a table, each with its own few keys and random generator."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Literal

from tests.matrix.layout import Layout
from tests.matrix.oracle import Table
from tests.matrix.steps import Change, Key

KEYS = 4
"""Number of keys in a lane."""
FAR = 10**12
"""Row key of the first lane's first row in positional tables, far from all others."""

What = Literal["insert", "update"]


class Lane:
    """One history: draws the next changes of its source.

    Args:
        seed: Seed of the story; a lane does not depend on the other lanes.
        explained: Its changes are consistent with the existing rows.
    """

    def __init__(self, seed: int, number: int, layout: Layout, *, explained: bool) -> None:
        self.number, self.layout, self.explained = number, layout, explained
        self.rng = random.Random(f"{seed}/{number}")
        self.table = Table(layout.source)
        self.version, self.good = 0, True
        self._by_position = layout.settings.deephaven

    @property
    def rows(self) -> dict[Key, dict[str, Any]]:
        """The rows at the source."""
        return self.table.rows

    def key(self, number: int) -> Key:
        """Return one of the lane's keys."""
        if self._by_position:
            return ((FAR if self.number == 0 else 8 * self.number) + number,)
        return self.layout.key(KEYS * self.number + number)

    def fill(self) -> None:
        """Add some rows without changes for them."""
        for number in self.rng.sample(range(KEYS), 3):
            self._note([self._insert(number)])

    def changes(self, *, moves: bool = True) -> list[Change]:
        """Return the next changes, for one frame; sometimes none."""
        wanted = self.rng.sample(range(KEYS), self.rng.choice([0, 1, 1, 2]))
        moving = moves and self.layout.settings.moves == "yes" and self.rng.random() < 0.4
        if moving and not self._by_position:
            return self._note(self._moves())
        if self._by_position and self.number == 0 and self.rng.random() < 0.2:
            return self._note([Change("delete", self.key(number)) for number in range(KEYS)])
        found = [change for number in wanted for change in self._one(number)]
        if moving and self.layout.carries_keys:
            found = [*found, *self._swap({change.key for change in found})]
        order = {"delete": 0, "insert": 1, "update": 2}
        return self._note(sorted(found, key=lambda change: order[change.op]) if self._by_position else found)

    def change(self) -> list[Change]:
        """Return the next changes, of one key only."""
        return self._note(self._one(self.rng.randrange(KEYS)))

    def clear(self) -> None:
        """Remove all rows without changes for them."""
        self.table.rows = {}

    def fails(self, what: What, cell: Mapping[str, Any]) -> list[Change]:
        """Return a change after which a row fails the rules, if possible.

        Args:
            cell: The cells that fail the rules.
        """
        there = self._there()
        if what == "update" and there:
            return self._note([Change("update", self.key(self.rng.choice(there)), self._sent(dict(cell)))])
        free = [number for number in range(KEYS) if number not in there]
        if not free:
            return []
        insert = self._insert(self.rng.choice(free))
        return self._note([insert._replace(sent={**insert.sent, **cell})])

    def mends(self) -> list[Change]:
        """Return changes after which every row meets the rules."""
        rules = self.layout.rules(loose=False).values()
        bad = [key for key, row in self.rows.items() if not all(rule.met(row) for rule in rules)]
        return self._note([self._mend(key) for key in bad])

    def deletes(self, changed: list[Change]) -> list[Change]:
        """Return deletes of the changed rows."""
        return self._note([Change("delete", change.key) for change in changed])

    def conflicts(self) -> list[Change]:
        """Return an inconsistent change, which does not affect the source; or changes that duplicate a key."""
        there = self._there()
        if self.layout.carries_keys:
            return self._doubles()
        free = [number for number in range(KEYS) if number not in there]
        if there and (not free or self.rng.random() < 0.5):
            return [self._insert(self.rng.choice(there))]
        return [Change("delete", self.key(self.rng.choice(free)))] if free else []

    def parts(self) -> list[Change]:
        """Return changes after which keys are unique again."""
        if not self.layout.carries_keys:
            return []
        names, seen, found = list(self.layout.keys), set[Key](), list[Change]()
        for key, row in self.rows.items():
            named = tuple(row[name] for name in names)
            if named in seen or None in named:
                found.append(Change("delete", key))
            seen.add(named)
        return self._note(found)

    def _note(self, changes: list[Change]) -> list[Change]:
        self.table.take(changes)
        self.table.before.clear()
        return changes

    def _there(self) -> list[int]:
        return [number for number in range(KEYS) if self.key(number) in self.rows]

    def _one(self, number: int) -> list[Change]:
        """Return a change of one key."""
        there, key = self.key(number) in self.rows, self.key(number)
        wild = not self.explained and self.rng.random() < 0.15
        deletes = 3 if self.layout.source.source_ordered else 1
        does: list[Callable[[], list[Change]]] = [lambda: [self._update(key)]] * 3
        does += [lambda: [Change("delete", key)]] * deletes
        if there:
            does.append(lambda: [Change("delete", key), self._insert(number)])
        if there == wild:
            begins = not self.layout.source.snapshots and not there and self.rng.random() < 0.4
            return [self._update(key) if begins else self._insert(number)]
        return self.rng.choice(does)()

    def _insert(self, number: int) -> Change:
        cells = self.layout.cells(self.rng, self.version, good=self.good)
        if self.layout.carries_keys:
            cells = {**self._free_key(number), **cells}
        return Change("insert", self.key(number), cells)

    def _update(self, key: Key) -> Change:
        return Change("update", key, self._sent(self.layout.cells(self.rng, self.version, good=self.good)))

    def _mend(self, key: Key) -> Change:
        if self.rng.random() < 0.4:
            return Change("delete", key)
        return Change("update", key, self._sent(self.layout.cells(self.rng, self.version, good=True), whole=True))

    def _sent(self, cells: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
        """Return the cells sent: a complete row, or some of them."""
        if self.layout.settings.sends == "whole":
            return {**self.layout.cells(self.rng, self.version, good=self.good), **cells}
        if whole or len(cells) == 1:
            return cells
        some = self.rng.sample(list(cells), self.rng.randint(1, len(cells) - 1))
        return {name: value for name, value in cells.items() if name in some}

    def _moves(self) -> list[Change]:
        """Return a move to a free key, a swap, or a chain of moves, of existing rows."""
        there = self._there()
        free = [number for number in range(KEYS) if number not in there]
        self.rng.shuffle(there)
        if len(there) > 1 and (not free or self.rng.random() < 0.5):
            return [self._move(there[0], there[1]), self._move(there[1], there[0])]
        if not there or not free:
            return []
        chain = [*there[: self.rng.choice([1, 2])], free[0]]
        return [self._move(one, other) for one, other in pairwise(chain)]

    def _move(self, origin: int, to: int) -> Change:
        return self._update(self.key(to))._replace(old_key=self.key(origin))

    def _free_key(self, number: int) -> dict[str, Any]:
        """Return key cells not used in the lane, if rows carry their keys."""
        names = list(self.layout.keys)
        taken = [tuple(row[name] for name in names) for row in self.rows.values()]
        pool = [self.layout.key(KEYS * ((KEYS + 1) * self.number + each) + number) for each in range(KEYS + 1)]
        return dict(zip(names, self.rng.choice([key for key in pool if key not in taken]), strict=True))

    def _swap(self, busy: set[Key]) -> list[Change]:
        """Return a move to a free key, a move that another row follows to the freed key, or a swap of two keys."""
        names = list(self.layout.keys)
        there = [number for number in self._there() if self.key(number) not in busy]
        if not there:
            return []
        one, *others = self.rng.sample(there, len(there))
        free = Change("update", self.key(one), self._free_key(one))
        if not others or self.rng.random() < 0.3:
            return [free]
        other = self.key(others[0])
        follows = Change("update", other, {name: self.rows[self.key(one)][name] for name in names})
        swapped = Change("update", self.key(one), {name: self.rows[other][name] for name in names})
        return [follows, self.rng.choice([free, swapped])]

    def _doubles(self) -> list[Change]:
        there, names = self._there(), list(self.layout.keys)
        if len(there) < 2:
            return []
        rules = self.layout.rules(loose=False).values()
        failing = [number for number in there if not all(rule.met(self.rows[self.key(number)]) for rule in rules)]
        taken = self.rng.choice(failing or there)  # a quarantined row still occupies its key
        other, one = self.key(taken), self.key(self.rng.choice([number for number in there if number != taken]))
        if self.rng.random() < 0.3:
            return self._note([Change("update", one, {names[0]: None})])
        return self._note([Change("update", one, {name: self.rows[other][name] for name in names})])
