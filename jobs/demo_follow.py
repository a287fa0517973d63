"""Follows the demo's feed with the build, until everything the source did is in silver."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from conf.errors import StoreUnavailable
from connectors.deephaven.tables import ROW_KEY
from jobs.demo_receiver import ReceiverProcess
from jobs.demo_show import Progress
from pipelines.build import FeedBuild, Step
from pipelines.plan import State

PATIENCE = 60.0
"""Seconds in which nothing lands and nothing is applied, after which the rest is taken for lost."""


@dataclass
class Follower:
    """One following of the feed.

    Args:
        last_rows: Per table, the row key of the row the source adds last; done when the source is quiet.
        poll_seconds: How long to wait before looking again for landed frames.
    """

    build: FeedBuild
    receiver: ReceiverProcess
    progress: Progress
    last_rows: Future[Mapping[str, int]]
    poll_seconds: float
    _arrived: set[str] = field(default_factory=set)

    def run(self) -> str | None:
        """Apply what lands until the source's last rows are in silver; return what went wrong, None if nothing did."""
        moved_at, landed = time.monotonic(), -1
        self.progress.phase = "following"
        while True:
            steps = self._step()
            wrong = self._wrong(steps)
            if wrong is not None:
                return wrong
            now_landed = sum(step.plan.landed for step in steps if step.plan is not None)
            if any(step.moved for step in steps) or now_landed != landed:
                moved_at, landed = time.monotonic(), now_landed
            elif self.last_rows.done():
                missing = self._missing(steps)
                if not missing:
                    return None
                if time.monotonic() > moved_at + PATIENCE:
                    return f"after {PATIENCE:.0f} seconds in which nothing moved, {'; '.join(missing)}"
            if not any(step.moved for step in steps):
                self._wait()

    def _step(self) -> list[Step]:
        if self.last_rows.done():
            self.progress.phase = "applying the rest"
        steps = self.build.step()
        for step in steps:
            if step.applied is not None:
                applied = self.progress.applied[step.table]
                applied.cuts += 1
                applied.updates += step.applied.updates
        return steps

    def _wait(self) -> None:
        time.sleep(self.poll_seconds)
        with suppress(StoreUnavailable):  # the next look may succeed; when none does, patience ends
            self.build.refresh()

    def _wrong(self, steps: Sequence[Step]) -> str | None:
        if self.receiver.exit_code is not None:
            return f"the receiver ended with exit code {self.receiver.exit_code}:\n{self.receiver.last_words()}"
        faults = [step for step in steps if step.error is not None and not step.error.retryable]
        return "; ".join(f"{step.table} holds: {step.error}" for step in faults) or None

    def _missing(self, steps: Sequence[Step]) -> list[str]:
        """Say of each table what has not come, if anything."""
        last_rows = self.last_rows.result()
        for step in steps:
            synced = step.plan is not None and step.plan.state is State.SYNCED
            if synced and step.table not in self._arrived and self._has_row(step.table, last_rows[step.table]):
                self._arrived.add(step.table)
        return [self._told(step, last_rows[step.table]) for step in steps if step.table not in self._arrived]

    def _has_row(self, table: str, row_key: int) -> bool:
        place = self.build.tables[table].place
        silver = self.build.spark.read.format("delta").load(place.url)
        return not silver.where(F.col(ROW_KEY) == row_key).isEmpty()

    def _told(self, step: Step, row_key: int) -> str:
        updates = self.progress.tables[step.table].updates
        stands = (
            "bronze lacks positions"
            if step.plan is None
            else _stands(step.plan.state, step.plan.landed, step.plan.applied)
        )
        failed = f", {step.error}" if step.error is not None else ""
        return f"{step.table} lacks row {row_key}, which the source added in update {updates}: {stands}{failed}"


def _stands(state: State, landed: int, applied: int) -> str:
    return f"{state.value}, landed up to {landed}, applied up to {applied}"
