"""What has landed in a feed's bronze table, and which cut each of its silver tables takes next."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import UnusableExpectation
from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Connector, Cut, Feed
from silverfold.connectors.frames import ControlFrame, Kind
from silverfold.pipelines.holding.cut_bisection import CutBisection, joined_updates, pairs_parted
from silverfold.pipelines.landing.bronze import (
    landing_at,
    last_position,
    read_frames,
    read_small_columns,
    source_positions_in,
)
from silverfold.pipelines.landing.bronze_table import lost_from, retained_from
from silverfold.pipelines.landing.frame_sizes import FrameSizes
from silverfold.pipelines.landing.losses import was_replaced
from silverfold.pipelines.landing.ranges import Range
from silverfold.pipelines.places import Places
from silverfold.pipelines.planning.plan import Plan, Planner
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.storage.silver_position import silver_position
from silverfold.pipelines.store import naming_the_store

_FRAMES_BEFORE: Final = 200_000
"""Positions before a cut within which frames that come again in it are looked for: more than a source sends again."""


@dataclass
class FeedPlan:
    """Plans the cuts of a feed's tables. One thread refreshes; others may plan meanwhile, each table in one at a time.

    Args:
        limits: Bounds of every cut.
        before: No table takes anything at or after this position; None for no bound.
        past: A table begins with the first snapshot after this position; None to begin with the first possible.
        sees_later: What landed at or after ``before`` is seen all the same: where they can, cuts end before a change
            than which one there is older.
    """

    connector: Connector
    feed: Feed
    places: Places
    limits: CutLimits
    before: int | None
    past: int | None
    sees_later: bool = False
    bisections: dict[str, CutBisection] = field(init=False)
    """The positions that cuts may not reach, by table."""
    control: Sequence[ControlFrame] = field(init=False, default=())
    """The control frames seen, in order."""
    lost: Sequence[Range] = field(init=False)
    """The positions that bronze has lost."""

    def __post_init__(self) -> None:
        self._bronze = self.places.bronze(self.feed.name)
        self._lock = threading.Lock()  # a plan sees all frames of a refresh, or none
        self._sizes = FrameSizes()
        self._forget_holds()

    def begin(self) -> Self:
        """Read where the tables and bronze are; to be called once, before all else. Raises StoreUnavailable."""
        self._begin()
        return self

    @property
    def landed(self) -> int:
        """Position of the newest frame seen; -1 for none."""
        return self._planner.landed

    def position(self, table: str) -> int:
        """Return the last known position of a table; -1 for none."""
        return self._planner.position(table)

    def refresh(self) -> None:
        """Read what has landed since the last refresh."""
        with self._lock:
            self._read_bronze()

    def cut(self, table: str) -> Plan:
        """Plan a cut that contains nothing the table was unable to take before.

        With ``every_update`` a snapshot supersedes nothing: it passes a hold only once nothing before the hold is left.

        Raises:
            PositionGap: Bronze lacks a position the table has yet to pass.
            DoubledPositions: Bronze has a position twice.
        """
        with self._lock:
            bisection, conf = self.bisections[table], self.feed.tables[table]
            planned = partial(self._planned, table, at_least=bisection.frames_allowed, beyond=bisection.tried)
            every_update = conf.keeps_history and self.connector.has_snapshots(conf)
            past = self.past if self._planner.position(table) < 0 else None
            plan = planned(before=self.before, past=past)
            while plan.cut is not None and (stop := self._stop_within(table, plan.cut)) is not None:
                refused = plan.cut
                plan = planned(before=stop, past=past)
                if plan.cut is None and every_update:
                    # updates before a snapshot may overlay it: then it cannot be taken either
                    past = max(stop, refused.snapshot_end or stop)
                    plan = planned(before=self.before, past=past)
            return plan

    def joined(self, cut: Cut) -> Cut:
        """Return the cut with those updates joined that must not be applied apart (`joined_updates`)."""
        return joined_updates(cut, self._source_places(cut)) if self.connector.source_ordered else cut

    def _planned(self, table: str, *, before: int | None, past: int | None, at_least: int, beyond: int) -> Plan:
        """Return what the planner plans, for a source in its own order with an end that parts no pair of updates.

        The cut is shorter then; or longer, if only the limits are in the way, up to twice of them; else there is none.
        If each such end parts a pair, it is one of the second half that parts the fewest: pairs of updates further
        apart do not count, since a copy of an old record is in a pair with all that came behind it.
        """
        planned = partial(self._planner.plan, table, past=past, sizes=self._sizes)
        plan = planned(self.limits, before=before, at_least=at_least, beyond=beyond)
        if plan.cut is None or not self.connector.source_ordered:
            return plan
        seen = None if self.sees_later else self.before
        most, ahead = (
            planned(_times(times, self.limits), before=bound, at_least=times * at_least, beyond=beyond).cut
            for times, bound in ((2, self.before), (4, seen))
        )
        last, half = plan.cut.last, plan.cut.ends[len(plan.cut.ends) // 2]
        if most is None or ahead is None or ahead.last == last:
            return plan
        passed = beyond if last > beyond else -1  # a cut that ends before a stop need not pass it
        parted, _, _, end = min(
            (parted, end > last, abs(end - last), end)
            for end, parted in zip(ahead.ends, self._parted(table, ahead), strict=True)
            if passed < end <= most.last and (not parted or end >= half)
        )
        if end < last:
            return planned(self.limits, before=end + 1, at_least=at_least, beyond=beyond)
        is_stopped = before is not None and end >= before
        if end == last or (is_stopped and parted):
            return plan
        if is_stopped:
            return planned(self.limits, before=plan.cut.begins[0])
        return planned(self.limits, before=before, beyond=end - 1)

    def _parted(self, table: str, ahead: Cut) -> Sequence[int]:
        """Return `pairs_parted` of what a table takes next, of updates near enough. Read once for each such cut."""
        bounds = ahead.begins[0], ahead.last
        known = self._known_parted.get(table)
        if known is None or known[0] != bounds:
            limits = _times(2, self.limits)
            sizes = np.cumsum([0, *self._sizes.of(np.array(ahead.ends))])  # before each update, and behind the last
            by_bytes = np.searchsorted(sizes, sizes[1:] - limits.max_bytes)
            by_frames = np.arange(1, len(sizes)) - limits.max_frames
            earliest = np.maximum(by_bytes, by_frames).tolist()
            known = self._known_parted[table] = bounds, pairs_parted(ahead, self._source_places(ahead), earliest)
        return known[1]

    def _source_places(self, cut: Cut) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Yield what `Connector.source_places` does, of a cut. What came again is known by what landed before."""
        first = cut.begins[0]
        landed = source_positions_in(self._bronze, cut.stream, max(first - _FRAMES_BEFORE, 0), cut.last)
        return (each for each in self.connector.source_places(self.control, landed) if each[0] >= first)

    def advance_to(self, table: str, position: int) -> None:
        """Record that a table has reached a position, maybe by another process."""
        with self._lock:
            if position > self._planner.landed:  # another process has seen more
                self._read_bronze()
            if position >= self._planner.position(table):  # otherwise the next cut is refused and planned anew
                self._planner.advance_to(table, position)

    def replan(self, table: str, position: int) -> None:
        """Plan anew from a table's position, which may have gone back, and from bronze, which may be another."""
        with self._lock:
            if position < self._planner.position(table):
                self.bisections[table] = CutBisection()
            self._restart()

    def noted_losses(self) -> bool:
        """Return whether a receiver has recorded that more positions are lost. Raises StoreUnavailable."""
        return self.lost != lost_from(self._bronze)

    def _forget_holds(self) -> None:
        self.bisections = {name: CutBisection() for name in self.feed.tables}

    def _begin(self) -> None:
        floor, last = retained_from(self._bronze, self.feed.name), last_position(self._bronze, self.feed.name)
        self.lost = lost_from(self._bronze)
        rules = {name: self._rules(name) for name in self.feed.tables}
        self._planner = Planner(self.feed.name, rules, floor=floor, last=last, lost=self.lost)
        self.control = ()
        self._newest: tuple[int, int] | None = None
        self._known_parted: dict[str, tuple[tuple[int, int], Sequence[int]]] = {}
        self._has_unread = True  # the planner does not see control frames before its start

    def _restart(self) -> None:
        """Discard what was seen and planned, and reread all that the tables have yet to take."""
        self._begin()
        self._read_bronze()

    def _read_bronze(self) -> None:
        with naming_the_store(self._bronze):
            new = read_small_columns(self._bronze, after=self._planner.start - 1, sizes=self._sizes)
            for at, batch in enumerate(new):
                if at == 0 and not self._is_as_seen():
                    self._forget_holds()
                    self._restart()
                    return
                self._has_unread |= Kind.CONTROL.value in batch["kind"].to_pylist()
                self._planner.add_frames(batch)
                self._newest = batch["frame_seq"][-1].as_py(), pc.cast(batch["received_at"], pa.int64())[-1].as_py()
            after = self.control[-1].frame_seq if self.control else -1
            control = list(read_frames(self._bronze, kind=Kind.CONTROL, after=after)) if self._has_unread else []
            self.control, self._has_unread = (*self.control, *control), False
        self._retry_unusable_rules({frame.stream for frame in control})

    def _retry_unusable_rules(self, streams: Collection[str | None]) -> None:
        """Retry tables whose rules name a missing column if their streams got control frames; None is every stream."""
        for name, bisection in self.bisections.items():
            lacks = isinstance(bisection.fault, UnusableExpectation)
            if lacks and not {None, self.connector.stream(self.feed, name)}.isdisjoint(streams):
                self.bisections[name] = CutBisection()

    def _is_as_seen(self) -> bool:
        """Return whether bronze still has the newest frame seen, or has dropped it; otherwise bronze is another one."""
        if self._newest is None:
            return True
        position, received = self._newest
        found = landing_at(self._bronze, position)
        return position < retained_from(self._bronze, self.feed.name) if found is None else found.received == received

    def _stop_within(self, table: str, cut: Cut) -> int | None:
        """Return a position that the cut may not reach: columns may change after a control frame.

        A control frame that repeats the one before it, as after a reconnect, ends no cut; nor does one inside a
        snapshot.
        """
        begin = cut.begins[0] if cut.snapshot_end is None else cut.snapshot_end
        frames = [frame for frame in self.control if frame.stream == cut.stream]
        news = (at for at, frame in enumerate(frames) if at == 0 or frame.body != frames[at - 1].body)
        controls = (frames[at].frame_seq for at in news)
        after_first = next((at for at in controls if begin < at < cut.last), None)
        return self.bisections[table].within(cut) if after_first is None else after_first

    def _rules(self, table: str) -> StreamRules:
        now = silver_position(self.places, self.feed.name, table)
        is_misfit = was_replaced(self._bronze, self.lost, now)
        return StreamRules.read(self.places, self.connector, self.feed, table, now, is_misfit=is_misfit)


def _times(number: int, limits: CutLimits) -> CutLimits:
    return limits.model_copy(update={"max_frames": number * limits.max_frames, "max_bytes": number * limits.max_bytes})
