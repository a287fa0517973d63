"""The parameters of AUTO CDC: checked as ``create_auto_cdc_flow`` does, and applied to the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Literal

from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import ApplyError
from silverfold.conf.names import caseless
from silverfold.transforms.autocdc.change_log import LOG_OP, LOG_SEQUENCE
from silverfold.transforms.changes import DELETE, INSERT, struct_type
from silverfold.transforms.evolve import check_names, check_types
from silverfold.transforms.fold import check_key
from silverfold.transforms.history import END, START
from silverfold.transforms.merge import OP, POSITION, Recorded
from silverfold.transforms.spark_errors import NULL_KEY
from silverfold.transforms.sql import has_order, quoted

_TYPES: dict[str, Literal[1, 2]] = {"1": 1, "2": 2}


@dataclass(frozen=True)
class Parameters:
    """Checked parameters of `transforms.autocdc.apply.apply_changes`; columns have the names the source uses."""

    keys: Sequence[str]
    columns: Sequence[str]
    sequence: Column
    deletes: Column
    truncates: Column | None
    partial: bool
    scd_type: Literal[1, 2]
    tracked: Sequence[str] | None

    @property
    def needs_all_changes(self) -> bool:
        """Whether a row cannot be rebuilt from the stored row alone: the change log is needed."""
        return self.partial or self.tracked is not None


def check_parameters(
    source: Any,
    path: Any,
    *,
    keys: Any,
    sequence_by: Any,
    recorded: Any,
    apply_as_deletes: Any,
    apply_as_truncates: Any,
    ignore_null_updates: Any,
    column_list: Any,
    except_column_list: Any,
    stored_as_scd_type: Any,
    track_history_column_list: Any,
    track_history_except_column_list: Any,
    tombstone_horizon: Any,
) -> Parameters:
    """Check the parameters of `transforms.autocdc.apply.apply_changes`, and raise the errors documented there."""
    if not isinstance(source, DataFrame):
        raise _wrong_type("source", "DataFrame", source)
    if not isinstance(path, str):
        raise _wrong_type("path", "str", path)
    if not path.startswith("/") and ":/" not in path:
        raise ValueError(f"path is {path!r}, neither an absolute path nor a URL")
    if not isinstance(tombstone_horizon, str | None):
        raise _wrong_type("tombstone_horizon", "str", tombstone_horizon)
    if not isinstance(recorded, Recorded) or not isinstance(recorded.version, int):
        raise _wrong_type("recorded", "Recorded, whose version is an int", recorded)
    if not recorded.app_id or not 0 <= recorded.version < 1 << 63:
        raise ValueError(f"recorded is {recorded}: it names whose batch this is, and its number, from 0 to 2^63 - 1")
    named = _names(source, "keys", keys)
    if not named or len({*named}) < len(named):
        raise ValueError("keys is empty, or names a column twice")
    columns = _selected(source, source.columns, "column_list", column_list, except_column_list, always=named)
    scd_type = _scd_type(stored_as_scd_type)
    if not isinstance(ignore_null_updates, bool):
        raise _wrong_type("ignore_null_updates", "bool", ignore_null_updates)
    if scd_type == 2 and apply_as_truncates is not None:
        raise ValueError("apply_as_truncates is for stored_as_scd_type 1")
    tracked = track_history_column_list, track_history_except_column_list
    if scd_type == 1 and tracked != (None, None):
        raise ValueError("tracked columns are for stored_as_scd_type 2")
    values = [name for name in columns if name not in named]
    return Parameters(
        keys=named,
        columns=columns,
        sequence=_expression("sequence_by", sequence_by),
        deletes=_condition(source, "apply_as_deletes", apply_as_deletes),
        truncates=None if apply_as_truncates is None else _condition(source, "apply_as_truncates", apply_as_truncates),
        partial=ignore_null_updates,
        scd_type=scd_type,
        tracked=None if tracked == (None, None) else _selected(source, values, "track_history_column_list", *tracked),
    )


def _scd_type(given: Any) -> Literal[1, 2]:
    if isinstance(given, bool) or not isinstance(given, (int, str)):
        raise _wrong_type("stored_as_scd_type", "Literal[1, 2, '1', '2']", given)
    if str(given) not in _TYPES:
        raise ValueError(f"stored_as_scd_type is {given!r}, neither 1 nor 2")
    return _TYPES[str(given)]


def _selected(
    source: DataFrame, columns: Sequence[str], argument: str, include: Any, exclude: Any, *, always: Sequence[str] = ()
) -> list[str]:
    """Return the columns chosen by a list of included or of excluded columns."""
    other = f"{argument.removesuffix('column_list')}except_column_list"
    if include is not None and exclude is not None:
        raise ValueError(f"{argument} and {other} are both given")
    included = columns if include is None else _names(source, argument, include)
    excluded = [] if exclude is None else _names(source, other, exclude)
    unknown = sorted({*included, *excluded} - {*columns, *always})
    if unknown and always == ():
        raise ValueError(f"{argument} or {other} names {', '.join(unknown)}: no column of the table, or a key")
    return [name for name in columns if name in always or (name in included and name not in excluded)]


def _names(source: DataFrame, argument: str, columns: Any) -> list[str]:
    """Return the source's names of the listed columns."""
    expected = "list[str] or list[Column]"
    if not isinstance(columns, (list, tuple)):
        raise _wrong_type(argument, expected, columns)
    for column in columns:
        if not isinstance(column, (str, Column)):
            raise _wrong_type(argument, expected, column)
    found = [(column, _name(source, column)) for column in columns]
    unknown = sorted(str(column) for column, name in found if name is None)
    if unknown:
        raise ValueError(f"the source lacks {', '.join(unknown)}: an expression is to be made a column of it first")
    return [name for _, name in found if name is not None]


