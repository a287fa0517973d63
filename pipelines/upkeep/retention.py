"""Drop the oldest frames of bronze: those that no table needs any more, and that are old enough.

To continue, be verified and be rebuilt, a table needs every frame from the beginning of the last complete snapshot it
has applied. If that is the first of its epoch and overlaid by earlier updates, it needs the complete epoch, and the
frame before, from which a plan sees that the epoch is complete. A table whose stream has no snapshots needs what its
base (`pipelines.upkeep.bases`) has not: without one, or if something of it is gone, everything, unless nothing has
landed for it. One that keeps history of snapshots, and one with snapshots that is not built yet, need everything.

Below the *floor* only the control frames and marks of epochs that continue above it are retained, since later frames
are read with them. Streams without snapshots go on across epochs: where a feed has any, older control frames stay too,
but of those of the feed itself only the newest, or each that adds to others. The last frame stays in any case, from
which a receiver learns where it was. The floor is recorded in bronze's log by the commit that drops
(`pipelines.landing.bronze_table.retained_from`), so a plan that begins there knows that nothing is missing. What is
left must plan like all of it did: a snapshot that was not the first of its epoch must not become it while updates
before it are left. In that case the snapshot before it is retained too.

Bronze refuses deletes (``delta.appendOnly``). The property is lifted, the frames are dropped in one commit, and it is
set again. A run that dies in between has dropped all or nothing, and the next run sets it. A receiver that commits
meanwhile conflicts at most once, and retries by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from silverfold.conf.unix_time import unix_micros
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.frames import Boundary, Kind
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.landing.bronze_table import SCHEMA, lost_from, retained_from, retention_id
from silverfold.pipelines.landing.dropped import Dropped
from silverfold.pipelines.landing.losses import is_on_other_bronze
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.planning.updates import UPDATE, Frames, UpdateFinder, Updates, by_stream, read_frames
from silverfold.pipelines.storage.compaction import claim
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.storage.silver_position import silver_positions
from silverfold.pipelines.store import dataset_of, open_table, until_committed
from silverfold.pipelines.upkeep.beginnings import base_damage, begins_at, has_all_above

_APPEND_ONLY = "delta.appendOnly"

_FRAMES_AT_ONCE = 2_000
"""Number of frames held in memory while removing duplicates."""


class Need(NamedTuple):
    """What one table needs of bronze."""

    table: str
    first: int
    """Position of the first frame it needs."""
    reason: str
    snapshots: Updates
    """The snapshots of its epoch, up to the last one applied; none if it needs everything."""
    updates: Updates
    """The data updates that landed before that one, in the same epoch."""


@dataclass(frozen=True)
class Retention:
    """What may be dropped.

    Args:
        dropped_to: Floor before.
        floor: First position to retain; not above ``dropped_to`` if nothing may be dropped.
        epoch: Epoch of the floor.
        reasons: Why no more may be dropped: what sets the floor.
        doubled: First and last duplicate position (`remove_doubles`); None if there are none.
        tables: What the dropped frames are to each table without snapshots.
        older_control: Which control frames of each stream stay below the floor, whatever their epoch; None for none.
    """

    dropped_to: int
    floor: int
    epoch: int
    reasons: tuple[str, ...]
    doubled: tuple[int, int] | None = None
    tables: Mapping[str, Dropped] = field(default_factory=dict)
    older_control: Literal["newest", "distinct"] | None = None

    @property
    def drops(self) -> bool:
        """Whether anything may be dropped."""
        return self.floor > self.dropped_to


def plan_retention(places: Places, connector: Connector, feed: Feed, *, keep_since: datetime) -> Retention:
    """Return what may be dropped now. Reads bronze's small columns.

    Args:
        keep_since: Frames received from then on are retained in any case.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    bronze = places.bronze(feed.name)
    dropped_to, lost = retained_from(bronze, feed.name), lost_from(bronze)
    tables = silver_positions(places, feed.name, feed.tables)  # read before bronze grows further
    rules = {
        name: StreamRules.read(places, connector, feed, name, now, is_misfit=is_on_other_bronze(bronze, lost, now))
        for name, now in tables.items()
    }
    for name, each in rules.items():
        if each.base is not None and base_damage(places, connector, feed, name) is not None:
            rules[name] = replace(each, base=None)
    scan = _BronzeScan(list({each.stream: None for each in rules.values()}), unix_micros(keep_since))
    for batch in read_small_columns(bronze, after=dropped_to - 1):
        scan.take(batch)
    if scan.doubled is not None:
        first, last = scan.doubled
        return Retention(dropped_to, dropped_to, 0, (f"frames {first} to {last} are there twice",), scan.doubled)
    needs = [_need(name, each, scan, dropped_to) for name, each in rules.items()]
    young = scan.first_young if scan.first_young is not None else scan.last + 1
    needed = min((need.first for need in needs), default=young)
    floor = max(dropped_to, _safe_floor(min(young, needed, max(scan.last, 0)), needs))
    reasons = [f"{need.table} {need.reason}" for need in needs if need.first == needed]
    cuts = last_cuts(places, feed.name)
    left_out = {name: cut.last_position for name, cut in cuts.items() if name not in feed.tables}
    if young <= needed:
        reasons = [f"frames are kept since {keep_since:%Y-%m-%d %H:%M} UTC"]
    reasons += [
        f"{name}, which is not in the settings, stands at {position}: put back, it lacks what is dropped"
        for name, position in left_out.items()
        if dropped_to <= position + 1 < floor and open_table(places.silver(feed.name, name)) is not None
    ]
    dropped = {
        name: Dropped(
            floor,
            -1 if each.base is None or has_all_above(places, feed, name, floor) else each.base,
            begins_at(places, connector, feed, name),
        )
        for name, each in rules.items()
        if not each.has_snapshots
    }
    return Retention(
        dropped_to,
        floor,
        scan.epoch_of(floor),
        tuple(reasons),
        tables=dropped,
        older_control=("distinct" if connector.control_adds_up else "newest") if dropped else None,
    )


