"""Applies any DataFrame of changes to a Delta table, with the parameters and semantics of Spark's AUTO CDC.

For library users with changes of their own, from a file, a table or a micro-batch. Parameter names and types follow
``pyspark.pipelines.create_auto_cdc_flow`` (Spark 4.2, Declarative Pipelines programming guide; those that Spark lacks
follow the Databricks documentation). `apply_changes` does in one call, exactly once and on plain Spark, what that flow
does in a pipeline::

    apply_changes(batch, "/tables/users", keys=["id"], sequence_by="changed_at", apply_as_deletes="op = 'D'",
                  except_column_list=["op", "changed_at"], recorded=Recorded("users", batch_number))

The result does not depend on how changes are split into batches, on the order of the batches, or on repetitions, as
long as calls run one after another. A side table holds what late changes need:

=====================  =========================================================================================
``<path>__tombstones``  deletes: the newest of each key for type 1, all for type 2 (`transforms.tombstones`)
``<path>__changes``     instead, with ``ignore_null_updates`` or tracked columns: all changes as they were sent,
                       above ``tombstone_horizon``; below it one snapshot per key (`transforms.autocdc.change_log`)
=====================  =========================================================================================

One difference from Spark: without tracked columns every change begins a version of type 2, even if it changes nothing.
``track_history_except_column_list=[]`` leaves such versions out, as Databricks does by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.transforms.autocdc.change_log import (
    RowRules,
    append_changes,
    as_stored,
    log_columns,
    rebuild_rows,
)
from silverfold.transforms.autocdc.parameters import Parameters, change_rows, check_changes, check_parameters
from silverfold.transforms.changes import DELETE, as_struct, cached, compute_all, few_at_hand, struct_type
from silverfold.transforms.evolve import follow_columns
from silverfold.transforms.history import END, START, Moments, write_history
from silverfold.transforms.merge import AT_HAND, OP, POSITION, WHOLE_FILES, Recorded, create_empty, settings
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import path_table
from silverfold.transforms.ties import merge_rows, rank_sql, winners
from silverfold.transforms.tombstones import last_truncate, not_buried, write_tombstones
from silverfold.transforms.tombstones import read as read_tombstones

_OTHERS = (
    "the table was made by others or with other parameters: stored_as_scd_type, ignore_null_updates and tracked "
    "columns cannot come or go"
)
_FEW = 1_000
"""Maximum number of winning changes for which the batch is embedded in the query plans that use it."""

_SMALL = 16 << 20
"""Maximum size, in bytes, of a table whose files are rewritten rather than marked with deletion vectors."""

_PLANNING = {"spark.sql.constraintPropagation.enabled": "false"}
"""Spark infers further conditions from the existing ones. The ranking of changes names every column, and each column
doubles the number of inferred conditions: planning took minutes with 20 columns and ran out of memory with 30."""

_CONSTRAINTS, _APPEND_ONLY = "delta.constraints.", "delta.appendOnly"
"""Prefix of the constraint properties, and the append-only property.

