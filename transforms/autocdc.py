"""Applies any DataFrame of changes to a Delta table, with the parameters and meanings of Spark's AUTO CDC.

For users of the library who have changes of their own, decoded or not by us: a file, a table, a micro-batch. Parameters
are named and typed as in ``pyspark.pipelines.create_auto_cdc_flow`` (Spark 4.2, Declarative Pipelines programming
guide; those Spark has not yet, as Databricks documents them). What that does in a pipeline, `apply_changes` does in one
call, on plain Spark, and exactly once::

    apply_changes(batch, "/tables/users", keys=["id"], sequence_by="changed_at", apply_as_deletes="op = 'D'",
                  except_column_list=["op", "changed_at"], recorded=Recorded("users", batch_number))

However the same changes are split into batches, in whatever order these come, and however often: one call after the
other, they come to the same table. What late changes need is in a table beside it:

=====================  =========================================================================================
``<path>__tombstones``  deletes: the newest of each key for type 1, all for type 2 (`transforms.tombstones`)
``<path>__changes``     instead, with ``ignore_null_updates`` or tracked columns: all changes as they were sent,
                       above ``settled``; below it what they come to (`transforms.change_log`)
=====================  =========================================================================================

One thing differs: without tracked columns every change begins a version of type 2, also one that changes nothing.
``track_history_except_column_list=[]`` leaves those out, as Databricks does by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from transforms.autocdc_parameters import Parameters, checked
from transforms.change_log import LOG_OP, LOG_SEQUENCE, Making, as_stored, log_columns, remake, remember
from transforms.changes import DELETE, INSERT, as_struct, cached, computed, few_at_hand, struct_type
from transforms.evolve import check_names, check_types, follow_columns
from transforms.fold import check_key
from transforms.history import END, START, Moments, keep_history
from transforms.merge import AT_HAND, OP, POSITION, WHOLE_FILES, Recorded, create_empty, settings
from transforms.spark_errors import NULL_KEY, named_errors
from transforms.sql import has_order, path_table, quoted
from transforms.ties import merge_rows, rank_sql, winners
from transforms.tombstones import last_truncate, not_buried, write_tombstones
from transforms.tombstones import read as read_tombstones

_OTHERS = (
    "the table was made by others or with other parameters: stored_as_scd_type, ignore_null_updates and tracked "
    "columns cannot come or go"
)
_FEW = 1_000
"""Changes that win, up to which a batch is part of the plans of what is done with it."""

_SMALL = 16 << 20
"""Bytes of a table whose files are written anew rather than marked."""

_PLANNING = {"spark.sql.constraintPropagation.enabled": "false"}
"""Spark looks for conditions that follow from those there are. What says which change counts names every column, and
each column doubles what Spark finds: of 20 columns it planned for minutes, of 30 its memory did not suffice."""

_CONSTRAINTS, _APPEND_ONLY = "delta.constraints.", "delta.appendOnly"
"""How a property begins, and what one is, by which a table may refuse a batch when the table beside it has it."""


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
    """Apply changes to the Delta table at an absolute path or URL, which is made where there is none. Runs Spark jobs.

    One call at a time, whoever makes it: two at once are not always noticed, and may leave a row that one of them
    deletes, or two versions of one.

    Safe to repeat with the same ``recorded``: what is applied is not applied again. Changes may come late, twice and in
    any order, within one call and over many: of each key the largest ``sequence_by`` wins. Two changes of a key should
    not have the same; if they do, one wins as a whole: an upsert over a delete, then the row with fewer NULLs, then the
    larger row, its columns compared in the order of their names in small letters, NULL least. An upsert with the
    ``sequence_by`` of a truncate stands, but what the truncate deletes does not complete it.

    Parameters other than ``source``, ``recorded`` and ``settled`` are the same from batch to batch: with other keys or
    tracked columns the table would have rows of both, and not every such change is noticed. New columns are added, and
    fields of structs that are in no array or map and whose other fields stay in their order; a batch that lacks one is
    refused: let it have NULL there. A column's type may become wider, not that
    of a field inside. What is beside the table is part of it. It may get properties of its own, clustering and
    partitions, which a column's wider type takes away again, but no constraints or generated columns.

    Args:
        source: One row per change, with the key, the columns sent and whatever tells deletes and order. Meanwhile no
            other thread writes with its session, which carries what is recorded, and has no ``txnAppId``,
            ``txnVersion`` or ``userMetadata`` of the caller's afterwards.
        keys: Columns that name a row. Never NULL but in truncates, never a float.
        sequence_by: Column, or expression, that orders the changes of a key; of a type that sorts, such as a struct of
            several columns. Neither it nor a field of it is ever NULL.
        recorded: Whose batch this is, and its number, which must grow from batch to batch. Delta's ``RESTORE`` leaves
            the number as it was: after one, of the table and of what is beside it, the batches want new numbers.
        apply_as_deletes: Condition under which a row is a delete; all others are upserts of whole rows.
        apply_as_truncates: Condition under which a row deletes all rows with a smaller ``sequence_by``, whatever their
            keys. Only for type 1.
        ignore_null_updates: A NULL in an upsert leaves the column as it is, and a field of a struct likewise.
        column_list: Columns the table has; all of the source's by default. Keys are always among them.
        except_column_list: Columns the table does not have; not together with ``column_list``.
        stored_as_scd_type: 1 keeps rows as they are now, with ``_position``, the ``sequence_by`` of the row's last
            change; 2 every version, from ``__START_AT`` up to, not including, ``__END_AT``.
        track_history_column_list: Of type 2: one version lasts while these columns are equal, as -0.0 and 0.0 are not,
            and has the last values of the others. None: every change begins a version.
        track_history_except_column_list: The same, of all columns but these; not together with the other.
        tombstone_horizon: Condition in SQL on ``t._position`` below which no change comes again, neither in this batch nor in
            later ones: what was remembered for such changes is forgotten.

    Raises:
        PySparkTypeError: A parameter is of another type.
        ValueError: The parameters contradict each other, name columns the source lacks, or are seen not to be those
            that the table was made with.
        AnalysisException: An expression cannot be understood.
        UnusableKey: A key is of a type by whose values rows cannot be told apart.
        NullKey: A key or ``sequence_by`` is NULL. The table stands as it was.
        SchemaDrift: A column bears a name of ours, or the source's columns do not fit the table's any more.
        ApplyError: Spark or Delta refused. The table stands as it was.
    """
    parameters = checked(
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
    changes = _changes(source, parameters)
    _check(changes, recorded.app_id, tombstone_horizon)
    per = ["key", "sequence"] if parameters.needs_all_changes or parameters.scd_type == 2 else ["key"]
    with (
        named_errors(recorded.app_id),
        settings(source.sparkSession, _PLANNING),
        cached(winners(changes, *per)) as sent,
    ):
        few = few_at_hand(sent, _FEW)
        if few is None:
            computed(sent)  # whatever refuses the batch does it here, before the table has its columns
        changes = sent if few is None else few
        batch = _Batch(changes, path.rstrip("/"), parameters, recorded, tombstone_horizon, few=few is not None)
        _check_made(batch)
        if parameters.needs_all_changes:
            _remake_rows(batch)
        elif parameters.scd_type == 1:
            _update_rows(batch)
        else:
            _add_versions(batch)


def _changes(source: DataFrame, parameters: Parameters) -> DataFrame:
    """Return the source as change rows (`transforms.changes`); a truncate is a delete without key."""
    keys = parameters.keys
    truncates = F.lit(False) if parameters.truncates is None else parameters.truncates
    deletes = truncates | parameters.deletes
    key = [F.when(~truncates, F.col(quoted(name))).alias(name) for name in keys]
    row = F.struct(*(quoted(name) for name in parameters.columns))
    rows = source.select(
        F.struct(*key).alias("key"),
        parameters.sequence.alias("sequence"),
        F.when(deletes, F.lit(DELETE)).otherwise(F.lit(INSERT)).alias("op"),
        F.when(~deletes, row).alias("row"),
        truncates.alias("truncates"),
    )
    no_key = reduce(or_, (F.col("key").getField(name).isNull() for name in keys)) & ~F.col("truncates")
    null = no_key | _has_null(F.col("sequence"), rows.schema["sequence"].dataType)
    complete = rows.where(F.when(null, F.raise_error(F.lit(NULL_KEY)).cast("boolean")).otherwise(F.lit(True)))
    stored = complete.drop("truncates").schema.toNullable()  # in a table, any part of a value may be NULL
    return complete.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in stored))


def _has_null(value: Column, kind: T.DataType) -> Column:
    fields = kind if isinstance(kind, T.StructType) else ()
    return reduce(or_, (_has_null(value.getField(field.name), field.dataType) for field in fields), value.isNull())


def _check(changes: DataFrame, table: str, tombstone_horizon: str | None) -> None:
    """Refuse keys, names and an order that do not work."""
    key, moment = struct_type(changes, "key"), changes.schema["sequence"].dataType
    check_key(key, table=table)
    check_names(key, reserved=(OP, POSITION), table=table)
    check_names(struct_type(changes, "row"), reserved=(POSITION, START, END, LOG_OP, LOG_SEQUENCE), table=table)
    check_types(struct_type(changes, "row"), table=table)
    if not has_order(moment):
        raise ValueError(f"sequence_by is {moment.simpleString()}, which has no order")
    if tombstone_horizon is not None:
        changes.select(F.col("sequence").alias(POSITION)).alias("t").where(tombstone_horizon).schema  # noqa: B018 - analyses it


@dataclass(frozen=True)
class _Batch:
    """One batch on its way into a table.

    Args:
        changes: Those that win: where rows of type 1 are sent whole one per key, else one per key and sequence.
        few: They are few, and part of their plan.
    """

    changes: DataFrame
    path: str
    parameters: Parameters
    recorded: Recorded
    tombstone_horizon: str | None
    few: bool

    @property
    def tombstones(self) -> str:
        """Where deletes are remembered."""
        return f"{self.path}__tombstones"

    @property
    def log(self) -> str:
        """Where changes are remembered as they were sent."""
        return f"{self.path}__changes"

    @property
    def side(self) -> str:
        """Which of both there is."""
        return self.log if self.parameters.needs_all_changes else self.tombstones

    @property
    def moments(self) -> tuple[str, ...]:
        """The table's columns that have the type of ``sequence_by``."""
        return (START, END) if self.parameters.scd_type == 2 else (POSITION,)

    def beside(self, name: str) -> Recorded:
        """Return what is recorded in a table beside the main one."""
        return Recorded(f"{self.recorded.app_id}/{name}", self.recorded.version, self.recorded.metadata)

    def read(self) -> DataFrame:
        """Return the table."""
        return self.changes.sparkSession.read.format("delta").load(self.path)