def drop_frames(bronze: Place, feed: str, retention: Retention) -> None:
    """Drop what may be dropped, in one commit. Safe to repeat, and to run alongside a receiver and builds.

    Raises:
        StoreUnavailable: It did not work this time. Bronze is unchanged.
    """
    try:
        until_committed(bronze, lambda: _drop(bronze, feed, retention))
    finally:
        keep_append_only(bronze)


def remove_doubles(bronze: Place, first: int, last: int) -> None:
    """Remove duplicate frames in an inclusive range of positions, in parts. Safe as `drop_frames` is.

    Raises:
        StoreUnavailable: It did not work this time. Parts not done yet are unchanged.
    """
    try:
        for begin in range(first, last + 1, _FRAMES_AT_ONCE):
            end = min(begin + _FRAMES_AT_ONCE - 1, last)
            until_committed(bronze, partial(_remove_doubles, bronze, begin, end))
    finally:
        keep_append_only(bronze)


def keep_append_only(bronze: Place) -> None:
    """Make bronze refuse deletes again, unless it already does. Also for runs that died. Raises StoreUnavailable."""
    until_committed(bronze, lambda: _refuse_deletes(bronze))


def _refuse_deletes(bronze: Place) -> None:
    table = open_table(bronze)
    if table is not None and not _is_append_only(table):
        table.alter.set_table_properties({_APPEND_ONLY: "true"})


def _open_for_deletes(bronze: Place) -> DeltaTable:
    table = open_table(bronze)
    assert table is not None, "something landed"
    claim(table, {_APPEND_ONLY: "false"})
    return table


def _remove_doubles(bronze: Place, first: int, last: int) -> None:
    table = _open_for_deletes(bronze)
    wanted = (ds.field("frame_seq") >= first) & (ds.field("frame_seq") <= last)
    frames = dataset_of(table).to_table(columns=SCHEMA.names, filter=wanted).sort_by("frame_seq")
    is_first = np.diff(frames["frame_seq"].to_numpy(), prepend=-1) > 0
    write_deltalake(
        table,
        frames.filter(pa.array(is_first)).cast(SCHEMA),
        mode="overwrite",
        predicate=f"frame_seq >= {first} AND frame_seq <= {last}",
    )


