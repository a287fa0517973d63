"""Reads the rows a table keeps aside (`transforms.aside`), without Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import QueryBuilder

from pipelines.places import Places
from pipelines.store import naming_the_store, open_table
from transforms.aside_columns import OVER, REASONS, SINCE, UNEXPLAINED


def read_aside(places: Places, feed: str, table: str, position: int) -> pa.Table | None:
    """Return the rows kept aside by a table that stands at a position; None for none.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    place = places.aside(feed, table)
    opened = open_table(place)
    if opened is None:
        return None
    in_force = f"{SINCE} <= {position} AND ({OVER} IS NULL OR {OVER} > {position})"
    with naming_the_store(place):
        rows = QueryBuilder().register("aside", opened).execute(f"SELECT * FROM aside WHERE {in_force}").read_all()
    found = pa.table(rows)
    return found if found.num_rows else None


def failing_rows(places: Places, feed: str, table: str, position: int) -> pa.Table | None:
    """Return those of the rows kept aside that stand at the source, whole, and fail the table's rules; None for none.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    aside = read_aside(places, feed, table, position)
    if aside is None:
        return None
    waits = [UNEXPLAINED in reasons for reasons in aside[REASONS].to_pylist()]
    whole = aside.filter(pc.invert(pa.array(waits, pa.bool_())))
    return whole if whole.num_rows else None
