"""A slow, frame-by-frame implementation of the planner's rules, as the reference for `planning.plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from silverfold.pipelines.planning.plan import State
from silverfold.pipelines.planning.rules import StreamRules
from tests.support.bronze_rows import Row

Pairs: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Update:
    """A complete update: the positions of its first and last frame."""

    begin: int
    end: int
    epoch: int
    snapshot: bool
    requested: bool


@dataclass(frozen=True)
class NaivePlan:
    """The plan without size bounds: what to apply and what remains."""

    updates: Pairs
    """Positions of the first and last frame of each update, ordered by the first."""
    spans: Pairs
    replaces: bool
    state: State
    backlog: int
    unsplit_end: int
    """Lowest position at which the first cut may end."""


def naive_plan(history: Sequence[Row], stream: str, rules: StreamRules) -> NaivePlan:
    """Interpret a complete history, from position 0, for one stream."""
    newest = history[-1].epoch if history else 0
    ours = [
        row for row in history if row.stream == stream and (row.boundary != "none" or row.kind in ("data", "snapshot"))
    ]
    found, open_row = _whole_updates([row for row in ours if row.position > rules.applied])
    if open_row is not None and open_row.epoch < newest:
        open_row = None
    usable = [update for update in found if open_row is None or update.end < open_row.position]
    synced = _synced(history, rules)
    chosen, replaces, unsplit_end = _choose(usable, rules, synced)
    target = _key(chosen[-1].epoch, rules) if replaces else synced
    alive = {target, _key(newest, rules)}
    left = [
        update
        for update in found
        if not rules.has_snapshots
        or update in chosen
        or (update.end > unsplit_end and _key(update.epoch, rules) in alive)
    ]
    if chosen:
        state = State.BEHIND
    elif rules.has_snapshots and (synced is None or synced < _key(newest, rules)):
        state = State.WAITING_FOR_SNAPSHOT
    else:
        state = State.SYNCED if open_row is None else State.WAITING_FOR_UPDATE_END
    in_order = tuple(sorted((update.begin, update.end) for update in chosen))
    return NaivePlan(in_order, _spans(ours, in_order), replaces, state, len(left), unsplit_end)


def _whole_updates(ours: Sequence[Row]) -> tuple[list[Update], Row | None]:
    found: list[Update] = []
    opened: Row | None = None
    for row in ours:
        if opened is not None and opened.epoch != row.epoch:
            if row.boundary == "end":
                opened = None
                continue
            if row.boundary in ("begin", "whole"):
                opened = None
        if row.boundary == "begin":
            opened = row
        elif row.boundary == "whole":
            inside_snapshot = opened is not None and opened.kind != "data" and row.kind == "data"
            opened = opened if inside_snapshot else None
            found.append(Update(row.position, row.position, row.epoch, row.kind != "data", row.kind == "mark"))
        elif row.boundary == "end" and opened is not None:
            found.append(Update(opened.position, row.position, row.epoch, opened.kind != "data", opened.kind == "mark"))
            opened = None
    return found, opened


def _choose(usable: list[Update], rules: StreamRules, synced: int | None) -> tuple[list[Update], bool, int]:
    if not rules.has_snapshots:
        return usable, False, -1
    snapshots = [update for update in usable if update.snapshot]
    if not snapshots:
        return [update for update in usable if _key(update.epoch, rules) == synced], False, -1
    latest = snapshots[-1]
    epoch = _key(latest.epoch, rules)
    earlier = [update for update in snapshots[:-1] if _key(update.epoch, rules) == epoch]
    starts_epoch = not earlier and synced != epoch and not latest.requested
    chosen = []
    for update in usable:
        data = not update.snapshot and _key(update.epoch, rules) == epoch
        if update == latest or (data and (starts_epoch or update.end > latest.begin)):
            chosen.append(update)
    return chosen, True, latest.end


def _spans(ours: Sequence[Row], updates: Pairs) -> Pairs:
    spans: list[tuple[int, int]] = []
    joined = False
    for row in ours:
        if not any(begin <= row.position <= end for begin, end in updates):
            joined = False
        elif joined:
            spans[-1] = (spans[-1][0], row.position)
        else:
            spans.append((row.position, row.position))
            joined = True
    return tuple(spans)


def _synced(history: Sequence[Row], rules: StreamRules) -> int | None:
    return None if rules.applied < 0 else _key(history[rules.applied].epoch, rules)


def _key(epoch: int, rules: StreamRules) -> int:
    return epoch if rules.resync else 0
