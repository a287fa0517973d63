"""Builds the tables of several feeds in one session: they take turns, one cut each.

A table that has had its turn waits until every other one with something to do has had its own, whichever feed it is of:
one with a long way to go, or one that holds, keeps no other waiting for more than one cut. A cut that fails is tried
again after a while, which doubles each time: what holds a table may take long to be put right.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic

from pipelines.build import FeedBuild, Step

LONGEST_WAIT = 30.0
"""Seconds between two tries of a cut that fails, at most."""


@dataclass
class _Turn:
    """A table, and what became of its last turn."""

    build: FeedBuild
    table: str
    failed: bool = False
    """It is worth another try though nothing more may have landed."""
    landed: int = -1
    """Position of the feed's newest frame when its turn came."""
    wait: float = 0.0
    """Seconds to the next try, after a cut that failed."""
    not_before: float = 0.0
    """When that is."""

    def take(self) -> Step:
        self.landed = self.build.landed
        return self.build.step(self.table)

    def ended(self, step: Step, first_wait: float) -> None:
        self.failed = step.error is not None
        if step.applied is not None:
            self.wait = 0.0
        elif self.failed and step.plan is not None and step.plan.cut is not None:
            self.wait = min(max(2 * self.wait, first_wait), LONGEST_WAIT)
            self.not_before = monotonic() + self.wait

    @property
    def may_move(self) -> bool:
        return monotonic() >= self.not_before and (self.failed or self.build.landed > self.landed)


def take_turns(
    builds: Sequence[FeedBuild],
    stop: threading.Event,
    *,
    at_once: int,
    follow: Callable[[FeedBuild], None] | None = None,
    poll_seconds: float = 0.0,
) -> Iterator[tuple[FeedBuild, Step]]:
    """Step the tables until none moves any more; yield each step as it ends, which may be in any order.

    Once ``stop`` is set no step begins; those that run are waited for.

    Args:
        builds: Refreshed once.
        at_once: How many tables may step at the same time.
        follow: Go on until ``stop``, and call this every so often to refresh a feed's build. None to end when nothing
            more is to be done.
        poll_seconds: How often.
    """
    due = deque(_Turn(build, table) for build in builds for table in build.tables)
    resting: list[_Turn] = []
    running: dict[Future[Step], _Turn] = {}
    looked = monotonic()
    with ThreadPoolExecutor(at_once, thread_name_prefix="build") as pool:
        while running or (not stop.is_set() and (due or follow is not None)):
            while due and len(running) < at_once and not stop.is_set():
                turn = due.popleft()
                running[pool.submit(turn.take)] = turn
            for future in _ended(running, stop, poll_seconds if follow is not None else None):
                turn = running.pop(future)
                step = future.result()
                turn.ended(step, poll_seconds)
                (due if step.moved else resting).append(turn)
                yield turn.build, step
            if follow is not None and not stop.is_set() and monotonic() - looked >= poll_seconds:
                for build in builds:
                    follow(build)
                rested, resting, looked = resting, [], monotonic()
                for turn in rested:
                    (due if turn.may_move else resting).append(turn)


def _ended(running: dict[Future[Step], _Turn], stop: threading.Event, seconds: float | None) -> set[Future[Step]]:
    """Wait for the first step that ends, at most so long; return those that have ended."""
    if not running:
        stop.wait(seconds)
        return set()
    return wait(running, seconds, FIRST_COMPLETED).done
