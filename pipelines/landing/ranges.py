"""Ranges of positions, such as those that bronze lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""First and last position, both inclusive."""


def is_inside(positions: Range, ranges: Iterable[Range]) -> bool:
    """Return whether one of the ranges contains both ends of ``positions``."""
    return any(first <= positions[0] and positions[1] <= last for first, last in ranges)


def merge_adjacent(ranges: Iterable[Range]) -> list[Range]:
    """Merge adjacent ranges. The input must be ascending and disjoint."""
    merged: list[Range] = []
    for first, last in ranges:
        if merged and first == merged[-1][1] + 1:
            merged[-1] = merged[-1][0], last
        else:
            merged.append((first, last))
    return merged


def format_ranges(ranges: Iterable[Range]) -> str:
    """Format ranges for messages."""
    return ", ".join(f"{first} to {last}" for first, last in ranges)
