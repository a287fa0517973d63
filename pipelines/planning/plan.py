"""Plan, from bronze's small columns alone, which complete updates each silver table takes next.

Rules:

- A table takes complete updates only (`pipelines.planning.updates`). An open update is pending, with everything inside
  it. Once a frame of a later epoch has landed it is void, and its frames lie outside `Cut.spans`.
- A stream without snapshots takes every complete update, across epochs.
- Any other stream takes nothing of an epoch before a snapshot of that epoch is complete. The latest complete snapshot
  wins: it replaces the table, and all earlier updates are skipped. With ``resync`` false all epochs count as one.
- A snapshot is overlaid by the data updates inside it (between its first and last frame). The first of an epoch is also
  overlaid by all data updates of the epoch that landed before it: none of them can have been applied. A later one is
  not, nor is one that begins with a mark: it starts over, since a receiver lands its ``begin`` on requesting it.
- A table that keeps history (``every_update``) skips nothing: updates before a snapshot take effect first, and each
  snapshot in turn. Its versions therefore do not depend on when the plan ran. Only updates that it cannot take are
  passed over by the next snapshot.
- Bronze may begin at a floor (`pipelines.upkeep.retention`). A table below it continues with a complete snapshot, but
  never with the first of the floor's own epoch if that would be overlaid: bronze no longer shows whether one came
  before it. A table that no snapshot can complete again stops. One without snapshots that has taken nothing begins at
  the floor, unless it has a base (`pipelines.upkeep.bases`).

So a table's rows, `_position` apart (a snapshot leaves equal rows unwritten), do not depend on when, or in how many
cuts, the plan was carried out. A snapshot and its overlay up to its own end are never split, nor is any single update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from silverfold.conf.errors import DoubledPositions, PositionGap, ReplacedBronze
from silverfold.conf.model import CutLimits
from silverfold.conf.unix_time import timestamp_micros
from silverfold.connectors.base import Cut
from silverfold.pipelines.landing.frame_sizes import FrameSizes
from silverfold.pipelines.landing.ranges import is_inside
from silverfold.pipelines.planning.choice import Choice, TableStream
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.planning.updates import Frames, Updates, by_stream, read_frames, spans_of


class State(StrEnum):
    """State of a table with respect to bronze. The first that applies, in this order."""

    BEHIND = "behind"
    """A cut is ready."""
    WAITING_FOR_SNAPSHOT = "waiting_for_snapshot"
    """Nothing of the newest epoch may be applied before a snapshot of it is complete."""
    WAITING_FOR_UPDATE_END = "waiting_for_update_end"
    """All complete updates are applied; one is open."""
    SYNCED = "synced"
    """All complete updates are applied; none is open."""


@dataclass(frozen=True)
class Plan:
    """The next cut of one table, and how far the table is behind."""

    cut: Cut | None
    """None if there is nothing to apply now; ``state`` gives the reason."""
    state: State
    epoch: int
    """The feed's newest epoch; 0 if nothing has landed."""
    landed: int
    """Position of the stream's newest frame among those fed or applied; -1 for none."""
    applied: int
    """Position the table has reached; -1 for none."""
    backlog_updates: int
    """Complete updates landed but not applied, without those that never will be."""
    oldest_waiting: datetime | None
    """When the oldest of them became complete; None if there is none."""
    superseded: int
    """Complete updates that the cut's snapshot supersedes."""
    applied_epoch: int | None
    """Epoch of the table; None if it has taken nothing yet."""


