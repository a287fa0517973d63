"""Change log of AUTO CDC: stores changes as they were sent, where a row cannot be rebuilt from the stored row alone.

A row may result from several changes: with ``ignore_null_updates`` its cells come from different changes, and with
tracked columns one version spans many. A late change falls between the changes that made the row. So these are stored
in a side table, ``<path>__changes``, and each late change rebuilds all rows of its key from there::

    the table's columns   as sent; all NULL except the key for a delete
    __OP                  update, delete, or snapshot: the net result of all older changes of the key
    __SEQUENCE            the change's sequence

A change that comes twice is stored twice: of those with equal key and sequence one counts (`transforms.ties`). A delete
without a key is a truncate: it deletes all rows up to its sequence. Once no change older than some sequence can come,
older changes are condensed to one snapshot per key that has a row (copies of a change to copies), none for other keys.
The side table is written first. The table's rows depend on it alone, so the process may die between the two commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.transforms.changes import DELETE, SNAPSHOT, UPDATE, as_struct, cached, complete, struct_type, typed_as
from silverfold.transforms.evolve import follow_columns
from silverfold.transforms.history import END, START
from silverfold.transforms.merge import POSITION, Recorded, append, create_empty
from silverfold.transforms.sql import quoted
from silverfold.transforms.ties import comparable, differs_sql, merge_rows, rank, rank_sql

LOG_OP, LOG_SEQUENCE = "__OP", "__SEQUENCE"


@dataclass(frozen=True)
class RowRules:
    """How rows are built from changes.

    Args:
        partial: A NULL in an upsert leaves the cell, or the field of a struct, unchanged.
        tracked: Columns by which versions differ; one lasts while they are equal. None: every change begins a version.
        history: The table has all versions, not only the current rows.
        truncates: Some changes may be truncates.
    """

    partial: bool
    tracked: Sequence[str] | None = None
    history: bool = False
    truncates: bool = False


def log_columns(row: T.StructType, moment: T.DataType) -> T.StructType:
    """Return the columns of the side table for a table with the given row type."""
    return T.StructType([*row, T.StructField(LOG_OP, T.StringType()), T.StructField(LOG_SEQUENCE, moment)])


def append_changes(
    changes: DataFrame, path: str, *, rules: RowRules, recorded: Recorded, tombstone_horizon: str | None = None
) -> None:
    """Add changes to the side table at a path or URL, creating it if necessary. One commit; safe to repeat.

    Args:
        changes: Columns ``key``, ``sequence``, ``op`` and ``row``; one per key and sequence.
        tombstone_horizon: As for `transforms.autocdc.apply.apply_changes`.
    """
    stored = log_columns(struct_type(changes, "row"), changes.schema["sequence"].dataType)
    create_empty(changes.sparkSession, stored, path)
    follow_columns(changes.sparkSession, path, stored, table=recorded.app_id)
    changes = as_stored(changes, path, LOG_SEQUENCE)
    row, key = struct_type(changes, "row"), struct_type(changes, "key").names
    lines = changes.select("key", "sequence", _log_row(row, key))
    if tombstone_horizon is None:
        append(lines.select("row.*"), path, recorded=recorded)
        return
    known = _read_log(changes.sparkSession, path, like=changes)
    merge_rows(
        _condensed(lines, known, rules, tombstone_horizon),
        path,
        identity=[*key, LOG_SEQUENCE],
        wins=_wins(row),
        recorded=recorded,
    )


def rebuild_rows(changes: DataFrame, log: str, path: str, *, rules: RowRules, recorded: Recorded) -> None:
    """Rebuild the rows that the changes affect from the side table. One commit; safe to repeat.

    Args:
        changes: As passed to `append_changes`.
        log: Path or URL of the side table.
        path: Path or URL of the table, which has the columns of ``row``.
    """
    changes = as_stored(changes, log, LOG_SEQUENCE)
    session, key = changes.sparkSession, struct_type(changes, "key")
    own = [START, END] if rules.history else [POSITION]
    moment = changes.schema["sequence"].dataType
    columns = T.StructType([*struct_type(changes, "row"), *(T.StructField(name, moment) for name in own)])
    stored = session.read.format("delta").load(path)
    before = stored.select(as_struct(key).alias("key"), F.col(own[0]).alias("at"), as_struct(columns).alias("row"))
    keys = changes.select("key")
    if rules.truncates:
        keys = keys.unionByName(_keys_truncated(changes, before))
    counting = _effective_changes(_at_keys(_read_log(session, log, like=changes), keys, rules), rules)
    made = _rebuilt_rows(counting, rules, own)
    with cached(made) as rows:
        old = _removed_versions(before, rows, counting) if rules.history else _removed_rows(before, rows, keys)
        merge_rows(
            rows.withColumn("op", F.lit(UPDATE)).unionByName(old.withColumn("op", F.lit(DELETE))).select("op", "row"),
            path,
            identity=[*key.names, START] if rules.history else key.names,
            wins=differs_sql(columns),
            recorded=recorded,
        )


def versions(changes: DataFrame, rules: RowRules) -> DataFrame:
    """Return the versions built from effective changes: ``key``, ``row``, ``__START_AT`` and ``__END_AT``. Lazy."""
    past = _past("key")
    lives = changes.withColumn("life", F.sum((F.col("op") == DELETE).cast("long")).over(past))
    rows = lives.withColumn("row", _completed(changes)) if rules.partial else lives
    begun = _first_of_runs(rows, rules.tracked) if rules.tracked is not None else rows
    following = F.lead("sequence").over(Window.partitionBy("key").orderBy("sequence"))
    ended = begun.withColumn(END, following).where(F.col("op") != DELETE)
    return ended.select("key", "row", F.col("sequence").alias(START), END)


def as_stored(changes: DataFrame, path: str, moment: str) -> DataFrame:
    """Return changes with the types of a table that stores them, which may be wider.

    Args:
        changes: Columns ``key``, ``sequence``, ``op`` and ``row``.
        path: Path or URL of the table, which has the columns of ``row``.
        moment: The table's column that holds the ``sequence``.
    """
    stored = changes.sparkSession.read.format("delta").load(path).schema
    typed = typed_as(complete(changes), stored)
    return typed.select("key", F.col("sequence").cast(stored[moment].dataType).alias("sequence"), "op", "row")


def _read_log(session: SparkSession, path: str, *, like: DataFrame) -> DataFrame:
    """Return the changes in the side table, with the columns of ``like``."""
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
    """Return the keys of all rows in the table, if one of the changes is a truncate."""
    truncated = changes.where(_keyless(changes)).select(F.lit(True)).limit(1)
    return before.select("key").crossJoin(F.broadcast(truncated)).select("key")


def _at_keys(changes: DataFrame, keys: DataFrame, rules: RowRules) -> DataFrame:
    """Return the changes of the given keys, and the truncates."""
    found = changes.join(keys.distinct(), "key", "left_semi")
    if not rules.truncates:
        return found
    return found.where(~_keyless(changes)).unionByName(changes.where(_keyless(changes)))


def _effective_changes(changes: DataFrame, rules: RowRules) -> DataFrame:
    """Return the effective changes: one per key and sequence, none older than the key's snapshot or last truncate."""
    wins = F.struct(F.col("op") == SNAPSHOT, F.col("op") != DELETE, rank(struct_type(changes, "row"), "row"))
    following = F.lead("sequence").over(Window.partitionBy("key").orderBy("sequence", wins))
    last = changes.withColumn("following", following).where(~F.col("sequence").eqNullSafe(F.col("following")))
    changes = last.drop("following")
    began = F.max(F.when(F.col("op") == SNAPSHOT, F.col("sequence"))).over(Window.partitionBy("key"))
    newer = changes.withColumn("began", began).where("began IS NULL OR sequence >= began").drop("began")
    if not rules.truncates:
        return newer
    keyless = _keyless(changes)
    truncated = F.broadcast(changes.where(keyless).agg(F.max("sequence").alias("truncated")))
    return newer.where(~keyless).join(truncated, F.col("sequence") < F.col("truncated"), "left_anti")