def _check_made(batch: _Batch) -> None:
    """Refuse a table that was made by others, or with parameters that have other columns or other tables beside it.

    And one that may refuse rows: the table beside it has them by then.
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


def _fitted(batch: _Batch) -> _Batch:
    """Return the batch with the types of the table, which is there then, and has its columns.

    To be asked for before anything of the batch is written: one that is refused is to leave nothing behind. The table
    beside it is made first: where that is not, the table is somebody else's.
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
    """Write rows of type 1 that are sent whole."""
    batch = _fitted(batch)
    tombstones = _buried(batch, every=False)
    row = struct_type(batch.changes, "row")
    truncates = batch.parameters.truncates is not None
    newest = not_buried(batch.changes, tombstones, truncates=truncates)
    if truncates:
        newest = newest.unionByName(_truncated(batch, newest, tombstones))
    newer, same = (f"s.`row`.{POSITION} {sign} t.{POSITION}" for sign in (">", "="))
    rows = newest.select("op", _line(newest))
    held = few_at_hand(rows, _FEW) if batch.few and not truncates else None  # those that a truncate ends MERGE finds
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
    """Write versions of type 2 of rows that are sent whole, where every change begins one."""
    batch = _fitted(batch)
    keep_history(
        batch.changes.withColumns({"frame_seq": F.lit(0).cast("long"), "ordinal": F.lit(0)}),
        batch.path,
        recorded=batch.recorded,
        moments=Moments(by_sequence=True),
        upsert=True,
        tombstones=_buried(batch, every=True),
        few=batch.few,
        options=_options(batch) if batch.few else {},
    )


