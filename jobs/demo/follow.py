"""Follows the demo's feed with the build, until all changes of the source are in silver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field

from silverfold.conf.errors import StoreUnavailable
from silverfold.jobs.demo.check import has_row
from silverfold.jobs.demo.receiver import ReceiverProcess
from silverfold.jobs.demo.show import Progress
from silverfold.pipelines.applying.build import FeedBuild, Step
from silverfold.pipelines.planning.plan import State

PATIENCE = 60.0
"""Seconds without landed frames and applied cuts after which the remaining changes count as lost."""


@dataclass
class FeedFollower:
    """Follows the feed once, to the end.

    Args:
        elsewhere: Executor of the build's steps: they take long, and this thread must remain interruptible.
        last_rows: Per table, the row key of the row the source adds last; done once the source is quiet.
        watch: Called once, when every table has been built.
        poll_seconds: Seconds between polls for landed frames.
        clock: Seconds since an arbitrary moment.
        sleep: Waits the given number of seconds.
    """

    build: FeedBuild
    receiver: ReceiverProcess
    progress: Progress
    elsewhere: Executor
    last_rows: Future[Mapping[str, int]]
    watch: Callable[[], None]
    poll_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _arrived: set[str] = field(default_factory=set, init=False)
    _built: bool = field(default=False, init=False)

    def run(self) -> str | None:
        """Apply landed frames until the source's last rows are in silver; return an error message, or None."""
        moved_at, landed = self.clock(), -1
        while True:
            steps = self._step()
            wrong = self._wrong(steps)
            if wrong is not None:
                return wrong
            moved = any(step.moved for step in steps)
            now_landed = sum(step.plan.landed for step in steps if step.plan is not None)
            if moved or now_landed != landed:
                moved_at, landed = self.clock(), now_landed
            elif self.last_rows.done() and self._all_arrived(steps):
                return None
            elif self.clock() > moved_at + PATIENCE:
                missing = (self._describe_missing(step) for step in steps if step.table not in self._arrived)
                return f"for {PATIENCE:.0f} seconds nothing moved: {'; '.join(missing)}"
            if not moved:
                self._wait()

    def _step(self) -> list[Step]:
        self.progress.phase = self._phase()
        steps = list(self.elsewhere.map(self.build.step, self.build.tables))
        for step in steps:
            if step.applied is not None:
                self.progress.applied[step.table].add(step.applied)
        if not self._built and all(applied.cuts for applied in self.progress.applied.values()):
            self._built = True
            self.progress.say("both silver tables stand: the build follows the changes from now on")
            self.watch()
        return steps

    def _phase(self) -> str:
        if not self._built:
            return "first build"
        return "applying the rest" if self.last_rows.done() else "following"

    def _wait(self) -> None:
        self.sleep(self.poll_seconds)
        with suppress(StoreUnavailable):  # the next refresh may succeed; if none does, PATIENCE ends the demo
            self.build.refresh()

    def _wrong(self, steps: Sequence[Step]) -> str | None:
        if self.receiver.exit_code is not None:
            return f"the receiver ended with exit code {self.receiver.exit_code}:\n{self.receiver.last_words()}"
        faults = [step for step in steps if step.error is not None and not step.error.retryable]
        return "; ".join(f"{step.table} holds: {step.error}" for step in faults) or None

    def _all_arrived(self, steps: Sequence[Step]) -> bool:
        for step in steps:
            synced = step.plan is not None and step.plan.state is State.SYNCED
            if synced and has_row(self.build.tables[step.table].place, self._last_row(step.table)):
                self._arrived.add(step.table)
        return all(step.table in self._arrived for step in steps)

    def _last_row(self, table: str) -> int:
        return self.last_rows.result()[table]

    def _describe_missing(self, step: Step) -> str:
        """Return a message about what is missing in a table."""
        parts = [f"{step.table} has nothing planned"]
        if step.plan is not None:
            parts = [f"{step.table} is {step.plan.state.value}, {step.plan.landed} landed, {step.plan.applied} applied"]
        if self.last_rows.done():
            updates = self.progress.tables[step.table].updates
            parts.append(f"row {self._last_row(step.table)} of the source's last update, {updates}, is missing")
        if step.error is not None:
            parts.append(str(step.error))
        return ", ".join(parts)
