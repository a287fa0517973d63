"""What a silver table could not take: positions in the ledger ``_silverfold/<feed>/quarantine/<table>``.

A frame that cannot be decoded holds its table at the last good update. The ledger is a log of events; the newest event
of each position counts::

    held ──┬──▶ passed         a fixed decoder read it, or a snapshot superseded it
           ├──▶ passed over    superseded by a snapshot, in a table with history
           └──▶ skipped ──┬──▶ passed         a snapshot superseded it, or a fixed decoder read it meanwhile
                          ├──▶ left out       superseded by a snapshot, in a table with history: rows are right again
                          └──▶ skip undone    it holds again, as before

A snapshot restores the rows a skipped frame would have changed, but not their versions. The history of a table thus
lacks the frame for good, and a rebuild and ``verify`` leave it out as the build did. If the table held until the
snapshot, its history lacks the versions of all updates from the position on. ``verify`` leaves them out, and a rebuild
restores them if nothing holds it there any more.

Events are written with the clocks of several machines: an event never gets an earlier time than the one it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

import pyarrow as pa

from silverfold.pipelines.places import Places
from silverfold.pipelines.storage import ledger
from silverfold.pipelines.store import open_table

SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("update_position", pa.int64()),
        ("error_class", pa.string()),
        ("reason", pa.string()),
        ("found_at", pa.timestamp("us", "UTC")),
        ("resolved_at", pa.timestamp("us", "UTC")),
        ("resolution", pa.string()),
    ]
)

PASSED = "passed"
"""The table went beyond the position: a fixed decoder read it, or a snapshot superseded it."""
SKIPPED = "skipped"
"""The frame is not decoded; the table is degraded until a snapshot passes."""
PASSED_OVER = "passed over"
"""A snapshot has passed the hold: the history continues without the updates from there to the snapshot."""
LEFT_OUT = "left out"
"""A snapshot has passed the skipped frame, so the rows are right again; the history lacks its versions."""
UNDONE = "skip undone"
"""The frame is no longer left out: it holds again."""


class HoldState(StrEnum):
    """State of a quarantined position."""

    HOLDING = "holding"
    """The table is held before it."""
    SKIPPED = "skipped"
    """The table continues, or continued, without the frame."""
    RESOLVED = "resolved"
    """It is over: the table took it, or a snapshot superseded it."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """One position that holds, or held, a table.

    Args:
        position: frame_seq of the bad frame.
        update_position: Position of the first frame of its update: the table stops before it.
        error_class: Stable name of the error (`conf.errors`).
        resolved_at: Time of the newest event other than a hold.
        resolution: Outcome of that event: `PASSED`, `PASSED_OVER`, `SKIPPED`, `LEFT_OUT` or `UNDONE`; None without one.
    """

    position: int
    update_position: int
    error_class: str
    reason: str
    found_at: datetime
    resolved_at: datetime | None = None
    resolution: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the ledger prevents the table from continuing."""
        return self.resolution in (None, UNDONE)

    @property
    def is_left_out(self) -> bool:
        """Whether the frame is not to be decoded, by builds or by verification."""
        return self.resolution in (SKIPPED, LEFT_OUT)

    def state(self, applied: int) -> HoldState:
        """Return the state for a table that has reached ``applied``, even if its builder died before recording it."""
        if self.resolution == SKIPPED:
            return HoldState.SKIPPED
        return HoldState.HOLDING if self.holds and self.position > applied else HoldState.RESOLVED


def hold(places: Places, feed: str, table: str, found: Hold) -> None:
    """Record that a position holds the table. Safe to repeat: an equal record is not written again.

    Raises:
        StoreUnavailable: The quarantine cannot be read or written now.
    """
    known = {each.position: each for each in quarantined(places, feed, table)}.get(found.position)
    if known is None:
        _note(places, feed, table, [found])
    elif not known.holds or (known.error_class, known.reason) != (found.error_class, found.reason):
        _note(places, feed, table, [replace(found, found_at=_after(known, found.found_at))])


def holds(places: Places, feed: str, table: str) -> Sequence[Hold]:
    """Return the current holds of the table, by position; empty if it is not held. Raises StoreUnavailable."""
    return [known for known in quarantined(places, feed, table) if known.holds]


