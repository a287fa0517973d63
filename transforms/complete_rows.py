"""Completes net changes from the rows before the cut: a partial update leaves the columns it lacks unchanged."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.model import LATE_PARTIAL, UNEXPLAINED
from silverfold.conf.names import caseless
from silverfold.transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE, struct_type
from silverfold.transforms.sql import quoted


def completed(net: DataFrame, before: DataFrame, *, upsert: bool) -> DataFrame:
    """Return each key's row before and after the cut. Lazy; one shuffle.

    Args:
        net: Net changes, at most one per key: ``key``, ``op``, ``position``, ``row``, ``present`` as in change rows.
        before: The rows at these keys before the cut: ``key``, ``position``, ``row`` with the key's own columns first,
            and ``outside``: the row exists at the source, but not in the table. Outside rows without a net change are
            returned too, unchanged: they may be admitted now.
        upsert: An update of a row that does not exist inserts it; without, it is left out.

    Returns:
        ``key``, ``op`` (``insert`` or ``delete``), ``position``, ``before`` (NULL where the table has none) and
        ``after`` (NULL for a delete), both of the type of ``before.row``; ``changed`` is false for an outside row
        without a net change.
    """
    row = struct_type(before, "row")
    old = before.select(
        "key", F.col("row").alias("before"), F.col("position").alias("was_at"), F.col("outside").alias("outside")
    )
    both = net.join(old, "key", "full_outer")
    untouched, exists = F.col("op").isNull(), F.col("before").isNotNull()
    begins = F.col("op").isin(INSERT, SNAPSHOT, *([UPDATE] if upsert else []))
    comes = untouched | begins | exists
    ends = F.coalesce(F.col("op") == DELETE, F.lit(False))
    after = F.when(untouched, F.col("before")).when(~ends, row_after(net, row, completes=True))
    return both.where(ends | F.when(untouched, F.col("outside")).otherwise(comes)).select(
        "key",
        F.when(ends, F.lit(DELETE)).otherwise(F.lit(INSERT)).alias("op"),
        F.coalesce("position", "was_at").alias("position"),
        F.when(~F.coalesce("outside", F.lit(False)), F.col("before")).alias("before"),
        after.alias("after"),
        (~untouched).alias("changed"),
    )


def row_after(net: DataFrame, row: T.StructType, *, completes: bool = False) -> Column:
    """Return the row that a net change produces, as a struct of the given type; a new row starts with NULLs.

    Args:
        completes: Columns that an update does not carry come from the struct column ``before``.
    """
    key = {caseless(name): name for name in struct_type(net, "key").names}
    source = {caseless(name): name for name in struct_type(net, "row").names}  # in the case that ``present`` uses
    patches = (F.col("op") == UPDATE) & F.col("present").isNotNull()

    def cell(name: str) -> Column:
        if caseless(name) in key:
            return F.col(f"key.{quoted(key[caseless(name)])}")
        sent = source[caseless(name)]
        value = F.col(f"row.{quoted(sent)}")
        if not completes:
            return value
        return F.when(patches & ~F.array_contains("present", sent), F.col(f"before.{quoted(name)}")).otherwise(value)

    return F.struct(*(cell(name).alias(name) for name in row.names)).cast(row)


def is_incomplete(reasons: str) -> Column:
    """Return whether a row of a side table is no complete row: a waiting update, or the mark of a degraded key.

    Args:
        reasons: Column of the reasons why it is there; all others are names of rules.
    """
    return F.arrays_overlap(reasons, F.array(F.lit(UNEXPLAINED), F.lit(LATE_PARTIAL)))
