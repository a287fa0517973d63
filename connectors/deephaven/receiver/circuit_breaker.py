"""Suspends streams that broke the shared connection twice in a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from connectors.common.backoff import Backoff

MAX_BROKEN_EPOCHS: Final = 2
"""Number of consecutive epochs broken by a stream at which it is suspended."""


class CircuitBreaker:
    """Tracks, across the epochs of a feed, which streams broke them.

    Args:
        backoffs: Per stream, the lengths of its suspensions: longer each time.
        clock: Seconds from an arbitrary origin.
    """

    def __init__(self, backoffs: Mapping[str, Backoff], clock: Callable[[], float]) -> None:
        self._backoffs, self._clock = backoffs, clock
        self._consecutive = dict.fromkeys(backoffs, 0)
        self._suspended_until = dict.fromkeys(backoffs, 0.0)

    def suspension(self, stream: str) -> float:
        """Return the remaining seconds of the stream's suspension; 0.0 when it is not suspended."""
        return max(0.0, self._suspended_until[stream] - self._clock())

    def epoch_ended(self, subscribed: Collection[str], broken_by: str | None) -> None:
        """Record the end of an epoch: the streams subscribed, and the one that broke it, where one can be named."""
        for stream in subscribed:
            if stream != broken_by:
                self._consecutive[stream] = 0
                self._backoffs[stream].reset()
        if broken_by is not None:
            self._consecutive[broken_by] += 1
            if self._consecutive[broken_by] >= MAX_BROKEN_EPOCHS:
                self._suspended_until[broken_by] = self._clock() + self._backoffs[broken_by].next_wait()
