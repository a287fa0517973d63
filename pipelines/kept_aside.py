"""Rows that may not be in a table yet: they fail its rules, or wait for the change that explains them.

They are in a side table, which has the table's columns, ``_position``, and

=============  =====================================================================================
``_present``   columns of a partial update that waits for its row; NULL for a whole row
``_reasons``   names of the rules the row fails; `UNEXPLAINED` for an update without row
=============  =====================================================================================

Each cut looks at all rows that are aside, and writes the side table anew, before the table. Which version of it counts
is said by the table's own commit (`pipelines.beside`).
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import QueryBuilder

from pipelines.beside import beside
from pipelines.places import Places
from pipelines.store import naming_the_store
from transforms.aside_columns import REASONS, UNEXPLAINED


def read_aside(places: Places, feed: str, table: str) -> pa.Table | None:
    """Return the rows that a table keeps aside; None for none. Raises StoreUnavailable."""
    return _read(places, feed, table, None, "TRUE")


def failing_rows(places: Places, feed: str, table: str, version: int) -> pa.Table | None:
    """Return those of the rows kept aside that stand at the source, whole, and fail the table's rules; None for none.

    Args:
        version: Of the table: they are those kept aside then.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    return _read(places, feed, table, version, f"NOT array_has({REASONS}, '{UNEXPLAINED}')")


def _read(places: Places, feed: str, table: str, version: int | None, where: str) -> pa.Table | None:
    opened = beside(places, feed, table, "aside", at=version).counts
    if opened is None:
        return None
    with naming_the_store(places.aside(feed, table)):
        query = f"SELECT * FROM aside WHERE {where}"
        found = pa.table(QueryBuilder().register("aside", opened).execute(query).read_all())
    return found if found.num_rows else None
