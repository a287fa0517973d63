"""Choose which pending updates go into a table's next cut: the rules of `pipelines.planning.plan`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.planning.updates import UPDATE, Bools, Frames, Indexes, UpdateFinder, Updates

_ONE_EPOCH = 0

NEVER = -1
"""Placeholder for an epoch or position that does not exist."""


class Choice(NamedTuple):
    """The updates a table may take, in landing order of their ends."""

    updates: Updates
    whole: int
    """How many of them, from the first, must share one cut: the snapshot and its overlay up to its end."""
    replaces: bool
    superseded: int
    target: int
    """Epoch of the table after them; `NEVER` if it has none and gets none."""


@dataclass
class TableStream:
    """One table's stream, rules and position, and its pending updates."""

    stream: str
    rules: StreamRules
    floor: int
    applied: int = field(init=False)
    landed: int = field(init=False)
    applied_epoch: int | None = field(init=False)
    is_misfit: bool = field(init=False, default=False)
    """Bronze's frame at the applied position is not the one that was applied: it was received at another time."""
    _floor_epoch: int | None = field(init=False, default=None)
    _finder: UpdateFinder = field(init=False, default_factory=UpdateFinder)
    _pending: list[Updates] = field(init=False, default_factory=lambda: [np.empty(0, UPDATE)])

    def __post_init__(self) -> None:
        self.applied = self.landed = self.rules.applied
        self.applied_epoch, self.is_misfit = self.rules.applied_epoch, self.rules.is_misfit

    @property
    def is_cut_off(self) -> bool:
        """Whether bronze no longer has frames of the table that follow the applied position.

        A table that is gone is cut off as well if it has a base, which a rebuild begins from.
        """
        if self.rules.complete is not None and self.applied >= self.rules.complete:
            return False
        return (self.applied >= 0 or self.rules.base is not None) and self.applied < self.floor - 1

    @property
    def may_begin_with_snapshot(self) -> bool:
        """Whether the table, once cut off, may continue with a snapshot: it needs no row versions in between."""
        return self.rules.has_snapshots and not self.rules.every_update

    def learn_epoch(self, frames: Frames) -> None:
        """Learn the epochs of the applied position and of the floor from their frames, if these are among them."""
        if self.floor and frames["position"][0] == self.floor:
            self._floor_epoch = int(frames["epoch"][0])
        if self.applied_epoch is not None or self.applied < 0:
            return
        found = frames[frames["position"] == self.applied]
        if len(found):
            self.applied_epoch, received = int(found["epoch"][0]), int(found["received"][0])
            self.is_misfit = self.applied == self.rules.applied and self.rules.received not in (None, received)

    def add_frames(self, frames: Frames) -> None:
        """Add the stream's next frames (`pipelines.planning.updates.by_stream`)."""
        ahead = frames[np.searchsorted(frames["position"], self.applied, side="right") :]
        if len(ahead):
            self.landed = int(ahead["position"][-1])
            self._pending.append(self._finder.add_frames(ahead))

    def pending(self) -> Updates:
        """Return the complete updates not yet applied, in landing order of their ends."""
        if len(self._pending) > 1:
            self._pending = [np.concatenate(self._pending)]
        return self._pending[0]

    def open_since(self, newest_epoch: int) -> int | None:
        """Return the first position of an update whose end may still come; None without one."""
        opened = self._finder.open
        return opened[0] if opened and opened[1] == newest_epoch else None

    def advance_to(self, position: int, newest: int) -> None:
        """Record that a position is reached; ``newest`` is the newest position fed."""
        pending = self.pending()
        passed = int(np.searchsorted(pending["end"], position, side="right"))
        if position > newest:
            self.applied_epoch = None
        elif passed:
            self.applied_epoch = int(pending["epoch"][passed - 1])
        opened = self._finder.open
        if opened and opened[0] <= position:
            self._finder.forget_open()
        self._pending = [pending[passed:].copy()]
        self.applied, self.landed = position, max(self.landed, position)

    def choose(self, usable: Updates, past: int | None) -> Choice:
        """Return what the next cuts take of these updates; ``past`` as in `Planner.plan`."""
        if not self.rules.has_snapshots:
            return Choice(usable, 1, replaces=False, superseded=0, target=NEVER)
        if self._floor_epoch is not None and self.applied < self.floor:
            usable = self._drop_overlaid(usable, self.sync_epoch(self._floor_epoch))
        if self.rules.every_update:
            usable = self._next_stretch(usable, past)
        snapshots = np.flatnonzero(usable["snapshot"])
        if len(snapshots):
            return self._replace(usable, snapshots)
        target = self.synced_to()
        return Choice(usable[self._epochs(usable) == target], 1, replaces=False, superseded=0, target=target)

    def alive(self, pending: Updates, choice: Choice, newest_epoch: int) -> Bools:
        """Return a mask of the pending updates that are chosen, or may be chosen once more has landed."""
        chosen: Bools = np.isin(pending["end"], choice.updates["end"])
        if not self.rules.has_snapshots:
            return np.ones(len(pending), np.bool_)
        snapshot_end = choice.updates["end"][choice.whole - 1] if choice.replaces else NEVER
        epochs = self._epochs(pending)
        is_alive = (epochs == choice.target) | (epochs == self.sync_epoch(newest_epoch))
        if self.rules.every_update:
            is_alive |= np.isin(epochs, epochs[pending["snapshot"]])
        later: Bools = is_alive & (pending["end"] > snapshot_end)
        return chosen | later

    def _drop_overlaid(self, usable: Updates, torn: int) -> Updates:
        """Drop the first snapshot of an epoch whose beginning was dropped, if updates would overlay it.

        Whether they do is no longer known: there may have been a snapshot before them. Later snapshots are not overlaid
        by anything older.
        """
        of_epoch = self._epochs(usable) == torn
        snapshots = np.flatnonzero(of_epoch & usable["snapshot"])
        if not len(snapshots) or usable["asked"][snapshots[0]]:
            return usable
        first = snapshots[0]
        if not (of_epoch & ~usable["snapshot"] & (usable["begin"] < usable["begin"][first])).any():
            return usable
        known = usable.copy()
        known["asked"][snapshots] = True
        return np.delete(known, first)

    def _next_stretch(self, usable: Updates, past: int | None) -> Updates:
        """Return the updates before the first snapshot that the table can take, else those up to the second."""
        begins = usable["begin"][usable["snapshot"]]
        before = usable[usable["end"] < begins[0]] if len(begins) else usable
        if past is None and (not len(begins) or self.synced_to() in self._epochs(before)):
            return before
        ahead = begins if past is None else begins[begins > past]
        if not len(ahead):
            return usable[:0]
        return usable[usable["end"] < ahead[1]] if len(ahead) > 1 else usable

    def _replace(self, usable: Updates, snapshots: Indexes) -> Choice:
        """Return the latest snapshot, its overlay, and the updates that follow it in its epoch."""
        at, epochs, order = snapshots[-1], self._epochs(usable), np.arange(len(usable))
        target = int(epochs[at])
        is_first = target != self.synced_to() and target not in epochs[snapshots[:-1]] and not usable["asked"][at]
        overlays = (order > at) | is_first | (usable["begin"] > usable["begin"][at])
        chosen = (epochs == target) & ~usable["snapshot"] & overlays
        chosen[at] = True
        whole = int(np.count_nonzero(chosen[: at + 1]))
        return Choice(usable[chosen], whole, replaces=True, superseded=int(at) + 1 - whole, target=target)

    def synced_to(self) -> int:
        """Return the table's epoch; `NEVER` if it needs a snapshot first."""
        if self.applied < 0 or self.is_cut_off or self.applied_epoch is None:
            return NEVER
        return self.sync_epoch(self.applied_epoch)

    def sync_epoch(self, epoch: int) -> int:
        """Return the epoch as the table counts it: all are one for a connection that resumes."""
        return epoch if self.rules.resync else _ONE_EPOCH

    def _epochs(self, updates: Updates) -> npt.NDArray[np.integer[Any]]:
        return updates["epoch"] if self.rules.resync else np.full(len(updates), _ONE_EPOCH)
