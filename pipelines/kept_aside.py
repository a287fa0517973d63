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

from pipelines.beside import beside
from pipelines.places import Places
from pipelines.silver_rows import SilverRows
from transforms.side_table import REASONS, UNEXPLAINED


def read_aside(places: Places, feed: str, table: str, version: int | None = None) -> pa.Table | None:
    """Return the rows that a table keeps aside; None for none. Raises StoreUnavailable.

    Args:
        version: Of the table, if it is not the newest: the rows are those kept aside then.
    """
    opened = beside(places, feed, table, "aside", at=version).counts
    if opened is None:
        return None
    found = SilverRows(places.aside(feed, table), opened).table()
    return found if found.num_rows else None


def failing_rows(places: Places, feed: str, table: str, version: int) -> pa.Table | None:
    """Return those of the rows kept aside that stand at the source, whole, and fail the table's rules; None for none.

    Args:
        version: As of `read_aside`.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    found = read_aside(places, feed, table, version)
    if found is None:
        return None
    stands = [UNEXPLAINED not in reasons for reasons in found[REASONS].to_pylist()]
    return found.filter(pa.array(stands, pa.bool_()))


def without_reasons(failing: pa.Table | None) -> str | None:
    """Say how many of `failing_rows` name no rule that they fail, which no build leaves so; None where each does."""
    count = 0 if failing is None else sum(not reasons for reasons in failing[REASONS].to_pylist())
    return f"{count} of the rows that it keeps aside name no rule that they fail" if count else None
