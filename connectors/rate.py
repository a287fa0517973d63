"""Keeps sources changing at a steady rate, for a while: what simulators are driven by."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


class Changeable(Protocol):
    """Something that changes, one update after the other."""

    def change(self) -> int:
        """Make one update; return how many changes it has."""


@dataclass(frozen=True)
class Rate:
    """How fast and how long: changes per second and source, and seconds (None: until stopped)."""

    changes_per_second: float
    seconds: float | None = None


def change_steadily(
    changers: Iterable[Changeable],
    pace: Rate,
    *,
    clock: Callable[[], float],
    stopped_within: Callable[[float], bool],
    progress: Callable[[int], None] = lambda changes: None,
) -> int:
    """Make updates at the pace, all alike; return the number of changes. Blocks until the time is over.

    Where the machine is too slow for the pace, fewer updates are made in the time given.

    Args:
        changers: Each is changed at the pace.
        pace: Rate of each and duration.
        clock: Seconds, from any moment on.
        stopped_within: Waits so many seconds; True ends everything at once (`threading.Event.wait`).
        progress: Told the number of changes of each update.
    """
    start, made = clock(), 0
    due = [(0.0, number, changer) for number, changer in enumerate(changers)] if pace.changes_per_second > 0 else []
    while due:
        at, number, changer = heapq.heappop(due)
        if _over(pace, at) or stopped_within(max(0.0, start + at - clock())) or _over(pace, clock() - start):
            continue
        changes = changer.change()
        made += changes
        progress(changes)
        heapq.heappush(due, (at + changes / pace.changes_per_second, number, changer))
    return made


def _over(pace: Rate, elapsed: float) -> bool:
    return pace.seconds is not None and elapsed >= pace.seconds
