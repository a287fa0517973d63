"""Reads the rows a table keeps aside (`transforms.aside`), without Spark."""

from __future__ import annotations

import pyarrow as pa
from deltalake import QueryBuilder

from pipelines.places import Places
from pipelines.store import naming_the_store, open_table
from transforms.aside_columns import OVER, REASONS, SINCE, UNEXPLAINED


def read_aside(places: Places, feed: str, table: str, position: int) -> pa.Table | None:
    """Return the rows kept aside by a table that stands at a position; None for none.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    return _read(places, feed, table, _in_force(position))


def failing_rows(places: Places, feed: str, table: str, position: int) -> pa.Table | None:
    """Return those of the rows kept aside that stand at the source, whole, and fail the table's rules; None for none.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    return _read(places, feed, table, f"{_in_force(position)} AND NOT array_has({REASONS}, '{UNEXPLAINED}')")


def is_undecided(places: Places, feed: str, table: str, position: int) -> bool:
    """Tell whether a cut has written the side table of a table that stands at a position, and not yet the table.

    Raises:
        StoreUnavailable: It cannot be read now.
    """
    return _read(places, feed, table, f"{SINCE} > {position} OR {OVER} > {position}") is not None


def _in_force(position: int) -> str:
    return f"{SINCE} <= {position} AND ({OVER} IS NULL OR {OVER} > {position})"


def _read(places: Places, feed: str, table: str, where: str) -> pa.Table | None:
    place = places.aside(feed, table)
    opened = open_table(place)
    if opened is None:
        return None
    with naming_the_store(place):
        query = f"SELECT * FROM aside WHERE {where}"
        found = pa.table(QueryBuilder().register("aside", opened).execute(query).read_all())
    return found if found.num_rows else None
