"""Exponential backoff with full jitter, so that many clients do not retry at once."""

from __future__ import annotations

from random import Random


class Backoff:
    """Yields waits in seconds, each drawn uniformly from zero to a bound that doubles from ``first`` to ``longest``."""

    def __init__(self, first: float, longest: float, rng: Random) -> None:
        self._first, self._longest, self._rng = first, longest, rng
        self.reset()

    def reset(self) -> None:
        """Reset the bound after a success."""
        self._bound = min(self._first, self._longest)

    def next_wait(self) -> float:
        """Return seconds to wait, and double the bound for the next wait."""
        wait = self._rng.uniform(0.0, self._bound)
        self._bound = min(2 * self._bound, self._longest)
        return wait
