"""Drives simulators: changes sources at a steady rate, for a given time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


class Changeable(Protocol):
    """A source that changes, one update at a time."""

    def change(self) -> int:
        """Make one update; return its number of changes."""


@dataclass(frozen=True)
class Rate:
    """Rate and duration: changes per second and source, and seconds (None: until stopped)."""

    changes_per_second: float
    seconds: float | None = None


def change_steadily(
    changers: Iterable[Changeable],
    rate: Rate,
    *,
    clock: Callable[[], float],
    stopped_within: Callable[[float], bool],
    progress: Callable[[int], None] = lambda changes: None,
) -> int:
    """Make updates at the given rate on every source; return the number of changes. Blocks until the time is over.

    If the machine is too slow for the rate, fewer updates are made in the given time.

    Args:
        changers: Each is changed at the rate.
        rate: Rate per source, and duration.
        clock: Returns seconds since an arbitrary moment.
        stopped_within: Waits the given seconds; True stops everything at once (`threading.Event.wait`).
        progress: Called with the number of changes of each update.
    """
    start, total = clock(), 0
    due = [(0.0, number, changer) for number, changer in enumerate(changers)] if rate.changes_per_second > 0 else []
    while due:
        at, number, changer = heapq.heappop(due)
        if _is_over(rate, at) or stopped_within(max(0.0, start + at - clock())) or _is_over(rate, clock() - start):
            continue
        changes = changer.change()
        total += changes
        progress(changes)
        heapq.heappush(due, (at + changes / rate.changes_per_second, number, changer))
    return total


def _is_over(rate: Rate, elapsed: float) -> bool:
    return rate.seconds is not None and elapsed >= rate.seconds
