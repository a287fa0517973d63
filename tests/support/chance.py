"""Deterministic random numbers and time."""

from __future__ import annotations

from random import Random


class Highest(Random):
    """Random numbers that always are the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        assert a == 0.0
        return b


class Clock:
    """A clock that a test advances by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