def _drop(bronze: Place, feed: str, retention: Retention) -> None:
    table = _open_for_deletes(bronze)
    records = [each for name, dropped in retention.tables.items() for each in dropped.transactions(feed, name)]
    write_deltalake(
        table,
        _frames_below(table, retention),
        mode="overwrite",
        predicate=f"frame_seq < {retention.floor}",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(retention_id(feed), retention.floor), *records]
        ),
    )


def _frames_below(table: DeltaTable, retention: Retention) -> pa.Table:
    """Return the frames below the floor that are needed to read those above it."""
    has_context = ds.field("kind").isin([Kind.CONTROL.value, Kind.MARK.value])
    is_standalone = ds.field("boundary") == Boundary.NONE.value
    below, wanted = ds.field("frame_seq") < retention.floor, ds.field("epoch") >= retention.epoch
    if retention.older_control is not None:
        is_control = ds.field("kind") == Kind.CONTROL.value
        is_of_feed = is_control & ds.field("stream").is_null()
        newest, epochs = _newest(table, below & is_control, retention)
        wanted = wanted & ~is_of_feed | ds.field("frame_seq").isin(newest) | is_of_feed & ds.field("epoch").isin(epochs)
    found = dataset_of(table).to_table(columns=SCHEMA.names, filter=below & has_context & is_standalone & wanted)
    return found.sort_by("frame_seq").cast(SCHEMA)


def _newest(table: DeltaTable, wanted: ds.Expression, retention: Retention) -> tuple[pa.Array, pa.Array]:
    """Return the positions of those control frames of any epoch that later frames are read with.

    Also the epochs of those that are of a stream: they are read with their connection's own.
    """
    columns = ["frame_seq", "epoch", "stream", "body"]
    found = dataset_of(table).to_table(columns=columns, filter=wanted).sort_by("frame_seq")
    by_content = ["stream", "body"] if retention.older_control == "distinct" else ["stream"]
    contents = zip(*(found[name].to_pylist() for name in by_content), strict=True)
    newest = dict(zip(contents, found["frame_seq"].to_pylist(), strict=True))
    positions = pa.array(sorted(newest.values()), pa.int64())
    is_of_stream = pc.and_(pc.is_in(found["frame_seq"], positions), pc.is_valid(found["stream"]))
    return positions, pc.unique(found.filter(is_of_stream)["epoch"])


def _is_append_only(table: DeltaTable) -> bool:
    return table.metadata().configuration.get(_APPEND_ONLY) == "true"


class _BronzeScan:
    """What one pass over bronze's small columns finds.

    Args:
        since: Microseconds since 1970.
    """

    def __init__(self, streams: Sequence[str], since: int) -> None:
        self._streams, self._since = streams, since
        self._finders = {name: UpdateFinder() for name in streams}
        self._found: dict[str, list[Updates]] = {name: [np.empty(0, UPDATE)] for name in streams}
        self._epochs: list[tuple[int, int]] = []
        self.first_young: int | None = None
        """Position of the first frame received since; None if there is none."""
        self.last = -1
        self.doubled: tuple[int, int] | None = None
        """First and last duplicate position."""

    def take(self, batch: pa.RecordBatch) -> None:
        frames = read_frames(batch, self._streams)
        twice = frames["position"][np.diff(frames["position"], prepend=self.last) == 0]
        if len(twice):
            self.doubled = (self.doubled[0] if self.doubled else int(twice[0]), int(twice[-1]))
        young = frames["position"][frames["received"] >= self._since]
        if self.first_young is None and len(young):
            self.first_young = int(young[0])
        self.last = int(frames["position"][-1])
        self._note_epochs(frames)
        for index, part in by_stream(frames).items():
            name = self._streams[index]
            self._found[name].append(self._finders[name].add_frames(part))

    def updates(self, stream: str) -> Updates:
        return np.concatenate(self._found[stream])

    def open_since(self, stream: str) -> int | None:
        """Return the first position of an update whose end may still come; None without one."""
        opened = self._finders[stream].open
        return opened[0] if opened and self._epochs and opened[1] == self._epochs[-1][1] else None

    def epoch_of(self, position: int) -> int:
        """Return the epoch of the frame at a position, or of the last before it."""
        return max((epoch for first, epoch in self._epochs if first <= position), default=0)

    def before_epoch(self, epoch: int) -> int:
        """Return the position before the first frame of an epoch."""
        return min(first for first, number in self._epochs if number == epoch) - 1

    def _note_epochs(self, frames: Frames) -> None:
        starts = np.flatnonzero(np.diff(frames["epoch"], prepend=-1))
        self._epochs += zip(frames["position"][starts].tolist(), frames["epoch"][starts].tolist(), strict=True)


