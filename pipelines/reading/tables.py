"""Reads one table that feeds make as a DataFrame, as of now, a position or a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from silverfold.conf.errors import QueryFailed
from silverfold.connectors.registry import open_feed
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.places import Places, history_of, places_of, side_table_of
from silverfold.pipelines.reading.time_travel import as_of
from silverfold.pipelines.reading.views import find_table, table_rows
from silverfold.pipelines.store import open_table
from silverfold.transforms.spark_errors import named_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from silverfold.conf.model import Settings


def queryable_names(places: Places, feed: str, tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the names of a feed's tables, of their histories, and of side tables that exist or may exist.

    Raises StoreUnavailable.
    """
    for name, table in tables.items():
        yield name
        if table.get("stored_as_scd_type") == 2:
            yield history_of(name)
        if table.get("expect") or open_table(places.side_table(feed, name)) is not None:
            yield side_table_of(name)


def read_table(
    session: SparkSession,
    settings: Settings,
    name: str,
    *,
    at: int | datetime | None = None,
    feed: str | None = None,
) -> DataFrame:
    """Return a table's rows as ``silverfold sql`` sees them. Lazy; without ``at`` each action reads the newest version.

    Args:
        name: A table, its ``__history`` or ``__aside``; or ``<feed>__<table>``, where several feeds have one.
        at: A position of the table's feed; or a time, in UTC unless it has a zone, which gives the newest position
            that all of the feed's tables had reached by then.
        feed: Look among this feed's tables only.

    Raises:
        ConfigError: There is no such feed, or one of its settings is invalid.
        QueryFailed: There is no such table, it is not built, or it cannot be read as of then.
        ApplyError: Spark cannot open the table.
        StoreUnavailable: The store does not answer.
    """
    if feed is not None:
        open_feed(feed, settings)
    places, chosen = places_of(settings), settings.feeds if feed is None else [feed]
    tables = {each: list(queryable_names(places, each, settings.feeds[each].tables)) for each in chosen}
    owner, table = find_table(tables, name)
    then = None
    if at is not None:
        then = as_of(places, *open_feed(owner, settings), _checked(at))
        log = get_logger("read").bind(feed=owner, position=then.position)
        for note in then.notes:
            log.warning(note)
    with named_errors(name):
        return table_rows(session, places, owner, table, then)


def _checked(at: int | datetime) -> int | datetime:
    """Return a position, or a time with its zone. Raises QueryFailed for a time in the future."""
    if isinstance(at, int):
        return at
    moment, now = at if at.tzinfo else at.replace(tzinfo=UTC), datetime.now(UTC)
    if moment > now:
        detail = f"{moment.isoformat()} has not come: it is {now.isoformat(timespec='seconds')}"
        raise QueryFailed(detail, condition="TIME_NOT_COME")
    return moment
