"""Gives rows identified by a positional key the keys a user configured, moves and swaps included.

A positional source names its rows by row key alone. With ``keys`` configured, silver is keyed by columns of the row,
which a change may alter: the row *moves*. All moves of a cut are resolved together: every touched row leaves the
key it had in silver, then takes the key it has now; what is left empty is deleted. Two rows on one key, and a NULL
in a key, raise errors that `transforms.faults` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transforms.changes import DELETE, INSERT, UPDATE
from transforms.faults import DUPLICATE_KEY, NULL_KEY
from transforms.merge import OP, POSITION, PRESENT, VACATED
from transforms.sql import quoted
from transforms.whole import begins, now, sent, stood, table_columns


def unique_rows(net: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Return whole net rows unchanged, or fail when two share a key or a key is NULL. Lazy; one shuffle."""
    named = F.struct(*(F.col(quoted(name)) for name in net.columns))
    grouped = net.groupBy(*(quoted(key) for key in keys)).agg(F.count("*").alias("n"), F.first(named).alias("row"))
    return grouped.where(_sound(keys, F.col("n"))).select("row.*")


def by_keys(
    net: DataFrame, current: DataFrame, *, keys: Sequence[str], identity: str, upsert: bool = False
) -> DataFrame:
    """Turn net rows keyed by ``identity`` into net rows keyed by ``keys``, completed from the rows as they stand.

    Lazy; reads ``current`` once and shuffles twice.

    Args:
        net: Net rows (`transforms.merge`), at most one per ``identity``.
        current: The silver table before the cut.
        keys: Columns of the row that are to name it.
        identity: Column that names a row at the source.
        upsert: An update of a row that does not exist counts as its insert.

    Returns:
        Net rows with whole rows: ``_op`` is ``insert`` or ``delete``, ``_present`` NULL, and `VACATED`.
    """
    columns = table_columns(net)
    both = net.alias("n").join(current.alias("c"), F.col(f"n.{identity}") == F.col(f"c.{identity}"), "left")
    stands = (F.col(f"n.{OP}") != DELETE) & (stood() | begins(upsert=upsert))
    same_key = _all(F.col(f"n.{quoted(key)}") == F.col(f"c.{quoted(key)}") for key in keys)
    leaves = stood() & ~(stands & F.coalesce(_all_sent_or_same(keys, same_key), F.lit(False)))
    gone = F.struct(
        F.lit(DELETE).alias(OP), F.col(f"n.{POSITION}").alias(POSITION), *(_part("c", name) for name in columns)
    )
    comes = F.struct(
        F.lit(INSERT).alias(OP), F.col(f"n.{POSITION}").alias(POSITION), *(now(name).alias(name) for name in columns)
    )
    steps = F.array_compact(F.array(F.when(leaves, gone), F.when(stands, comes)))
    moved = both.select(F.explode(steps).alias("row"))
    grouped = moved.groupBy(*(F.col(f"row.{quoted(key)}").alias(key) for key in keys)).agg(
        F.count_if(F.col(f"row.{OP}") == INSERT).alias("n"),
        F.bool_or(F.col(f"row.{OP}") == DELETE).alias(VACATED),
        F.max_by("row", F.col(f"row.{OP}") == INSERT).alias("row"),
    )
    return grouped.where(_sound(keys, F.col("n"))).select(
        "row.*", F.lit(None).cast("array<string>").alias(PRESENT), VACATED
    )


def _part(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}").alias(name)


def _all_sent_or_same(keys: Sequence[str], same_key: Column) -> Column:
    return same_key | _all((F.col(f"n.{OP}") == UPDATE) & ~sent(key) for key in keys)


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)


def _sound(keys: Sequence[str], rows: Column) -> Column:
    """Return TRUE, or fail: a NULL in a key, or more than one row on it."""
    null = reduce(or_, (F.col(quoted(key)).isNull() for key in keys))
    return (
        F.when(null, F.raise_error(F.lit(NULL_KEY)).cast("boolean"))
        .when(rows > 1, F.raise_error(F.lit(DUPLICATE_KEY)).cast("boolean"))
        .otherwise(F.lit(True))
    )
