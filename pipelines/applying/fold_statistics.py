"""Statistics of a folded cut, computed before it is written: one Spark job, which also folds, and one result row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.transforms.changes import struct_type
from silverfold.transforms.consistency import OP_HISTORY, unexplained
from silverfold.transforms.fold import CHANGES, COMES_FROM, MOVES, SELECTED
from silverfold.transforms.sql import quoted

_WHOLE_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


class FoldStatistics(NamedTuple):
    """Bounded facts about a cut's folded changes."""

    unreadable: int
    """Rows from frames that cannot be decoded, and rows with a NULL in their key."""
    doubled: int
    """Keys shared by several rows of a snapshot."""
    changes: int
    moves: int
    """Changes that move a row to another key. They require a different way of folding."""
    partial: int
    """Folded rows that are partial updates."""
    onto_nothing: Mapping[str, int]
    """Number of unexplained changes by name, where no row existed before the cut; empty otherwise."""
    bounds: Mapping[str, tuple[int, int]]
    """Smallest and largest value of each integer key column, including keys that rows moved from."""


def statistics_of(folded: DataFrame, *, onto_nothing: bool) -> FoldStatistics:
    """Return statistics of change rows folded with ``op_code`` and ``counts``. Runs one Spark job.

    Args:
        onto_nothing: No row from before the cut counts.
    """
    counts = unexplained(F.col(OP_HISTORY), F.lit(False)) if onto_nothing else {}
    ordered = [field.name for field in struct_type(folded, "key") if isinstance(field.dataType, _WHOLE_NUMBERS)]
    line = folded.agg(
        F.count_if(_is_unreadable(folded)).alias("unreadable"),
        F.count_if(F.col(SELECTED) > 1).alias("doubled"),
        F.coalesce(F.sum(CHANGES), F.lit(0)).alias(CHANGES),
        F.coalesce(F.sum(MOVES), F.lit(0)).alias(MOVES),
        F.count_if(F.col("present").isNotNull()).alias("partial"),
        F.array(*(F.sum(count) for count in counts.values())).cast("array<long>").alias("onto_nothing"),
        F.array(*(_bounds(name) for name in ordered)).cast("array<array<long>>").alias("bounds"),
    ).first()
    assert line is not None
    return FoldStatistics(
        **{name: line[name] for name in ("unreadable", "doubled", "changes", "moves", "partial")},
        onto_nothing={name: count for name, count in zip(counts, line.onto_nothing, strict=True) if count},
        bounds={name: (ends[0], ends[1]) for name, ends in zip(ordered, line.bounds, strict=True) if None not in ends},
    )


def counted(rows: DataFrame, counts: Mapping[str, Column]) -> dict[str, int]:
    """Return the named aggregates of the rows, without those that are 0. Runs one Spark job, or none without counts."""
    if not counts:
        return {}
    line = rows.agg(F.array(*(F.coalesce(count.cast("long"), F.lit(0)) for count in counts.values())).alias("all"))
    found: list[Any] = line.collect()[0]["all"]
    return {name: count for name, count in zip(counts, found, strict=True) if count}


def _is_unreadable(folded: DataFrame) -> Column:
    nulls = (F.col(f"key.{quoted(name)}").isNull() for name in struct_type(folded, "key").names)
    return reduce(or_, nulls, F.col("error").isNotNull() | F.col("key").isNull())


def _bounds(name: str) -> Column:
    key, left = F.col(f"key.{quoted(name)}"), F.col(f"{COMES_FROM}.{quoted(name)}")
    return F.array(F.min(F.least(key, left["col1"])), F.max(F.greatest(key, left["col2"])))
