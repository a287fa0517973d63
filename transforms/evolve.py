"""Schema evolution: lets a Delta table follow the source's columns.

==================  =================================================================================
new column          is added; existing rows have NULL
new nested fields   are added in place, in a struct or the structs of an array, if the other fields are unchanged
wider type          the table is rewritten with it, in one commit, which ends its clustering; every reader can read it
narrower type       the column retains its wider type
anything else       stops the table: a column is missing, or has a type that would lose values
==================  =================================================================================

Delta's own type widening is not used: readers that do not support it could no longer read the table. Which types are
wider follows the Delta protocol ("Type Widening"). Names compare case-insensitively, as in Spark and Delta.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import ApplyError, SchemaDrift
from silverfold.conf.names import CHANGE_FEED, TAKEN, caseless
from silverfold.transforms.merge import allow_columns, overwrite
from silverfold.transforms.sql import path_table, quoted, type_text

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_DIGITS = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
"""Maximum decimal digits of each integer type, as Delta counts them; a long needs 20."""


_TIME = [T.TimeType] if hasattr(T, "TimeType") else []  # Spark 4.0 has none
_NOT_STORED = (T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, *_TIME)
"""Types that Delta refuses. Delta checks them only on creating a table, when the side table already exists."""


class Inside(NamedTuple):
    """A nested field to add inside a column."""

    path: tuple[str, ...]
    """Names from the column down to the field; ``element`` denotes the elements of an array."""
    type: T.DataType
    after: str | None
    """The field before it; None for the first."""


class Drift(NamedTuple):
    """Pending changes to the columns of a table."""

    added: Sequence[T.StructField]
    widened: Sequence[T.StructField]
    """With their new types."""
    inside: Sequence[Inside]
    columns: T.StructType
    """The columns after the change."""


def check_names(row: T.StructType, *, reserved: Collection[str], keys: Collection[str] = (), table: str) -> None:
    """Refuse missing keys, reserved column names, and column names that Delta cannot distinguish.

    Raises:
        SchemaDrift: Remedy: omit the column at the source or in the table's settings, or set other ``keys``.
    """
    taken = sorted({caseless(name) for name in row.names} & {*map(caseless, reserved), *TAKEN})
    if taken:
        owner = "Delta's" if taken[0] in TAKEN | CHANGE_FEED else "ours"
        raise SchemaDrift(f"the source has a column {taken[0]}, which is a name of {owner}", table=table)
    unreadable = [name for name in row.names if "\0" in name]
    if unreadable:  # Arrow's C data interface ends names there: delta-rs could not open the table any more
        detail = f"the source has a column {unreadable[0]!r}, and delta-rs reads no name with a NUL"
        raise SchemaDrift(detail, table=table)
    twice = [name for name, count in Counter(caseless(name) for name in row.names).items() if count > 1]
    if twice:
        alike = " and ".join(repr(name) for name in row.names if caseless(name) == twice[0])
        remedy = "rename one at the source, or leave it out there or by the table's settings"
        raise SchemaDrift(f"columns {alike} have one name for Delta, which knows no case: {remedy}", table=table)
    have = {caseless(name) for name in row.names}
    missing = sorted(name for name in keys if caseless(name) not in have)
    if missing:
        raise SchemaDrift(f"the source lacks the key {missing[0]!r}", table=table)


def check_types(row: T.StructType, *, table: str) -> None:
    """Raise ApplyError for a column type that Delta does not store; Delta itself refuses it only on table creation."""
    for field in row:
        if not _is_storable(field.dataType):
            detail = f"column {field.name} is {field.dataType.simpleString()}, which Delta does not store"
            raise ApplyError(detail, table=table)


def drift(current: T.StructType, wanted: T.StructType, *, table: str, remedy: str = "") -> Drift:
    """Return the changes that a table's columns need.

    Args:
        remedy: Ending of the error message.

    Raises:
        SchemaDrift: A column is missing or has a type that cannot be followed.
    """
    have = {caseless(field.name): field for field in current}
    missing = [field.name for field in current if caseless(field.name) not in {caseless(each.name) for each in wanted}]
    if missing:
        raise SchemaDrift(f"the source lacks column {missing[0]} now{remedy}", table=table)
    wanted_types = {caseless(field.name): field.dataType for field in wanted}
    added, widened, inside = [], [], list[Inside]()
    for field in wanted:
        known = have.get(caseless(field.name))
        if known is None:
            added.append(field)
        elif _wider(known.dataType, field.dataType):
            widened.append(T.StructField(known.name, field.dataType))
        elif (new_fields := _new_fields(known.dataType, field.dataType, (known.name,))) is not None:
            inside += new_fields
        elif not _wider(field.dataType, known.dataType):
            found, expected = field.dataType.simpleString(), known.dataType.simpleString()
            raise SchemaDrift(f"column {field.name} is {found} now, was {expected}{remedy}", table=table)
    changed = {field.name: field.dataType for field in widened}
    changed |= {each.path[0]: wanted_types[caseless(each.path[0])] for each in inside}
    columns = [T.StructField(field.name, changed.get(field.name, field.dataType)) for field in current]
    return Drift(added, widened, inside, T.StructType([*columns, *added]))


def follow(session: SparkSession, path: str, drifted: Drift) -> None:
    """Change the columns of the Delta table at a path or URL, in commits of their own. Safe to repeat."""
    allow_columns(session, path, drifted.columns)
    if drifted.added:
        columns = ", ".join(f"{quoted(field.name)} {type_text(field.dataType)}" for field in drifted.added)
        session.sql(f"ALTER TABLE {path_table(path)} ADD COLUMNS ({columns})").collect()
    for each in drifted.inside:
        name = ".".join(map(quoted, each.path))
        place = "FIRST" if each.after is None else f"AFTER {quoted(each.after)}"
        column = f"{name} {type_text(each.type)} {place}"
        session.sql(f"ALTER TABLE {path_table(path)} ADD COLUMNS ({column})").collect()
    if drifted.widened:
        rows = session.read.format("delta").load(path)
        wide = {field.name: F.col(quoted(field.name)).cast(field.dataType) for field in drifted.widened}
        overwrite(rows.withColumns(wide), path)


def follow_columns(session: SparkSession, path: str, wanted: T.StructType, *, table: str) -> None:
    """Give the Delta table at a path or URL the wanted columns. Safe to repeat.

    Raises:
        SchemaDrift: A column is missing or has a type that cannot be followed. The table is unchanged.
    """
    remedy = ": let it be as it was, fields in their order, NULL where something is gone"
    follow(session, path, drift(session.read.format("delta").load(path).schema, wanted, table=table, remedy=remedy))


def read_as(value: Column, have: T.DataType, want: T.DataType) -> Column:
    """Return values of a table's old type as values of its new type (`drift`)."""
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        fields = (
            read_as(value.getField(each.name), have[each.name].dataType, each.dataType)
            if each.name in have.names
            else F.lit(None).cast(each.dataType)
            for each in want
        )
        named = F.struct(*(field.alias(name) for field, name in zip(fields, want.names, strict=True)))
        return F.when(value.isNotNull(), named)
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        return F.transform(value, lambda each: read_as(each, have.elementType, want.elementType))
    return value.cast(want)