def _need(table: str, rules: StreamRules, scan: _BronzeScan, dropped_to: int) -> Need:
    none = np.empty(0, UPDATE)
    taken = scan.updates(rules.stream)
    if not rules.has_snapshots and not rules.is_misfit:
        return _need_beyond_base(table, rules, scan)
    taken = taken[taken["end"] <= rules.applied]
    snapshots = taken[taken["snapshot"]]
    reason = _why_all(rules, dropped_to) or ("" if len(snapshots) else "stands on no whole snapshot")
    if reason:
        return Need(table, 0, f"{reason}: it needs every frame", none, none)
    last = snapshots[-1]
    same = taken["epoch"] == last["epoch"] if rules.resync else np.ones(len(taken), np.bool_)
    of_epoch, before = taken[same & taken["snapshot"]], taken[same & ~taken["snapshot"]]
    before = before[before["begin"] < last["begin"]]
    first = int(last["begin"])
    if len(of_epoch) == 1 and not last["asked"] and len(before):
        first = max(0, scan.before_epoch(int(last["epoch"]))) if rules.resync else 0
    return Need(table, first, f"stands on the snapshot at {int(last['begin'])}", of_epoch, before)


def _need_beyond_base(table: str, rules: StreamRules, scan: _BronzeScan) -> Need:
    """Return what a table without snapshots needs: the updates that its base has not, and an open one."""
    none, base = np.empty(0, UPDATE), -1 if rules.base is None else rules.base
    updates, opened = scan.updates(rules.stream), scan.open_since(rules.stream)
    later = updates["begin"][updates["end"] > base].tolist()
    first = min([*later, *([] if opened is None else [opened])], default=scan.last + 1)
    if rules.base is not None:
        return Need(table, first, f"stands on its base at {base}", none, none)
    if rules.applied < 0 and first > scan.last:
        return Need(table, first, "has taken nothing", none, none)
    return Need(table, 0, "has no snapshots: it needs every frame", none, none)


def _why_all(rules: StreamRules, dropped_to: int) -> str:
    """Return why a table needs every frame, whatever it has applied; empty if it does not."""
    if rules.every_update:
        return "keeps history"
    if rules.applied < 0:
        return "is not built"
    if rules.is_misfit:
        return "was built from another bronze"
    return "waits for a snapshot since frames were dropped without it" if rules.applied < dropped_to else ""


def _safe_floor(floor: int, needs: Sequence[Need]) -> int:
    """Return the highest floor, not above the given one, from which every table is planned as from the beginning."""
    lower = min((_safe_floor_for(floor, need) for need in needs), default=floor)
    return floor if lower == floor else _safe_floor(lower, needs)


def _safe_floor_for(floor: int, need: Need) -> int:
    """Lower the floor by one snapshot if the last would else become the first of its epoch and be wrongly overlaid."""
    if len(need.snapshots) < 2 or need.snapshots["asked"][-1]:
        return floor
    another = bool((need.snapshots["begin"][:-1] >= floor).any())
    overlays = bool((need.updates["begin"] >= floor).any())
    return floor if another or not overlays else int(need.snapshots["begin"][-2])


def describe(retention: Retention) -> str:
    """Return a message on what would be, or was, dropped, and why no more."""
    why = "; ".join(retention.reasons)
    if not retention.drops:
        return f"nothing to drop: {why}"
    return f"frames {retention.dropped_to} to {retention.floor - 1}: {why}"
