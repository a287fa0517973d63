"""The positions from which a table and its history are complete: frames may have been dropped, or history restarted."""

from __future__ import annotations

from silverfold.conf.errors import ApplyError, SchemaDrift, StoreUnavailable
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.holding.quarantine_log import PASSED_OVER, holds, quarantined
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.landing.dropped import base_position, dropped_of
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.commit_note import HISTORY_BEGINS, REBUILT
from silverfold.pipelines.storage.companions import companion_of, companion_place, parts_of
from silverfold.pipelines.storage.cuts import (
    CutRow,
    all_cuts,
    built_otherwise,
    current_cuts,
    emptied_since_whole,
    position_reached,
    read_cuts,
)
from silverfold.pipelines.store import open_table


def begins_at(places: Places, connector: Connector, feed: Feed, table: str) -> int:
    """Return the position from which a table has every update although bronze was dropped before it; 0 for all.

    Only a table without snapshots that was added to a feed late begins in the middle, or one that was removed with its
    base. Any other begins with a snapshot, or its base has what was dropped. Raises StoreUnavailable.
    """
    if connector.has_snapshots(feed.tables[table]):
        return 0
    dropped = dropped_of(places.bronze(feed.name), feed.name, table)
    if not dropped.floor:
        return 0
    if dropped.complete == -1:  # nothing that was dropped was of it
        return dropped.begins
    cuts = current_cuts(all_cuts(places, feed.name, [table]))
    if cuts:
        return dropped.floor if cuts[0].first_position >= dropped.floor else dropped.begins
    is_known = position_reached(places, feed.name, table) >= 0 or base_position(places, feed.name, table) is not None
    return dropped.begins if is_known else dropped.floor


def has_all_above(places: Places, feed: Feed, table: str, floor: int) -> bool:
    """Return whether a table has no update below a new floor, and none that was dropped. Raises StoreUnavailable."""
    dropped = dropped_of(places.bronze(feed.name), feed.name, table)
    if dropped.floor and dropped.complete != -1:
        return False
    cuts = current_cuts(all_cuts(places, feed.name, [table]))
    return bool(cuts) and cuts[0].first_position >= floor


def needs_from(places: Places, connector: Connector, feed: Feed, table: str) -> int:
    """Return the position from which bronze has to have every frame, for a table that is folded without a base.

    Raises StoreUnavailable.
    """
    dropped = dropped_of(places.bronze(feed.name), feed.name, table)
    has_snapshots = connector.has_snapshots(feed.tables[table])
    return dropped.floor if dropped.complete == -1 and not has_snapshots else begins_at(places, connector, feed, table)


def base_needed(places: Places, connector: Connector, feed: Feed, table: str) -> int | None:
    """Return the position of the base that a fold or rebuild of a table begins with, as bronze lacks frames before it.

    None if bronze has all, if the table begins later, or without a base. Raises StoreUnavailable.
    """
    floor = retained_from(places.bronze(feed.name), feed.name)
    if not floor or connector.has_snapshots(feed.tables[table]):
        return None
    if begins_at(places, connector, feed, table) == floor:
        return None
    return base_position(places, feed.name, table)


def base_misfit(places: Places, connector: Connector, feed: Feed, table: str) -> str | None:
    """Return why a table cannot begin with its base, with the way on; None if it can.

    Other settings made it, or it is damaged (`base_damage`). Raises StoreUnavailable.
    """
    why = built_otherwise(places.base(table), connector, feed, table, feed.tables[table].keys)
    if why is None and (why := base_damage(places, connector, feed, table)) is None:
        return None
    anew = f"to begin anew without what was dropped, remove {_in_the_way(places, feed.name, table)}"
    return f"bronze has not what its base is made of, and {why}: put that back; or, {anew}"


def base_damage(places: Places, connector: Connector, feed: Feed, table: str) -> str | None:
    """Return what a table's base lacks; None if nothing, or without a base. Raises StoreUnavailable.

    A power cut emptied a commit of it, a companion table with the rows that count is gone, or it was made before the
    table had a history.
    """
    base = places.base(table)
    if (version := emptied_since_whole(base, feed.name, table)) is not None:
        return f"commit {version} of {base.silver(feed.name, table)} is an empty file, as a power cut leaves"
    opened = open_table(base.silver(feed.name, table))
    for part in parts_of(connector, feed.tables[table]):
        found = companion_of(base, feed.name, table, part, opened)
        if found.is_gone:
            return f"the rows of {companion_place(base, feed.name, table, part)} are gone"
        if part == "history" and found.committed is None and position_reached(base, feed.name, table) >= 0:
            return "it was made without a history"
    return None


def _is_there(place: Place) -> bool:
    try:
        return open_table(place) is not None
    except StoreUnavailable:  # its log is damaged
        return True


def _in_the_way(places: Places, feed: str, table: str) -> str:
    """Return what is to be removed for a table to begin anew with what is left in bronze."""
    found = [place for place in (places.silver(feed, table), places.history(feed, table)) if _is_there(place)]
    return ", ".join(map(str, [*found, places.base(table).own(feed)]))


def advice_without_base(places: Places, feed: str, table: str) -> str:
    """Return the way on for a table that lacks frames which only a base, now gone, had."""
    there = _in_the_way(places, feed, table)
    return f"no base has what was there. To begin anew with what is left, remove {there}"


def rebuild_obstacle(places: Places, connector: Connector, feed: Feed, table: str) -> str | None:
    """Return why a base keeps a rebuild from making a table anew, with the way on; None if nothing known does.

    Raises StoreUnavailable.
    """
    given = (places, connector, feed, table)
    if connector.has_snapshots(feed.tables[table]):
        return None
    if base_needed(*given) is None:
        is_whole = needs_from(*given) == retained_from(places.bronze(feed.name), feed.name)
        return None if is_whole else advice_without_base(places, feed.name, table)
    drifts = (each.reason for each in holds(places, feed.name, table) if each.error_class == SchemaDrift.error_class)
    return base_misfit(*given) or next(drifts, None)  # the base has the columns that no longer fit


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


def check_passed_over(places: Places, side: Places, feed: str, table: str, goal: int) -> None:
    """Raise if a rebuild would lose versions of an existing history: those of updates that cannot be applied today.

    Args:
        side: Places of the rebuild.
        goal: Position of the table.
    """
    history = places.history(feed, table)
    if open_table(history) is None:
        return
    before = {each.position for each in quarantined(places, feed, table) if each.resolution == PASSED_OVER}
    snapshots = [cut for cut in read_cuts(side, feed, table=table) if cut.replaced]
    found = quarantined(side, feed, table)
    for each in (each for each in found if each.resolution == PASSED_OVER and each.position <= goal):
        end = next(cut.last_position for cut in snapshots if cut.last_position > each.position)
        if not any(each.position <= position <= end for position in before):
            reason = f"position {each.position} cannot be applied as things are set ({each.reason}): its history"
            lacks = f"would lack what came from there to the next snapshot. To begin it anew, remove {history}"
            raise ApplyError(f"{reason} {lacks}", table=table)
