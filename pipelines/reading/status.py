"""Report the state of a feed and its silver tables, from the store alone. Uses no Spark and writes nothing.

The models here are printed by ``silverfold status --json``: their names and meanings must not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import Field

from silverfold.conf.errors import PositionGap, StoreUnavailable
from silverfold.conf.model import CutLimits, Settings
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.feeds import OpenFeed
from silverfold.pipelines.holding.quarantine_log import Hold, HoldState, current_hold
from silverfold.pipelines.landing.bronze import last_position, read_small_columns
from silverfold.pipelines.landing.bronze_table import lost_from, retained_from
from silverfold.pipelines.places import Places, places_of
from silverfold.pipelines.planning.plan import Plan, Planner, State
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.reading.built import Built, read_built
from silverfold.pipelines.reading.connection_log import Mark, epoch_marks
from silverfold.pipelines.report import Report
from silverfold.pipelines.storage.cuts import CutRow, last_cuts


class TableState(StrEnum):
    """State of a table. The first that applies, in this order."""

    STOPPED = "stopped"
    """Bronze lacks positions the table has yet to pass, or has them twice."""
    HELD = "held"
    """A frame cannot be decoded, or a cut cannot be applied; the table stops before it."""
    NOT_BUILT = "not_built"
    """There is no silver table yet."""
    BEHIND = State.BEHIND.value
    WAITING_FOR_SNAPSHOT = State.WAITING_FOR_SNAPSHOT.value
    WAITING_FOR_UPDATE_END = State.WAITING_FOR_UPDATE_END.value
    SYNCED = State.SYNCED.value


class Fault(Report):
    """Why a table is held or stopped."""

    error_class: str
    """Stable name (`conf.errors`)."""
    reason: str
    position: int
    """Position of the bad frame, or the first that is missing or repeated."""
    since: datetime | None
    """When it was found; null for missing positions, which are searched for at each reading."""


class LastCut(Report):
    """The cut applied last."""

    position: int
    """Position the table reached with it."""
    delta_version: int
    committed_at: datetime
    seconds: float | None
    replaced: bool
    updates: int
    inserted: int
    updated: int
    deleted: int
    ignored: int


class TableStatus(Report):
    """One silver table. Positions are frame_seq; null means none."""

    table: str
    state: TableState
    fault: Fault | None
    """Null unless ``state`` is ``held`` or ``stopped``."""
    epoch: int | None
    """Epoch of the table; null before its first cut."""
    landed_position: int | None
    """Newest frame of the table's stream."""
    applied_position: int | None
    """Last frame applied, from the table's own log."""
    lag_updates: int
    """Complete updates landed and not applied."""
    lag_seconds: float
    """Age of the oldest of them since it was complete; 0 if there is none."""
    rows: int | None
    """Null if there is no table, or its files lack statistics."""
    last_cut: LastCut | None
    degraded: bool = False
    """The table continued without frames that cannot be decoded, or has `degraded_keys`: its rows may differ from the
    source's."""
    skipped_positions: tuple[int, ...] = ()
    """Those frames; none unless ``degraded``. A snapshot that passes them ends it."""
    versions: int | None = None
    """Versions in the table's history, ended ones included; null without a history, or if its files lack statistics."""
    tombstones: int | None = None
    """Remembered deletes, for a source-ordered source; null as above."""
    rows_aside: int | None = 0
    """Rows in the side table: they fail the table's rules, or are updates pending until their row arrives; null if the
    files lack statistics."""
    begins_at_position: int | None = None
    """Position from which the table has what landed: it was added after older frames were dropped, and no snapshot
    replaced them. Null if it lacks nothing."""
    base_position: int | None = None
    """Position of the base that ``verify`` and ``rebuild`` begin with, since frames before it were dropped. Null if
    bronze has all that they need."""
    built_otherwise: str | None = None
    """Which setting differs from those the table was built with, or which companion table is gone. The next cut holds,
    or, without a history, waits for a snapshot that corrects the table. Null if nothing differs."""
    warning: str | None = None
    """The receiver's newest mark for its stream in the newest epoch, if that is a warning: why there are no frames, or
    no snapshot. Null without one."""
    lacks_positions: tuple[tuple[int, int], ...] = ()
    """First and last of each range of positions that bronze lost before the table took them, and that no snapshot has
    replaced. They may have been of other streams."""
    emptied_version: int | None = None
    """Version of the table whose commit is an empty file, as a power cut leaves: rows may be missing. Null if there is
    none, or a later snapshot or rebuild has replaced the table."""
    degraded_keys: int = 0
    """Keys whose rows may lack a late change, in a table of partial updates; a whole row of the key ends it."""


