"""Looks up the rows a table has at the keys a cut concerns, before the cut: few, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from transforms.changes import DELETE, as_struct
from transforms.merge import POSITION
from transforms.sql import quoted

FEW = 200_000
"""Keys up to which it is cheaper to send them to every reader of the table than to shuffle the table."""


def by_key(table: DataFrame, key: StructType, row: StructType | None = None) -> DataFrame:
    """Return the rows of a table as ``key``, ``position`` and, if asked for, ``row``. Lazy."""
    whole = [] if row is None else [as_struct(row).alias("row")]
    return table.select(as_struct(key).alias("key"), F.col(POSITION).alias("position"), *whole)


def existing(rows: DataFrame, keys: DataFrame, *, few: bool) -> DataFrame:
    """Return those of a table's rows (`by_key`) that are at some keys. Lazy.

    Args:
        keys: Has the column ``key``; repetitions do not count.
        few: There are at most about `FEW` keys.
    """
    wanted = keys.select("key")
    return rows.join(F.broadcast(wanted) if few else wanted.distinct(), "key", "left_semi")


def within(bounds: Mapping[str, tuple[int, int]]) -> Column:
    """Return the condition that whole numbers of a table are within bounds, both inclusive: it skips files."""
    limits = (F.col(quoted(name)).between(least, most) for name, (least, most) in bounds.items())
    return reduce(and_, limits, F.lit(True))


def newer(changes: DataFrame, rows: DataFrame, tombstones: DataFrame | None) -> DataFrame:
    """Return the changes that come after what was applied at their key, in the order of ``sequence``. Lazy.

    A delete that has left a tombstone already stays: its cut may be repeated.

    Args:
        rows: ``key`` and ``position`` of the rows there are.
        tombstones: The same of rows that were deleted; None for none.
    """
    known = changes.join(rows.select("key", F.col("position").alias("applied")), "key", "left")
    late = F.coalesce(F.col("sequence") <= F.col("applied"), F.lit(False))
    if tombstones is not None:
        newest = tombstones.groupBy("key").agg(F.max("position").alias("deleted"))
        known = known.join(newest, "key", "left")
        same = (F.col("sequence") == F.col("deleted")) & (F.col("op") == DELETE)
        late |= F.coalesce((F.col("sequence") <= F.col("deleted")) & ~same, F.lit(False))
    return known.where(~late).drop("applied", "deleted")
