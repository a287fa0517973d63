"""Chance and time that do as a test says."""

from __future__ import annotations

from random import Random


class Highest(Random):
    """Draws the upper end, always."""

    def uniform(self, a: float, b: float) -> float:
        assert a == 0.0
        return b


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
