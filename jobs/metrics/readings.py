"""What the store says of feeds at one moment: the status of each, and totals over the list of its cuts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
import structlog

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.status import FeedStatus, read_readable
from silverfold.pipelines.storage import ledger
from silverfold.pipelines.storage.cuts import FAILED_RULE, SCHEMA

_SUMS = ("seconds", "inserted", "updated", "deleted")


@dataclass(frozen=True)
class CutTotals:
    """Totals over all listed cuts of a table.

    Args:
        timed: Number of cuts whose time is known.
        failures: Rows that failed each rule: those of the settings, and others that some row failed.
    """

    timed: int = 0
    seconds: float = 0.0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FeedReading:
    """One feed.

    Args:
        is_whole: All of it could be read.
        status: Its status, with the tables that could be read; None if none could.
        cuts: Totals of each table of the settings.
    """

    feed: str
    is_whole: bool = False
    status: FeedStatus | None = None
    cuts: Mapping[str, CutTotals] = field(default_factory=dict)


def read_feeds(places: Places, feeds: Sequence[tuple[Connector, Feed]]) -> list[FeedReading]:
    """Read some feeds. One that cannot be read, or that fails by a bug, is logged and leaves the others."""
    return [_read(places, connector, feed) for connector, feed in feeds]


def _read(places: Places, connector: Connector, feed: Feed) -> FeedReading:
    log = structlog.get_logger("metrics").bind(feed=feed.name)
    try:
        status, errors = read_readable(places, connector, feed, now=datetime.now(UTC))
        for error in errors:
            log.warning("cannot be read", reason=str(error))
        return FeedReading(feed.name, not errors, status, {} if status is None else cut_totals(places, feed))
    except SilverfoldError as error:
        log.warning("cannot be read", reason=str(error))
    except Exception as bug:  # a bug with one feed must not affect the others
        log.error("cannot be read", exc_info=bug)
    return FeedReading(feed.name)


def cut_totals(places: Places, feed: Feed) -> Mapping[str, CutTotals]:
    """Return totals over the list of cuts for each table of a feed. Raises StoreUnavailable."""
    listed = ledger.read(places.cuts(feed.name), SCHEMA, columns=("table", *_SUMS, "notes"))
    sums = listed.group_by("table").aggregate([("seconds", "count"), *((name, "sum") for name in _SUMS)])
    failures = {name: Counter(dict.fromkeys(table.expect, 0)) for name, table in feed.tables.items()}
    failing = listed.filter(pc.match_substring(listed["notes"], FAILED_RULE))
    for row in failing.select(["table", "notes"]).to_pylist():
        failures.get(row["table"], Counter[str]()).update(_failures(row["notes"]))
    totals = {name: CutTotals(failures=found) for name, found in failures.items()}
    for row in sums.to_pylist():
        if row["table"] in totals:
            summed: dict[str, Any] = {name: row[f"{name}_sum"] or 0 for name in _SUMS}
            totals[row["table"]] = replace(totals[row["table"]], timed=row["seconds_count"], **summed)
    return totals


def _failures(notes: str) -> dict[str, int]:
    """Return the number of rows that failed each rule in one cut."""
    counts: dict[str, int] = json.loads(notes)
    return {name.removeprefix(FAILED_RULE): count for name, count in counts.items() if name.startswith(FAILED_RULE)}
