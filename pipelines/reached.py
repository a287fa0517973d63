"""How far a feed's silver tables have come, and of which bronze: positions alone do not tell one bronze from another.

A commit's note says when the frame at its position was received. Bronze that lost its newest frames, and went on, has
another frame there (`pipelines.plan`); and a receiver begins behind every position that silver has reached, so that
no position stands for two frames (`pipelines.writer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from pipelines.cuts import app_id, newest_note, position_in
from pipelines.places import Place, Places
from pipelines.quarantine_log import quarantined
from pipelines.store import open_table

_EPOCH_0: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Reached(NamedTuple):
    """Where a silver table stands."""

    position: int = -1
    """-1 where there is no table, or it has taken nothing."""
    epoch: int = 0
    """Of that position; 0 where it is not known."""
    received: int | None = None
    """When the frame there was received, in microseconds since 1970; None where that is not known."""
    source_position: str | None = None
    """Where the source says that frame was; None where it says nothing."""


NOTHING: Final = Reached()


def reached(places: Places, feed: str, table: str) -> Reached:
    """Return where a silver table stands, from its own log. Raises StoreUnavailable."""
    opened = open_table(places.silver(feed, table))
    position, note = position_in(opened, app_id(feed, table)), newest_note(opened)
    if note is None or note.last_position != position:
        return Reached(position)
    received = None if note.landed_at is None else (note.landed_at - _EPOCH_0) // _MICROSECOND
    return Reached(position, note.epoch, received, note.source_position)


def all_reached(places: Places, feed: str, tables: Iterable[str]) -> dict[str, Reached]:
    """Return where some tables of a feed stand, by name. Raises StoreUnavailable."""
    return {table: reached(places, feed, table) for table in tables}


def stands_on_another(bronze: Place, lost: Sequence[tuple[int, int]], now: Reached) -> bool:
    """Tell whether a table's position, which bronze has lost, is that of frames in whose stead it has got others.

    So it is where the frame before the lost ones was received after the table's. Raises StoreUnavailable.
    """
    from pipelines.bronze import landing_at  # noqa: PLC0415 - pandas, which receivers need not load

    first = next((first for first, last in lost if first <= now.position <= last), None)
    before = None if first is None or now.received is None else landing_at(bronze, first - 1)
    return before is not None and now.received is not None and before.received > now.received


def is_of_another(bronze: Place, lost: Sequence[tuple[int, int]], now: Reached) -> bool:
    """Tell the same whether bronze has lost the table's position or has a frame there. Raises StoreUnavailable."""
    from pipelines.bronze import landing_at  # noqa: PLC0415 - as above

    found = landing_at(bronze, now.position)
    return stands_on_another(bronze, lost, now) if found is None else now.received not in (None, found.received)


def farthest(places: Places, feed: str, tables: Mapping[str, Reached]) -> Reached:
    """Return the farthest position that some tables of a feed, and what is known of bad frames, name; the newest epoch.

    Raises:
        StoreUnavailable: What is known of bad frames cannot be read now.
    """
    bad = (each.position for table in tables for each in quarantined(places, feed, table))
    positions = (-1, *(each.position for each in tables.values()), *bad)
    return Reached(max(positions), max((each.epoch for each in tables.values()), default=0))


def source_positions(tables: Mapping[str, Reached]) -> dict[str, str]:
    """Return the source position of the last frame that each table has, by ``silver/`` and its name.

    Not by stream: where bronze was lost, positions do not tell whether it or a table is further. The source's do.
    """
    known = {f"silver/{table}": found.source_position for table, found in tables.items()}
    return {name: told for name, told in known.items() if told is not None}


def moment(received: int | None) -> datetime | None:
    """Return when a frame was received, of microseconds since 1970."""
    return None if received is None else _EPOCH_0 + received * _MICROSECOND
