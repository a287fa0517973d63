"""The rows of a silver table that its rules judge, at one version of the table.

They are the source's complete rows: those in the table, and those that a rule keeps aside. Else rows that fail a
``quarantine`` rule would pass by construction. Updates that wait for their row in the side table are no rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from silverfold.conf.errors import RebuildNeeded
from silverfold.pipelines.places import REASONS, Place, Places, side_table_of
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.store import open_table
from silverfold.transforms.complete_rows import is_incomplete
from silverfold.transforms.merge import POSITION, PRESENT
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import quoted

ROW: Final = "after"
"""Column of judged rows: a struct of the row's columns, as `transforms.expectations` wants it."""

IS_ASIDE: Final = "is_aside"
"""Column of judged rows: whether the row is kept aside."""


class JudgedRows(NamedTuple):
    """A table's rows at one version."""

    version: int
    rows: DataFrame
    """Columns `ROW` and `IS_ASIDE`."""
    row: StructType
    """The row's columns, without ours."""
    table: DataFrame
    """The silver table alone, as queries see it."""


def judged_rows(session: SparkSession, places: Places, feed: str, table: str) -> JudgedRows | None:
    """Return the rows of a table, with those kept aside; None if it is not built. Lazy.

    Raises:
        StoreUnavailable: A table cannot be read now.
        RebuildNeeded: The rows kept aside are gone.
        ApplyError: Spark refuses to read a table.
    """
    opened = open_table(places.silver(feed, table))
    if opened is None:
        return None
    silver = _at(session, places.silver(feed, table), opened.version(), table)
    rows = _whole(silver.drop(POSITION), is_aside=False)
    side = companion(places, feed, table, "aside", at=opened.version())
    if side.is_gone:
        raise RebuildNeeded(f"{side_table_of(table)} is gone", feed=feed, table=table)
    if side.committed is not None:
        side_rows = _at(session, places.side_table(feed, table), side.committed.version(), side_table_of(table))
        failing = side_rows.where(~F.coalesce(is_incomplete(REASONS), F.lit(False))).drop(POSITION, PRESENT, REASONS)
        same = silver.drop(POSITION).limit(0).unionByName(failing, allowMissingColumns=True)
        rows = rows.unionAll(_whole(same.select(*map(quoted, silver.drop(POSITION).columns)), is_aside=True))
    kind = rows.schema[ROW].dataType
    assert isinstance(kind, StructType)
    return JudgedRows(opened.version(), rows, kind, silver)


def _at(session: SparkSession, place: Place, version: int, name: str) -> DataFrame:
    with named_errors(name):
        return session.read.format("delta").option("versionAsOf", version).load(place.url)


def _whole(rows: DataFrame, *, is_aside: bool) -> DataFrame:
    row = F.struct(*(F.col(quoted(name)) for name in rows.columns))
    return rows.select(row.alias(ROW), F.lit(is_aside).alias(IS_ASIDE))