def _buried(batch: _Batch, *, every: bool) -> DataFrame:
    """Remember the deletes; return the tombstones. A batch without any spares the commit: a third of a small one."""
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


def _remake_rows(batch: _Batch) -> None:
    """Remember the changes, and make anew the rows of their keys."""
    parameters = batch.parameters
    making = Making(
        parameters.partial,
        parameters.tracked,
        history=parameters.scd_type == 2,
        truncates=parameters.truncates is not None,
    )
    batch = _fitted(batch)
    remember(
        batch.changes,
        batch.log,
        making=making,
        recorded=batch.beside("changes"),
        tombstone_horizon=batch.tombstone_horizon,
    )
    remake(batch.changes, batch.log, batch.path, making=making, recorded=batch.recorded)


def _detail(batch: _Batch) -> Row:
    """Return what Delta tells of the table."""
    (told,) = batch.changes.sparkSession.sql(f"DESCRIBE DETAIL {path_table(batch.path)}").collect()
    return told


def _options(batch: _Batch) -> Mapping[str, str]:
    """Return with which options few rows are merged."""
    return {**AT_HAND, **(WHOLE_FILES if _detail(batch)["sizeInBytes"] <= _SMALL else {})}


def _exists(session: SparkSession, path: str) -> bool:
    try:
        return bool(session.read.format("delta").load(path).columns)
    except AnalysisException:
        return False


def _line(changes: DataFrame) -> Column:
    """Return a change as a row of the table; of a delete all but key and position is NULL."""
    key, row = struct_type(changes, "key").names, struct_type(changes, "row").names
    cells = (F.col("key" if name in key else "row").getField(name).alias(name) for name in row)
    return F.struct(*cells, F.col("sequence").alias(POSITION)).alias("row")
