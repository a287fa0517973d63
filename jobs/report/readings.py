"""What a report shows of a feed, as the store records it at one moment. Uses no Spark and writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from silverfold.conf.errors import StoreUnavailable
from silverfold.jobs.metrics.readings import cut_totals
from silverfold.pipelines.reading.connection_log import Epoch, newest_epochs
from silverfold.pipelines.reading.status import FeedStatus, TableState, TableStatus, read_readable
from silverfold.pipelines.storage import ledger
from silverfold.pipelines.storage.cuts import SCHEMA, CutRow, read_cuts
from silverfold.pipelines.verifying.verify_log import Verified, last_verified

if TYPE_CHECKING:
    from silverfold.connectors.base import Connector, Feed
    from silverfold.pipelines.places import Places

MOST_EPOCHS: Final = 200
MOST_CHARTED: Final = 12
"""Tables with charts."""
MOST_CUTS: Final = 1_000
"""Cuts in the charts of all tables. With both bounds, a page of cuts that do everything has about 1 MB."""
MOST_CUTS_OF_TABLE: Final = 400


@dataclass(frozen=True)
class ChartedTable:
    """One table.

    Args:
        cuts: Its newest cuts, oldest first; at least one.
        listed: Number of all its cuts.
    """

    status: TableStatus
    cuts: Sequence[CutRow]
    listed: int


@dataclass(frozen=True)
class FeedReading:
    """One feed.

    Args:
        at: When the store was read.
        status: Its status, with the tables that could be read.
        faults: Why the others, or the list of verifications, could not.
        epochs: Its newest epochs, oldest first.
        charted: The tables whose cuts are charted, as in the settings.
        failures: Rows that failed each rule, in all cuts, by table.
        verified: The last verification of each table.
    """

    at: datetime
    status: FeedStatus
    faults: Sequence[StoreUnavailable]
    epochs: Sequence[Epoch]
    charted: Sequence[ChartedTable]
    failures: Mapping[str, Mapping[str, int]]
    verified: Sequence[Verified]


def read_feed(places: Places, connector: Connector, feed: Feed, *, now: datetime) -> FeedReading:
    """Read what a report shows of a feed.

    Raises:
        StoreUnavailable: No table of it can be read now.
    """
    status, errors = read_readable(places, connector, feed, now=now)
    if status is None:
        raise errors[-1]
    verified, faults = list[Verified](), list(errors)
    try:
        verified += last_verified(places, feed.name)
    except StoreUnavailable as error:
        faults.append(error)
    return FeedReading(
        at=now,
        status=status,
        faults=faults,
        epochs=newest_epochs(places.bronze(feed.name), MOST_EPOCHS),
        charted=_charted(places, status),
        failures={table: totals.failures for table, totals in cut_totals(places, feed).items()},
        verified=verified,
    )


def _charted(places: Places, status: FeedStatus) -> Sequence[ChartedTable]:
    """Return the newest cuts of the tables that have any, of `MOST_CHARTED` by need of attention, then by time."""
    names = ledger.read(places.cuts(status.feed), SCHEMA, columns=("table",))["table"]
    listed = Counter({each["values"]: each["counts"] for each in names.value_counts().to_pylist()})
    ranked = sorted((table for table in status.tables if table.last_cut is not None), key=_urgency)[:MOST_CHARTED]
    most = min(MOST_CUTS_OF_TABLE, MOST_CUTS // max(len(ranked), 1))
    return [
        ChartedTable(table, read_cuts(places, status.feed, table=table.table, newest=most), listed[table.table])
        for table in status.tables
        if table in ranked
    ]


def _urgency(table: TableStatus) -> tuple[int, float]:
    assert table.last_cut is not None
    return list(TableState).index(table.state), -table.last_cut.committed_at.timestamp()
