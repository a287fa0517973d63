"""The positions of silver tables, and the frames there: positions alone do not identify a bronze table.

A commit's note records when the frame at its position was received. Bronze that lost its newest frames and continued
has another frame there (`pipelines.planning.plan`). A receiver therefore begins after every position that silver has
reached, so that no position is used for two frames (`pipelines.landing.writer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from silverfold.conf.unix_time import unix_micros
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.cuts import app_id, newest_note, position_in
from silverfold.pipelines.store import open_table


class SilverPosition(NamedTuple):
    """The position of a silver table, and the frame there."""

    position: int = -1
    """-1 if there is no table, or it has taken nothing."""
    epoch: int = 0
    """Epoch of that position; 0 if unknown."""
    received: int | None = None
    """When the frame there was received, in microseconds since 1970; None if unknown."""
    source_position: str | None = None
    """Source position of that frame; None if the source gives none."""


NO_POSITION: Final = SilverPosition()


def silver_position(places: Places, feed: str, table: str) -> SilverPosition:
    """Return the position of a silver table, from its own log. Raises StoreUnavailable."""
    opened = open_table(places.silver(feed, table))
    position, note = position_in(opened, app_id(feed, table)), newest_note(opened)
    if note is None or note.last_position != position:
        return SilverPosition(position)
    received = None if note.landed_at is None else unix_micros(note.landed_at)
    return SilverPosition(position, note.epoch, received, note.source_position)


def silver_positions(places: Places, feed: str, tables: Iterable[str]) -> dict[str, SilverPosition]:
    """Return the positions of some tables of a feed, by name. Raises StoreUnavailable."""
    return {table: silver_position(places, feed, table) for table in tables}


def source_positions(tables: Mapping[str, SilverPosition]) -> dict[str, str]:
    """Return the source position of the last frame of each table that knows it."""
    known = {table: found.source_position for table, found in tables.items()}
    return {name: position for name, position in known.items() if position is not None}
