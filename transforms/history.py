"""Stores every version of every row: slowly changing dimension type 2, as in Spark's AUTO CDC.

A history table has the table's columns, then ``__START_AT`` and ``__END_AT``: a version is valid from the first up to,
not including, the second; ``__END_AT`` is NULL for the current version. Moments are positions of landed frames, or
``sequence`` where the source has an order of its own. All changes of a key in one moment make one version.

A cut is one MERGE. The versions it may touch are the current ones, or in the source's order all that a late change may
fall between. They are turned back into changes and merged with the new ones, and versions are rebuilt from all of them.
So the table does not depend on where cuts end. Partial updates are completed from the previous version, also through
key moves. In the source's order rows must be complete, or be resent from an earlier one on: a late partial update does
not complete the versions after it (`transforms.autocdc.change_log` does). Of two rows with one key and moment one wins
as a whole (`transforms.ties`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import SchemaDrift
from silverfold.transforms.changes import (
    DELETE,
    INSERT,
    SNAPSHOT,
    as_struct,
    cached,
    complete,
    few_at_hand,
    struct_type,
    typed_as,
)
from silverfold.transforms.evolve import check_names, drift, follow, with_columns
from silverfold.transforms.fold import fold
from silverfold.transforms.key_moves import resolve, track_moves
from silverfold.transforms.merge import (
    POSITION,
    SOURCE,
    Recorded,
    adding,
    committing,
    create_empty,
    overwrite,
    plainly_typed,
    same_key,
)
from silverfold.transforms.sql import has_order, path_table, quoted
from silverfold.transforms.ties import comparable, comparable_sql, rank

START, END = "__START_AT", "__END_AT"

_FEW = 20_000
"""Maximum number of events, and of versions, embedded in the plan of a MERGE: two for each change of a small cut."""

_RESETS = (INSERT, SNAPSHOT, DELETE)
_EVENT = ("line", "key", "moment", "op", "row", "present")


@dataclass(frozen=True)
class Moments:
    """How the changes of a cut are assigned to moments.

    Args:
        by_sequence: By ``sequence``, not by ``frame_seq``.
        snapshot_end: In landing order: position up to which all changes, snapshot rows first, are one moment. They
            replace the table's rows: rows they do not contain end at it. None if the cut replaces nothing.
    """

    by_sequence: bool = False
    snapshot_end: int | None = None

    @property
    def column(self) -> str:
        """The change rows' column that holds the moment."""
        return "sequence" if self.by_sequence else "frame_seq"


