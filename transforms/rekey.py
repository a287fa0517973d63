"""Gives rows identified by a positional key the keys a user configured, moves and swaps included.

A positional source names its rows by row key alone. With ``keys`` configured, silver is keyed by columns of the row,
which a change may alter: the row *moves*. All moves of a cut are resolved together: every row leaves the key it had in
silver, then takes the key it has now; what is left empty is deleted. Two rows on one key, and a NULL in a key, are
counted, so that they can be refused before anything is written (`claims`, `taken`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transforms.changes import DELETE, INSERT, as_struct, struct_type
from transforms.existing_rows import existing
from transforms.sql import quoted


def by_keys(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Turn completed rows (`transforms.complete_rows`) into rows keyed by ``keys``. Lazy; one shuffle.

    Returns:
        ``key``, ``op``, ``position``, ``after`` and ``claims``: how many rows are at the key after the cut. Of several
        rows, ``position`` is the last.
    """
    leaves = F.col("before").isNotNull() & (
        F.col("after").isNull() | ~_key_of("before", keys).eqNullSafe(_key_of("after", keys))
    )
    nothing = F.lit(None).cast(struct_type(rows, "after"))
    gone = F.struct(_key_of("before", keys).alias("key"), "position", nothing.alias("after"))
    comes = F.struct(_key_of("after", keys).alias("key"), "position", F.col("after").alias("after"))
    steps = F.array_compact(F.array(F.when(leaves, gone), F.when(F.col("after").isNotNull(), comes)))
    grouped = (
        rows.select(F.explode(steps).alias("step"))
        .groupBy("step.key")
        .agg(F.count("step.after").alias("claims"), F.max_by("step", _last_of_those("step")).alias("step"))
    )
    op = F.when(F.col("claims") == 0, F.lit(DELETE)).otherwise(F.lit(INSERT))
    return grouped.select("key", op.alias("op"), "step.position", "step.after", "claims")


def snapshot_by_keys(net: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Return the rows of a snapshot, at most one for each of ``keys``, as `by_keys` does. Lazy; one shuffle.

    Args:
        folds: ``position`` and ``after``.
    """
    grouped = net.groupBy(_key_of("after", keys).alias("key")).agg(
        F.count(F.lit(1)).alias("claims"), F.max_by(F.struct("position", "after"), "position").alias("last")
    )
    return grouped.select("key", F.lit(INSERT).alias("op"), "last.position", "last.after", "claims")


def with_taken(rows: DataFrame, table: DataFrame, touched: DataFrame, *, few: bool) -> DataFrame:
    """Tell by the column ``taken`` of a row (`by_keys`) that comes to a key whose row in the table stays there. Lazy.

    Args:
        table: The table before the cut.
        touched: Has the column ``key``: the source's names of the rows that may leave their keys in this cut.
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
    """Return what orders steps: those that come before those that are gone, then by position."""
    return F.struct(F.col(f"{step}.after").isNotNull(), F.col(f"{step}.position"))


def _key_of(side: str, keys: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"{side}.{quoted(key)}").alias(key) for key in keys))
