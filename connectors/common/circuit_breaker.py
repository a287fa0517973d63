"""Suspends the streams that keep breaking a connection which others share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from silverfold.connectors.common.backoff import Backoff

MAX_BROKEN_EPOCHS: Final = 2
"""Number of consecutive epochs broken by a stream at which it is suspended."""


class CircuitBreaker:
    """Tracks, across the epochs of a feed, which streams broke them.

    Args:
        backoff: Creates a stream's backoff, the lengths of its suspensions: longer each time.
        clock: Seconds from an arbitrary origin.
    """

    def __init__(self, backoff: Callable[[], Backoff], clock: Callable[[], float]) -> None:
        self._backoffs, self._clock = defaultdict[str, Backoff](backoff), clock
        self._consecutive, self._suspended_until = defaultdict[str, int](int), dict[str, float]()

    def suspension(self, stream: str) -> float:
        """Return the remaining seconds of the stream's suspension; 0.0 when it is not suspended."""
        return max(0.0, self._suspended_until.get(stream, 0.0) - self._clock())

    def reset(self, stream: str) -> None:
        """Record that the stream is well."""
        self._consecutive[stream] = 0
        self._backoffs[stream].reset()

    def trip(self, stream: str) -> None:
        """Record that the stream broke an epoch, and suspend it if that was not the first in a row."""
        self._consecutive[stream] += 1
        if self._consecutive[stream] >= MAX_BROKEN_EPOCHS:
            self._suspended_until[stream] = self._clock() + self._backoffs[stream].next_wait()
