"""Rows that may not be in a table yet: they fail its rules, or are updates pending until their row arrives.

They are in a side table, which has the table's columns, ``_position``, and

=============  =====================================================================================
``_present``   columns of a partial update that is pending; NULL for a complete row
``_reasons``   names of the rules the row fails; `UNEXPLAINED` for an update without row
=============  =====================================================================================

Each cut reads all rows of the side table, and writes it anew, before the table. The table's own commit records which
version of it counts (`pipelines.applying.beside`).
"""

from __future__ import annotations

import pyarrow as pa

from pipelines.applying.beside import beside
from pipelines.places import Places
from pipelines.verifying.silver_rows import SilverRows
from transforms.side_table import REASONS, UNEXPLAINED


def read_side_table(places: Places, feed: str, table: str, version: int | None = None) -> pa.Table | None:
    """Return the rows of the side table; None for none. Raises StoreUnavailable.

    Args:
        version: Version of the silver table, if not the newest: the side table is read as of it.
    """
    opened = beside(places, feed, table, "aside", at=version).counts
    if opened is None:
        return None
    found = SilverRows(places.side_table(feed, table), opened).table()
    return found if found.num_rows else None


def failing_rows(places: Places, feed: str, table: str, version: int) -> pa.Table | None:
    """Return the complete rows of the side table, which exist at the source but fail the table's rules; None for none.

    Args:
        version: As for `read_side_table`.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    found = read_side_table(places, feed, table, version)
    if found is None:
        return None
    is_complete = [UNEXPLAINED not in reasons for reasons in found[REASONS].to_pylist()]
    return found.filter(pa.array(is_complete, pa.bool_()))


def without_reasons(failing: pa.Table | None) -> str | None:
    """Return a message if `failing_rows` name no rule that they fail, which no build produces; else None."""
    count = 0 if failing is None else sum(not reasons for reasons in failing[REASONS].to_pylist())
    return f"{count} of the rows that it keeps aside name no rule that they fail" if count else None