def with_columns(rows: DataFrame, columns: T.StructType, *others: str) -> DataFrame:
    """Return rows of a table with its new columns and types; missing columns are NULL. Lazy.

    Args:
        others: Further columns to retain.
    """
    have = {caseless(field.name): field.dataType for field in rows.schema}

    def typed(field: T.StructField) -> Column:
        known = have.get(caseless(field.name))
        if known is None:
            return F.lit(None).cast(field.dataType).alias(field.name)
        if known.simpleString() == field.dataType.simpleString():
            return F.col(quoted(field.name)).alias(field.name)
        return read_as(F.col(quoted(field.name)), known, field.dataType).alias(field.name)

    return rows.select(*map(typed, columns), *others)


def _new_fields(have: T.DataType, want: T.DataType, path: tuple[str, ...]) -> list[Inside] | None:
    """Return the nested fields that a type has gained; None if it differs in any other way."""
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        return _new_fields(have.elementType, want.elementType, (*path, "element"))
    if not isinstance(have, T.StructType) or not isinstance(want, T.StructType):
        return [] if have.simpleString() == want.simpleString() else None  # Delta stores all as nullable
    if [name for name in want.names if name in have.names] != have.names:
        return None
    found: list[Inside] = []
    for before, field in zip([None, *want.names], want, strict=False):
        if field.name not in have.names:
            found.append(Inside((*path, field.name), field.dataType, before))
            continue
        new_fields = _new_fields(have[field.name].dataType, field.dataType, (*path, field.name))
        if new_fields is None:
            return None
        found += new_fields
    return found


def _wider(narrow: T.DataType, wide: T.DataType) -> bool:
    """Return whether every value of one type is a value of the other, different type."""
    match narrow, wide:
        case (T.NullType(), _):
            return not isinstance(wide, T.NullType)
        case (T.ByteType() | T.ShortType() | T.IntegerType(), T.DoubleType()):
            return True
        case (T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType(), T.DecimalType()):
            return wide.precision - wide.scale >= _DIGITS[type(narrow)]
        case (T.DecimalType(), T.DecimalType()):
            more_whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
            return narrow != wide and wide.scale >= narrow.scale and more_whole
        case (T.FloatType(), T.DoubleType()) | (T.DateType(), T.TimestampNTZType()):
            return True
        case _:
            sizes = [_WHOLE.index(type(kind)) if isinstance(kind, _WHOLE) else None for kind in (narrow, wide)]
            return None not in sizes and sizes[0] < sizes[1]  # type: ignore[operator]  # neither is None


def _is_storable(kind: T.DataType, *, inside: bool = False) -> bool:
    match kind:
        case T.StructType():
            names = {caseless(name) for name in kind.names}
            fit = all(_is_storable(field.dataType, inside=True) for field in kind)
            return fit and bool(names) and len(names) == len(kind)
        case T.ArrayType():
            return _is_storable(kind.elementType, inside=True)
        case T.MapType():
            return _is_storable(kind.keyType, inside=True) and _is_storable(kind.valueType, inside=True)
        case T.NullType():
            return not inside
        case _:
            return not isinstance(kind, _NOT_STORED)
