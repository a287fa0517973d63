"""Remembers changes as they were sent, where rows do not tell what they were made of: for AUTO CDC.

A row may come of several changes: with ``ignore_null_updates`` its cells come from different ones, and where only some
columns are tracked one version spans many. A late change falls between those that made the row, so they are kept in a
side table, ``<path>__changes``, and all rows of a key are made again from them whenever one comes::

    the table's columns   as sent; all NULL but the key for a delete
    __OP                  update, delete, or snapshot: what all older changes of the key came to
    __SEQUENCE            the change's sequence

A change that comes twice is there twice: of those with one key and sequence one counts (`transforms.ties`). A delete
without key is a truncate: it deletes all rows up to it. Once nothing older than some sequence can come, all that is
older comes to one snapshot per key that has a row (copies of a change to copies), none for the others. The side table
is written first; the table's rows depend on it alone, so a process may die between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from transforms.changes import DELETE, SNAPSHOT, UPDATE, as_struct, cached, complete, struct_type, typed_as
from transforms.evolve import follow_columns
from transforms.history import END, START
from transforms.merge import POSITION, Recorded, append, create_empty
from transforms.sql import quoted
from transforms.ties import comparable, differs_sql, merge_rows, rank, rank_sql

LOG_OP, LOG_SEQUENCE = "__OP", "__SEQUENCE"


@dataclass(frozen=True)
class Making:
    """How rows are made of changes.

    Args:
        partial: A NULL in an upsert leaves the cell as it is, that of a field inside a struct too.
        tracked: Columns by which versions differ; one lasts while they are equal. None: every change begins a version.
        history: The table has all versions, not only the rows as they are now.
        truncates: Some changes may be truncates.
    """

    partial: bool
    tracked: Sequence[str] | None = None
    history: bool = False
    truncates: bool = False


def log_columns(row: T.StructType, moment: T.DataType) -> T.StructType:
    """Return the columns of the side table of a table with such rows."""
    return T.StructType([*row, T.StructField(LOG_OP, T.StringType()), T.StructField(LOG_SEQUENCE, moment)])


def remember(
    changes: DataFrame, path: str, *, making: Making, recorded: Recorded, tombstone_horizon: str | None = None
) -> None:
    """Add changes to the side table at a path or URL, made where there is none. One commit; safe to repeat.

    Args:
        changes: Columns ``key``, ``sequence``, ``op`` and ``row``; one per key and sequence.
        tombstone_horizon: As of `transforms.autocdc.apply_changes`.
    """
    stored = log_columns(struct_type(changes, "row"), changes.schema["sequence"].dataType)
    create_empty(changes.sparkSession, stored, path)
    follow_columns(changes.sparkSession, path, stored, table=recorded.app_id)
    changes = as_stored(changes, path, LOG_SEQUENCE)
    row, key = struct_type(changes, "row"), struct_type(changes, "key").names
    lines = changes.select("key", "sequence", _line(row, key))
    if tombstone_horizon is None:
        append(lines.select("row.*"), path, recorded=recorded)
        return
    known = _remembered(changes.sparkSession, path, like=changes)
    merge_rows(
        _condensed(lines, known, making, tombstone_horizon),
        path,
        identity=[*key, LOG_SEQUENCE],
        wins=_wins(row),
        recorded=recorded,
    )


def remake(changes: DataFrame, log: str, path: str, *, making: Making, recorded: Recorded) -> None:
    """Make the rows that changes have a part in, from all there are in the side table. One commit; safe to repeat.

    Args:
        changes: As `remember` took them.
        log: Path or URL of the side table.
        path: Path or URL of the table, which has the columns of ``row``.
    """
    changes = as_stored(changes, log, LOG_SEQUENCE)
    session, key = changes.sparkSession, struct_type(changes, "key")
    own = [START, END] if making.history else [POSITION]
    moment = changes.schema["sequence"].dataType
    columns = T.StructType([*struct_type(changes, "row"), *(T.StructField(name, moment) for name in own)])
    stored = session.read.format("delta").load(path)
    before = stored.select(as_struct(key).alias("key"), F.col(own[0]).alias("at"), as_struct(columns).alias("row"))
    keys = changes.select("key")
    if making.truncates:
        keys = keys.unionByName(_keys_truncated(changes, before))
    counting = _living(_at_keys(_remembered(session, log, like=changes), keys, making), making)
    made = _made(counting, making, own)
    with cached(made) as rows:
        gone = _versions_gone(before, rows, counting) if making.history else _rows_gone(before, rows, keys)
        merge_rows(
            rows.withColumn("op", F.lit(UPDATE)).unionByName(gone.withColumn("op", F.lit(DELETE))).select("op", "row"),
            path,
            identity=[*key.names, START] if making.history else key.names,
            wins=differs_sql(columns),
            recorded=recorded,
        )


def versions(changes: DataFrame, making: Making) -> DataFrame:
    """Return the versions that living changes make: ``key``, ``row``, ``__START_AT`` and ``__END_AT``. Lazy."""
    past = _past("key")
    lives = changes.withColumn("life", F.sum((F.col("op") == DELETE).cast("long")).over(past))
    rows = lives.withColumn("row", _completed(changes)) if making.partial else lives
    begun = _first_of_runs(rows, making.tracked) if making.tracked is not None else rows
    following = F.lead("sequence").over(Window.partitionBy("key").orderBy("sequence"))
    ended = begun.withColumn(END, following).where(F.col("op") != DELETE)
    return ended.select("key", "row", F.col("sequence").alias(START), END)


def as_stored(changes: DataFrame, path: str, moment: str) -> DataFrame:
    """Return changes with the types of a table that stores them, which may be wider.

    Args:
        changes: Columns ``key``, ``sequence``, ``op`` and ``row``.
        path: Path or URL of the table, which has the columns of ``row``.
        moment: Its column that has the ``sequence``.
    """
    stored = changes.sparkSession.read.format("delta").load(path).schema
    typed = typed_as(complete(changes), stored)
    return typed.select("key", F.col("sequence").cast(stored[moment].dataType).alias("sequence"), "op", "row")


def _remembered(session: SparkSession, path: str, *, like: DataFrame) -> DataFrame:
    """Return the changes in the side table, with the columns of others."""
    key, row = struct_type(like, "key"), struct_type(like, "row")
    stored = session.read.format("delta").load(path)
    return stored.select(
        as_struct(key).alias("key"),
        F.col(LOG_SEQUENCE).alias("sequence"),
        F.col(LOG_OP).alias("op"),
        as_struct(row).alias("row"),
    )


def _keyless(changes: DataFrame) -> Column:
    return F.col("key").getField(struct_type(changes, "key").names[0]).isNull()


def _keys_truncated(changes: DataFrame, before: DataFrame) -> DataFrame:
    """Return the keys of all rows that are there, if one of the changes is a truncate."""
    truncated = changes.where(_keyless(changes)).select(F.lit(True)).limit(1)
    return before.select("key").crossJoin(F.broadcast(truncated)).select("key")


def _at_keys(changes: DataFrame, keys: DataFrame, making: Making) -> DataFrame:
    """Return the changes at some keys, and the truncates."""
    found = changes.join(keys.distinct(), "key", "left_semi")
    if not making.truncates:
        return found
    return found.where(~_keyless(changes)).unionByName(changes.where(_keyless(changes)))


def _living(changes: DataFrame, making: Making) -> DataFrame:
    """Return the changes that count: one of a sequence, none older than their key's snapshot or the last truncate."""
    wins = F.struct(F.col("op") == SNAPSHOT, F.col("op") != DELETE, rank(struct_type(changes, "row"), "row"))
    following = F.lead("sequence").over(Window.partitionBy("key").orderBy("sequence", wins))
    last = changes.withColumn("following", following).where(~F.col("sequence").eqNullSafe(F.col("following")))
    changes = last.drop("following")
    began = F.max(F.when(F.col("op") == SNAPSHOT, F.col("sequence"))).over(Window.partitionBy("key"))
    newer = changes.withColumn("began", began).where("began IS NULL OR sequence >= began").drop("began")
    if not making.truncates:
        return newer
    keyless = _keyless(changes)
    truncated = F.broadcast(changes.where(keyless).agg(F.max("sequence").alias("truncated")))
    return newer.where(~keyless).join(truncated, F.col("sequence") < F.col("truncated"), "left_anti")