def current_hold(found: Iterable[Hold], applied: int) -> Hold | None:
    """Return the newest of the holds of a table at a position: older ones may be due to settings since changed."""
    holding = (hold for hold in found if hold.state(applied) is HoldState.HOLDING)
    return max(holding, key=lambda hold: hold.found_at, default=None)


def skip(places: Places, feed: str, table: str, found: Hold, *, now: datetime) -> None:
    """Record that a frame is to be left out; see `skip_all`."""
    skip_all(places, feed, table, [found], now=now)


def skip_all(places: Places, feed: str, table: str, found: Sequence[Hold], *, now: datetime) -> None:
    """Record that frames are to be left out, in one commit. Safe to repeat. Raises StoreUnavailable.

    Args:
        found: The frames, whether or not they were recorded before.
    """
    known = {each.position: each for each in quarantined(places, feed, table)} if found else {}
    events = []
    for each in found:
        before = known.get(each.position)
        if before is None:
            events.append(replace(each, resolved_at=max(now, each.found_at), resolution=SKIPPED))
        elif before.resolution != SKIPPED:
            events.append(_with_resolution(replace(each, found_at=before.found_at), before, SKIPPED, now))
    if events:
        _note(places, feed, table, events)


def pass_over(places: Places, feed: str, table: str, found: Hold) -> None:
    """Record that a position was passed over, copying another ledger. Safe to repeat. Raises StoreUnavailable."""
    assert found.resolved_at is not None
    known = {each.position: each for each in quarantined(places, feed, table)}.get(found.position)
    if known is None:
        _note(places, feed, table, [found])
    elif known.resolution != PASSED_OVER:
        _note(places, feed, table, [_with_resolution(found, known, PASSED_OVER, found.resolved_at)])


def copy_left_out(source: Places, target: Places, feed: str, table: str) -> None:
    """Copy left-out frames from one ledger of a table to another. Safe to repeat. Raises StoreUnavailable."""
    known = {each.position for each in quarantined(target, feed, table) if each.is_left_out}
    for each in (each for each in quarantined(source, feed, table) if each.is_left_out):
        if each.position not in known:
            skip(target, feed, table, each, now=each.resolved_at or each.found_at)


def undo_skip(places: Places, feed: str, table: str, skipped: Hold, *, now: datetime) -> None:
    """Record that a skipped frame is to be decoded after all: it holds again. Raises StoreUnavailable."""
    _note(places, feed, table, [_with_resolution(skipped, skipped, UNDONE, now)])


def resolve(
    places: Places, feed: str, table: str, resolution_of: Callable[[Hold], str | None], *, now: datetime
) -> Sequence[Hold]:
    """End the holds that have a resolution; return those ended. Safe to repeat.

    Args:
        resolution_of: Returns the resolution of a recorded position; None to leave it.

    Raises:
        StoreUnavailable: The quarantine cannot be read or written now.
    """
    found = [(known, resolution_of(known)) for known in quarantined(places, feed, table)]
    over = [_with_resolution(known, known, resolution, now) for known, resolution in found if resolution is not None]
    if over:
        _note(places, feed, table, over)
    return over


def quarantined(places: Places, feed: str, table: str) -> Sequence[Hold]:
    """Return the newest event of every position ever quarantined, by position. Raises StoreUnavailable."""
    events = ledger.read(places.quarantine(feed, table), SCHEMA).to_pylist()
    newest: dict[int, Hold] = {}
    for event in sorted((Hold(**event) for event in events), key=_event_time):
        newest[event.position] = event
    return [newest[position] for position in sorted(newest)]


def version(places: Places, feed: str, table: str) -> int:
    """Return a number that grows with the ledger, from its log alone; -1 before the first event."""
    opened = open_table(places.quarantine(feed, table))
    return -1 if opened is None else opened.version()


def _note(places: Places, feed: str, table: str, events: Sequence[Hold]) -> None:
    ledger.append(places.quarantine(feed, table), SCHEMA, [asdict(event) for event in events])


def _with_resolution(found: Hold, known: Hold, resolution: str, now: datetime) -> Hold:
    return replace(found, resolved_at=_after(known, now), resolution=resolution)


def _after(known: Hold, now: datetime) -> datetime:
    return max(now, _event_time(known)[0] + timedelta(microseconds=1))


def _event_time(event: Hold) -> tuple[datetime, bool]:
    return event.resolved_at or event.found_at, event.resolved_at is not None
