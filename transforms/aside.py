"""Keeps rows aside that may not be in a table yet: they fail its rules, or wait for the change that explains them.

The side table has the table's columns, ``_position``, and

=============  =====================================================================================
``_present``   columns of a partial update that waits for its row; NULL for a whole row
``_reasons``   names of the rules the row fails; `UNEXPLAINED` for an update without row
``_since``     position of the cut that put it aside, or left it there
``_over``      position of the cut that looked at it again; NULL while there is none
=============  =====================================================================================

Rows count by the position the table itself has reached (`in_force`), so the order of two commits does not matter: the
side table is written first, whole, from what was in force before the cut, and takes effect with the cut's own commit.
A cut that is repeated, longer or shorter, finds what the first found. Every cut looks at all rows that are aside: it
ends them, and puts those aside again that still may not be in the table. The side table has at most the rows in force,
twice. A row of the table wins over one aside with the same key: a rebuild that dies leaves rows of both its tables.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transforms.aside_columns import OVER, SINCE
from transforms.merge import overwrite


def in_force(aside: DataFrame, position: int) -> DataFrame:
    """Return the rows kept aside by a table that has reached a position, without ``_over``. Lazy."""
    still = F.col(OVER).isNull() | (F.col(OVER) > position)
    return aside.where((F.col(SINCE) <= position) & still).drop(OVER)


def keep_aside(before: DataFrame | None, coming: DataFrame, path: str, *, position: int, metadata: str = "") -> None:
    """Write the side table at a path or URL for a cut that ends at a position. Safe to repeat; one commit.

    Args:
        before: What was `in_force`; None for nothing.
        coming: Rows to keep aside from then on: the columns of ``before`` but ``_since``.
        metadata: Text for the commit's ``userMetadata``.
    """
    end = F.lit(position).cast("long")
    rows = coming.withColumn(SINCE, end).withColumn(OVER, F.lit(None).cast("long"))
    overwrite(rows if before is None else rows.unionByName(before.withColumn(OVER, end)), path, metadata=metadata)