class ReceiverState(StrEnum):
    """State of the feed's connection. A receiver that was killed reports nothing more: see ``landed_at``."""

    CONNECTED = "connected"
    CONNECTING = "connecting"
    """An epoch has begun; nothing was received in it."""
    LISTENING = "listening"
    """The same for a receiver that accepts connections."""
    CLOSED = "closed"


class ReceiverStatus(Report):
    """The receiver's last report on its connection."""

    state: ReceiverState
    since: datetime
    """When the epoch began, or was closed."""
    reason: str | None
    """Why it was closed; null while it is open."""
    error_class: str | None
    """Stable name of the error that closed it; null if none did."""


class FeedStatus(Report):
    """One feed."""

    feed: str
    connector: str
    epoch: int | None
    """Newest epoch; null if nothing has landed."""
    landed_position: int | None
    landed_at: datetime | None
    """When the newest frame of any stream was received."""
    receiver: ReceiverStatus | None
    """Null if it has never reported."""
    tables: tuple[TableStatus, ...]
    lost_positions: tuple[tuple[int, int], ...] = ()
    """First and last of each range of positions permanently lost from bronze."""
    source: dict[str, dict[str, float]] = Field(default_factory=dict)
    """The receiver's last report on its source, by part and measure; empty without one, or if it reported something
    else since, such as that it closed. Its connector's PROTOCOL.md explains the measures."""


class Status(Report):
    """Everything ``silverfold status --json`` prints."""

    at: datetime
    """When the store was read."""
    warehouse: str
    feeds: tuple[FeedStatus, ...]
    unreadable: tuple[str, ...] = ()
    """Why the feeds and tables that are not in ``feeds`` cannot be read now, each reason once."""


def read_all(settings: Settings, feeds: Sequence[OpenFeed]) -> Status:
    """Return the status of some feeds, as far as they can be read."""
    now, places = datetime.now(UTC), places_of(settings)
    answers = [read_readable(places, connector, feed, now=now) for connector, feed in feeds]
    return Status(
        at=now,
        warehouse=settings.warehouse,
        feeds=tuple(found for found, _ in answers if found is not None),
        unreadable=tuple(dict.fromkeys(str(error) for _, errors in answers for error in errors)),
    )


