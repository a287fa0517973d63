"""Remembers deleted keys where the landing order is not the source's own: a late change must not bring a row back.

A row's ``_position`` tells how new it is; a deleted row has none. So each delete leaves a *tombstone* in a side table:
the key and the delete's ``_position``. Changes below it lose. For rows the newest delete of a key is enough; a history
needs all of them, for a late change may come between two. Tombstones go once the source vouches that nothing below a
position comes again. The side table is written before the target, each in a commit of its own that happens
once: dying between the two leaves tombstones that the target's commit, repeated, agrees with.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from transforms.changes import DELETE, as_struct, struct_type
from transforms.evolve import follow_columns
from transforms.merge import OP, POSITION, SOURCE, Recorded, append, create_empty, run_once, same_key
from transforms.sql import path_table, quoted


def write_tombstones(
    net: DataFrame,
    path: str,
    *,
    keys: Sequence[str],
    recorded: Recorded,
    tombstone_horizon: str | None = None,
    every: bool = False,
    if_any: bool = False,
) -> None:
    """Add the deletes among net rows to the tombstones at a path or URL, made where there are none. One commit.

    Safe to repeat. Runs Spark jobs.

    Args:
        folds: At most one row per key; with ``every`` any number.
        tombstone_horizon: A condition in SQL on the tombstone ``t``: it can go. What it says must already hold for everything
            the target has applied *before* this cut, or a cut that is repeated would miss tombstones it needs.
        every: Keep a tombstone for each delete of a key, as a history needs, not for the newest only. One that comes
            twice is there twice, until something is settled.
        if_any: Commit no rows where there are neither deletes nor anything to forget.
    """
    kind = StructType([net.schema[name] for name in (*keys, POSITION)])
    deletes = net.where(F.col(OP) == DELETE).select(*map(quoted, kind.names))
    create_empty(net.sparkSession, kind, path)
    follow_columns(net.sparkSession, path, kind, table=recorded.app_id)
    if if_any and tombstone_horizon is None and deletes.isEmpty():
        return
    if every and tombstone_horizon is None:
        append(deletes, path, recorded=recorded)
        return
    names = ", ".join(quoted(name) for name in kind.names)
    values = ", ".join(f"s.{quoted(name)}" for name in kind.names)
    moves_up = f"WHEN MATCHED AND s.{POSITION} > t.{POSITION} THEN UPDATE SET t.{POSITION} = s.{POSITION}"
    forget = (
        f"WHEN NOT MATCHED BY SOURCE AND ({tombstone_horizon}\n) THEN DELETE" if tombstone_horizon else ""
    )  # a comment may end it
    run_once(
        deletes.distinct() if every else deletes,
        f"""
        MERGE INTO {path_table(path)} AS t USING {SOURCE} AS s ON {same_key([*keys, POSITION] if every else keys)}
        {"" if every else moves_up}
        WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})
        {forget}
        """,
        recorded,
    )


def not_buried(changes: DataFrame, tombstones: DataFrame, *, truncates: bool) -> DataFrame:
    """Return the change rows but those older than a delete of their key. Lazy.

    Args:
        tombstones: As `read` returns them.
        truncates: Some may be truncates: leave out what is older than the last one, too.
    """
    key = struct_type(changes, "key")
    deleted = tombstones.select(as_struct(key).alias("key"), F.col(POSITION).alias("deleted"))
    late = [changes["key"] == deleted["key"], changes["sequence"] < deleted["deleted"]]
    newest = changes.join(deleted, late, "left_anti")
    if not truncates:
        return newest
    truncated = F.broadcast(last_truncate(tombstones, key))
    return newest.join(truncated, F.col("sequence") < F.col("truncated"), "left_anti")


def last_truncate(tombstones: DataFrame, key: StructType) -> DataFrame:
    """Return one row: ``truncated``, when all rows were deleted for the last time, or NULL. Lazy.

    A truncate is the delete of no key, for which all its columns are NULL.
    """
    return tombstones.where(F.col(quoted(key.names[0])).isNull()).agg(F.max(POSITION).alias("truncated"))


def read(session: SparkSession, path: str) -> DataFrame:
    """Return the tombstones: the keys and ``_position``. A key may have several."""
    return session.read.format("delta").load(path)
