"""Which streams stay out for a while, because they broke the connection of all others twice in a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from connectors.backoff import Backoff

TOO_OFTEN: Final = 2
"""Epochs in a row that a stream may not end."""


class CircuitBreaker:
    """Remembers, over the epochs of a feed, who broke them.

    Args:
        backoffs: Per stream, how long it stays out: longer each time.
        clock: Seconds, of any origin.
    """

    def __init__(self, backoffs: Mapping[str, Backoff], clock: Callable[[], float]) -> None:
        self._backoffs, self._clock = backoffs, clock
        self._broken = dict.fromkeys(backoffs, 0)
        self._until = dict.fromkeys(backoffs, 0.0)

    def rest(self, stream: str) -> float:
        """Return for how many seconds the stream is to stay out; 0.0 when it is not."""
        return max(0.0, self._until[stream] - self._clock())

    def epoch_ended(self, took_part: Collection[str], broken_by: str | None) -> None:
        """Take note of an epoch: which streams were subscribed, and which one broke it, where one can be named."""
        for stream in took_part:
            if stream != broken_by:
                self._broken[stream] = 0
                self._backoffs[stream].reset()
        if broken_by is not None:
            self._broken[broken_by] += 1
            if self._broken[broken_by] >= TOO_OFTEN:
                self._until[broken_by] = self._clock() + self._backoffs[broken_by].next_wait()