def read_status(places: Places, connector: Connector, feed: Feed, *, now: datetime) -> FeedStatus:
    """Return the status of a feed. Reads bronze's small columns from the smallest applied position on.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    cuts = last_cuts(places, feed.name)
    bronze, landed_at = places.bronze(feed.name), None
    floor, last, lost = retained_from(bronze, feed.name), last_position(bronze, feed.name), lost_from(bronze)
    built = {name: read_built(places, connector, feed, name, cuts.get(name), lost=lost) for name in feed.tables}
    rules = {
        name: StreamRules.read(places, connector, feed, name, each.now, is_misfit=each.is_misfit)
        for name, each in built.items()
    }
    planner = Planner(feed.name, rules, floor=floor, last=last, lost=lost)
    for batch in read_small_columns(bronze, after=planner.start - 1):
        planner.add_frames(batch)
        landed_at = batch["received_at"][-1].as_py()
    marks = epoch_marks(bronze, planner.epoch)
    newest = {name: marks.of_streams.get(connector.stream(feed, name)) for name in feed.tables}
    return FeedStatus(
        feed=feed.name,
        connector=connector.name,
        epoch=planner.epoch or None,
        landed_position=_position(max(planner.landed, last)),
        landed_at=landed_at,
        receiver=marks.of_feed
        and receiver_status(*marks.of_feed, planner.landed, listens=connector.listens_at(feed) is not None),
        tables=tuple(
            table_status(name, built[name], _try_plan(planner, name), newest=newest[name], now=now)
            for name in feed.tables
        ),
        lost_positions=tuple(lost),
        source={} if marks.of_feed is None else marks.of_feed[1].progress,
    )


def read_readable(
    places: Places, connector: Connector, feed: Feed, *, now: datetime
) -> tuple[FeedStatus | None, Sequence[StoreUnavailable]]:
    """Return the status of a feed with its readable tables, None if none is readable; and the errors of the others."""
    failed: dict[str, StoreUnavailable] = {}

    def of(*names: str) -> FeedStatus | None:
        try:
            return read_status(places, connector, replace(feed, tables={n: feed.tables[n] for n in names}), now=now)
        except StoreUnavailable as error:
            failed.setdefault(str(error), error)
            return None

    found = of(*feed.tables)
    if found is None and len(feed.tables) > 1:
        readable = [name for name in feed.tables if of(name) is not None]
        found = of(*readable) if readable else None
    return found, tuple(failed.values())


def table_status(
    name: str, built: Built, planned: Plan | PositionGap, *, newest: Mark | None = None, now: datetime
) -> TableStatus:
    """Return the status of one table.

    Args:
        planned: The planner's plan, or the error it raised.
        newest: The newest mark of its stream.
    """
    fault = _fault(built, planned)
    plan = planned if isinstance(planned, Plan) else None
    skipped = tuple(each.position for each in built.quarantined if _left_out(each, built.now.position))
    oldest = plan.oldest_waiting if plan else None
    return TableStatus(
        table=name,
        state=_state(built, planned, fault),
        fault=fault,
        epoch=plan.applied_epoch if plan else None,
        landed_position=_position(plan.landed if plan else -1),
        applied_position=_position(built.now.position),
        lag_updates=plan.backlog_updates if plan else 0,
        lag_seconds=max(0.0, (now - oldest).total_seconds()) if oldest else 0.0,
        rows=built.rows,
        last_cut=_last_cut(built.last_cut),
        degraded=bool(skipped or built.degraded_keys),
        skipped_positions=skipped,
        degraded_keys=built.degraded_keys,
        versions=built.versions,
        tombstones=built.tombstones,
        begins_at_position=built.begins_at or None,
        base_position=built.base,
        rows_aside=built.side_count,
        built_otherwise=built.otherwise,
        warning=None if newest is None else newest.warning,
        lacks_positions=tuple(built.lacking),
        emptied_version=built.emptied,
    )


def receiver_status(first: Mark, newest: Mark, landed: int, *, listens: bool = False) -> ReceiverStatus:
    """Return the state of the connection.

    Args:
        first: The mark that begins the newest epoch.
        newest: The newest mark of that epoch; may be the same.
        landed: Position of the feed's newest frame.
        listens: The receiver accepts connections.
    """
    if newest.end is not None:
        reason, error_class = newest.end
        return ReceiverStatus(
            state=ReceiverState.CLOSED, since=newest.received_at, reason=reason, error_class=error_class
        )
    unconnected = ReceiverState.LISTENING if listens else ReceiverState.CONNECTING
    state = ReceiverState.CONNECTED if landed > first.position else unconnected
    return ReceiverStatus(state=state, since=first.received_at, reason=None, error_class=None)


def _try_plan(planner: Planner, table: str) -> Plan | PositionGap:
    try:
        return planner.plan(table, CutLimits())
    except PositionGap as gap:
        return gap


def _fault(built: Built, planned: Plan | PositionGap) -> Fault | None:
    if isinstance(planned, PositionGap):
        return Fault(error_class=planned.error_class, reason=str(planned), position=planned.first, since=None)
    hold = current_hold(built.quarantined, built.now.position)
    if hold is None:
        return None
    return Fault(error_class=hold.error_class, reason=hold.reason, position=hold.position, since=hold.found_at)


def _left_out(found: Hold, applied: int) -> bool:
    return found.state(applied) is HoldState.SKIPPED and found.position <= applied


def _state(built: Built, planned: Plan | PositionGap, fault: Fault | None) -> TableState:
    if isinstance(planned, PositionGap):
        return TableState.STOPPED
    if fault is not None:
        return TableState.HELD
    return TableState(planned.state.value) if built.exists else TableState.NOT_BUILT


def _last_cut(cut: CutRow | None) -> LastCut | None:
    if cut is None:
        return None
    shared = {name: getattr(cut, name) for name in LastCut.model_fields if name != "position"}
    return LastCut(position=cut.last_position, **shared)


def _position(position: int) -> int | None:
    return None if position < 0 else position
