"""Change rows: the one format in which decoders pass row-level changes to the engine.

A decoder may omit the columns marked *; they are then NULL for every row:

=================  ===============================================================================
``frame_seq``      position of the last frame that contributed to the change
``ordinal`` *      order inside the frame, from 0
``op``             ``insert``, ``update``, ``delete`` or ``snapshot`` (a row of a snapshot)
``key``            struct of the key columns
``old_key`` *      the same struct, only where an update moved the key
``row``            struct of the table's columns, typed; NULL for a delete
``present`` *      names of the columns of ``row`` that were sent; NULL means all. Absent differs from NULL
``sequence`` *     only for sources whose order is not the landing order
``source_time`` *  when the source made the change
``error`` *        struct<error_class, reason>; such a row is not a change, its other columns may be NULL
=================  ===============================================================================

Stream and epoch are those of the cut, so rows do not repeat them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from silverfold.conf.names import caseless
from silverfold.transforms.spark_errors import was_cancelled, was_interrupted
from silverfold.transforms.sql import quoted

INSERT, UPDATE, DELETE, SNAPSHOT = "insert", "update", "delete", "snapshot"

ERROR = T.StructType([T.StructField("error_class", T.StringType()), T.StructField("reason", T.StringType())])

FEW_BYTES = 16 << 20
"""Maximum size of rows embedded in a query plan. Up to four times as much is collected here to be measured."""


def change_type(key: T.StructType, row: T.StructType) -> T.StructType:
    """Return the schema of change rows for a table: every column of the contract, in order."""
    return (
        T.StructType()
        .add("frame_seq", T.LongType())
        .add("ordinal", T.IntegerType())
        .add("op", T.StringType())
        .add("key", key)
        .add("old_key", key)
        .add("row", row)
        .add("present", T.ArrayType(T.StringType()))
        .add("sequence", T.StringType())
        .add("source_time", T.TimestampType())
        .add("error", ERROR)
    )


def struct_type(frame: DataFrame, name: str) -> T.StructType:
    """Return the type of a column that is a struct by contract, such as ``key`` or ``row``."""
    kind = frame.schema[name].dataType
    assert isinstance(kind, T.StructType), f"{name} is a struct by contract"
    return kind


def as_struct(kind: T.StructType) -> Column:
    """Return columns of a silver table as a struct, as in change rows."""
    return F.struct(*(F.col(quoted(name)) for name in kind.names)).cast(kind)


def complete(changes: DataFrame, *others: str) -> DataFrame:
    """Return the change rows with omitted columns added as typed NULLs. Lazy.

    Args:
        others: Columns to retain besides those of the contract.
    """
    have = changes.schema
    key, row = struct_type(changes, "key"), struct_type(changes, "row")
    return changes.select(
        *(
            F.col(field.name) if field.name in have.fieldNames() else F.lit(None).cast(field.dataType).alias(field.name)
            for field in change_type(key, row)
        ),
        *others,
    )


def typed_as(changes: DataFrame, columns: T.StructType) -> DataFrame:
    """Return the change rows with keys and rows cast to a table's types, which may be wider than the source's. Lazy."""
    kinds = {caseless(field.name): field.dataType for field in columns}

    def typed(name: str) -> T.StructType:
        kind = struct_type(changes, name)
        return T.StructType([T.StructField(f.name, kinds.get(caseless(f.name), f.dataType)) for f in kind])

    differing = {name: F.col(name).cast(typed(name)) for name in _STRUCTS if typed(name) != struct_type(changes, name)}
    return changes.withColumns(differing) if differing else changes


_STRUCTS = ("key", "old_key", "row")


def at_hand(rows: DataFrame) -> DataFrame:
    """Compute a few rows now and return them as a DataFrame with its data in the query plan. Runs one Spark job."""
    return from_arrow(rows.sparkSession, rows.toArrow(), rows.schema)


def few_at_hand(rows: DataFrame, most: int) -> DataFrame | None:
    """Return the rows as `at_hand` does if there are at most ``most`` and none is large; else None. Runs Spark jobs.

    Also return None if collecting them fails: whoever computes the rows later meets the same error.
    """
    sizes = _sizes_sql(rows.schema, "")
    if sizes is None:
        return None
    is_small = F.expr(f"{_sum_sql(sizes)} <= {4 * FEW_BYTES // most if most else 0}")
    small = F.when(is_small, F.struct("*")).alias("row")  # large rows are never collected, not even to be measured
    try:
        found = rows.select(small).limit(most + 1).toArrow()["row"].combine_chunks()
        is_few = len(found) <= most and not found.null_count and found.nbytes <= FEW_BYTES
        return from_arrow(rows.sparkSession, pa.Table.from_struct_array(found), rows.schema) if is_few else None
    except (PySparkException, Py4JError, pa.ArrowException, ValueError, TypeError) as error:
        if was_interrupted(error) or was_cancelled(error):
            raise
        return None


def _sizes_sql(kind: T.DataType, value: str, depth: int = 0) -> list[str] | None:
    """Return SQL for the approximate size in bytes of each part of a value; None if unknown, or unsupported by Arrow.

    Args:
        value: SQL of the value; empty for top-level columns.
    """
    match kind:
        case T.StringType() | T.BinaryType():
            return [f"octet_length({value})"]
        case T.StructType():
            prefix = f"{value}." if value else ""
            parts = [_sizes_sql(field.dataType, prefix + quoted(field.name), depth) for field in kind]
            return None if None in parts else [size for part in parts for size in part or ()]
        case T.ArrayType():
            sizes = _sizes_sql(kind.elementType, f"each_{depth}", depth + 1)
            return None if sizes is None else [_sum_sql(f"transform({value}, each_{depth} -> {_sum_sql(sizes)})")]
        case T.MapType():
            entry = T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)])
            return _sizes_sql(T.ArrayType(entry), f"map_entries({value})", depth)
        case T.NumericType() | T.BooleanType() | T.DateType() | T.TimestampType() | T.TimestampNTZType():
            return ["16"]
        case _:
            return None


def _sum_sql(sizes: Sequence[str] | str) -> str:
    """Return SQL for the sum of sizes, or of an array of sizes; NULL counts as 0.

    Not a chain of ``+``: with a thousand columns it would overflow Spark's stack.
    """
    array = sizes if isinstance(sizes, str) else f"array({', '.join(['0', *sizes])})"
    return f"coalesce(aggregate({array}, 0L, (sum, size) -> sum + coalesce(size, 0)), 0L)"


def compute_all(rows: DataFrame) -> None:
    """Compute every row and discard it, so that any error is raised here. Runs a Spark job."""
    rows.write.format("noop").mode("overwrite").save()


def from_arrow(session: SparkSession, rows: pa.Table, kind: T.StructType) -> DataFrame:
    """Return a few Arrow rows as a DataFrame that holds them. Runs no job."""
    if not rows.num_rows:  # pyspark cannot convert an empty table
        return session.createDataFrame([], kind)
    # Spark 4.2 takes an empty batch for the end of the data: rows of later batches would be lost.
    full = pa.Table.from_batches([batch for batch in rows.to_batches() if batch.num_rows])
    try:
        return session.createDataFrame(full, kind)
    except pa.ArrowTypeError:  # pyspark 4.0 makes structs of nullable fields, which pyarrow 19 casts to no others
        nullable = kind.toNullable()
        return session.createDataFrame(full.cast(to_arrow_schema(nullable)), nullable)


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Cache a DataFrame inside the block: it is computed at most once. Lazy."""
    persisted = frame.persist()
    try:
        yield persisted
    finally:
        persisted.unpersist()
