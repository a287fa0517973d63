"""Combines a connector's settings so that every pair of values occurs: those of a feed, and those of its tables.

A history has one feed with several tables, so that they share what a build costs. Settings are written as
``feed|table|table``, each part with what differs from the tamest values: ``framing=b3-umdf|kind=book,history=2|-``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

Choice: TypeAlias = dict[str, str]
"""A value for each parameter."""
Parameters: TypeAlias = Mapping[str, tuple[str, ...]]
"""The values of each parameter, the tamest first."""
Law: TypeAlias = tuple[str, Callable[[Choice], bool]]
"""Why something does not go together, and what holds of all that does."""
Pair: TypeAlias = tuple[tuple[str, str], tuple[str, str]]

_TRIES = 400
"""Draws after which a pair is taken to be impossible."""
_CANDIDATES = 12


@dataclass(frozen=True)
class Settings:
    """What one history is made of."""

    feed: Choice
    tables: tuple[Choice, ...]

    @property
    def pairs(self) -> set[Pair]:
        """Every pair of parameters with their values that occurs in a table and its feed."""
        return {pair for table in self.tables for pair in _pairs({**self.feed, **table})}


@dataclass(frozen=True)
class Space:
    """A connector's parameters.

    Args:
        feed, table: Parameters, of which none has a name in both.
        laws: Each is of one table and its feed.
        tables: How many a history has.
    """

    feed: Parameters
    table: Parameters
    laws: Sequence[Law]
    tables: int = 3

    @cached_property
    def every(self) -> Parameters:
        """The parameters of a table and its feed."""
        return {**self.feed, **self.table}

    def refused(self, choice: Choice) -> str | None:
        """Return why a table and its feed do not go together; None when they do."""
        return next((reason for reason, holds in self.laws if not holds(choice)), None)

    def sample(self) -> list[Settings]:
        """Return settings in which every pair of values occurs that can; the same each time."""
        rng, rows = random.Random(0), list[Settings]()
        left = self.possible_pairs()
        while left:
            tried = [self._covering(rng, sorted(left)) for _ in range(_CANDIDATES)]
            rows.append(max(tried, key=lambda row: len(row.pairs & left)))
            left -= rows[-1].pairs
        return rows

    def possible_pairs(self) -> set[Pair]:
        """Return every pair of values that can go together."""
        rng = random.Random(0)
        every = {
            ((one, value), (other, another))
            for one, other in combinations(self.every, 2)
            for value in self.every[one]
            for another in self.every[other]
        }
        return {pair for pair in sorted(every) if self._completed(rng, dict(pair)) is not None}

    def drawn(self, rng: random.Random) -> Settings:
        """Return any settings."""
        return self._with(rng, [{} for _ in range(self.tables)])

    def parsed(self, text: str) -> Settings:
        """Return the settings that a text names, the others as tame as they come."""
        feed, *tables = [
            dict(part.split("=", 1) for part in each.split(",") if "=" in part) for each in text.split("|")
        ]
        return Settings({**_tamest(self.feed), **feed}, tuple({**_tamest(self.table), **table} for table in tables))

    def written(self, settings: Settings) -> str:
        """Return what differs from the tamest, as `parsed` reads it."""
        return "|".join([_differing(self.feed, settings.feed), *(_differing(self.table, t) for t in settings.tables)])

    def _covering(self, rng: random.Random, left: Sequence[Pair]) -> Settings:
        return self._with(rng, [dict(rng.choice(left)) for _ in range(self.tables)])

    def _with(self, rng: random.Random, wanted: Iterable[Choice]) -> Settings:
        """Return settings whose tables have these values where they go with the feed that the first one brings."""
        feed: Choice = {}
        tables = []
        for each in wanted:
            found = self._completed(rng, {**each, **feed}) or self._completed(rng, feed)
            assert found is not None, "a feed that was found with one table goes with a like one"
            feed = {name: found[name] for name in self.feed}
            tables.append({name: found[name] for name in self.table})
        return Settings(feed, tuple(tables))

    def _completed(self, rng: random.Random, known: Choice) -> Choice | None:
        """Return a table and its feed that have these values."""
        for _ in range(_TRIES):
            found = {name: known.get(name) or rng.choice(values) for name, values in self.every.items()}
            if self.refused(found) is None:
                return found
        return None


def _pairs(choice: Choice) -> set[Pair]:
    return set(combinations(choice.items(), 2))


def _tamest(parameters: Parameters) -> Choice:
    return {name: values[0] for name, values in parameters.items()}


def _differing(parameters: Parameters, choice: Choice) -> str:
    return ",".join(f"{name}={choice[name]}" for name, values in parameters.items() if choice[name] != values[0]) or "-"
