"""Looks up what stands at the keys a cut speaks of, before the cut: small, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transforms.changes import DELETE, as_struct, struct_type
from transforms.merge import POSITION
from transforms.sql import between

FEW = 200_000
"""Keys up to which it is cheaper to send them to every reader of the table than to shuffle the table."""


def standing(current: DataFrame, keys: DataFrame, *, bounds: Mapping[str, tuple[Any, Any]], few: bool) -> DataFrame:
    """Return ``key`` and ``_position`` of the rows at some keys. Lazy; reads nothing of the table but these columns.

    Args:
        current: The table, with the columns of ``key`` and ``_position``.
        keys: Has the column ``key``; the others are not looked at.
        bounds: Smallest and largest value of key columns, both inclusive: files outside are not read.
        few: There are at most about `FEW` keys.
    """
    wanted = keys.select("key").distinct()
    near = current.where(between(bounds)) if bounds else current
    at_keys = near.select(as_struct(struct_type(keys, "key")).alias("key"), POSITION)
    return at_keys.join(F.broadcast(wanted) if few else wanted, "key", "left_semi")


def newer(changes: DataFrame, rows: DataFrame, buried: DataFrame | None) -> DataFrame:
    """Return the changes that come after what was applied at their key, in the order of ``sequence``. Lazy.

    A delete that is remembered already stays: its cut may be repeated.

    Args:
        rows: ``key`` and ``_position`` of the rows that stand.
        buried: The same of rows that were deleted; None for none.
    """
    known = changes.join(rows.withColumnRenamed(POSITION, "applied"), "key", "left")
    late = F.coalesce(F.col("sequence") <= F.col("applied"), F.lit(False))
    if buried is not None:
        known = known.join(buried.withColumnRenamed(POSITION, "buried"), "key", "left")
        same = (F.col("sequence") == F.col("buried")) & (F.col("op") == DELETE)
        late |= F.coalesce((F.col("sequence") <= F.col("buried")) & ~same, F.lit(False))
    return known.where(~late).drop("applied", "buried")