def _made(changes: DataFrame, making: Making, own: Sequence[str]) -> DataFrame:
    """Return what living changes come to: ``key``, ``at`` and ``row``, with our own columns in it."""
    found = versions(changes, making)
    if not making.history:
        found = found.where(F.col(END).isNull()).withColumnRenamed(START, POSITION)
    cells = (F.col("row").getField(name).alias(name) for name in struct_type(changes, "row").names)
    return found.select("key", F.col(own[0]).alias("at"), F.struct(*cells, *own).alias("row"))


def _rows_gone(before: DataFrame, made: DataFrame, keys: DataFrame) -> DataFrame:
    return before.join(keys, "key", "left_semi").join(made, "key", "left_anti")


def _versions_gone(before: DataFrame, made: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the versions that begin where changes tell of their key, and are not among those made."""
    since = changes.groupBy("key").agg(F.min("sequence").alias("since"))
    known = before.join(since, "key").where(F.col("at") >= F.col("since")).drop("since")
    return known.join(made, ["key", "at"], "left_anti")


def _line(row: T.StructType, key: Sequence[str]) -> Column:
    """Return a change as a row of the side table."""
    cells = [F.col("key" if name in key else "row").getField(name).alias(name) for name in row.names]
    return F.struct(*cells, F.col("op").alias(LOG_OP), F.col("sequence").alias(LOG_SEQUENCE)).alias("row")


def _condensed(lines: DataFrame, known: DataFrame, making: Making, tombstone_horizon: str) -> DataFrame:
    """Add what old changes come to, and that they go. Of one that comes again though it is old, that wins."""
    row, key = struct_type(known, "row"), struct_type(known, "key").names
    older, old = (_before(frame, tombstone_horizon) for frame in (known, _living(known, making)))
    stays = versions(old, making).where(F.col(END).isNull()).withColumnRenamed(START, "sequence")
    snapshots = stays.withColumn("op", F.lit(SNAPSHOT)).select("key", "sequence", _line(row, key))
    told = [
        lines.withColumns({"op": F.lit(UPDATE), "first": F.lit(0)}),
        older.select("key", "sequence", _line(row, key)).withColumns({"op": F.lit(DELETE), "first": F.lit(1)}),
        snapshots.withColumns({"op": F.lit(UPDATE), "first": F.lit(2)}),
    ]
    last = F.max_by(F.struct("op", "row"), F.col("first")).alias("last")
    return reduce(DataFrame.unionByName, told).groupBy("key", "sequence").agg(last).select("last.*")


def _before(changes: DataFrame, tombstone_horizon: str) -> DataFrame:
    return (
        changes.withColumnRenamed("sequence", POSITION)
        .alias("t")
        .where(tombstone_horizon)
        .select("key", F.col(POSITION).alias("sequence"), "op", "row")
    )


def _wins(row: T.StructType) -> str:
    sent, stored = f"s.`row`.{LOG_OP}", f"t.{LOG_OP}"
    larger = f"{stored} = '{DELETE}' OR {rank_sql(row, 's.`row`')} > {rank_sql(row, 't')}"
    other = T.StructType([*row, T.StructField(LOG_OP, T.StringType())])
    return f"""
        CASE WHEN {sent} = '{SNAPSHOT}' THEN {differs_sql(other)}
        ELSE {stored} <> '{SNAPSHOT}' AND {sent} <> '{DELETE}' AND ({larger}) END
        """


def _past(*per: str) -> WindowSpec:
    return Window.partitionBy(*per).orderBy("sequence").rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _completed(changes: DataFrame) -> Column:
    """Return each row with the cells that were not sent as they were before, since the key's last delete."""
    key, row = struct_type(changes, "key").names, struct_type(changes, "row")
    past = _past("key", "life")

    def cell(value: Column, kind: T.DataType) -> Column:
        if not isinstance(kind, T.StructType):
            return F.last(value, ignorenulls=True).over(past)
        fields = [cell(value.getField(field.name), field.dataType).alias(field.name) for field in kind]
        return F.when(F.max(value.isNotNull()).over(past), F.struct(*fields))

    def column(field: T.StructField) -> Column:
        if field.name in key:
            return F.col(f"key.{quoted(field.name)}")
        return cell(F.col(f"row.{quoted(field.name)}"), field.dataType)

    return F.struct(*(column(field).alias(field.name) for field in row))


def _first_of_runs(rows: DataFrame, tracked: Sequence[str]) -> DataFrame:
    """Return one change of each run of equal ones, at the first one's sequence, with the last one's row."""
    row = struct_type(rows, "row")
    compared = T.StructType([field for field in row if field.name in tracked])
    deleted = F.col("op") == DELETE
    same = F.struct(deleted, F.when(~deleted, comparable(compared, "row")))
    before = F.lag("same").over(Window.partitionBy("key").orderBy("sequence"))
    marked = rows.withColumn("same", same).withColumn("begins", ~F.col("same").eqNullSafe(before))
    counted = marked.withColumn("run", F.sum(F.col("begins").cast("long")).over(_past("key")))
    last = F.max_by(F.struct("op", "row"), F.col("sequence")).alias("last")
    return (
        counted.groupBy("key", "run").agg(F.min("sequence").alias("sequence"), last).select("key", "sequence", "last.*")
    )
