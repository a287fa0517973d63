"""From where on a table and its history tell everything: frames may be dropped, or a rebuild have begun anew."""

from __future__ import annotations

from typing import Final

from connectors.base import Connector, Feed
from pipelines.bronze_table import retained_from
from pipelines.cuts import CutRow, all_cuts, position_reached, standing
from pipelines.places import Places

REBUILT: Final = "rebuilt"
"""Note of the cut that a rebuild puts in the stead of all others."""

HISTORY_BEGINS: Final = "history_begins"
"""Note of the same cut: from where on it made the history, where it let it begin anew."""


def begins_at(places: Places, connector: Connector, feed: Feed, table: str) -> int:
    """Return the position from which on a table has every update, though bronze was dropped before it; 0 for all.

    Only a table without snapshots that is added to a feed so late begins in the middle: any other begins with a
    snapshot, and while such a table is in the feed nothing is dropped. Raises StoreUnavailable.
    """
    floor = retained_from(places.bronze(feed.name), feed.name)
    if not floor or connector.has_snapshots(feed.tables[table]):
        return 0
    cuts = standing(all_cuts(places, feed.name, [table]))
    if cuts:
        return floor if cuts[0].first_position >= floor else 0
    return floor if position_reached(places, feed.name, table) < 0 else 0


def history_begins_at(places: Places, feed: str, table: str) -> int:
    """Return the position at which a rebuild let a table's history begin anew; 0 where none did.

    Raises StoreUnavailable.
    """
    rebuilt = history_rebuilt(places, feed, table)
    return 0 if rebuilt is None else rebuilt.notes.get(HISTORY_BEGINS, 0)


def history_rebuilt(places: Places, feed: str, table: str) -> CutRow | None:
    """Return the rebuild that made a table's history, from its ``first_position`` on; None where none did.

    Raises StoreUnavailable.
    """
    rebuilt = [cut for cut in standing(all_cuts(places, feed, [table])) if REBUILT in cut.notes]
    return rebuilt[-1] if rebuilt else None
