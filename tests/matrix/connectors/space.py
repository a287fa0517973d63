"""Pairwise combinations of a connector's settings: those of a feed and those of its tables.

A history has one feed with several tables, which share the cost of a build. Settings are written as
``feed|table|table``, each part with its values that differ from the tamest: ``framing=b3-umdf|kind=book,history=2|-``.
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
"""Values of each parameter, the tamest first."""
Law: TypeAlias = tuple[str, Callable[[Choice], bool]]
"""Reason of an incompatibility, and a predicate that all compatible choices meet."""
Pair: TypeAlias = tuple[tuple[str, str], tuple[str, str]]

_TRIES = 400
"""Draws after which a pair is considered impossible."""
_CANDIDATES = 12


@dataclass(frozen=True)
class Settings:
    """Settings of one history."""

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
        feed, table: Parameters; their names are disjoint.
        laws: Each applies to one table and its feed.
        tables: Number of tables in a history.
    """

    feed: Parameters
    table: Parameters
    laws: Sequence[Law]
    tables: int = 3

    @cached_property
    def every(self) -> Parameters:
        """Parameters of a table and its feed."""
        return {**self.feed, **self.table}

    def refused(self, choice: Choice) -> str | None:
        """Return why a table and its feed are incompatible; None if they are not."""
        return next((reason for reason, holds in self.laws if not holds(choice)), None)

    def sample(self) -> list[Settings]:
        """Return settings that cover every possible pair of values; deterministic."""
        rng, rows = random.Random(0), list[Settings]()
        left = set(self.possible_pairs)
        while left:
            tried = [self._covering(rng, sorted(left)) for _ in range(_CANDIDATES)]
            rows.append(max(tried, key=lambda row: len(row.pairs & left)))
            left -= rows[-1].pairs
        return rows

    @cached_property
    def possible_pairs(self) -> frozenset[Pair]:
        """All compatible pairs of values."""
        rng = random.Random(0)
        every = {
            ((one, value), (other, another))
            for one, other in combinations(self.every, 2)
            for value in self.every[one]
            for another in self.every[other]
        }
        return frozenset(pair for pair in sorted(every) if self._completed(rng, dict(pair)) is not None)

    def drawn(self, rng: random.Random) -> Settings:
        """Return random settings."""
        return self._with(rng, [{} for _ in range(self.tables)])

    def parsed(self, text: str) -> Settings:
        """Parse settings; parameters that are not named get their tamest value."""
        feed, *tables = [
            dict(part.split("=", 1) for part in each.split(",") if "=" in part) for each in text.split("|")
        ]
        return Settings({**_tamest(self.feed), **feed}, tuple({**_tamest(self.table), **table} for table in tables))

    def written(self, settings: Settings) -> str:
        """Return the values that differ from the tamest, in the form parsed by `parsed`."""
        return "|".join([_differing(self.feed, settings.feed), *(_differing(self.table, t) for t in settings.tables)])

    def _covering(self, rng: random.Random, left: Sequence[Pair]) -> Settings:
        return self._with(rng, [dict(rng.choice(left)) for _ in range(self.tables)])

    def _with(self, rng: random.Random, wanted: Iterable[Choice]) -> Settings:
        """Return settings whose tables have these values, as far as they are compatible with the feed of the first."""
        feed: Choice = {}
        tables = []
        for each in wanted:
            found = self._completed(rng, {**each, **feed}) or self._completed(rng, feed)
            assert found is not None, "a feed that was found with one table goes with a like one"
            feed = {name: found[name] for name in self.feed}
            tables.append({name: found[name] for name in self.table})
        return Settings(feed, tuple(tables))

    def _completed(self, rng: random.Random, known: Choice) -> Choice | None:
        """Return a choice for a table and its feed with these values, if one is found."""
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
