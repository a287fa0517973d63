"""How far a feed's silver tables have come, and on which bronze: positions alone do not identify a bronze table.

A commit's note records when the frame at its position was received. Bronze that lost its newest frames and continued
has another frame there (`pipelines.planning.plan`). A receiver therefore begins after every position that silver has
reached, so that no position is used for two frames (`pipelines.landing.writer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from silverfold.pipelines.applying.cuts import app_id, newest_note, position_in
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.store import open_table

_EPOCH_0: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Reached(NamedTuple):
    """The position of a silver table, and the frame there."""

    position: int = -1
    """-1 if there is no table, or it has taken nothing."""
    epoch: int = 0
    """Epoch of that position; 0 if unknown."""
    received: int | None = None
    """When the frame there was received, in microseconds since 1970; None if unknown."""
    source_position: str | None = None
    """Source position of that frame; None if the source gives none."""


NOTHING: Final = Reached()


def reached(places: Places, feed: str, table: str) -> Reached:
    """Return the position of a silver table, from its own log. Raises StoreUnavailable."""
    opened = open_table(places.silver(feed, table))
    position, note = position_in(opened, app_id(feed, table)), newest_note(opened)
    if note is None or note.last_position != position:
        return Reached(position)
    received = None if note.landed_at is None else (note.landed_at - _EPOCH_0) // _MICROSECOND
    return Reached(position, note.epoch, received, note.source_position)


def all_reached(places: Places, feed: str, tables: Iterable[str]) -> dict[str, Reached]:
    """Return the positions of some tables of a feed, by name. Raises StoreUnavailable."""
    return {table: reached(places, feed, table) for table in tables}


def was_replaced(bronze: Place, lost: Sequence[tuple[int, int]], now: Reached) -> bool:
    """Return whether bronze lost the table's position and has since replaced it with other frames.

    This is so if the frame before the lost ones was received after the table's. Raises StoreUnavailable.
    """
    from silverfold.pipelines.landing.bronze import landing_at  # noqa: PLC0415 - imports pandas, which receivers need not load

    first = next((first for first, last in lost if first <= now.position <= last), None)
    before = None if first is None or now.received is None else landing_at(bronze, first - 1)
    return before is not None and now.received is not None and before.received > now.received


def is_on_other_bronze(bronze: Place, lost: Sequence[tuple[int, int]], now: Reached) -> bool:
    """Return the same, also if bronze has a frame at the table's position. Raises StoreUnavailable."""
    from silverfold.pipelines.landing.bronze import landing_at  # noqa: PLC0415 - as above

    found = landing_at(bronze, now.position)
    return was_replaced(bronze, lost, now) if found is None else now.received not in (None, found.received)


def farthest(places: Places, feed: str, tables: Mapping[str, Reached]) -> Reached:
    """Return the farthest position known from some tables of a feed and their quarantines, and the newest epoch.

    Raises:
        StoreUnavailable: The quarantine cannot be read now.
    """
    bad = (each.position for table in tables for each in quarantined(places, feed, table))
    positions = (-1, *(each.position for each in tables.values()), *bad)
    return Reached(max(positions), max((each.epoch for each in tables.values()), default=0))


def source_positions(tables: Mapping[str, Reached]) -> dict[str, str]:
    """Return the source position of the last frame that each table has, under ``silver/<table>``.

    They are not keyed by stream: where bronze was lost, positions do not show whether it or a table is further. The
    source's positions do.
    """
    known = {f"silver/{table}": found.source_position for table, found in tables.items()}
    return {name: position for name, position in known.items() if position is not None}


def moment(received: int | None) -> datetime | None:
    """Return a receive time in microseconds since 1970 as a datetime."""
    return None if received is None else _EPOCH_0 + received * _MICROSECOND