def _rebuilt_rows(changes: DataFrame, rules: RowRules, own: Sequence[str]) -> DataFrame:
    """Return the rows built from effective changes: ``key``, ``at`` and ``row``, which includes our own columns."""
    found = versions(changes, rules)
    if not rules.history:
        found = found.where(F.col(END).isNull()).withColumnRenamed(START, POSITION)
    cells = (F.col("row").getField(name).alias(name) for name in struct_type(changes, "row").names)
    return found.select("key", F.col(own[0]).alias("at"), F.struct(*cells, *own).alias("row"))


def _removed_rows(before: DataFrame, made: DataFrame, keys: DataFrame) -> DataFrame:
    return before.join(keys, "key", "left_semi").join(made, "key", "left_anti")


def _removed_versions(before: DataFrame, made: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the stored versions that begin at or after their key's first change and are not among those built."""
    since = changes.groupBy("key").agg(F.min("sequence").alias("since"))
    known = before.join(since, "key").where(F.col("at") >= F.col("since")).drop("since")
    return known.join(made, ["key", "at"], "left_anti")


def _log_row(row: T.StructType, key: Sequence[str]) -> Column:
    """Return a change as a row of the side table."""
    cells = [F.col("key" if name in key else "row").getField(name).alias(name) for name in row.names]
    return F.struct(*cells, F.col("op").alias(LOG_OP), F.col("sequence").alias(LOG_SEQUENCE)).alias("row")


def _condensed(lines: DataFrame, known: DataFrame, rules: RowRules, tombstone_horizon: str) -> DataFrame:
    """Return the new log lines, deletes of the log lines below the horizon, and the snapshots that replace these.

    The snapshot wins over a line for the same key and sequence, then the delete: an old change that comes again goes.
    """
    row, key = struct_type(known, "row"), struct_type(known, "key").names
    older, old = (_below_horizon(frame, tombstone_horizon) for frame in (known, _effective_changes(known, rules)))
    stays = versions(old, rules).where(F.col(END).isNull()).withColumnRenamed(START, "sequence")
    snapshots = stays.withColumn("op", F.lit(SNAPSHOT)).select("key", "sequence", _log_row(row, key))
    changes = [
        lines.withColumns({"op": F.lit(UPDATE), "first": F.lit(0)}),
        older.select("key", "sequence", _log_row(row, key)).withColumns({"op": F.lit(DELETE), "first": F.lit(1)}),
        snapshots.withColumns({"op": F.lit(UPDATE), "first": F.lit(2)}),
    ]
    last = F.max_by(F.struct("op", "row"), F.col("first")).alias("last")
    return reduce(DataFrame.unionByName, changes).groupBy("key", "sequence").agg(last).select("last.*")


def _below_horizon(changes: DataFrame, tombstone_horizon: str) -> DataFrame:
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
    """Return each row with unsent cells filled from earlier changes since the key's last delete."""
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
    """Return one change per run of equal changes, with the sequence of the first and the row of the last."""
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
