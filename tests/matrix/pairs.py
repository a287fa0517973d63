"""Pairwise combinations of the matrix's settings."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from itertools import combinations

from allpairspy import AllPairs

from tests.matrix.settings import Settings, refused

Pair = tuple[tuple[str, str], tuple[str, str]]
Parameters = Mapping[str, tuple[str, ...]]


def pairs_of(settings: Settings) -> set[Pair]:
    """Return all pairs of parameters with their values."""
    return set(combinations(asdict(settings).items(), 2))


def possible_pairs(parameters: Parameters) -> set[Pair]:
    """Return all compatible pairs of values."""
    every = (
        ((one, value), (other, another))
        for one, other in combinations(parameters, 2)
        for value in parameters[one]
        for another in parameters[other]
    )
    return {pair for pair in every if _can_be(pair, parameters)}


def all_pairs(parameters: Parameters, seed: int = 0) -> list[Settings]:
    """Return settings that cover every possible pair of values.

    allpairspy gives up when the remaining pairs cannot be completed; these are added afterwards, many per row.
    """
    names, rng = list(parameters), random.Random(seed)
    found = AllPairs(list(parameters.values()), lambda row: _can_be(tuple(zip(names, row, strict=False)), parameters))
    rows = [Settings(**dict(zip(names, row, strict=True))) for row in found]
    left = possible_pairs(parameters).difference(*map(pairs_of, rows))
    while left:
        some = rng.sample(sorted(left), min(12, len(left)))
        tried = [_filled(dict(pair), left, parameters, rng) for pair in some]
        rows.append(max(tried, key=lambda row: len(pairs_of(row) & left)))
        left -= pairs_of(rows[-1])
    return rows


def _filled(known: dict[str, str], left: set[Pair], parameters: Parameters, rng: random.Random) -> Settings:
    """Return settings with these values, completed to cover many of the pairs left."""
    names = [name for name in parameters if name not in known]
    for name in rng.sample(names, len(names)):
        values = [v for v in parameters[name] if _can_be((*known.items(), (name, v)), parameters)]

        def gain(value: str, name: str = name) -> int:
            return sum(not left.isdisjoint(((each, (name, value)), ((name, value), each))) for each in known.items())

        known[name] = max(rng.sample(values, len(values)), key=gain)
    return Settings(**known)


def _can_be(known: tuple[tuple[str, str], ...], parameters: Parameters) -> bool:
    return _completed(tuple(sorted(known)), tuple(parameters.items()))


@cache
def _completed(known: tuple[tuple[str, str], ...], parameters: tuple[tuple[str, tuple[str, ...]], ...]) -> bool:
    """Return whether compatible settings with these values exist, with at most three other values not the tamest."""
    tamest = Settings(**{name: values[0] for name, values in parameters})
    start, snapshot_end = replace(tamest, **dict(known)), dict(known)
    free = [(name, value) for name, values in parameters if name not in snapshot_end for value in values[1:]]
    tried = ((), *((one,) for one in free), *combinations(free, 2), *combinations(free, 3))
    return any(refused(replace(start, **dict(changed))) is None for changed in tried)