With these a table may refuse a batch that its side table already holds.
"""


def apply_changes(
    source: DataFrame,
    path: str,
    *,
    keys: Sequence[str] | Sequence[Column],
    sequence_by: str | Column,
    recorded: Recorded,
    apply_as_deletes: str | Column | None = None,
    apply_as_truncates: str | Column | None = None,
    ignore_null_updates: bool = False,
    column_list: Sequence[str] | Sequence[Column] | None = None,
    except_column_list: Sequence[str] | Sequence[Column] | None = None,
    stored_as_scd_type: Literal[1, 2, "1", "2"] = 1,
    track_history_column_list: Sequence[str] | Sequence[Column] | None = None,
    track_history_except_column_list: Sequence[str] | Sequence[Column] | None = None,
    tombstone_horizon: str | None = None,
) -> None:
    """Apply changes to the Delta table at an absolute path or URL, creating it if necessary. Runs Spark jobs.

    Make only one call at a time for a table, across all processes. Concurrent calls are not always detected, and may
    leave a row that one of them deletes, or two versions of one row.

    Safe to repeat with the same ``recorded``: a batch that was applied is not applied again. Changes may come late,
    twice and in any order, within one call and across calls: for each key the largest ``sequence_by`` wins. Two changes
    of a key should not have the same ``sequence_by``. If they do, one wins as a whole: an upsert over a delete, then
    the row with fewer NULLs, then the larger row. Rows compare column by column, in the order of the lower-case names,
    NULL least. An upsert with the ``sequence_by`` of a truncate survives it, but is not completed from the rows that
    the truncate deletes.

    Parameters other than ``source``, ``recorded`` and ``tombstone_horizon`` must be the same for every batch: with
    other keys or tracked columns the table would mix rows of both, and not every such change is detected. New columns
    are added. New struct fields are added too, if the struct is in no array or map and its other fields stay in order.
    A batch that lacks a column or field is refused: send NULL there. A column's type may become wider, but not the type
    of a field inside it. The side table is part of the table. The table may get properties, clustering and partitions,
    which widening a column removes again, but no constraints or generated columns. Delta widens no column of a table
    with a change data feed and a name with a blank or one of ``,;{}()=``.

    Args:
        source: One row per change: the key, the columns sent, and the columns that identify deletes and order. No other
            thread may write with its session during the call. The session carries what is recorded; afterwards any
            ``txnAppId``, ``txnVersion`` and ``userMetadata`` set by the caller are unset.
        keys: Columns that identify a row. Never NULL except in truncates, never a float.
        sequence_by: Column, or expression, that orders the changes of a key. Its type must be sortable, such as a
            struct of several columns. Neither it nor a field of it is ever NULL.
        recorded: Name of the batch's writer, and the batch number, which must grow from batch to batch. Delta's
            ``RESTORE`` does not reset the number: after restoring the table and its side table, use new numbers.
        apply_as_deletes: Condition under which a row is a delete; all others are upserts of complete rows.
        apply_as_truncates: Condition under which a row deletes all rows with a smaller ``sequence_by``, whatever their
            keys. Only for type 1.
        ignore_null_updates: A NULL in an upsert leaves the column unchanged, and likewise a field of a struct.
        column_list: Columns of the table; by default all of the source's. Keys are always included.
        except_column_list: Columns to exclude from the table; not together with ``column_list``.
        stored_as_scd_type: 1 stores current rows, with ``_position``, the ``sequence_by`` of the row's last change;
            2 stores every version, from ``__START_AT`` up to, not including, ``__END_AT``.
        track_history_column_list: Type 2 only: one version lasts while these columns are equal (-0.0 and 0.0 are not),
            and has the last values of the others. None: every change begins a version.
        track_history_except_column_list: Tracks all columns except these; not together with the former.
        tombstone_horizon: SQL condition on ``t._position``. No change that meets it comes again, in this batch or a
            later one; tombstones and logged changes needed only for such changes are removed.

    Raises:
        PySparkTypeError: A parameter has the wrong type.
        ValueError: The parameters contradict each other, name columns the source lacks, or visibly differ from those
            that the table was created with.
        AnalysisException: An expression cannot be analysed.
        UnusableKey: The values of a key's type cannot identify rows.
        NullKey: A key or ``sequence_by`` is NULL. The table is unchanged.
        SchemaDrift: A column has a reserved name, or the source's columns no longer fit the table's.
        ApplyError: Spark or Delta refused. The table is unchanged.
    """
    parameters = check_parameters(
        source,
        path,
        keys=keys,
        sequence_by=sequence_by,
        recorded=recorded,
        apply_as_deletes=apply_as_deletes,
        apply_as_truncates=apply_as_truncates,
        ignore_null_updates=ignore_null_updates,
        column_list=column_list,
        except_column_list=except_column_list,
        stored_as_scd_type=stored_as_scd_type,
        track_history_column_list=track_history_column_list,
        track_history_except_column_list=track_history_except_column_list,
        tombstone_horizon=tombstone_horizon,
    )
    changes = change_rows(source, parameters)
    check_changes(changes, recorded.app_id, tombstone_horizon)
    per = ["key", "sequence"] if parameters.needs_all_changes or parameters.scd_type == 2 else ["key"]
    with (
        named_errors(recorded.app_id),
        settings(source.sparkSession, _PLANNING),
        cached(winners(changes, *per)) as sent,
    ):
        few = few_at_hand(sent, _FEW)
        if few is None:
            compute_all(sent)  # errors in the batch surface here, before the table gets its columns
        changes = sent if few is None else few
        batch = _Batch(changes, path.rstrip("/"), parameters, recorded, tombstone_horizon, few=few is not None)
        _check_table(batch)
        if parameters.needs_all_changes:
            _rebuild_rows(batch)
        elif parameters.scd_type == 1:
            _update_rows(batch)
        else:
            _add_versions(batch)


@dataclass(frozen=True)
class _Batch:
    """One batch on its way into a table.

    Args:
        changes: The winning changes: one per key for type 1 with complete rows, else one per key and sequence.
        few: The changes are few, and embedded in their query plan.
    """

    changes: DataFrame
    path: str
    parameters: Parameters
    recorded: Recorded
    tombstone_horizon: str | None
    few: bool

    @property
    def tombstones(self) -> str:
        """Path of the side table of deletes."""
        return f"{self.path}__tombstones"

    @property
    def log(self) -> str:
        """Path of the side table of changes as they were sent."""
        return f"{self.path}__changes"

    @property
    def side(self) -> str:
        """Path of the side table in use."""
        return self.log if self.parameters.needs_all_changes else self.tombstones

    @property
    def moments(self) -> tuple[str, ...]:
        """The table's columns that have the type of ``sequence_by``."""
        return (START, END) if self.parameters.scd_type == 2 else (POSITION,)

    def beside(self, name: str) -> Recorded:
        """Return what a commit to a side table records."""
        return Recorded(f"{self.recorded.app_id}/{name}", self.recorded.version, self.recorded.metadata)

    def read(self) -> DataFrame:
        """Return the table."""
        return self.changes.sparkSession.read.format("delta").load(self.path)


