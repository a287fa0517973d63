"""What a silver table has, and what it lacks, of the frames that bronze lost (`landing.bronze_table.each_lost`).

A cut that ends at a lost position was made while its frame existed. No cut that ends after a loss contains lost frames,
because a receiver records a loss before it lands any later frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.landing.bronze_table import each_lost
from silverfold.pipelines.landing.ranges import Range, merge_adjacent
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.cuts import all_cuts, current_cuts
from silverfold.pipelines.storage.silver_position import SilverPosition


class Losses(NamedTuple):
    """The positions that bronze lost, as one table is affected by them."""

    taken: Sequence[Range] = ()
    """Ranges from which the table has taken frames: it can be neither rebuilt nor verified."""
    untouched: Sequence[Range] = ()
    """The other ranges."""
    lacking: Sequence[Range] = ()
    """Ranges, and parts of them, that it has not taken and no snapshot has replaced."""


def losses_of(places: Places, connector: Connector, feed: Feed, table: str) -> Losses:
    """Return what a table has and lacks of the positions that bronze lost. Raises StoreUnavailable."""
    each_time = each_lost(places.bronze(feed.name))
    if not each_time:
        return Losses()
    cuts = current_cuts(all_cuts(places, feed.name, [table]))
    snapshots = connector.has_snapshots(feed.tables[table])
    newest = max((cut.first_position for cut in cuts if cut.replaced and snapshots), default=-1)
    ends = [cut.last_position for cut in cuts]
    lost = merge_adjacent(each_time)
    taken = [(first, last) for first, last in lost if any(first <= end <= last for end in ends)]
    untouched = [each for each in lost if each not in taken]
    lacking: list[Range] = []
    for first, last in each_time:
        reached = max((end for end in ends if first <= end <= last), default=first - 1)
        if reached < last and newest <= last:
            lacking.append((reached + 1, last))
    return Losses(taken, untouched, lacking)


def was_replaced(bronze: Place, lost: Sequence[tuple[int, int]], now: SilverPosition) -> bool:
    """Return whether bronze lost the table's position and has since replaced it with other frames.

    This is so if the frame before the lost ones was received after the table's. Raises StoreUnavailable.
    """
    from silverfold.pipelines.landing.bronze import landing_at  # noqa: PLC0415 - imports pandas, which receivers need not load

    first = next((first for first, last in lost if first <= now.position <= last), None)
    before = None if first is None or now.received is None else landing_at(bronze, first - 1)
    return before is not None and now.received is not None and before.received > now.received


def is_on_other_bronze(bronze: Place, lost: Sequence[tuple[int, int]], now: SilverPosition) -> bool:
    """Return the same, also if bronze has a frame at the table's position. Raises StoreUnavailable."""
    from silverfold.pipelines.landing.bronze import landing_at  # noqa: PLC0415 - as above

    found = landing_at(bronze, now.position)
    return was_replaced(bronze, lost, now) if found is None else now.received not in (None, found.received)
