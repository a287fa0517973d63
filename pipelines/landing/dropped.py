"""What the frames that bronze dropped are to a table whose stream has no snapshots, and whether its base has them.

The commit that drops frames (`pipelines.upkeep.retention`) records it in bronze's log for each such table of the feed:

=========================  =====================================================================================
``complete/<feed>/<table>``  a position plus 1: a table that has reached it lacks none of the frames
``begins/<feed>/<table>``    position from which it has what landed, if it was added after earlier frames had gone
``as_of/<feed>/<table>``     the floor of that commit: a later one was made without the table, which may lack frames
=========================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from deltalake import Transaction

from silverfold.pipelines.landing.bronze_table import open_bronze, retention_id
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.cuts import position_reached
from silverfold.pipelines.store import naming_the_store


class Dropped(NamedTuple):
    """What the dropped frames are to a table whose stream has no snapshots."""

    floor: int = 0
    """Position from which bronze has every frame."""
    complete: int | None = None
    """A table that has reached this position lacks none of them; -1 if none was an update of it. None if unknown."""
    begins: int = 0
    """Position from which the table has what landed; 0 for all."""

    def is_enough(self, position: int) -> bool:
        """Return whether a table at a position, with every update up to there, lacks nothing that was dropped."""
        return position >= self.floor - 1 or (self.complete is not None and position >= self.complete)

    def transactions(self, feed: str, table: str) -> Iterator[Transaction]:
        """Yield what the commit that drops the frames records."""
        assert self.complete is not None, "the table is in the feed"
        yield Transaction(f"complete/{feed}/{table}", self.complete + 1)  # Delta refuses negative ones
        yield Transaction(f"begins/{feed}/{table}", self.begins)
        yield Transaction(f"as_of/{feed}/{table}", self.floor)


def dropped_of(bronze: Place, feed: str, table: str) -> Dropped:
    """Return what the frames dropped so far are to a table. Raises StoreUnavailable."""
    with naming_the_store(bronze, of_its_log=True):
        opened = open_bronze(bronze)
        names = (retention_id(feed), *(f"{name}/{feed}/{table}" for name in ("complete", "begins", "as_of")))
        recorded = [None if opened is None else opened.transaction_version(name) for name in names]
    floor, complete, begins, as_of = recorded
    is_known = complete is not None and as_of == floor
    return Dropped(floor or 0, complete - 1 if complete is not None and is_known else None, begins or 0)


def base_position(places: Places, feed: str, table: str) -> int | None:
    """Return the position of a table's base; None without one, or if frames after it were dropped without the table.

    Raises StoreUnavailable.
    """
    position = position_reached(places.base(table), feed, table)
    if position < 0 or not dropped_of(places.bronze(feed), feed, table).is_enough(position):
        return None
    return position
