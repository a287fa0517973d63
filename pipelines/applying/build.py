"""Build a feed's silver tables: plan → read → apply → record, cut by cut, table by table.

Tables are independent: each has its own position, session and errors. A table that meets a frame it cannot decode
*holds* at the last good update. It continues when a later snapshot passes the frame, a fixed decoder reads it, or the
frame is skipped (`pipelines.holding.quarantine`), which applies the rest of its update. The other tables continue
meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from silverfold.conf.errors import (
    ApplyError,
    DuplicateKey,
    ExpectationFailed,
    NullKey,
    Overtaken,
    PositionGap,
    RebuildNeeded,
    SchemaDrift,
    SilverfoldError,
    SnapshotNeeded,
    UndecodableFrame,
    Unexplained,
    UnusableExpectation,
    UnusableKey,
    WireError,
)
from silverfold.conf.model import Settings
from silverfold.conf.names import caseless
from silverfold.conf.unix_time import timestamp_micros
from silverfold.connectors.base import Connector, Cut, Feed
from silverfold.pipelines.applying.apply_cut import apply_cut
from silverfold.pipelines.applying.cut_job import CutJob, read_job, statistics_of
from silverfold.pipelines.applying.registration import Registration
from silverfold.pipelines.applying.roll_back import roll_back
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.holding.quarantine import Quarantine
from silverfold.pipelines.holding.quarantine_log import Hold
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.places import Places, places_of
from silverfold.pipelines.planning.feed_plan import FeedPlan
from silverfold.pipelines.planning.plan import Plan, State
from silverfold.pipelines.spark.session import raising_if_ended
from silverfold.pipelines.storage.cuts import CutRow, last_cuts, later_than, record, restore

_OF_A_CUT = (DuplicateKey, NullKey, Unexplained, ExpectationFailed)
"""Errors of a cut that no single frame causes; the cut is retried with fewer updates."""

_OF_SETTINGS = (RebuildNeeded, UnusableExpectation, UnusableKey)
"""Errors fixed by other settings or a rebuild."""

HOLDING_LATER = (UndecodableFrame, SnapshotNeeded, WireError, *_OF_A_CUT)
"""Errors that hold a table because of newly landed frames, not because of its state or settings."""

_HOLDING = (SchemaDrift, *HOLDING_LATER, *_OF_SETTINGS)
"""Errors that hold a table. Others are transient: the next step tries again."""

_TRIES = 30
"""Number of immediate retries while other processes keep writing the table."""

_LOGGED_AT = 2
"""Number of retries at which it is logged: one is usual beside another build."""


@dataclass(frozen=True)
class Step:
    """The result of one step of one table."""

    table: str
    plan: Plan | None
    """The plan; None if bronze lacks positions, or the quarantine could not be written."""
    applied: CutRow | None = None
    """The cut that was applied; None if there was none, or another process had applied it."""
    error: SilverfoldError | None = None
    """Why the table holds, or why this step failed; None on success."""
    unfinished: bool = False
    """Something changed, so another step may find more to do."""


@dataclass
class _TableState:
    """What a build knows of one of its tables, from step to step."""

    quarantine: Quarantine
    committed: datetime | None
    """When its last cut was committed; None without one."""
    registration: Registration
    overtaken: int = 0
    """Number of steps in a row that other processes have overtaken."""
    skipped: bool = False
    """A bad frame was skipped since the last cut: others may be near, and a look at each costs less than an attempt."""


class FeedBuild:
    """Everything between one feed's bronze table and its silver tables.

    One thread refreshes; others may step meanwhile, each table in one thread at a time. Made by `open`.
    """

    def __init__(
        self,
        settings: Settings,
        plan: FeedPlan,
        tables: Mapping[str, SilverTable],
        states: Mapping[str, _TableState],
        clock: Callable[[], float],
    ) -> None:
        self.settings, self.connector, self.feed = settings, plan.connector, plan.feed
        self.tables, self.clock = tables, clock
        self._plan, self._states = plan, states

    @classmethod
    def open(
        cls,
        spark: Callable[[], SparkSession],
        settings: Settings,
        connector: Connector,
        feed: Feed,
        *,
        clock: Callable[[], float] = time.time,
        places: Places | None = None,
        before: int | None = None,
        past: int | None = None,
        sees_later: bool = False,
    ) -> Self:
        """Open a feed's tables; reads their positions, and completes what a stopped build left undone.

        Args:
            spark: Returns the session whose JVM runs the jobs. First called when there is work, maybe by several
                threads.
            clock: Returns seconds since 1970.
            places: Locations of the tables; by default those in the settings.
            before: No table takes anything at or after this position; None for no bound.
            past: A table begins with the first snapshot after this position; None to begin with the first possible.
            sees_later: As of `planning.feed_plan.FeedPlan`.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        places = places or places_of(settings)
        tables = {
            name: SilverTable(spark, feed, connector, connector.decoder(feed), name, places) for name in feed.tables
        }
        plan = FeedPlan(connector, feed, places, settings.build.cut, before, past, sees_later).begin()
        restore(places, feed.name, list(tables))
        committed = {name: cut.committed_at for name, cut in last_cuts(places, feed.name).items()}
        now = datetime.fromtimestamp(clock(), UTC)
        states = {
            name: _TableState(_open_quarantine(plan, name, now), committed.get(name), Registration(table))
            for name, table in tables.items()
        }
        return cls(settings, plan, tables, states, clock)

    def close(self) -> None:
        """Close the sessions of the tables. No table can be stepped afterwards."""
        for table in self.tables.values():
            table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def landed(self) -> int:
        """Position of the newest frame seen; -1 for none."""
        return self._plan.landed

    def refresh(self) -> None:
        """Read what has landed since the last refresh."""
        self._plan.refresh()

    def step(self, table: str) -> Step:
        """Apply at most one cut to a table; return the result. Runs Spark jobs."""
        plan, job = None, None
        try:
            self._apply_decisions(table)
            began, plan = self.clock(), self._plan.cut(table)
            if plan.cut is None:
                self._states[table].registration.at_rest()
                return Step(table, plan, error=self._holding_fault(table, plan))
            with raising_if_ended():
                job = self._read(table, plan.cut)
                row = self._record(job, apply_cut(job), began)
            self._states[table].registration.after_cut()
            return Step(table, plan, row, self._plan.bisections[table].fault, unfinished=True)
        except SilverfoldError as error:
            return self._step_after(error, table, plan, job)

    def _step_after(self, error: SilverfoldError, name: str, plan: Plan | None, job: CutJob | None) -> Step:
        """Decide how a table goes on after an error.

        - A cut that was applied without a look at every frame is checked first: one of them may be to blame.
        - Where another process wrote the table, the next step plans anew, `_TRIES` times.
        - After an error of a cut as a unit, the next step tries a shorter one (`CutBisection`).
        - A bad frame that is to be skipped is left out by the next step. Any other holds the table.
        - After all other errors a later step tries the same again, after a delay (`pipelines.applying.turns`).

        A rule that cannot be judged is tried again once columns may have changed (`FeedPlan`).
        """
        try:
            fault = _cause(error, job)
            if isinstance(fault, Overtaken):
                return self._step_overtaken(fault, name, plan)
            if plan is not None and plan.cut is not None and isinstance(fault, _HOLDING):
                return self._stop_before(fault, name, plan, plan.cut)
            if plan is not None and plan.cut is not None and isinstance(fault, ApplyError):
                self._quarantine_fault(name, plan.cut, fault)
            noted = isinstance(fault, PositionGap) and self._plan.noted_losses()
            if noted:  # the missing positions are among them
                self._plan.replan(name, self.tables[name].position())
            return Step(name, plan, error=None if noted else fault, unfinished=noted)
        except SilverfoldError as unrecorded:  # the next step tries again
            return Step(name, None, error=unrecorded)

    def _step_overtaken(self, fault: Overtaken, name: str, plan: Plan | None) -> Step:
        state = self._states[name]
        state.overtaken += 1
        self._plan.replan(name, self.tables[name].position())
        if state.overtaken == _LOGGED_AT:
            log = get_logger("build").bind(feed=self.feed.name, table=name)
            log.info("table passes its turn: another process writes it", reason=str(fault))
        again = state.overtaken < _TRIES
        return Step(name, plan, error=None if again else fault, unfinished=again)

    def _apply_decisions(self, name: str) -> None:
        """Apply decisions made by users about a held table, or about a frame that it is to leave out."""
        bisection, quarantine = self._plan.bisections[name], self._states[name].quarantine
        is_open = bisection.fault is not None or quarantine.leaves_out_after(self._plan.position(name))
        if is_open and quarantine.refresh():
            bisection.retain(quarantine.holding)
            self._plan.advance_to(name, self.tables[name].position())  # another process may have advanced the table

    def _holding_fault(self, name: str, plan: Plan) -> SilverfoldError | None:
        """Return the error that holds a table without a cut. Undoes companion writes made for a cut."""
        if (fault := self._plan.bisections[name].fault) is not None:
            with suppress(RebuildNeeded):  # if that fails, the next cut raises it
                roll_back(self.tables[name])
        elif plan.state is State.SYNCED and self._plan.before is None:
            self._states[name].quarantine.resolve_through(self._plan.landed, now=self._now())
        return fault

    def _read(self, name: str, cut: Cut) -> CutJob:
        silver = self.tables[name]
        with silver.decoding():
            context = silver.decoder.context(frame for frame in self._plan.control if frame.frame_seq <= cut.last)
        cut = replace(cut, left_out=self._states[name].quarantine.left_out(cut))
        return read_job(silver, cut, context, later=self._later(silver, cut), check=self._states[name].skipped)

    def _record(self, job: CutJob, row: CutRow | None, began: float) -> CutRow | None:
        """Record that a cut was applied, by this build or, without a row, by another one; return the row recorded."""
        name, cut = job.silver.name, job.cut
        state = self._states[name]
        self._plan.advance_to(name, cut.last if row is not None else job.silver.position())
        state.overtaken, state.skipped = 0, False
        self._plan.bisections[name].drop_passed(cut.last)
        if row is None:  # maybe without frames read here: the other build's commit lists them
            state.quarantine.catch_up(now=self._now())
            return None
        state.quarantine.record_cut(cut, now=self._now())
        row = later_than(row, state.committed)
        state.committed = row.committed_at
        landed_at = None if cut.received is None else timestamp_micros(cut.received)
        row = replace(row, landed_at=landed_at, seconds=self.clock() - began)
        record(self._plan.places, self.feed.name, row)
        return row

    def _later(self, silver: SilverTable, cut: Cut) -> list[StructField]:
        """Return columns that control frames announce after a cut, and that rules of the table may name.

        A column that does not fit the table causes no error here; it holds the table once it comes.
        """
        if not (silver.conf.expect and silver.decoder.announces_columns):
            return []
        control = self._plan.control
        frames = [frame for frame in control if frame.stream in {None, cut.stream}]
        behind = {frame.body: frame for frame in frames if frame.frame_seq > cut.last}
        found: dict[str, StructField] = {}
        for frame in behind.values():  # a receiver that reconnects repeats control frames
            then = replace(cut, epoch=frame.epoch, last=frame.frame_seq + 1, snapshot_end=None)
            with suppress(SilverfoldError), silver.decoding():
                context = silver.decoder.context(each for each in control if each.frame_seq <= frame.frame_seq)
                row = silver.decoder.row_type(context, then, silver.conf)
                found = {**{caseless(field.name): field for field in row}, **found}
        return list(found.values())

    def _stop_before(self, fault: SilverfoldError, name: str, plan: Plan, cut: Cut) -> Step:
        """Stop before a frame, if known, else before an update, found by shorter cuts. A skipped frame is no stop."""
        bisection = self._plan.bisections[name]
        if isinstance(fault, _OF_A_CUT) and bisection.shorten(self._plan.joined(cut), fault.since) is not None:
            shorter = self._plan.cut(name).cut
            if shorter is not None and shorter.begins[0] == cut.begins[0]:  # else another snapshot's: do not shorten
                return Step(name, plan, unfinished=True)
        if self._quarantine_fault(name, cut, fault):
            self._states[name].skipped = True
            return Step(name, plan, unfinished=True)
        position = fault.position if isinstance(fault, UndecodableFrame) else cut.begins[0]
        bisection.hold(position, cut, fault, in_source_order=self.connector.source_ordered)
        return Step(name, plan, error=fault, unfinished=True)

    def _quarantine_fault(self, name: str, cut: Cut, fault: SilverfoldError) -> bool:
        """Record what the table could not take; return whether it may continue without it.

        An error of a cut as a unit is recorded at its first update that is not a left-out frame. The quarantine has one
        record per position, and the record of a left-out frame must not be overwritten.
        """
        quarantine, is_frame = self._states[name].quarantine, isinstance(fault, UndecodableFrame)
        left_out = quarantine.left_out(cut)
        begins = (begin for begin in cut.begins if begin not in left_out)
        position = fault.position if isinstance(fault, UndecodableFrame) else next(begins, None)
        if position is None:
            return False
        others = fault.others if isinstance(fault, UndecodableFrame) else ()
        found, *rest = (
            Hold(
                position=at,
                update_position=max((begin for begin in cut.begins if begin <= at), default=at),
                error_class=error.error_class,
                reason=str(error),
                found_at=self._now(),
            )
            for at, error in [(position, fault), *((each.position, each) for each in others)]
        )
        return quarantine.add(found, rest, now=self._now(), is_frame=is_frame)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)


def _open_quarantine(plan: FeedPlan, name: str, now: datetime) -> Quarantine:
    table = plan.feed.tables[name]
    skips, keeps_history = table.on_bad_frame == "skip", table.keeps_history
    opened = Quarantine(plan.places, plan.feed.name, name, skips, keeps_history, lambda: plan.lost)
    opened.catch_up(now=now)
    return opened


def _cause(error: SilverfoldError, job: CutJob | None) -> SilverfoldError:
    """Return the error of the frame to blame for a failed cut, if no frame has been checked and there is one."""
    if job is None or job.is_checked or not isinstance(error, ApplyError):
        return error
    try:
        with raising_if_ended():
            statistics_of(job.silver, job.frames, job.context, job.cut)
    except SilverfoldError as cause:
        return cause
    return error
