"""The positions from which a table and its history are complete: frames may have been dropped, or history restarted."""

from __future__ import annotations

from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.commit_note import HISTORY_BEGINS, REBUILT
from silverfold.pipelines.storage.cuts import CutRow, all_cuts, current_cuts, position_reached


def begins_at(places: Places, connector: Connector, feed: Feed, table: str) -> int:
    """Return the position from which a table has every update although bronze was dropped before it; 0 for all.

    Only a table without snapshots that was added to a feed late begins in the middle. Any other begins with a snapshot,
    and nothing is dropped while such a table is in the feed. Raises StoreUnavailable.
    """
    floor = retained_from(places.bronze(feed.name), feed.name)
    if not floor or connector.has_snapshots(feed.tables[table]):
        return 0
    cuts = current_cuts(all_cuts(places, feed.name, [table]))
    if cuts:
        return floor if cuts[0].first_position >= floor else 0
    return floor if position_reached(places, feed.name, table) < 0 else 0


def history_begins_at(places: Places, feed: str, table: str) -> int:
    """Return the position at which a rebuild restarted a table's history; 0 if none did. Raises StoreUnavailable."""
    rebuilt = history_rebuilt(places, feed, table)
    return 0 if rebuilt is None else rebuilt.notes.get(HISTORY_BEGINS, 0)


def history_rebuilt(places: Places, feed: str, table: str) -> CutRow | None:
    """Return the rebuild that made a table's history, from its ``first_position`` on; None without one.

    Raises StoreUnavailable.
    """
    rebuilt = [cut for cut in current_cuts(all_cuts(places, feed, [table])) if REBUILT in cut.notes]
    return rebuilt[-1] if rebuilt else None