class Planner:
    """Plans the cuts of one feed: feed it bronze, get plans, report what was applied.

    Memory: a few numbers per table, and 46 bytes for each complete update not yet applied.

    Args:
        feed: Name of the feed, for errors.
        tables: The silver tables; several may share a stream.
        floor: Position from which bronze is retained (`pipelines.landing.bronze_table.retained_from`).
        last: Position recorded in bronze's log; -1 if it was not read.
        lost: Ranges of positions permanently missing from bronze (`pipelines.landing.bronze_table.lost_from`); not
            gaps.
    """

    def __init__(
        self,
        feed: str,
        tables: Mapping[str, StreamRules],
        *,
        floor: int = 0,
        last: int = -1,
        lost: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._feed, self._lost = feed, lost
        self._tables = {name: TableStream(rules.stream or name, rules, floor) for name, rules in tables.items()}
        self._streams = list({table.stream: None for table in self._tables.values()})
        self._epoch = 0
        self._floor = floor
        self._next = max(floor, min((max(rules.applied, 0) for rules in tables.values()), default=0))
        self._landed, self._last = -1, last
        self._holes: list[tuple[int, int]] = []
        self._doubled: list[tuple[int, int]] = []

    @property
    def start(self) -> int:
        """Position of the next frame to feed. Initially the smallest applied position, or the floor.

        It starts *at* an applied position, not after it, to learn the epoch of that frame.
        """
        return self._next

    @property
    def landed(self) -> int:
        """Position of the newest frame fed, of any stream; -1 for none."""
        return self._landed

    @property
    def epoch(self) -> int:
        """The feed's newest epoch among the frames fed; 0 if nothing was fed."""
        return self._epoch

    def add_frames(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add the next rows of bronze in position order; rows before `start` are skipped.

        Args:
            batch: Columns ``frame_seq``, ``epoch``, ``received_at`` (µs), ``stream``, ``kind``, ``boundary``.
        """
        fed = read_frames(batch, self._streams)
        frames = fed[np.searchsorted(fed["position"], self._next) :]
        self._landed = max([self._landed, *fed["position"][-1:].tolist()])
        if not len(frames):
            return
        frames = self._deduplicate(frames)
        parts = {self._streams[index]: part for index, part in by_stream(frames).items()}
        for table in self._tables.values():
            table.learn_epoch(frames)
            if table.stream in parts:
                table.add_frames(parts[table.stream])
        self._next, self._epoch = int(frames["position"][-1]) + 1, int(frames["epoch"][-1])

    def plan(
        self,
        table: str,
        limits: CutLimits,
        *,
        before: int | None = None,
        past: int | None = None,
        sizes: FrameSizes | None = None,
        at_least: int = 0,
        beyond: int = -1,
    ) -> Plan:
        """Return what the table may take, once everything landed so far has been fed.

        Args:
            limits: Bounds of the cut, counted in frames of the table's stream.
            before: Stop before this position: the cut ends at the last update that ended before the one containing it.
            past: With ``every_update``: a position the table cannot take. The cut is the first snapshot after it.
            sizes: Frame sizes, to keep the cut under ``limits.max_bytes``; without them only ``limits.max_frames``
                counts.
            at_least: Number of frames that a cut may have whatever the limits are.
            beyond: A cut may extend to the first update end after this position, whatever the limits are.

        Raises:
            PositionGap: Bronze lacks a position the table has yet to pass. Nothing may be applied.
            DoubledPositions: Bronze has a position twice.
        """
        state = self._tables[table]
        self._check_dense(table, state)
        pending = state.pending()
        horizon = _horizon(pending, state.open_since(self._epoch), before)
        usable = pending[: np.searchsorted(pending["end"], horizon)]
        choice = state.choose(usable, past)
        count = max(_count_within(limits, choice.updates, sizes), _count_frames(at_least, choice.updates))
        cut = _build_cut(state.stream, state.applied, choice, count, beyond)
        return self._plan(state, cut, pending, choice)

    def position(self, table: str) -> int:
        """Return the last known position of the table; -1 for none."""
        return self._tables[table].applied

    def advance_to(self, table: str, position: int) -> None:
        """Record that the table has reached ``position``, the end of an update."""
        self._tables[table].advance_to(position, self._landed)

    def _plan(self, state: TableStream, cut: Cut | None, pending: Updates, choice: Choice) -> Plan:
        alive = state.alive(pending, choice, self._epoch)
        oldest = pending["received"][alive]
        return Plan(
            cut=cut,
            state=State.BEHIND if cut else _state_without_cut(state, self._epoch),
            epoch=self._epoch,
            landed=state.landed,
            applied=state.applied,
            backlog_updates=len(oldest),
            oldest_waiting=timestamp_micros(int(oldest[0])) if len(oldest) else None,
            superseded=choice.superseded,
            applied_epoch=state.applied_epoch,
        )

    def _deduplicate(self, frames: Frames) -> Frames:
        """Return the frames without duplicates. Records duplicate and missing positions."""
        positions = np.concatenate([[self._next - 1], frames["position"]])
        steps = np.diff(positions)
        assert steps.min() >= 0, "rows of bronze must come in position order"
        for at in np.flatnonzero(steps > 1).tolist():
            first, last = int(positions[at]) + 1, int(positions[at + 1]) - 1
            if not is_inside((first, last), self._lost):
                self._holes.append((first, last))
        twice = frames["position"][steps == 0]
        self._doubled += zip(twice[:1].tolist(), twice[-1:].tolist(), strict=True)
        return frames[steps > 0]

    def _check_dense(self, name: str, state: TableStream) -> None:
        if state.is_cut_off and not state.may_begin_with_snapshot:
            advice = _restart_advice(state.rules, f"`silverfold rebuild {self._feed} {name}`", self._floor)
            raise PositionGap(feed=self._feed, first=state.applied + 1, last=self._floor - 1, advice=advice)
        if state.is_misfit:
            advice = f"`silverfold rebuild {self._feed} {name}` makes it anew, of what there is alone"
            raise ReplacedBronze(feed=self._feed, first=state.applied, last=state.applied, advice=advice)
        for first, last in self._holes:
            if last >= state.applied:
                advice = "put its files back, or let a feed of another name begin anew"
                raise PositionGap(feed=self._feed, first=first, last=last, advice=advice)
        newest = max(self._landed, self._last)
        if state.applied > newest:
            advice = f"put its files back, or start `silverfold receive {self._feed}` (again): it begins behind them"
            raise PositionGap(feed=self._feed, first=newest + 1, last=state.applied, advice=advice)
        ahead = [(max(first, state.applied + 1), last) for first, last in self._doubled if last > state.applied]
        if ahead:
            raise DoubledPositions(feed=self._feed, first=ahead[0][0], last=ahead[-1][1])


def _state_without_cut(state: TableStream, newest_epoch: int) -> State:
    """Return the state of a table without a cut."""
    if state.rules.has_snapshots and state.synced_to() < state.sync_epoch(newest_epoch):
        return State.WAITING_FOR_SNAPSHOT
    return State.SYNCED if state.open_since(newest_epoch) is None else State.WAITING_FOR_UPDATE_END


def _restart_advice(rules: StreamRules, rebuild: str, floor: int) -> str:
    """Return advice for a table that lacks dropped frames."""
    if rules.base is not None:
        return f"{rebuild} makes the table anew from its base at position {rules.base}"
    if not rules.has_snapshots:
        return f"they were dropped while the table was not in the feed. To begin anew at position {floor}, remove it"
    return f"its history lacks what was dropped. To begin that anew at position {floor}, remove it and run {rebuild}"


def _horizon(pending: Updates, open_since: int | None, before: int | None) -> int:
    """Return the position that every update to apply must end before."""
    bounds = [bound for bound in (open_since, before) if bound is not None]
    if not bounds:
        return int(np.iinfo(np.int64).max)
    nearest = min(bounds)
    across = pending["begin"][(pending["begin"] < nearest) & (pending["end"] >= nearest)]
    return int(across.min()) if len(across) else nearest


def _count_within(limits: CutLimits, updates: Updates, sizes: FrameSizes | None) -> int:
    """Return how many of the updates, from the first, fit the limits of a cut."""
    count = _count_frames(limits.max_frames, updates)
    if sizes is None:
        return count
    landed = np.cumsum(_frames(updates) * sizes.of(updates["end"]))
    return min(count, int(np.searchsorted(landed, limits.max_bytes, side="right")))


def _count_frames(most: int, updates: Updates) -> int:
    """Return how many of the updates, from the first, have at most ``most`` frames together."""
    return int(np.searchsorted(np.cumsum(_frames(updates)), most, side="right"))


def _frames(updates: Updates) -> npt.NDArray[np.int64]:
    frames: npt.NDArray[np.int64] = updates["last"] - updates["first"] + 1
    return frames


def _build_cut(stream: str, applied: int, choice: Choice, count: int, beyond: int) -> Cut | None:
    if not len(choice.updates):
        return None
    further = int(np.argmax(choice.updates["end"] > beyond)) + 1  # 1 if there is none
    count = max(count, choice.whole, further if beyond >= 0 else 0)
    chosen = choice.updates[:count]
    in_order = chosen[np.argsort(chosen["begin"], kind="stable")]
    return Cut(
        stream=stream,
        epoch=int(chosen["epoch"][-1]),
        after=applied,
        last=int(chosen["end"][-1]),
        spans=spans_of(in_order),
        begins=tuple(in_order["begin"].tolist()),
        ends=tuple(in_order["end"].tolist()),
        replaces=choice.replaces,
        snapshot_end=int(chosen["end"][choice.whole - 1]) if choice.replaces else None,
        received=int(chosen["received"][-1]),
    )
