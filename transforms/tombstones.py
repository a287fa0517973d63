"""Tombstones of deleted keys, for sources whose landing order is not their own: a late change must not revive a row.

A row's ``_position`` shows how recent it is; a deleted row has none. So each delete leaves a *tombstone* in a side
table: the key and the delete's ``_position``. Changes below it lose. Current rows need only the newest delete of a key;
a history needs all, because a late change may fall between two. Tombstones are removed once the source guarantees that
nothing below a position comes again. The side table is written before the target, each in an idempotent commit of its
own: if the process dies between them, the tombstones agree with the repeated commit of the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from silverfold.transforms.changes import DELETE, as_struct, struct_type
from silverfold.transforms.evolve import follow_columns
from silverfold.transforms.merge import OP, POSITION, SOURCE, Recorded, append, committing, create_empty, same_key
from silverfold.transforms.sql import path_table, quoted


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
    """Add the deletes among net rows to the tombstones at a path or URL, creating the table if necessary. One commit.

    Safe to repeat. Runs Spark jobs.

    Args:
        net: At most one row per key; with ``every`` any number.
        tombstone_horizon: SQL condition on the tombstone ``t`` under which it can be removed. It must already hold for
            everything the target applied *before* this cut, or a repeated cut would miss tombstones it needs.
        every: Store a tombstone for each delete of a key, as a history needs, not for the newest only. One that comes
            twice is stored twice, until a ``tombstone_horizon`` is given.
        if_any: Commit only if there are deletes, or a ``tombstone_horizon`` is given.
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
    statement = f"""
        MERGE INTO {path_table(path)} AS t USING {SOURCE} AS s ON {same_key([*keys, POSITION] if every else keys)}
        {"" if every else moves_up}
        WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})
        {forget}
        """
    with committing(deletes.distinct() if every else deletes, recorded) as session:
        session.sql(statement).collect()


def not_buried(changes: DataFrame, tombstones: DataFrame, *, truncates: bool) -> DataFrame:
    """Return the change rows except those older than a delete of their key. Lazy.

    Args:
        tombstones: As returned by `read`.
        truncates: Some may be truncates: also leave out changes older than the last one.
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
    """Return one row: ``truncated``, the position of the last truncate, or NULL. Lazy.

    A truncate is a delete whose key columns are all NULL.
    """
    return tombstones.where(F.col(quoted(key.names[0])).isNull()).agg(F.max(POSITION).alias("truncated"))


def read(session: SparkSession, path: str) -> DataFrame:
    """Return the tombstones: key columns and ``_position``. A key may have several."""
    return session.read.format("delta").load(path)
