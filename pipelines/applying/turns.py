"""Build the tables of several feeds in one session, in turns of one cut each.

After its turn a table goes to the back of the queue, behind every other table with work, of whichever feed. A table
with a large backlog, or one that holds, thus delays the others by at most one cut. A cut that fails is retried after a
delay that doubles each time, since the cause may take long to fix.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic

from silverfold.pipelines.applying.build import FeedBuild, Step

LONGEST_WAIT = 30.0
"""Largest number of seconds between two tries of a failing cut."""


@dataclass
class _Turn:
    """A table in the queue, and the result of its last turn."""

    build: FeedBuild
    table: str
    failed: bool = False
    """Worth another try even if nothing more has landed."""
    landed: int = -1
    """Position of the feed's newest frame at its last turn."""
    wait: float = 0.0
    """Seconds until the next try, after a cut that failed."""
    not_before: float = 0.0
    """Monotonic time of that try."""

    def ended(self, step: Step, first_wait: float) -> None:
        self.failed = step.error is not None
        if step.applied is not None:
            self.wait = 0.0
        elif self.failed and step.plan is not None and step.plan.cut is not None:
            self.wait = min(max(2 * self.wait, first_wait), LONGEST_WAIT)
            self.not_before = monotonic() + self.wait

    @property
    def is_due(self) -> bool:
        return monotonic() >= self.not_before and (self.failed or self.build.landed > self.landed)


def take_turns(
    builds: Sequence[FeedBuild],
    stop: threading.Event,
    *,
    at_once: int,
    follow: Callable[[FeedBuild], None] | None = None,
    poll_seconds: float = 0.0,
) -> Iterator[tuple[FeedBuild, Step]]:
    """Step the tables until none can move any more; yield each step as it ends, in any order.

    Once ``stop`` is set no step begins; running steps are awaited.

    Args:
        builds: Already refreshed once.
        at_once: How many tables may step at the same time.
        follow: Continue until ``stop``, calling this periodically to refresh a feed's build. None to return when there
            is nothing more to do.
        poll_seconds: Interval of those calls.
    """
    due = deque(_Turn(build, table) for build in builds for table in build.tables)
    idle: list[_Turn] = []
    running: dict[Future[Step], _Turn] = {}
    polled = monotonic()
    with ThreadPoolExecutor(at_once, thread_name_prefix="build") as pool:
        while running or (not stop.is_set() and (due or follow is not None)):
            while due and len(running) < at_once and not stop.is_set():
                turn = due.popleft()
                turn.landed = turn.build.landed
                running[pool.submit(turn.build.step, turn.table)] = turn
            for future in _wait_for_steps(running, stop, poll_seconds if follow is not None else None):
                turn = running.pop(future)
                step = future.result()
                turn.ended(step, poll_seconds)
                (due if step.unfinished else idle).append(turn)
                yield turn.build, step
            if follow is not None and not stop.is_set() and monotonic() - polled >= poll_seconds:
                for build in builds:
                    follow(build)
                were_idle, idle, polled = idle, [], monotonic()
                for turn in were_idle:
                    (due if turn.is_due else idle).append(turn)


def _wait_for_steps(
    running: dict[Future[Step], _Turn], stop: threading.Event, seconds: float | None
) -> set[Future[Step]]:
    """Wait up to ``seconds`` for the first step to end; return the steps that have ended."""
    if not running:
        stop.wait(seconds)
        return set()
    return wait(running, seconds, FIRST_COMPLETED).done
