"""Ranges of positions, such as those that bronze lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""First and last position, both inclusive."""


def is_inside(positions: Range, ranges: Iterable[Range]) -> bool:
    """Tell whether one of some ranges has both ends of another."""
    return any(first <= positions[0] and positions[1] <= last for first, last in ranges)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges that do not touch, of ascending ones that have nothing in common."""
    apart: list[Range] = []
    for first, last in ranges:
        if apart and first == apart[-1][1] + 1:
            apart[-1] = apart[-1][0], last
        else:
            apart.append((first, last))
    return apart


def named(ranges: Iterable[Range]) -> str:
    """Name ranges, for people."""
    return ", ".join(f"{first} to {last}" for first, last in ranges)
