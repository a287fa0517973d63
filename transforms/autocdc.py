"""Applies any DataFrame of changes to a Delta table, with the parameters and meanings of Spark's AUTO CDC.

For users of the library who have changes of their own, decoded or not by us: a file, a table, a micro-batch. Parameters
are named as in ``pyspark.pipelines.create_auto_cdc_flow`` (Spark 4.2, Declarative Pipelines programming guide) and mean
the same; what that does in a pipeline, `apply_changes` does in one call, on plain Spark, and exactly once::

    apply_changes(batch, "/tables/users", keys=["id"], sequence_by="changed_at", apply_as_deletes="op = 'D'",
                  except_column_list=["op", "changed_at"], recorded=Recorded("users", batch_number))

The table has the chosen columns and ``_position``, the ``sequence_by`` of the row's last change; deletes are remembered
beside it, in ``<path>__tombstones``, so that late changes lose against them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from transforms.changes import DELETE, INSERT, UPDATE, as_struct, struct_type
from transforms.faults import NULL_KEY, named_errors
from transforms.fold import check_key, fold
from transforms.history import Moments, keep_history
from transforms.merge import OP, POSITION, PRESENT, Recorded, create_empty, merge, net_rows
from transforms.sql import path_table, quoted
from transforms.standing import newer, standing
from transforms.tombstones import bury, not_buried, read


def apply_changes(
    source: DataFrame,
    path: str,
    *,
    keys: Sequence[str],
    sequence_by: str | Column,
    recorded: Recorded,
    apply_as_deletes: str | Column | None = None,
    ignore_null_updates: bool = False,
    column_list: Sequence[str] | None = None,
    except_column_list: Sequence[str] | None = None,
    stored_as_scd_type: Literal[1, 2] = 1,
    settled: str | None = None,
) -> None:
    """Apply changes to the Delta table at a path or URL, which is made where there is none. Runs Spark jobs.

    Safe to repeat with the same ``recorded``: what is applied is not applied again. Changes may come late, twice and in
    any order, within one call and over many: of each key the largest ``sequence_by`` wins.

    Args:
        source: One row per change, with the key, the columns sent and whatever tells deletes and order.
        keys: Columns that name a row. Never NULL, never a float.
        sequence_by: Column, or expression, that orders the changes of a key; of a type that sorts. Never NULL.
        recorded: Whose batch this is, and its number, which must grow from batch to batch.
        apply_as_deletes: Condition under which a row is a delete; all others are upserts of whole rows.
        ignore_null_updates: A NULL in an upsert leaves the column as it is. A late one is then lost as a whole.
        column_list: Columns the table has; all of the source's by default.
        except_column_list: Columns the table does not have; not together with ``column_list``.
        stored_as_scd_type: 1 keeps rows as they stand, 2 every version, from ``__START_AT`` up to ``__END_AT``.
        settled: Condition in SQL on a tombstone ``t._position`` below which no change comes again: it is forgotten.

    Raises:
        ValueError: The parameters contradict each other, or name columns the source lacks.
        UnusableKey: A key is of a type by whose values rows cannot be told apart.
        NullKey: A key or ``sequence_by`` is NULL. The table stands as it was.
        ApplyError: Spark or Delta refused. The table stands as it was.
    """
    columns = _columns(source, keys, column_list, except_column_list)
    sequence, deletes = _column(sequence_by), _delete(apply_as_deletes)
    changes = _changes(source, keys, columns, sequence=sequence, deletes=deletes, nulls_keep=ignore_null_updates)
    check_key(struct_type(changes, "key"), table=recorded.app_id)
    tombstones = f"{path}__tombstones"
    with named_errors(recorded.app_id):
        if ignore_null_updates and stored_as_scd_type == 1:
            changes = _in_time(changes, path, tombstones)
        net = net_rows(fold(changes, by_sequence=True, upsert=True), position="sequence")
        bury(net, tombstones, keys=keys, recorded=_beside(recorded), settled=settled)
        if stored_as_scd_type == 1:
            kind = net.drop(OP, POSITION, PRESENT).schema.add(net.schema[POSITION])
            create_empty(source.sparkSession, kind, path_table(path))
            living = not_buried(net, tombstones, keys=keys)
            merge(living, path_table(path), keys=keys, recorded=recorded, upsert=True)
            return
        buried = read(source.sparkSession, tombstones)
        moments = Moments(by_sequence=True)
        keep_history(changes, path, recorded=recorded, moments=moments, upsert=True, tombstones=buried)


def _in_time(changes: DataFrame, path: str, tombstones: str) -> DataFrame:
    """Leave out late changes: folded with later ones, what they carry would pass for new."""
    session, key, row = changes.sparkSession, struct_type(changes, "key"), struct_type(changes, "row")
    position = StructField(POSITION, changes.schema["sequence"].dataType)
    create_empty(session, StructType([*key, position]), path_table(tombstones))
    create_empty(session, StructType([*row, position]), path_table(path))
    stood = standing(read(session, path), changes, bounds={}, few=False)
    return newer(changes, stood, read(session, tombstones).select(as_struct(key).alias("key"), POSITION))


def _beside(recorded: Recorded) -> Recorded:
    return Recorded(f"{recorded.app_id}/tombstones", recorded.version, recorded.metadata)


def _columns(
    source: DataFrame, keys: Sequence[str], column_list: Sequence[str] | None, except_column_list: Sequence[str] | None
) -> list[str]:
    """Return the table's columns, in the order of the source."""
    if column_list is not None and except_column_list is not None:
        raise ValueError("column_list and except_column_list are both given")
    named = [*keys, *(column_list or []), *(except_column_list or [])]
    unknown = sorted(set(named) - set(source.columns))
    if unknown or not keys:
        raise ValueError(f"the source lacks {', '.join(unknown)}" if unknown else "keys is empty")
    left_out = set(except_column_list or []) - set(keys)
    wanted = set(source.columns if column_list is None else [*keys, *column_list]) - left_out
    return [name for name in source.columns if name in wanted]


def _column(expression: str | Column) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def _delete(condition: str | Column | None) -> Column:
    return F.lit(False) if condition is None else F.coalesce(_column(condition), F.lit(False))


def _changes(
    source: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    sequence: Column,
    deletes: Column,
    nulls_keep: bool,
) -> DataFrame:
    """Return the source as change rows (`transforms.changes`)."""
    sent = F.array_compact(F.array(*(F.when(F.col(quoted(name)).isNotNull(), F.lit(name)) for name in columns)))
    told = source.select(
        F.lit(0).cast("long").alias("frame_seq"),
        F.lit(0).alias("ordinal"),
        F.when(deletes, F.lit(DELETE)).otherwise(F.lit(UPDATE if nulls_keep else INSERT)).alias("op"),
        F.struct(*(quoted(name) for name in keys)).alias("key"),
        F.struct(*(quoted(name) for name in columns)).alias("row"),
        (F.when(~deletes, sent) if nulls_keep else F.lit(None).cast("array<string>")).alias("present"),
        sequence.alias("sequence"),
    )
    null = reduce(or_, (F.col("key").getField(name).isNull() for name in keys), F.col("sequence").isNull())
    return told.where(F.when(null, F.raise_error(F.lit(NULL_KEY)).cast("boolean")).otherwise(F.lit(True)))
