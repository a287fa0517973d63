"""What the store records of a silver table and its companion tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.holding.quarantine_log import Hold, quarantined
from silverfold.pipelines.landing.losses import losses_of, was_replaced
from silverfold.pipelines.landing.ranges import is_inside
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.companions import GONE, Companion, Part, companion_of, lost_cuts, parts_of
from silverfold.pipelines.storage.cuts import CutRow, built_otherwise, emptied_since_whole, newest_note
from silverfold.pipelines.storage.silver_position import NO_POSITION, SilverPosition, silver_position
from silverfold.pipelines.store import count_rows, naming_the_store, open_table
from silverfold.pipelines.upkeep.beginnings import base_needed, begins_at
from silverfold.pipelines.verifying.compared_rows import degraded_rows


@dataclass(frozen=True)
class Built:
    """What the store records of one silver table.

    Args:
        now: Its position, from its own log.
        is_misfit: `pipelines.landing.losses.was_replaced`.
        exists: There is a table.
        quarantined: The newest event of each quarantined position, by position.
        versions: Number of versions in its history.
        begins_at: `pipelines.upkeep.beginnings.begins_at`.
        base: `pipelines.upkeep.beginnings.base_needed`.
        otherwise: `TableStatus.built_otherwise`.
        lacking: `pipelines.landing.losses.Losses.lacking`.
        emptied: `pipelines.storage.cuts.emptied_since_whole`.
    """

    exists: bool = False
    now: SilverPosition = NO_POSITION
    is_misfit: bool = False
    rows: int | None = None
    quarantined: Sequence[Hold] = ()
    last_cut: CutRow | None = None
    versions: int | None = None
    tombstones: int | None = None
    side_count: int | None = 0
    degraded_keys: int = 0
    begins_at: int = 0
    base: int | None = None
    otherwise: str | None = None
    lacking: Sequence[tuple[int, int]] = ()
    emptied: int | None = None


def read_built(
    places: Places,
    connector: Connector,
    feed: Feed,
    table: str,
    last_cut: CutRow | None,
    *,
    lost: Sequence[tuple[int, int]],
) -> Built:
    """Return what the store records of one silver table, its history and tombstones.

    Args:
        lost: `pipelines.landing.bronze_table.lost_from`.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    known = quarantined(places, feed.name, table)
    held = [each for each in known if not (each.holds and is_inside((each.position, each.position), lost))]
    place = places.silver(feed.name, table)
    opened, begins = open_table(place), begins_at(places, connector, feed, table)
    base = base_needed(places, connector, feed, table)
    if opened is None:
        return Built(quarantined=held, begins_at=begins, base=base)
    parts = parts_of(connector, feed.tables[table])
    with naming_the_store(place):
        now = silver_position(places, feed.name, table)
        companions = {part: companion_of(places, feed.name, table, part, opened) for part in parts}
        counts = {
            part: None if each.committed is None else count_rows(each.committed) for part, each in companions.items()
        }
        return Built(
            True,
            now,
            was_replaced(places.bronze(feed.name), lost, now),
            count_rows(opened),
            held,
            last_cut,
            versions=counts.get("history"),
            tombstones=counts.get("tombstones"),
            side_count=0 if companions["aside"].committed is None else counts["aside"],
            degraded_keys=len(degraded_rows(places, connector, feed, table, opened.version()).keys),
            begins_at=begins,
            base=base,
            otherwise=_missing_part(place, opened, companions)
            or built_otherwise(places, connector, feed, table, feed.tables[table].keys),
            lacking=losses_of(places, connector, feed, table).lacking,
            emptied=emptied_since_whole(places, feed.name, table),
        )


def _missing_part(place: Place, opened: DeltaTable, companions: Mapping[Part, Companion]) -> str | None:
    """Return what a table or its companions lack, so that no cut is applied to it; None if they lack nothing."""
    if (lost := lost_cuts(place, opened)) is not None:
        return lost
    note = newest_note(opened)
    if "history" in companions and note is not None and note.history is None:
        return "it is to keep a history, and was built without"
    return next((GONE[part] for part, each in companions.items() if each.is_gone), None)
