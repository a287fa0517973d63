"""Build a feed's silver tables: read landed frames, plan, take statistics, apply; cut by cut, table by table.

Tables are independent: each has its own position, session and errors. A table that meets a frame it cannot decode
*holds* at the last good update. It continues when a later snapshot passes the frame, a fixed decoder reads it, or the
frame is skipped (`pipelines.holding.quarantine`), which applies the rest of its update. The other tables continue
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
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
from silverfold.conf.names import folded
from silverfold.connectors.base import NO_STATISTICS, Connector, ControlFrame, Cut, CutStatistics, Feed, Kind
from silverfold.pipelines.applying.cuts import CutRow, last_cuts, later_than, record, restore
from silverfold.pipelines.applying.reached import moment, reached, was_replaced
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.holding.cut_bisection import CutBisection
from silverfold.pipelines.holding.quarantine import Quarantine
from silverfold.pipelines.holding.quarantine_log import Hold
from silverfold.pipelines.landing.bronze import landing_at, last_position, read_frames, read_small_columns
from silverfold.pipelines.landing.bronze_table import lost_from, retained_from
from silverfold.pipelines.landing.frame_sizes import FrameSizes
from silverfold.pipelines.places import Places, places_of
from silverfold.pipelines.planning.plan import Plan, Planner, State
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.spark.session import raising_if_ended
from silverfold.pipelines.store import naming_the_store

_OF_A_CUT = (DuplicateKey, NullKey, Unexplained, ExpectationFailed)
"""Errors of a cut that no single frame causes; the cut is retried with fewer updates."""

_OF_SETTINGS = (RebuildNeeded, UnusableExpectation, UnusableKey)
"""Errors fixed by other settings or a rebuild."""

HOLDING_LATER = (UndecodableFrame, SnapshotNeeded, WireError, *_OF_A_CUT)
"""Errors that hold a table because of newly landed frames, not because of its state or settings."""

_HOLDING = (SchemaDrift, *HOLDING_LATER, *_OF_SETTINGS)
"""Errors that hold a table. Others are transient: the next step tries again."""

_TRIES = 10
"""Number of immediate retries while other processes keep writing the table."""

_SKIPPED_FRAMES = "skipped_frames"
"""Note of a cut: the number of frames left out of it."""


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
    moved: bool = False
    """Something changed, so another step may find more to do."""


@dataclass
class FeedBuild:
    """Everything between one feed's bronze table and its silver tables.

    One thread refreshes; others may step meanwhile, each table in one thread at a time.

    Args:
        spark: Returns the session whose JVM runs the jobs. First called when there is work, maybe by several threads.
        clock: Returns seconds since 1970.
        places: Locations of the tables; by default those in the settings.
        before: No table takes anything at or after this position; None for no bound.
        past: A table begins with the first snapshot after this position; None to begin with the first possible.
    """

    spark: Callable[[], SparkSession]
    settings: Settings
    connector: Connector
    feed: Feed
    clock: Callable[[], float] = time.time
    places: Places | None = None
    before: int | None = None
    past: int | None = None
    tables: Mapping[str, SilverTable] = field(init=False)

    def __post_init__(self) -> None:
        self._places = self.places or places_of(self.settings)
        self._bronze = self._places.bronze(self.feed.name)
        arguments = self.spark, self.feed, self.connector
        self.tables = {name: SilverTable(*arguments, name, self._places) for name in self.feed.tables}
        self._planner = self._new_planner()
        self._lock = threading.Lock()  # a plan sees all frames of a refresh, or none
        self._control: list[ControlFrame] = []
        self._has_unread = True  # the planner does not see those before its start
        self._newest: tuple[int, int] | None = None
        self._bisections = {name: CutBisection() for name in self.tables}
        self._overtaken = dict.fromkeys(self.tables, 0)
        self._sizes = FrameSizes()
        restore(self._places, self.feed.name, list(self.tables))
        self._committed = {name: cut.committed_at for name, cut in last_cuts(self._places, self.feed.name).items()}
        self._quarantine = {name: self._open_quarantine(name) for name in self.tables}

    def close(self) -> None:
        """Close the sessions of the tables. No table can be stepped afterwards."""
        for table in self.tables.values():
            table.target.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def landed(self) -> int:
        """Position of the newest frame seen; -1 for none."""
        return self._planner.landed

    def refresh(self) -> None:
        """Read what has landed since the last refresh."""
        with self._lock:
            self._read_bronze()

    def _read_bronze(self) -> None:
        with naming_the_store(self._bronze):
            new = read_small_columns(self._bronze, after=self._planner.start - 1, sizes=self._sizes)
            for at, batch in enumerate(new):
                if at == 0 and not self._is_as_seen():
                    self._bisections = {name: CutBisection() for name in self.tables}
                    self._restart()
                    return
                self._has_unread |= Kind.CONTROL.value in batch["kind"].to_pylist()
                self._planner.advance(batch)
                self._newest = batch["frame_seq"][-1].as_py(), pc.cast(batch["received_at"], pa.int64())[-1].as_py()
            after = self._control[-1].frame_seq if self._control else -1
            control = list(read_frames(self._bronze, kind=Kind.CONTROL, after=after)) if self._has_unread else []
            self._control, self._has_unread = [*self._control, *control], False
        self._retry_unusable_rules({frame.stream for frame in control})

    def _retry_unusable_rules(self, streams: Collection[str | None]) -> None:
        """Retry tables whose rules name a missing column if their streams got control frames; None is every stream."""
        for name in self.tables:
            lacks = isinstance(self._bisections[name].fault, UnusableExpectation)
            if lacks and not {None, self.connector.stream(self.feed, name)}.isdisjoint(streams):
                self._bisections[name] = CutBisection()

    def _restart(self) -> None:
        """Discard what was seen and planned, and reread all that the tables have yet to take."""
        self._planner, self._control, self._has_unread, self._newest = self._new_planner(), [], True, None
        self._read_bronze()

    def _is_as_seen(self) -> bool:
        """Return whether bronze still has the newest frame seen, or has dropped it; otherwise bronze is another one."""
        if self._newest is None:
            return True
        position, received = self._newest
        found = landing_at(self._bronze, position)
        return position < retained_from(self._bronze, self.feed.name) if found is None else found.received == received

    def step(self, table: str) -> Step:
        """Apply at most one cut to a table; return the result. Runs Spark jobs."""
        try:
            self._apply_decisions(table)
            return self._attempt(table)
        except SilverfoldError as error:  # the hold could not be recorded: the next step tries again
            return Step(table, None, error=error)

    def _apply_decisions(self, name: str) -> None:
        """Apply decisions made by users about a held table."""
        if self._bisections[name].fault is not None and self._quarantine[name].look():
            self._bisections[name].retain(self._quarantine[name].holding)
            self._mark_reached(name, self.tables[name].position())  # another process may have advanced the table

    def _mark_reached(self, name: str, position: int) -> None:
        with self._lock:
            if position > self._planner.landed:  # another process has seen more
                self._read_bronze()
            if position >= self._planner.position(name):  # otherwise the next cut is refused and planned anew
                self._planner.applied(name, position)

    def _plan_anew(self, name: str) -> None:
        """Plan anew from the table's position, which may have gone back, and from bronze, which may be another."""
        with self._lock:
            if self.tables[name].position() < self._planner.position(name):
                self._bisections[name] = CutBisection()
            self._restart()

    def _new_planner(self) -> Planner:
        floor, last = retained_from(self._bronze, self.feed.name), last_position(self._bronze, self.feed.name)
        self._lost = lost_from(self._bronze)
        rules = {name: self._rules(name) for name in self.tables}
        return Planner(self.feed.name, rules, floor=floor, last=last, lost=self._lost)

    def _attempt(self, name: str) -> Step:
        began, plan = self.clock(), None
        try:
            plan = self._plan(name)
            if plan.cut is None:
                return Step(name, plan, error=self._holding_fault(name, plan))
            with raising_if_ended():
                applied = self._apply(name, plan, plan.cut, began)
            return Step(name, plan, applied, self._bisections[name].fault, moved=True)
        except _HOLDING as fault:
            assert plan is not None
            return self._stop_before(name, plan, fault)
        except Overtaken as error:
            self._overtaken[name] += 1
            self._plan_anew(name)
            again = self._overtaken[name] < _TRIES
            return Step(name, plan, error=None if again else error, moved=again)
        except SilverfoldError as error:
            if isinstance(error, ApplyError) and plan is not None and plan.cut is not None:
                self._quarantine_fault(name, plan.cut, error)
            noted = isinstance(error, PositionGap) and self._lost != lost_from(self._bronze)
            if noted:  # a receiver recorded meanwhile that the missing positions are lost
                self._plan_anew(name)
            return Step(name, plan, error=None if noted else error, moved=noted)

    def _holding_fault(self, name: str, plan: Plan) -> SilverfoldError | None:
        """Return the error that holds a table without a cut. Undoes companion writes made for a cut."""
        if (fault := self._bisections[name].fault) is not None:
            with suppress(RebuildNeeded):  # if that fails, the next cut raises it
                self.tables[name].settle()
        elif plan.state is State.SYNCED and self.before is None:
            self._quarantine[name].resolve_through(self._planner.landed, now=self._now())
        return fault

    def _plan(self, name: str) -> Plan:
        with self._lock:
            return self._plan_reachable(name)

    def _plan_reachable(self, name: str) -> Plan:
        """Plan a cut that contains nothing the table was unable to take before.

        With ``every_update`` a snapshot supersedes nothing: it passes a hold only once nothing before the hold is left.
        """
        planned = partial(
            self._planner.plan,
            name,
            self.settings.build.cut,
            sizes=self._sizes,
            at_least=self._bisections[name].frames_allowed,
            beyond=self._bisections[name].tried,
        )
        table = self.tables[name].target.table
        passes = table.keeps_history and self.connector.has_snapshots(table)
        past = self.past if self._planner.position(name) < 0 else None
        plan = planned(before=self.before, past=past)
        while plan.cut is not None and (stop := self._stop_within(name, plan.cut)) is not None:
            refused = plan.cut
            plan = planned(before=stop, past=past)
            if plan.cut is None and passes:
                # updates before a snapshot may overlay it: then it cannot be taken either
                past = max(stop, refused.snapshot_end or stop)
                plan = planned(before=self.before, past=past)
        return plan

    def _stop_within(self, name: str, cut: Cut) -> int | None:
        """Return a position that the cut may not reach: columns may change after a control frame.

        A control frame that repeats the one before it, as after a reconnect, ends no cut.
        """
        if not cut.replaces:
            frames = [frame for frame in self._control if frame.stream == cut.stream]
            news = (at for at, frame in enumerate(frames) if at == 0 or frame.body != frames[at - 1].body)
            controls = (frames[at].frame_seq for at in news)
            after_first = next((at for at in controls if cut.begins[0] < at < cut.last), None)
            if after_first is not None:
                return after_first
        return self._bisections[name].within(cut)

    def _apply(self, name: str, plan: Plan, cut: Cut, began: float) -> CutRow | None:
        table = self.tables[name]
        context = table.decoder.context(frame for frame in self._control if frame.frame_seq <= cut.last)
        cut = replace(cut, left_out=self._quarantine[name].left_out(cut))
        frames = table.frames(cut)
        statistics = table.analyze(frames, context, cut) if table.needs_statistics(context, cut) else NO_STATISTICS
        try:
            row = table.apply(frames, context, cut, _with_skipped_frames(statistics, cut), later=self._later(name, cut))
        except ApplyError:
            if statistics is NO_STATISTICS:
                table.analyze(frames, context, cut)  # raises the error of the frame to blame, if there is one
            raise
        self._mark_reached(name, cut.last if row is not None else table.position())
        self._overtaken[name] = 0
        self._bisections[name].passed(cut.last)
        if row is None:  # another process applied it, maybe without frames read here: its commit lists them
            self._quarantine[name].catch_up(now=self._now())
            return None
        self._quarantine[name].passed(cut, now=self._now())
        row = later_than(row, self._committed.get(name))
        self._committed[name] = row.committed_at
        row = replace(row, landed_at=moment(cut.received), seconds=self.clock() - began)
        record(self._places, self.feed.name, row)
        return row

    def _later(self, name: str, cut: Cut) -> list[StructField]:
        """Return columns that control frames announce after a cut, and that rules of the table may name.

        A column that does not fit the table causes no error here; it holds the table once it comes.
        """
        table, frames = self.tables[name], [frame for frame in self._control if frame.stream in {None, cut.stream}]
        behind = {frame.body: frame for frame in frames if frame.frame_seq > cut.last} if table.table.expect else {}
        found: dict[str, StructField] = {}
        for frame in behind.values():  # a receiver that reconnects repeats control frames
            then = replace(cut, epoch=frame.epoch, last=frame.frame_seq + 1, snapshot_end=None)
            with suppress(SilverfoldError):
                context = table.decoder.context(each for each in self._control if each.frame_seq <= frame.frame_seq)
                row = table.decoder.row_type(context, then, table.table)
                found = {**{folded(field.name): field for field in row}, **found}
        return list(found.values())

    def _stop_before(self, name: str, plan: Plan, fault: SilverfoldError) -> Step:
        """Stop before a frame, if known, else before an update, found by shorter cuts. A skipped frame is no stop."""
        cut, bisection = plan.cut, self._bisections[name]
        assert cut is not None
        if isinstance(fault, _OF_A_CUT) and bisection.shorten(cut, fault.since) is not None:
            shorter = self._plan(name).cut
            if shorter is not None and shorter.begins[0] == cut.begins[0]:  # else another snapshot's: do not shorten
                return Step(name, plan, moved=True)
        if self._quarantine_fault(name, cut, fault):
            return Step(name, plan, moved=True)
        bisection.hold(fault.position if isinstance(fault, UndecodableFrame) else cut.begins[0], cut, fault)
        return Step(name, plan, error=fault, moved=True)

    def _quarantine_fault(self, name: str, cut: Cut, fault: SilverfoldError) -> bool:
        """Record what the table could not take; return whether it may continue without it.

        An error of a cut as a unit is recorded at its first update that is not a left-out frame. The quarantine has one
        record per position, and the record of a left-out frame must not be overwritten.
        """
        quarantine, is_frame = self._quarantine[name], isinstance(fault, UndecodableFrame)
        left_out = quarantine.left_out(cut)
        begins = (begin for begin in cut.begins if begin not in left_out)
        position = fault.position if isinstance(fault, UndecodableFrame) else next(begins, None)
        if position is None:
            return False
        found = Hold(
            position=position,
            update_position=max((begin for begin in cut.begins if begin <= position), default=position),
            error_class=fault.error_class,
            reason=str(fault),
            found_at=self._now(),
        )
        return quarantine.take(found, now=self._now(), is_frame=is_frame)

    def _open_quarantine(self, name: str) -> Quarantine:
        feed, table = self.feed.name, self.feed.tables[name]
        skips, keeps_history = table.on_bad_frame == "skip", table.keeps_history
        opened = Quarantine(self._places, feed, name, skips, keeps_history, lambda: self._lost)
        opened.catch_up(now=self._now())
        return opened

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)

    def _rules(self, name: str) -> StreamRules:
        now = reached(self._places, self.feed.name, name)
        is_misfit = was_replaced(self._bronze, self._lost, now)
        return StreamRules.of(self.connector, self.feed, name, now, is_misfit=is_misfit)


def _with_skipped_frames(statistics: CutStatistics, cut: Cut) -> CutStatistics:
    """Add the number of left-out frames to the counters of a cut."""
    skipped = {_SKIPPED_FRAMES: len(cut.left_out)} if cut.left_out else {}
    return statistics._replace(counters={**statistics.counters, **skipped})