def _check_table(batch: _Batch) -> None:
    """Refuse a table made by others, or with parameters that imply other columns or another side table.

    Also refuse a table that may reject rows: its side table would already hold them.
    """
    session = batch.changes.sparkSession
    other = batch.tombstones if batch.side == batch.log else batch.log
    if _exists(session, other):
        raise ValueError(_OTHERS)
    if not _exists(session, batch.path):
        return
    table = batch.read()
    if not {*batch.moments} <= {*table.columns} or not _exists(session, batch.side):
        raise ValueError(_OTHERS)
    properties = _detail(batch)["properties"]
    strict = [name for name in properties if name.startswith(_CONSTRAINTS)]
    strict += [name for name in properties if name == _APPEND_ONLY and properties[name] != "false"]
    strict += [field.name for field in table.schema if not field.nullable]
    if strict:
        raise ValueError(f"the table has a constraint, {strict[0]}: leave rows it would refuse out of the source")


def _prepare_tables(batch: _Batch) -> _Batch:
    """Create the table and its side table, or add their missing columns; return the batch with the table's types.

    Call it before writing anything of the batch, so that a refused batch leaves nothing behind. The side table is
    created first: a table without one was made by somebody else.
    """
    key, row = struct_type(batch.changes, "key"), struct_type(batch.changes, "row")
    session, moment = batch.changes.sparkSession, batch.changes.schema["sequence"].dataType
    columns = T.StructType([*row, *(T.StructField(name, moment) for name in batch.moments)])
    deletes = T.StructType([*key, T.StructField(POSITION, moment)])
    create_empty(session, log_columns(row, moment) if batch.side == batch.log else deletes, batch.side)
    create_empty(session, columns, batch.path)
    follow_columns(session, batch.path, columns, table=batch.recorded.app_id)
    return replace(batch, changes=as_stored(batch.changes, batch.path, batch.moments[0]))


