"""Looks up the rows that exist before a cut at the keys it touches: few, whatever the size of the table."""

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
"""Maximum number of keys for which a broadcast is cheaper than shuffling the table."""


def by_key(table: DataFrame, key: StructType, row: StructType | None = None) -> DataFrame:
    """Return the rows of a table as ``key``, ``position`` and, if its type is given, ``row``. Lazy."""
    whole = [] if row is None else [as_struct(row).alias("row")]
    return table.select(as_struct(key).alias("key"), F.col(POSITION).alias("position"), *whole)


def existing(rows: DataFrame, keys: DataFrame, *, few: bool) -> DataFrame:
    """Return the rows of a table (`by_key`) at the given keys. Lazy.

    Args:
        keys: DataFrame with the column ``key``; duplicates are allowed.
        few: There are at most about `FEW` keys.
    """
    wanted = keys.select("key")
    return rows.join(F.broadcast(wanted) if few else wanted.distinct(), "key", "left_semi")


def within(bounds: Mapping[str, tuple[int, int]]) -> Column:
    """Return the condition that integer columns are within bounds, both inclusive. Delta uses it to skip files."""
    limits = (F.col(quoted(name)).between(least, most) for name, (least, most) in bounds.items())
    return reduce(and_, limits, F.lit(True))


def newer(changes: DataFrame, rows: DataFrame, tombstones: DataFrame | None) -> DataFrame:
    """Return the changes that follow, in the order of ``sequence``, the last applied change of their key. Lazy.

    A delete equal to its own tombstone is retained: its cut may be repeated.

    Args:
        rows: ``key`` and ``position`` of the existing rows.
        tombstones: ``key`` and ``position`` of deleted rows; None if there are none.
    """
    known = changes.join(rows.select("key", F.col("position").alias("applied")), "key", "left")
    late = F.coalesce(F.col("sequence") <= F.col("applied"), F.lit(False))
    if tombstones is not None:
        newest = tombstones.groupBy("key").agg(F.max("position").alias("deleted"))
        known = known.join(newest, "key", "left")
        same = (F.col("sequence") == F.col("deleted")) & (F.col("op") == DELETE)
        late |= F.coalesce((F.col("sequence") <= F.col("deleted")) & ~same, F.lit(False))
    return known.where(~late).drop("applied", "deleted")
