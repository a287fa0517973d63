"""Builds a feed's silver tables: reads what has landed, plans, surveys, applies; cut by cut, table by table.

Tables are independent: each has its own position, its own session and its own fate. A table that meets a frame it
cannot decode *holds* at the last good update until a later snapshot passes the frame, a fixed decoder reads it, or it
is skipped (`pipelines.quarantine`): then all of its update but that frame is applied. The others go on.
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

from conf.errors import (
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
from conf.model import Settings
from conf.names import folded
from connectors.base import NO_STATISTICS, Connector, ControlFrame, Cut, CutStatistics, Feed, Kind
from pipelines.bronze import landing_at, last_position, read_frames, read_small_columns
from pipelines.bronze_table import lost_from, retained_from
from pipelines.cut_bisection import CutBisection
from pipelines.cuts import CutRow, last_cuts, later_than, record, restore
from pipelines.frame_sizes import FrameSizes
from pipelines.places import Places, places_of
from pipelines.plan import Plan, Planner, State
from pipelines.quarantine import Quarantine
from pipelines.quarantine_log import Hold
from pipelines.reached import moment, reached, stands_on_another
from pipelines.rules import StreamRules
from pipelines.silver import SilverTable
from pipelines.spark import noticing_its_end
from pipelines.store import naming_the_store

_OF_A_CUT = (DuplicateKey, NullKey, Unexplained, ExpectationFailed)
"""What a cut cannot be applied for without any of its frames being to blame: fewer of its updates are tried."""

_OF_SETTINGS = (RebuildNeeded, UnusableExpectation, UnusableKey)
"""What other settings, or a rebuild, put right."""

HOLDING_LATER = (UndecodableFrame, SnapshotNeeded, WireError, *_OF_A_CUT)
"""Faults that hold a table at what landed last, not as it is or as its settings are."""

_HOLDING = (SchemaDrift, *HOLDING_LATER, *_OF_SETTINGS)
"""Faults that hold a table. Others are of the moment: the next step tries again."""

_TRIES = 10
"""How often a table is tried again at once, where other processes keep writing it."""

_SKIPPED_FRAMES = "skipped_frames"
"""Note of a cut that some frames were left out of: how many."""


@dataclass(frozen=True)
class Step:
    """What one step did for one table."""

    table: str
    plan: Plan | None
    """What was planned; None when bronze lacks positions, or the quarantine could not be written."""
    applied: CutRow | None = None
    """The cut that was applied; None when there was none, or another process had applied it."""
    error: SilverfoldError | None = None
    """Why the table holds, or why this step failed; None when all is well."""
    moved: bool = False
    """Something changed, so that another step may find more to do."""


@dataclass
class FeedBuild:
    """Everything between one feed's bronze table and its silver tables.

    One thread refreshes; others may step meanwhile, each table in one at a time.

    Args:
        spark: Returns the session whose JVM does the work. First called when there is work, maybe by several threads.
        clock: Seconds since 1970.
        places: Where tables are; by default where the settings say.
        before: No table takes anything at or after this position; None for no such bound.
        past: A table begins with the first snapshot behind this position; None to begin where it can.
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
        told = self.spark, self.feed, self.connector
        self.tables = {name: SilverTable(*told, name, self._places) for name in self.feed.tables}
        self._planner = self._new_planner()
        self._lock = threading.Lock()  # a plan sees all of what a look at bronze brings, or nothing
        self._control: list[ControlFrame] = []
        self._is_told = True  # there may be control frames to read: those before the start are not seen otherwise
        self._newest: tuple[int, int] | None = None
        self._stops = {name: CutBisection() for name in self.tables}
        self._overtaken = dict.fromkeys(self.tables, 0)
        self._sizes = FrameSizes()
        restore(self._places, self.feed.name, list(self.tables))
        self._committed = {name: cut.committed_at for name, cut in last_cuts(self._places, self.feed.name).items()}
        self._quarantine = {name: self._opened_quarantine(name) for name in self.tables}

    def close(self) -> None:
        """End the sessions of its tables. No table can be stepped any more."""
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
        """Take in what has landed since the last time."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        with naming_the_store(self._bronze):
            new = read_small_columns(self._bronze, after=self._planner.start - 1, sizes=self._sizes)
            for at, batch in enumerate(new):
                if at == 0 and not self._is_as_seen():
                    self._stops = {name: CutBisection() for name in self.tables}
                    self._look_anew()
                    return
                self._is_told |= Kind.CONTROL.value in batch["kind"].to_pylist()
                self._planner.advance(batch)
                self._newest = batch["frame_seq"][-1].as_py(), pc.cast(batch["received_at"], pa.int64())[-1].as_py()
            after = self._control[-1].frame_seq if self._control else -1
            told = list(read_frames(self._bronze, kind=Kind.CONTROL, after=after)) if self._is_told else []
            self._control, self._is_told = [*self._control, *told], False
        self._let_go({frame.stream for frame in told})

    def _let_go(self, streams: Collection[str | None]) -> None:
        """Try tables again whose rules name a column they lack: these streams, or all (None), got some."""
        for name in self.tables:
            lacks = isinstance(self._stops[name].fault, UnusableExpectation)
            if lacks and not {None, self.connector.stream(self.feed, name)}.isdisjoint(streams):
                self._stops[name] = CutBisection()

    def _look_anew(self) -> None:
        """Forget what was seen and planned, and look at all that tables have yet to take."""
        self._planner, self._control, self._is_told, self._newest = self._new_planner(), [], True, None
        self._look()

    def _is_as_seen(self) -> bool:
        """Tell whether bronze has the newest frame that was seen, or has dropped it: else it is another one."""
        if self._newest is None:
            return True
        position, received = self._newest
        found = landing_at(self._bronze, position)
        return position < retained_from(self._bronze, self.feed.name) if found is None else found.received == received

    def step(self, table: str) -> Step:
        """Apply at most one cut to a table; return what came of it. Runs Spark jobs."""
        try:
            self._decided(table)
            return self._attempt(table)
        except SilverfoldError as error:  # what the table could not take could not be noted: the next step tries again
            return Step(table, None, error=error)

    def _decided(self, name: str) -> None:
        """Take in what people decided about a table that holds."""
        if self._stops[name].fault is not None and self._quarantine[name].look():
            self._stops[name].keep(self._quarantine[name].holding)
            self._reached(name, self.tables[name].position())  # another process may have gone on

    def _reached(self, name: str, position: int) -> None:
        with self._lock:
            if position > self._planner.landed:  # another process has seen more
                self._look()
            if position >= self._planner.position(name):  # else the next cut is refused, and planned anew
                self._planner.applied(name, position)

    def _plan_anew(self, name: str) -> None:
        """Plan from where the table is, which may have gone back, and from what bronze has, which may be another."""
        with self._lock:
            if self.tables[name].position() < self._planner.position(name):
                self._stops[name] = CutBisection()
            self._look_anew()

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
                return Step(name, plan, error=self._held(name, plan))
            with noticing_its_end():
                applied = self._apply(name, plan, plan.cut, began)
            return Step(name, plan, applied, self._stops[name].fault, moved=True)
        except _HOLDING as fault:
            assert plan is not None
            return self._failed(name, plan, fault)
        except Overtaken as error:
            self._overtaken[name] += 1
            self._plan_anew(name)
            again = self._overtaken[name] < _TRIES
            return Step(name, plan, error=None if again else error, moved=again)
        except SilverfoldError as error:
            if isinstance(error, ApplyError) and plan is not None and plan.cut is not None:
                self._noted(name, plan.cut, error)
            noted = isinstance(error, PositionGap) and self._lost != lost_from(self._bronze)
            if noted:  # by a receiver meanwhile: what is missing is lost
                self._plan_anew(name)
            return Step(name, plan, error=None if noted else error, moved=noted)

    def _held(self, name: str, plan: Plan) -> SilverfoldError | None:
        """Return what holds a table for which there is no cut. What was written beside it for one is taken back."""
        if (fault := self._stops[name].fault) is not None:
            with suppress(RebuildNeeded):  # where it cannot be, the next cut says so
                self.tables[name].settle()
        elif plan.state is State.SYNCED and self.before is None:
            self._quarantine[name].nothing_waits(self._planner.landed, now=self._now())
        return fault

    def _plan(self, name: str) -> Plan:
        with self._lock:
            return self._within_reach(name)

    def _within_reach(self, name: str) -> Plan:
        """Plan a cut that reaches nothing the table could not take before.

        Where every update is to be told, none is made needless by a later snapshot: that passes what holds the table
        only once there is nothing before it any more.
        """
        planned = partial(
            self._planner.plan,
            name,
            self.settings.build.cut,
            sizes=self._sizes,
            at_least=self._stops[name].longer,
            beyond=self._stops[name].tried,
        )
        table = self.tables[name].target.table
        passes = table.keeps_history and self.connector.has_snapshots(table)
        past = self.past if self._planner.position(name) < 0 else None
        plan = planned(before=self.before, past=past)
        while plan.cut is not None and (stop := self._stop_within(name, plan.cut)) is not None:
            refused = plan.cut
            plan = planned(before=stop, past=past)
            if plan.cut is None and passes:
                # what landed before a snapshot may overlay it: then that one cannot be taken either
                past = max(stop, refused.snapshot_end or stop)
                plan = planned(before=self.before, past=past)
        return plan

    def _stop_within(self, name: str, cut: Cut) -> int | None:
        """Return a position in the cut that it may not reach: what follows a control frame may have other columns.

        One that tells what the one before it told, as a receiver does that connects again, ends no cut.
        """
        if not cut.replaces:
            told = [frame for frame in self._control if frame.stream == cut.stream]
            news = (at for at, frame in enumerate(told) if at == 0 or frame.body != told[at - 1].body)
            controls = (told[at].frame_seq for at in news)
            after_first = next((at for at in controls if cut.begins[0] < at < cut.last), None)
            if after_first is not None:
                return after_first
        return self._stops[name].within(cut)

    def _apply(self, name: str, plan: Plan, cut: Cut, began: float) -> CutRow | None:
        table = self.tables[name]
        context = table.decoder.context(frame for frame in self._control if frame.frame_seq <= cut.last)
        cut = replace(cut, left_out=self._quarantine[name].left_out(cut))
        frames = table.frames(cut)
        statistics = table.measured(frames, context, cut) if table.needs_statistics(context, cut) else NO_STATISTICS
        try:
            row = table.apply(frames, context, cut, _telling(statistics, cut), later=self._later(name, cut))
        except ApplyError:
            if statistics is NO_STATISTICS:
                table.measured(frames, context, cut)  # names the frame that is to blame, if one is
            raise
        self._reached(name, cut.last if row is not None else table.position())
        self._overtaken[name] = 0
        self._stops[name].passed(cut.last)
        if row is None:  # another applied it, maybe without frames that are not left out here: its commit says so
            self._quarantine[name].catch_up(now=self._now())
            return None
        self._quarantine[name].passed(cut, now=self._now())
        row = later_than(row, self._committed.get(name))
        self._committed[name] = row.committed_at
        row = replace(row, landed_at=moment(cut.received), seconds=self.clock() - began)
        record(self._places, self.feed.name, row)
        return row

    def _later(self, name: str, cut: Cut) -> list[StructField]:
        """Return the columns that control frames tell behind a cut, which rules of the table may name.

        One that the table cannot have as it is told here holds it once it comes.
        """
        table, told = self.tables[name], [frame for frame in self._control if frame.stream in {None, cut.stream}]
        behind = {frame.body: frame for frame in told if frame.frame_seq > cut.last} if table.table.expect else {}
        found: dict[str, StructField] = {}
        for frame in behind.values():  # a receiver that connects again tells what was told
            then = replace(cut, epoch=frame.epoch, last=frame.frame_seq + 1, snapshot_end=None)
            with suppress(SilverfoldError):
                context = table.decoder.context(each for each in self._control if each.frame_seq <= frame.frame_seq)
                row = table.decoder.row_type(context, then, table.table)
                found = {**{folded(field.name): field for field in row}, **found}
        return list(found.values())

    def _failed(self, name: str, plan: Plan, fault: SilverfoldError) -> Step:
        """Stop before what the table cannot take: a frame when it is known, else an update, found by shorter cuts.

        A frame that is to be skipped is no stop: the next step leaves it out.
        """
        cut, stops = plan.cut, self._stops[name]
        assert cut is not None
        if isinstance(fault, _OF_A_CUT) and stops.shorten(cut, fault.since) is not None:
            shorter = self._plan(name).cut
            if shorter is not None and shorter.begins[0] == cut.begins[0]:  # else another snapshot's: this one is whole
                return Step(name, plan, moved=True)
        if self._noted(name, cut, fault):
            return Step(name, plan, moved=True)
        stops.hold(fault.position if isinstance(fault, UndecodableFrame) else cut.begins[0], cut, fault)
        return Step(name, plan, error=fault, moved=True)

    def _noted(self, name: str, cut: Cut, fault: SilverfoldError) -> bool:
        """Note what the table could not take; return whether it may go on without it.

        A fault of a whole cut is noted at its first update, unless that is a frame which is left out: the quarantine
        knows one thing of a position, and is not to forget that.
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

    def _opened_quarantine(self, name: str) -> Quarantine:
        feed, table = self.feed.name, self.feed.tables[name]
        skips, keeps_history = table.on_bad_frame == "skip", table.keeps_history
        opened = Quarantine(self._places, feed, name, skips, keeps_history, lambda: self._lost)
        opened.catch_up(now=self._now())
        return opened

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)

    def _rules(self, name: str) -> StreamRules:
        now = reached(self._places, self.feed.name, name)
        is_misfit = stands_on_another(self._bronze, self._lost, now)
        return StreamRules.of(self.connector, self.feed, name, now, is_misfit=is_misfit)


def _telling(statistics: CutStatistics, cut: Cut) -> CutStatistics:
    """Add to the notes of a cut how many frames are left out of it."""
    return (
        statistics._replace(counters={**statistics.counters, _SKIPPED_FRAMES: len(cut.left_out)})
        if cut.left_out
        else statistics
    )