def _update_rows(batch: _Batch) -> None:
    """Write rows of type 1 from changes that carry complete rows."""
    batch = _prepare_tables(batch)
    tombstones = _write_deletes(batch, every=False)
    row = struct_type(batch.changes, "row")
    truncates = batch.parameters.truncates is not None
    newest = not_buried(batch.changes, tombstones, truncates=truncates)
    if truncates:
        newest = newest.unionByName(_truncated(batch, newest, tombstones))
    newer, same = (f"s.`row`.{POSITION} {sign} t.{POSITION}" for sign in (">", "="))
    rows = newest.select("op", _table_row(newest))
    held = few_at_hand(rows, _FEW) if batch.few and not truncates else None  # a truncate may end any number of rows
    merge_rows(
        rows if held is None else held,
        batch.path,
        identity=batch.parameters.keys,
        wins=f"{newer} OR {same} AND {rank_sql(row, 's.`row`')} > {rank_sql(row, 't')}",
        ends=newer,
        recorded=batch.recorded,
        options={} if held is None else _options(batch),
    )


def _truncated(batch: _Batch, newest: DataFrame, tombstones: DataFrame) -> DataFrame:
    """Return deletes of the rows older than the last truncate that no newer change replaces."""
    key, row = struct_type(newest, "key"), struct_type(newest, "row")
    rows = batch.read().select(as_struct(key).alias("key"), POSITION, as_struct(row).alias("row"))
    ended = rows.join(F.broadcast(last_truncate(tombstones, key)), F.col(POSITION) < F.col("truncated"))
    deletes = ended.select("key", F.col("truncated").alias("sequence"), F.lit(DELETE).alias("op"), "row")
    return deletes.join(newest, "key", "left_anti")


def _add_versions(batch: _Batch) -> None:
    """Write versions of type 2 from changes that carry complete rows, where every change begins a version."""
    batch = _prepare_tables(batch)
    write_history(
        batch.changes.withColumns({"frame_seq": F.lit(0).cast("long"), "ordinal": F.lit(0)}),
        batch.path,
        recorded=batch.recorded,
        moments=Moments(by_sequence=True),
        upsert=True,
        tombstones=_write_deletes(batch, every=True),
        few=batch.few,
        options=_options(batch) if batch.few else {},
    )


def _write_deletes(batch: _Batch, *, every: bool) -> DataFrame:
    """Write the tombstones of the batch's deletes; return all tombstones.

    A batch without deletes saves the commit, which is a third of the time of a small batch.
    """
    changes, keys = batch.changes, batch.parameters.keys
    key = (F.col("key").getField(name).alias(name) for name in keys)
    net = changes.select(F.col("op").alias(OP), F.col("sequence").alias(POSITION), *key)
    recorded = batch.beside("tombstones")
    write_tombstones(
        net,
        batch.tombstones,
        keys=keys,
        recorded=recorded,
        tombstone_horizon=batch.tombstone_horizon,
        every=every,
        if_any=True,
    )
    return read_tombstones(changes.sparkSession, batch.tombstones)


def _rebuild_rows(batch: _Batch) -> None:
    """Append the changes to the change log, and rebuild the rows of their keys."""
    parameters = batch.parameters
    rules = RowRules(
        parameters.partial,
        parameters.tracked,
        history=parameters.scd_type == 2,
        truncates=parameters.truncates is not None,
    )
    batch = _prepare_tables(batch)
    append_changes(
        batch.changes,
        batch.log,
        rules=rules,
        recorded=batch.beside("changes"),
        tombstone_horizon=batch.tombstone_horizon,
    )
    rebuild_rows(batch.changes, batch.log, batch.path, rules=rules, recorded=batch.recorded)


def _detail(batch: _Batch) -> Row:
    """Return the row of ``DESCRIBE DETAIL``."""
    (detail,) = batch.changes.sparkSession.sql(f"DESCRIBE DETAIL {path_table(batch.path)}").collect()
    return detail


def _options(batch: _Batch) -> Mapping[str, str]:
    """Return the session options for a MERGE of few rows."""
    return {**AT_HAND, **(WHOLE_FILES if _detail(batch)["sizeInBytes"] <= _SMALL else {})}


def _exists(session: SparkSession, path: str) -> bool:
    try:
        return bool(session.read.format("delta").load(path).columns)
    except AnalysisException:
        return False


def _table_row(changes: DataFrame) -> Column:
    """Return a change as a row of the table; for a delete all columns except key and position are NULL."""
    key, row = struct_type(changes, "key").names, struct_type(changes, "row").names
    cells = (F.col("key" if name in key else "row").getField(name).alias(name) for name in row)
    return F.struct(*cells, F.col("sequence").alias(POSITION)).alias("row")