def write_history(
    changes: DataFrame,
    path: str,
    *,
    recorded: Recorded,
    before: DataFrame | None = None,
    moments: Moments = Moments(),
    upsert: bool = False,
    moves: bool = False,
    ranges: DataFrame | None = None,
    tombstones: DataFrame | None = None,
    few: bool = False,
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Bring the history table at a path or URL up to the changes, in one commit. Runs Spark jobs; safe to repeat.

    Args:
        changes: Change rows (`transforms.changes`), any number per key; those with ``error`` are left out. Their
            session carries the commit's settings.
        before: The current history table, at a fixed version; without, it is looked up.
        upsert: An update of a row that does not exist begins one.
        moves: Some changes may move keys. Only in landing order.
        ranges: Only for a positional key without moves: rows from ``first_key`` to ``last_key``, inclusive, end at
            position ``moment``, before the changes of that moment. None at or before ``snapshot_end``.
        tombstones: In the source's order: keys and ``_position`` of every delete after which a late change may come
            (`transforms.tombstones.write_tombstones`, ``every``).
        few: The changes are few, and embedded in their query plan.
        options: Session options for the MERGE (`transforms.merge`), used if it writes few versions.

    Raises:
        SchemaDrift: A column is missing, has another type or a reserved name. The table is unchanged.
        ApplyError: Spark or Delta refused. The table is unchanged.
    """
    listed = complete(changes).where("error IS NULL").withColumn("ordinal", F.coalesce("ordinal", F.lit(0)))
    key, row = struct_type(listed, "key"), struct_type(listed, "row")
    check_names(row, reserved=(START, END), table=recorded.app_id)
    schema = _schema(key, row, listed.schema[moments.column].dataType)
    new: Sequence[str] = ()
    if before is None or not _has(before.schema, schema):
        before, new = _open_table(changes.sparkSession, path, schema, recorded.app_id, evolves=not moments.by_sequence)
    listed = typed_as(listed, before.schema)
    with ExitStack() as caches:
        if ranges is not None:
            removed = _deletes_in_ranges(listed, _current(before), ranges)
            listed = listed.unionByName(removed, allowMissingColumns=True)
        versions, are_few = _new_versions(
            listed, before, moments, caches, upsert=upsert, moves=moves, tombstones=tombstones, few=few
        )
        by_sequence, options = moments.by_sequence, options if are_few else {}
        _merge(versions, path, keys=key.names, replaces=by_sequence, new=new, recorded=recorded, options=options)


def _new_versions(
    changes: DataFrame,
    before: DataFrame,
    moments: Moments,
    caches: ExitStack,
    *,
    upsert: bool,
    moves: bool,
    tombstones: DataFrame | None,
    few: bool,
) -> tuple[DataFrame, bool]:
    """Return the versions that changes make or end, and whether they are few and embedded in their query plan."""
    key, row = struct_type(changes, "key"), struct_type(changes, "row")
    if moments.snapshot_end is None:
        lazy_events = _events(changes, _current(before), moments.column, caches, upsert=upsert, moves=moves)
    else:
        end, few = moments.snapshot_end, False  # it may write many versions
        lazy_events = _after_snapshot(changes, _current(before), end, caches, upsert=upsert, moves=moves)
    events_at_hand = few_at_hand(lazy_events, _FEW) if few else None
    events = caches.enter_context(cached(lazy_events)) if events_at_hand is None else events_at_hand
    known = _known(before, events, by_sequence=moments.by_sequence)
    deleted = [] if tombstones is None else [_tombstone_events(tombstones, events)]
    everything = reduce(DataFrame.unionByName, [events, known, *deleted])
    one_each = _one_per_moment(everything, row, by_sequence=moments.by_sequence)
    versions = _versions(one_each, row, upsert=upsert, moves=moves).select(*_flat(key, row), START, END)
    at_hand = None if events_at_hand is None else few_at_hand(versions, _FEW)
    return (versions, False) if at_hand is None else (at_hand, True)


def _current(history: DataFrame) -> DataFrame:
    return history.where(F.col(END).isNull())


def _open_table(
    session: SparkSession, path: str, schema: T.StructType, table: str, *, evolves: bool
) -> tuple[DataFrame, list[str]]:
    """Return the history table with every column of the schema, and the columns it lacks. Create it if necessary.

    The table is read at a fixed version, so that the cut's own write does not invalidate a cache of it. A table without
    rows takes any columns: the process that created it may have died in a cut that had more columns.

    Args:
        evolves: The cut's own commit adds missing columns, so that a cut that dies leaves none behind.
    """
    create_empty(session, schema, path)
    stored = session.read.format("delta").load(path)
    try:
        drifted = drift(stored.schema, schema, table=table)
    except SchemaDrift:
        if not stored.isEmpty():
            raise
        overwrite(session.createDataFrame([], schema), path)
        drifted = drift(schema, schema, table=table)
    new = [field.name for field in drifted.added] if evolves else []
    follow(session, path, drifted._replace(added=()) if evolves else drifted)
    newest = session.sql(f"DESCRIBE HISTORY {path_table(path)} LIMIT 1").collect()[0]["version"]
    rows = session.read.format("delta").option("versionAsOf", newest).load(path)
    return with_columns(rows, drifted.columns), new


def _has(have: T.StructType, want: T.StructType) -> bool:
    return {(field.name, field.dataType) for field in want} <= {(field.name, field.dataType) for field in have}


def _deletes_in_ranges(changes: DataFrame, current: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return deletes of the rows in the ranges: of current rows, and of rows that may begin in the cut."""
    key = struct_type(changes, "key")
    (name,) = key.names
    begun = changes.where(F.col("op") != DELETE).select("key").distinct()
    keys = current.select(as_struct(key).alias("key")).unionByName(begun)
    inside = F.col(f"key.{quoted(name)}").between(F.col("first_key"), F.col("last_key"))
    return keys.join(F.broadcast(ranges), inside).select(
        F.col("moment").alias("frame_seq"), F.lit(-1).alias("ordinal"), F.lit(DELETE).alias("op"), "key"
    )


def _schema(key: T.StructType, row: T.StructType, moment: T.DataType) -> T.StructType:
    own = [field for field in key if field.name not in row.names]
    return T.StructType([*own, *row, T.StructField(START, moment), T.StructField(END, moment)])


def _flat(key: T.StructType, row: T.StructType) -> list[Column]:
    own = [F.col(f"key.{quoted(name)}").alias(name) for name in key.names if name not in row.names]
    return [*own, *(F.col(f"row.{quoted(name)}").alias(name) for name in row.names)]


def _events(
    changes: DataFrame, current: DataFrame, moment: str, caches: ExitStack, *, upsert: bool, moves: bool
) -> DataFrame:
    """Return one event per row and moment.

    Columns: ``line`` identifies the row (`_line`), ``key`` is its key at the moment's end, then ``moment``, ``op``,
    ``row``, ``present``, and ``known``: the version is already in the table.
    """
    if not moves:
        lined = changes.withColumn("line", _line(F.lit(None), F.col("key")))
        return _folded(lined, moment, upsert=upsert).withColumn("key", F.col("line.key")).transform(_event)
    found = track_moves(changes, current, caches, upsert=upsert, record_moments=True)
    number = F.when(F.col("root").isNull(), F.col("number"))
    line = _line(number, F.col("root")).alias("line")
    others = _folded(found.others.withColumn("line", _line(F.lit(None), F.col("key"))), moment, upsert=upsert)
    mine = _folded(found.numbered.where("number IS NOT NULL").withColumn("line", line), moment, upsert=upsert)
    at_end = found.moments.where("number IS NOT NULL").select(line, "key", F.col("frame_seq").alias("moment"))
    empty = found.moments.where("number IS NULL").select("key", F.col("frame_seq").alias("moment"))
    return reduce(
        DataFrame.unionByName,
        [
            others.withColumn("key", F.col("line.key")).transform(_event),
            mine.join(at_end, ["line", "moment"]).transform(_event),
            _ends(empty.withColumn("line", _line(F.lit(-1), F.col("key"))), changes.schema["row"].dataType),
        ],
    )


def _ends(at: DataFrame, row: T.DataType) -> DataFrame:
    """Return an end event for each ``key`` and ``moment``."""
    return at.select(
        "line",
        "key",
        "moment",
        F.lit(DELETE).alias("op"),
        F.lit(None).cast(row).alias("row"),
        F.lit(None).cast("array<string>").alias("present"),
    ).transform(_event)


def _line(number: Column, key: Column) -> Column:
    """Return a row's identity: its key before the cut or at its beginning, or a number if moves make that ambiguous."""
    return F.struct(number.cast("long").alias("number"), key.alias("key"))


def _folded(lined: DataFrame, moment: str, *, upsert: bool) -> DataFrame:
    """Fold the changes of each row and moment."""
    net = fold(lined.withColumn("key", F.struct("line", F.col(moment).alias("moment"))), upsert=upsert)
    return net.select("key.*", "op", "row", "present")


def _event(events: DataFrame) -> DataFrame:
    return events.select(*_EVENT, F.lit(False).alias("known"))


def _after_snapshot(
    listed: DataFrame, current: DataFrame, snapshot_end: int, caches: ExitStack, *, upsert: bool, moves: bool
) -> DataFrame:
    """Return the events of a snapshot with its overlay, compared with the current versions, and all later events."""
    early = (F.col("frame_seq") <= snapshot_end) | (F.col("op") == SNAPSHOT)
    first = listed.where(early)
    net = resolve(first, None, caches, replaces=True) if moves else fold(first, replaces=True)
    snapshot = net.where(F.col("op").isin(INSERT, SNAPSHOT)).select("key", "row", F.col("frame_seq").alias("moment"))
    key, row = struct_type(listed, "key"), struct_type(listed, "row")
    before = current.select(as_struct(key).alias("key"), as_struct(row).alias("old"))
    both = snapshot.join(before, "key", "full_outer")
    ours, theirs = (F.col(name) if has_order(row) else comparable(row, name, zeros=False) for name in ("row", "old"))
    same = F.col("row").isNotNull() & F.col("old").isNotNull() & ours.eqNullSafe(theirs)
    differing = both.where(~same).select(
        _line(F.lit(None), F.col("key")).alias("line"),
        "key",
        F.coalesce("moment", F.lit(snapshot_end)).alias("moment"),
        F.when(F.col("row").isNull(), F.lit(DELETE)).otherwise(F.lit(INSERT)).alias("op"),
        "row",
        F.lit(None).cast("array<string>").alias("present"),
    )
    later = _events(
        listed.where(~early), snapshot.select(*_flat(key, row)), "frame_seq", caches, upsert=upsert, moves=moves
    )
    return differing.transform(_event).unionByName(later)


def _known(history: DataFrame, events: DataFrame, *, by_sequence: bool) -> DataFrame:
    """Return the versions that the events may touch, as events; in the source's order with their ends."""
    key, row = struct_type(events, "key"), struct_type(events, "row")
    touched = events.groupBy("key").agg(F.min("moment").alias("since"))
    versions = history.select(as_struct(key).alias("key"), as_struct(row).alias("row"), START, END).join(touched, "key")
    is_open = F.col(END).isNull()
    wanted = versions.where(is_open | (F.col(END) >= F.col("since")) if by_sequence else is_open)
    begun = wanted.select(
        _line(F.lit(None), F.col("key")).alias("line"),
        "key",
        F.col(START).alias("moment"),
        F.lit(INSERT).alias("op"),
        "row",
        F.lit(None).cast("array<string>").alias("present"),
        F.lit(True).alias("known"),
    )
    if not by_sequence:
        return begun  # current versions have no end: looking for one would read the history once more
    ended = wanted.where(~is_open).withColumn("moment", F.col(END)).withColumn("line", _line(F.lit(None), F.col("key")))
    return begun.unionByName(_ends(ended, row))


def _tombstone_events(tombstones: DataFrame, events: DataFrame) -> DataFrame:
    """Return the tombstones of touched keys as deletes."""
    key, row = struct_type(events, "key"), events.schema["row"].dataType
    deleted = tombstones.select(as_struct(key).alias("key"), F.col(POSITION).alias("moment"))
    touched = deleted.join(events.select("key").distinct(), "key", "left_semi")
    return _ends(touched.withColumn("line", _line(F.lit(None), F.col("key"))), row)


def _one_per_moment(events: DataFrame, row: T.StructType, *, by_sequence: bool) -> DataFrame:
    """Return one event per key and moment, preferring a row over an end, then a known version.

    In the source's order different rows may come for one moment: of two complete rows, `transforms.ties` decides.
    """
    contest = [F.col("present").isNull(), rank(row, "row")] if by_sequence else []
    best = F.struct(F.col("op") != DELETE, *contest, "known")
    following = F.lead("moment").over(Window.partitionBy("key").orderBy("moment", best))
    return events.withColumn("following", following).where(~F.col("following").eqNullSafe(F.col("moment")))


def _versions(events: DataFrame, row: T.StructType, *, upsert: bool, moves: bool) -> DataFrame:
    """Complete each row from its earlier events, and end each version where the next event of its key begins."""
    key = struct_type(events, "key")
    line = Window.partitionBy("line" if moves else "key").orderBy("moment")
    past = line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    reset, present = F.col("op").isin(*_RESETS), F.col("present")
    last_reset = F.last(F.when(reset, F.col("op")), ignorenulls=True).over(past)

    def cell(name: str) -> Column:
        sent = reset | present.isNull() | F.array_contains(present, name)
        sent_value = F.when(sent, F.struct(F.col(f"row.{quoted(name)}").alias("value")))
        return F.last(sent_value, ignorenulls=True).over(past)["value"]

    cells = [F.col(f"key.{quoted(name)}") if name in key.names else cell(name) for name in row.names]
    filled = events.select(
        "key",
        "moment",
        "op",
        F.struct(*(value.alias(name) for value, name in zip(cells, row.names, strict=True))).alias("row"),
        F.coalesce(last_reset.isin(INSERT, SNAPSHOT), F.lit(False)).alias("exists"),
    )
    valid = filled.where((F.col("op") == DELETE) | F.col("exists") | F.lit(upsert))
    ends = F.lead("moment").over(Window.partitionBy("key").orderBy("moment"))
    return valid.withColumn(END, ends).where(F.col("op") != DELETE).withColumnRenamed("moment", START)


def _merge(
    versions: DataFrame,
    path: str,
    *,
    keys: Sequence[str],
    replaces: bool,
    new: Sequence[str],
    recorded: Recorded,
    options: Mapping[str, str],
) -> None:
    """Write the versions.

    Args:
        replaces: An existing version may get another row; ``new`` is then empty.
        new: Columns that this commit adds to the history table.
    """
    names = ", ".join(quoted(name) for name in versions.columns)
    values = ", ".join(f"s.{quoted(name)}" for name in versions.columns)
    compared = versions.schema if replaces else T.StructType([versions.schema[END]])
    differs = f"NOT ({comparable_sql(compared, 't')} <=> {comparable_sql(compared, 's')})"
    assignments = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in compared.names)
    statement = f"""
        MERGE INTO {path_table(path)} AS t USING {SOURCE} AS s ON {same_key(keys)} AND t.{START} = s.{START}
        WHEN MATCHED AND {differs} THEN UPDATE SET {assignments}
        WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})
        """
    with committing(plainly_typed(versions) if new else versions, recorded, adding(new, options)) as session:
        session.sql(statement).collect()