def _name(source: DataFrame, column: str | Column) -> str | None:
    """Return the source's name of a column, given in any case and with or without backticks; None if it has none.

    An expression is not a column, although Spark names some after one: a cast, or a field.
    """
    if column in source.columns if isinstance(column, str) else False:
        return str(column)
    names = {caseless(each): each for each in source.columns}
    try:
        chosen = source.select(F.col(column) if isinstance(column, str) else column)
        name = names.get(caseless(chosen.columns[0]))
        return name if name is not None and chosen.sameSemantics(source.select(quoted(name))) else None
    except AnalysisException:
        return None


def _expression(argument: str, given: Any) -> Column:
    if isinstance(given, str):
        return F.expr(given)
    if not isinstance(given, Column):
        raise _wrong_type(argument, "str or Column", given)
    return given


def _condition(source: DataFrame, argument: str, given: Any) -> Column:
    """Return a condition that is never NULL; false if none is given."""
    if given is None:
        return F.lit(False)
    condition = _expression(argument, given)
    (found,) = source.select(condition).schema
    if not isinstance(found.dataType, (T.BooleanType, T.NullType)):
        raise ValueError(f"{argument} is {found.dataType.simpleString()}, not a condition")
    return F.coalesce(condition, F.lit(False))


def _wrong_type(argument: str, expected: str, given: Any) -> PySparkTypeError:
    """Return Spark's error, as text: Spark 4.0 does not know its class."""
    found = type(given).__name__
    return PySparkTypeError(f"[NOT_EXPECTED_TYPE] Argument `{argument}` should be {expected}, got {found}.")


def change_rows(source: DataFrame, parameters: Parameters) -> DataFrame:
    """Return the source as change rows (`transforms.changes`); a truncate is a delete without a key."""
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


def check_changes(changes: DataFrame, table: str, tombstone_horizon: str | None) -> None:
    """Refuse unusable keys, column names and orders."""
    key, moment = struct_type(changes, "key"), changes.schema["sequence"].dataType
    check_key(key, table=table)
    check_names(key, reserved=(OP, POSITION), table=table)
    check_names(struct_type(changes, "row"), reserved=(POSITION, START, END, LOG_OP, LOG_SEQUENCE), table=table)
    check_types(struct_type(changes, "row"), table=table)
    untyped = [field.name for field in struct_type(changes, "row") if isinstance(field.dataType, T.NullType)]
    if untyped and changes.sparkSession.version.startswith("4.0"):
        detail = f"column {untyped[0]} has no type, and with Spark 4.0 it can never be given one: cast it"
        raise ApplyError(detail, table=table)
    if not has_order(moment):
        raise ValueError(f"sequence_by is {moment.simpleString()}, which has no order")
    if tombstone_horizon is not None:
        changes.select(F.col("sequence").alias(POSITION)).alias("t").where(tombstone_horizon).schema  # noqa: B018 - analyses it
