"""Keeps rows aside that may not stand in a table yet: they fail its rules, or wait for the change that explains them.

The side table has the table's columns, ``_position``, and

=============  =====================================================================================
``_present``   columns of a partial update that waits for its row; NULL for a whole row
``_reasons``   names of the rules the row fails; `UNEXPLAINED` for an update without row
``_since``     position of the cut that put it aside
``_over``      position of the cut that made it needless; NULL while there is none
=============  =====================================================================================

Rows count by the position the table itself has reached (`in_force`), so the order of two commits does not matter: the
side table is written first, whole, from what was in force before the cut, and takes effect with the cut's own commit.
A cut that is repeated, longer or shorter, finds what the first found. Needless rows go with the next writing: the side
table has at most the rows in force, twice.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

REASONS, SINCE, OVER = "_reasons", "_since", "_over"

UNEXPLAINED = "unexplained"
"""Reason of an update that waits for its row."""


def in_force(session: SparkSession, path: str, position: int) -> DataFrame:
    """Return the rows kept aside by a table that has reached a position, without ``_over``. Lazy."""
    aside = session.read.format("delta").load(path)
    still = F.col(OVER).isNull() | (F.col(OVER) > position)
    return aside.where((F.col(SINCE) <= position) & still).drop(OVER)


def keep_aside(
    before: DataFrame | None, coming: DataFrame, over: DataFrame | None, path: str, *, position: int
) -> None:
    """Write the side table at a path or URL for a cut that ends at a position. Safe to repeat; one commit.

    Args:
        before: What was `in_force`; None for nothing.
        coming: Rows to keep aside: the columns of ``before`` but ``_since``.
        over: Keys of which nothing that was in force holds any more; None for all. ``coming`` may have them again.
    """
    new = coming.withColumn(SINCE, F.lit(position).cast("long")).withColumn(OVER, F.lit(None).cast("long"))
    rows = new if before is None else new.unionByName(_ended(before, over, position))
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)


def _ended(before: DataFrame, over: DataFrame | None, position: int) -> DataFrame:
    end = F.lit(position).cast("long")
    if over is None:
        return before.withColumn(OVER, end)
    marked = before.join(over.distinct().withColumn("ended", F.lit(True)), over.columns, "left")
    return marked.withColumn(OVER, F.when(F.col("ended"), end)).drop("ended")
