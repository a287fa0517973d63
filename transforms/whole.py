"""Completes net rows from the rows as they stood: what a partial update does not carry stays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE
from transforms.merge import OP, POSITION, PRESENT
from transforms.sql import quoted


def whole_rows(net: DataFrame, current: DataFrame, *, keys: Sequence[str], upsert: bool = False) -> DataFrame:
    """Return net rows that are deletes, or inserts of whole rows. Lazy; reads ``current`` once.

    Args:
        net: Net rows (`transforms.merge`), at most one per key.
        current: The table before the cut.
        keys: Columns that name a row.
        upsert: An update of a row that does not exist begins one; without, it is left out.
    """
    same = reduce(and_, (F.col(f"n.{quoted(key)}") == F.col(f"c.{quoted(key)}") for key in keys))
    both = net.alias("n").join(current.alias("c"), same, "left")
    ends = F.col(f"n.{OP}") == DELETE
    return both.where(ends | begins(upsert=upsert) | stood()).select(
        F.when(ends, F.lit(DELETE)).otherwise(F.lit(INSERT)).alias(OP),
        F.col(f"n.{POSITION}").alias(POSITION),
        F.lit(None).cast("array<string>").alias(PRESENT),
        *(now(name).alias(name) for name in table_columns(net)),
    )


def table_columns(net: DataFrame) -> list[str]:
    """Return the names of those columns of net rows that are the table's."""
    return [name for name in net.columns if name not in (OP, POSITION, PRESENT)]


def begins(*, upsert: bool) -> Column:
    """Tell of a net row ``n`` whether it may begin a row."""
    return F.col(f"n.{OP}").isin(INSERT, SNAPSHOT, *([UPDATE] if upsert else []))


def stood() -> Column:
    """Tell of a net row, joined with the row ``c`` before the cut, whether there was one."""
    return F.col(f"c.{POSITION}").isNotNull()


def sent(name: str) -> Column:
    """Tell whether the net row ``n`` carries a column."""
    present = F.col(f"n.{PRESENT}")
    return present.isNull() | F.array_contains(present, name)


def now(name: str) -> Column:
    """Return a column's value after the cut; a row that begins in it knows nothing of the row that stood."""
    anew = F.col(f"n.{OP}") != UPDATE
    return F.when(anew | sent(name), F.col(f"n.{quoted(name)}")).otherwise(F.col(f"c.{quoted(name)}"))
