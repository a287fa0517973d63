"""Remembers deleted keys where the landing order is not the source's own: a late change must not bring a row back.

A row's ``_position`` tells how new it is; a deleted row has none. So each delete leaves a *tombstone* in a side table:
the key and the delete's ``_position``. Changes at or below it lose. Tombstones go once the source vouches that nothing
below a position comes again. The side table is written before the target, each in a commit of its own that happens
once: dying between the two leaves tombstones that the target's commit, repeated, agrees with.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from transforms.changes import DELETE
from transforms.evolve import follow_columns
from transforms.merge import OP, POSITION, Recorded, create_empty, run_once, same_key
from transforms.sql import path_table, quoted


def bury(net: DataFrame, path: str, *, keys: Sequence[str], recorded: Recorded, settled: str | None = None) -> None:
    """Add the deletes among net rows to the tombstones at a path or URL, made where there are none. One commit.

    Safe to repeat. Runs Spark jobs.

    Args:
        settled: A condition in SQL on the tombstone ``t``: it can go. What it says must already hold for everything
            the target has applied *before* this cut, or a cut that is repeated would miss tombstones it needs.
    """
    kind = StructType([net.schema[name] for name in (*keys, POSITION)])
    create_empty(net.sparkSession, kind, path_table(path))
    follow_columns(net.sparkSession, path, kind, table=recorded.app_id)
    names = ", ".join(quoted(name) for name in kind.names)
    values = ", ".join(f"s.{quoted(name)}" for name in kind.names)
    forget = f"WHEN NOT MATCHED BY SOURCE AND ({settled}) THEN DELETE" if settled else ""
    run_once(
        net.where(F.col(OP) == DELETE).select(*map(quoted, kind.names)),
        f"""
        MERGE INTO {path_table(path)} AS t USING {{source}} AS s ON {same_key(keys)}
        WHEN MATCHED AND s.{POSITION} > t.{POSITION} THEN UPDATE SET t.{POSITION} = s.{POSITION}
        WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})
        {forget}
        """,
        recorded,
    )


def not_buried(net: DataFrame, path: str, *, keys: Sequence[str]) -> DataFrame:
    """Return the net rows that are newer than their key's tombstone, and the deletes. Lazy."""
    tombstones = read(net.sparkSession, path)
    late = [net[quoted(key)] == tombstones[quoted(key)] for key in keys]
    older = net[POSITION] <= tombstones[POSITION]
    condition = older & (net[OP] != DELETE)
    for same in late:
        condition &= same
    return net.join(tombstones, condition, "left_anti")


def read(session: SparkSession, path: str) -> DataFrame:
    """Return the tombstones: the keys and ``_position``."""
    return session.read.format("delta").load(path)
