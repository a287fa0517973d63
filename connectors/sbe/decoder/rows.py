"""Decodes a column of SBE messages in Spark: one row for each message of a template, or for each unreadable message.

Works on any table with a binary column, where each value is one complete message with its header first: a Delta or
Parquet table, a stream, bronze. The schema is read once, on the driver; executors get it resolved::

    quotes = decode(spark.read.parquet("frames"), Path("market.xml"), template="Quote", column="body")
    lost = errors(spark.read.parquet("frames"), Path("market.xml"), column="body")

Columns are those of `connectors.wire.sbe.columnar` with Spark types: unsigned integers widened by one size, uint64 as
decimal(20, 0), enums as names (a value without a name in its raw form), sets as arrays of names (bits without a name
left out), composites as structs, groups as arrays of structs. Absent and null are NULL; a null composite has a NULL in
its first member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from silverfold.conf.errors import ConfigError
from silverfold.conf.names import caseless
from silverfold.connectors.wire.sbe.columnar.decode import ERROR, arrow_schema, column_reader
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from silverfold.transforms.sql import quoted


def decode(
    frames: DataFrame,
    schema: Schema | Path,
    *,
    template: str,
    column: str = "body",
    keep: Sequence[str] | None = None,
    into: str | None = None,
    options: ColumnOptions | None = None,
) -> DataFrame:
    """Return one row for each readable message of the template, in the order of its partition. Lazy.

    Messages of other templates and unreadable messages have no row; `errors` returns the latter.

    Args:
        schema: A loaded schema, or the XML file. Its includes are read here; executors need no file.
        template: Name of the message.
        column: The binary column that holds the messages.
        keep: Columns to retain; all others by default.
        into: Put the message into one struct column of this name, for fields that clash with retained columns.
        options: Column options; ``types`` is always ``spark``.

    Raises:
        SchemaError: The XML is invalid.
        ConfigError: There is no such template or column, or two columns would have the same name.
    """
    loaded = _loaded(schema)
    if template not in loaded.messages:
        raise _refusal(loaded.file, "template", template, f"one of {', '.join(loaded.messages)}")
    chosen = _for_spark(options)
    fields = from_arrow_schema(arrow_schema(loaded, template, chosen)).fields
    if into is not None:
        fields = [StructField(into, StructType(fields))]
    retained = _retained_columns(frames, column, keep)
    if not retained and not fields:
        raise _refusal("frames", "keep", "none", "some column, as the message has no fields")
    result = _result_type(frames, retained, fields)
    read = list(dict.fromkeys([*retained, column]))
    step = _RowStep(loaded, template, read.index(column), len(retained), into is not None, chosen, tuple(result.names))
    return _read(frames, read).mapInArrow(step, result)


def errors(
    frames: DataFrame,
    schema: Schema | Path,
    *,
    column: str = "body",
    keep: Sequence[str] | None = None,
    options: ColumnOptions | None = None,
) -> DataFrame:
    """Return one row for each unreadable message, with its error. Lazy.

    Besides the retained columns there are ``error_class``, ``reason``, ``element`` (``Quote.legs[1].blob``, empty if
    unknown), ``offset`` (from the first byte of the message) and ``message``, the full text. NULL counts as an empty
    message. A template the schema lacks is ``UNKNOWN_TEMPLATE``. Arguments and errors as for `decode`.
    """
    loaded = _loaded(schema)
    retained = _retained_columns(frames, column, keep)
    result = _result_type(frames, retained, from_arrow_schema(pa.schema(list(ERROR)[1:])).fields)
    read = list(dict.fromkeys([*retained, column]))
    step = _ErrorStep(loaded, read.index(column), len(retained), _for_spark(options), tuple(result.names))
    return _read(frames, read).mapInArrow(step, result)


def _read(frames: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the columns by number, for a step: Spark does not pass on those whose names have a dot or a backtick."""
    return frames.select(*(F.col(quoted(name)).alias(f"c{number}") for number, name in enumerate(columns)))


def _loaded(schema: Schema | Path) -> Schema:
    return schema if isinstance(schema, Schema) else load_schema(schema)


def _for_spark(options: ColumnOptions | None) -> ColumnOptions:
    return replace(options or ColumnOptions(), types="spark")


def _retained_columns(frames: DataFrame, column: str, keep: Sequence[str] | None) -> list[str]:
    """Return the columns to retain, after checking that they and the column of messages exist."""
    if column not in frames.columns or not isinstance(frames.schema[column].dataType, BinaryType):
        found = frames.schema[column].simpleString() if column in frames.columns else column
        raise _refusal("frames", "column", found, "a binary column")
    retained = [name for name in frames.columns if name != column] if keep is None else list(dict.fromkeys(keep))
    for name in retained:
        if name not in frames.columns:
            raise _refusal("frames", "keep", name, f"some of {', '.join(frames.columns)}")
    return retained


def _result_type(frames: DataFrame, retained: Sequence[str], fields: Sequence[StructField]) -> StructType:
    """Return the columns of the result; to Spark, names that differ only in case are equal."""
    taken = {caseless(name) for name in retained}
    for field in fields:
        if caseless(field.name) in taken:
            raise _refusal("frames", "keep", field.name, "columns that the result lacks, or the result in a struct")
        taken.add(caseless(field.name))
    return StructType([*(frames.schema[name] for name in retained), *fields])


def _refusal(file: str, key: str, found: str, allowed: str) -> ConfigError:
    return ConfigError(file=file, key=key, found=found, allowed=allowed)


@dataclass(frozen=True)
class _RowStep:
    schema: Schema
    template: str
    column: int
    retained: int
    into: bool
    options: ColumnOptions
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = column_reader(self.schema, self.options)
        for batch in batches:
            for part in reader.parts(batch.column(self.column), only={self.template}):
                if self.template in part.rows:
                    origin, rows = part.rows[self.template]
                    columns = [rows.to_struct_array()] if self.into else rows.columns
                    beside = [batch.column(at).take(pa.array(origin)) for at in range(self.retained)]
                    yield pa.RecordBatch.from_arrays([*beside, *columns], names=list(self.names))


@dataclass(frozen=True)
class _ErrorStep:
    schema: Schema
    column: int
    retained: int
    options: ColumnOptions
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = column_reader(self.schema, self.options)
        for batch in batches:
            messages = batch.column(self.column)
            for part in reader.parts(messages):
                origin, *columns = reader.errors(messages, part.unread).columns
                beside = [batch.column(at).take(origin) for at in range(self.retained)]
                yield pa.RecordBatch.from_arrays([*beside, *columns], names=list(self.names))
