"""Looks up the rows that exist before a cut at the keys it touches: few, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from silverfold.transforms.changes import DELETE, INSERT, as_struct, struct_type
from silverfold.transforms.merge import POSITION
from silverfold.transforms.sql import quoted


def by_keys(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Turn completed rows (`transforms.complete_rows`) into rows keyed by ``keys``. Lazy; one shuffle.

    Returns:
        ``key``, ``op``, ``position``, ``after``, ``changed`` and ``claims``, the number of rows at the key after the
        cut. If there are several, ``position`` and ``after`` are those of the last.
    """
    is_leaving = F.col("before").isNotNull() & (
        F.col("after").isNull() | ~_key_of("before", keys).eqNullSafe(_key_of("after", keys))
    )
    nothing = F.lit(None).cast(struct_type(rows, "after"))
    removal = F.struct(_key_of("before", keys).alias("key"), "position", nothing.alias("after"))
    arrival = F.struct(_key_of("after", keys).alias("key"), "position", F.col("after").alias("after"))
    steps = F.array_compact(F.array(F.when(is_leaving, removal), F.when(F.col("after").isNotNull(), arrival)))
    grouped = (
        rows.select("changed", F.explode(steps).alias("step"))
        .groupBy("step.key")
        .agg(
            F.count("step.after").alias("claims"),
            F.max_by("step", _last_of_those("step")).alias("step"),
            F.bool_or("changed").alias("changed"),
        )
    )
    op = F.when(F.col("claims") == 0, F.lit(DELETE)).otherwise(F.lit(INSERT))
    return grouped.select("key", op.alias("op"), "step.position", "step.after", "changed", "claims")


def snapshot_by_keys(net: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Return the rows of a snapshot, at most one per key, as `by_keys` without ``changed``. Lazy; one shuffle.

    Args:
        net: Columns ``position`` and ``after``.
    """
    grouped = net.groupBy(_key_of("after", keys).alias("key")).agg(
        F.count(F.lit(1)).alias("claims"), F.max_by(F.struct("position", "after"), "position").alias("last")
    )
    return grouped.select("key", F.lit(INSERT).alias("op"), "last.position", "last.after", "claims")


def with_taken(rows: DataFrame, table: DataFrame, touched: DataFrame, *, few: bool) -> DataFrame:
    """Add the column ``taken`` to rows (`by_keys`): a row already in the table stays at the row's key. Lazy.

    Args:
        table: The table before the cut.
        touched: DataFrame with the column ``key``: source keys of the rows that may leave their keys in this cut.
        few: As for `transforms.existing_rows.existing`.
    """
    key, name = struct_type(rows, "key"), struct_type(touched, "key")
    at_keys = existing(
        table.select(as_struct(key).alias("key"), as_struct(name).alias("name")), rows.where("claims > 0"), few=few
    )
    staying = at_keys.join(touched.select(F.col("key").alias("name")).distinct(), "name", "left_anti")
    found = staying.select("key", F.lit(True).alias("taken")).distinct()
    return rows.join(found, "key", "left").withColumn("taken", F.coalesce("taken", F.lit(False)))


def _last_of_those(step: str) -> Column:
    """Return a sort key of steps: rows that leave first, then rows that come, each by position."""
    return F.struct(F.col(f"{step}.after").isNotNull(), F.col(f"{step}.position"))


def _key_of(side: str, keys: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"{side}.{quoted(key)}").alias(key) for key in keys))


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


def mark_late(changes: DataFrame, rows: DataFrame, tombstones: DataFrame | None) -> DataFrame:
    """Add ``late`` to changes: whether one of their key that follows in ``sequence`` was applied before. Lazy.

    A delete equal to its own tombstone is not late while there is a row: its cut may be repeated. Also adds
    ``applied`` and ``deleted``, the positions of the key's existing row and of its newest delete; NULL without one.

    Args:
        rows: ``key`` and ``position`` of the existing rows.
        tombstones: ``key`` and ``position`` of deleted rows; None if there are none.
    """
    known = changes.join(rows.select("key", F.col("position").alias("applied")), "key", "left")
    late = F.coalesce(F.col("sequence") <= F.col("applied"), F.lit(False))
    if tombstones is None:
        return known.withColumns({"late": late, "deleted": F.lit(None).cast("string")})
    newest = tombstones.groupBy("key").agg(F.max("position").alias("deleted"))
    same = (F.col("sequence") == F.col("deleted")) & (F.col("op") == DELETE) & F.col("applied").isNotNull()
    late |= F.coalesce((F.col("sequence") <= F.col("deleted")) & ~same, F.lit(False))
    return known.join(newest, "key", "left").withColumn("late", late)
