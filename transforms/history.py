"""Keeps every version of every row: slowly changing dimension type 2, as Spark's AUTO CDC stores it.

A history table has the table's columns, then ``__START_AT`` and ``__END_AT``: the version is of the moments from the
one up to, not including, the other; ``__END_AT`` is NULL for the version that stands. Moments are positions: of landed
frames, or ``sequence`` where the source has an order of its own. All changes of a key in one moment make one version.

A cut is one MERGE. The versions it may touch (those that stand, or in the source's order all that a late change may
fall between) become changes again, take their place among the new ones, and the versions are drawn from all of them;
so the table does not depend on where cuts end. Partial updates are completed from the version before, through key moves
too. In the source's order rows come whole, or again from an earlier one on: a partial update that nobody knew of does
not complete the versions after it (`transforms.change_log` does). Of two rows with one key and moment one wins as a
whole (`transforms.ties`).
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

from conf.errors import SchemaDrift
from transforms.changes import (
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
from transforms.evolve import check_names, drift, follow, with_columns
from transforms.fold import fold
from transforms.key_moves import follow as follow_moves
from transforms.key_moves import resolve
from transforms.merge import (
    POSITION,
    SOURCE,
    Recorded,
    create_empty,
    merge_into,
    overwrite,
    plainly_typed,
    run_once,
    same_key,
)
from transforms.sql import path_table, quoted
from transforms.ties import comparable_sql, rank

START, END = "__START_AT", "__END_AT"

_FEW = 20_000
"""Events, and versions, that a MERGE is given with its plan: two for each change of a small cut."""

_RESETS = (INSERT, SNAPSHOT, DELETE)
_EVENT = ("line", "key", "moment", "op", "row", "present")


@dataclass(frozen=True)
class Moments:
    """How a cut's changes are told apart in time.

    Args:
        by_sequence: By ``sequence``, not by ``frame_seq``.
        snapshot_end: In landing order: position up to which all changes, snapshot rows first, are one moment; the table then
            is what they leave, and rows they do not name end at it. None where the cut replaces nothing.
    """

    by_sequence: bool = False
    snapshot_end: int | None = None

    @property
    def column(self) -> str:
        """The change rows' column that tells the moment."""
        return "sequence" if self.by_sequence else "frame_seq"


def keep_history(
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
        before: The history table as it is, at a version; without, that is looked up.
        upsert: An update of a row that is not there begins one.
        moves: Some changes may move keys. Only in landing order.
        ranges: Of a positional key without moves: rows from ``first_key`` to ``last_key``, inclusive, end at position
            ``moment``, before what the changes say of that moment. None at or before ``settled``.
        tombstones: In the source's order: keys and ``_position`` of every delete after which a late change may come
            (`transforms.tombstones.write_tombstones`, ``every``).
        few: The changes are few, and part of their plan.
        options: Of the session while MERGE runs (`transforms.merge`), if the versions it writes are few then.

    Raises:
        SchemaDrift: A column is gone, has another type or bears a name of ours. The table stands as it was.
        ApplyError: Spark or Delta refused. The table stands as it was.
    """
    listed = complete(changes).where("error IS NULL").withColumn("ordinal", F.coalesce("ordinal", F.lit(0)))
    key, row = struct_type(listed, "key"), struct_type(listed, "row")
    check_names(row, reserved=(START, END), table=recorded.app_id)
    schema = _schema(key, row, listed.schema[moments.column].dataType)
    new: Sequence[str] = ()
    if before is None or not _has(before.schema, schema):
        before, new = _opened(changes.sparkSession, path, schema, recorded.app_id, evolves=not moments.by_sequence)
    listed = typed_as(listed, before.schema)
    key, row = struct_type(listed, "key"), struct_type(listed, "row")
    with ExitStack() as kept:
        standing = before.where(F.col(END).isNull())
        if ranges is not None:
            listed = listed.unionByName(_removed(listed, standing, ranges), allowMissingColumns=True)
        if moments.snapshot_end is None:
            told = _events(listed, standing, moments.column, kept, upsert=upsert, moves=moves)
        else:
            told = _after_snapshot(listed, standing, moments.snapshot_end, kept, upsert=upsert, moves=moves)
        few = few and moments.snapshot_end is None  # a snapshot may write many versions
        held = few_at_hand(told, _FEW) if few else None
        events = kept.enter_context(cached(told)) if held is None else held
        known = _known(before, events, by_sequence=moments.by_sequence)
        buried = [] if tombstones is None else [_buried(tombstones, events)]
        everything = reduce(DataFrame.unionByName, [events, known, *buried])
        one_each = _one_per_moment(everything, row, by_sequence=moments.by_sequence)
        versions = _versions(one_each, row, upsert=upsert, moves=moves).select(*_flat(key, row), START, END)
        held = None if held is None else few_at_hand(versions, _FEW)
        versions, options = (versions, {}) if held is None else (held, options)
        by_sequence = moments.by_sequence
        _merge(versions, path, keys=key.names, replaces=by_sequence, new=new, recorded=recorded, options=options)


def _opened(
    session: SparkSession, path: str, schema: T.StructType, table: str, *, evolves: bool
) -> tuple[DataFrame, list[str]]:
    """Return the history table, with every column of the schema, and which it lacks; it is made where there is none.

    It is read at a version: what the cut writes to it ends no cache of it. One without rows takes any columns: whoever
    made it may have died of a cut that went further.

    Args:
        evolves: It gets the columns it lacks by the cut's own commit, so that none is left behind by one that dies.
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


def _removed(changes: DataFrame, standing: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return deletes of the rows in the ranges: of those that stand, and of those that may begin in the cut."""
    key = struct_type(changes, "key")
    (name,) = key.names
    begun = changes.where(F.col("op") != DELETE).select("key").distinct()
    keys = standing.select(as_struct(key).alias("key")).unionByName(begun)
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
    changes: DataFrame, current: DataFrame, moment: str, kept: ExitStack, *, upsert: bool, moves: bool
) -> DataFrame:
    """Return what happens to each row in each moment.

    Columns: ``line`` names the row (`_line`), ``key`` where it is at the moment's end, ``moment``, ``op``, ``row``,
    ``present``, and ``known``: the version is in the table already.
    """
    if not moves:
        lined = changes.withColumn("line", _line(F.lit(None), F.col("key")))
        return _folded(lined, moment, upsert=upsert).withColumn("key", F.col("line.key")).transform(_event)
    found = follow_moves(changes, current, kept, upsert=upsert, notes_moments=True)
    number = F.when(F.col("root").isNull(), F.col("number"))
    line = _line(number, F.col("root")).alias("line")
    others = _folded(found.others.withColumn("line", _line(F.lit(None), F.col("key"))), moment, upsert=upsert)
    mine = _folded(found.numbered.where("number IS NOT NULL").withColumn("line", line), moment, upsert=upsert)
    stands = found.moments.where("number IS NOT NULL").select(line, "key", F.col("frame_seq").alias("moment"))
    empty = found.moments.where("number IS NULL").select("key", F.col("frame_seq").alias("moment"))
    return reduce(
        DataFrame.unionByName,
        [
            others.withColumn("key", F.col("line.key")).transform(_event),
            mine.join(stands, ["line", "moment"]).transform(_event),
            _ends(empty.withColumn("line", _line(F.lit(-1), F.col("key"))), changes.schema["row"].dataType),
        ],
    )


def _ends(at: DataFrame, row: T.DataType) -> DataFrame:
    """Return the end of whatever row stood at each ``key``, at each ``moment``."""
    return at.select(
        "line",
        "key",
        "moment",
        F.lit(DELETE).alias("op"),
        F.lit(None).cast(row).alias("row"),
        F.lit(None).cast("array<string>").alias("present"),
    ).transform(_event)


def _line(number: Column, key: Column) -> Column:
    """Name a row: by its key before the cut, or where it began, or by a number where moves make that unclear."""
    return F.struct(number.cast("long").alias("number"), key.alias("key"))


def _folded(lined: DataFrame, moment: str, *, upsert: bool) -> DataFrame:
    """Fold the changes of each row and moment."""
    net = fold(lined.withColumn("key", F.struct("line", F.col(moment).alias("moment"))), upsert=upsert)
    return net.select("key.*", "op", "row", "present")


def _event(events: DataFrame) -> DataFrame:
    return events.select(*_EVENT, F.lit(False).alias("known"))


def _after_snapshot(
    listed: DataFrame, standing: DataFrame, snapshot_end: int, kept: ExitStack, *, upsert: bool, moves: bool
) -> DataFrame:
    """Return what a snapshot and what overlays it make of the versions that stood then, and what happens later."""
    early = (F.col("frame_seq") <= snapshot_end) | (F.col("op") == SNAPSHOT)
    first = listed.where(early)
    net = resolve(first, None, kept, replaces=True) if moves else fold(first, replaces=True)
    stands = net.where(F.col("op").isin(INSERT, SNAPSHOT)).select("key", "row", F.col("frame_seq").alias("moment"))
    key, row = struct_type(listed, "key"), struct_type(listed, "row")
    before = standing.select(as_struct(key).alias("key"), as_struct(row).alias("old"))
    both = stands.join(before, "key", "full_outer")
    same = F.col("row").isNotNull() & F.col("old").isNotNull() & F.col("row").eqNullSafe(F.col("old"))
    differing = both.where(~same).select(
        _line(F.lit(None), F.col("key")).alias("line"),
        "key",
        F.coalesce("moment", F.lit(snapshot_end)).alias("moment"),
        F.when(F.col("row").isNull(), F.lit(DELETE)).otherwise(F.lit(INSERT)).alias("op"),
        "row",
        F.lit(None).cast("array<string>").alias("present"),
    )
    later = _events(
        listed.where(~early), stands.select(*_flat(key, row)), "frame_seq", kept, upsert=upsert, moves=moves
    )
    return differing.transform(_event).unionByName(later)


def _known(history: DataFrame, events: DataFrame, *, by_sequence: bool) -> DataFrame:
    """Return the versions that the events may touch, as events, and in the source's order their ends."""
    key, row = struct_type(events, "key"), struct_type(events, "row")
    touched = events.groupBy("key").agg(F.min("moment").alias("since"))
    versions = history.select(as_struct(key).alias("key"), as_struct(row).alias("row"), START, END).join(touched, "key")
    stands = F.col(END).isNull()
    wanted = versions.where(stands | (F.col(END) >= F.col("since")) if by_sequence else stands)
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
        return begun  # nothing of what stands has ended: to look for it would read the history once more
    ended = wanted.where(~stands).withColumn("moment", F.col(END)).withColumn("line", _line(F.lit(None), F.col("key")))
    return begun.unionByName(_ends(ended, row))


def _buried(tombstones: DataFrame, events: DataFrame) -> DataFrame:
    """Return the tombstones of touched keys as deletes."""
    key, row = struct_type(events, "key"), events.schema["row"].dataType
    buried = tombstones.select(as_struct(key).alias("key"), F.col(POSITION).alias("moment"))
    touched = buried.join(events.select("key").distinct(), "key", "left_semi")
    return _ends(touched.withColumn("line", _line(F.lit(None), F.col("key"))), row)


def _one_per_moment(events: DataFrame, row: T.StructType, *, by_sequence: bool) -> DataFrame:
    """Return one event per key and moment: a row rather than an end, and one that is known already.

    In the source's order different rows may come for one moment: of two whole ones that which wins (`transforms.ties`).
    """
    contest = [F.col("present").isNull(), rank(row, "row")] if by_sequence else []
    best = F.struct(F.col("op") != DELETE, *contest, "known")
    following = F.lead("moment").over(Window.partitionBy("key").orderBy("moment", best))
    return events.withColumn("following", following).where(~F.col("following").eqNullSafe(F.col("moment")))


def _versions(events: DataFrame, row: T.StructType, *, upsert: bool, moves: bool) -> DataFrame:
    """Complete each row from its past, and end each version where the next event of its key begins."""
    key = struct_type(events, "key")
    line = Window.partitionBy("line" if moves else "key").orderBy("moment")
    past = line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    reset, present = F.col("op").isin(*_RESETS), F.col("present")
    last_reset = F.last(F.when(reset, F.col("op")), ignorenulls=True).over(past)

    def cell(name: str) -> Column:
        sent = reset | present.isNull() | F.array_contains(present, name)
        said = F.when(sent, F.struct(F.col(f"row.{quoted(name)}").alias("value")))
        return F.last(said, ignorenulls=True).over(past)["value"]

    cells = [F.col(f"key.{quoted(name)}") if name in key.names else cell(name) for name in row.names]
    filled = events.select(
        "key",
        "moment",
        "op",
        F.struct(*(value.alias(name) for value, name in zip(cells, row.names, strict=True))).alias("row"),
        F.coalesce(last_reset.isin(INSERT, SNAPSHOT), F.lit(False)).alias("stands"),
    )
    told = filled.where((F.col("op") == DELETE) | F.col("stands") | F.lit(upsert))
    ends = F.lead("moment").over(Window.partitionBy("key").orderBy("moment"))
    return told.withColumn(END, ends).where(F.col("op") != DELETE).withColumnRenamed("moment", START)


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
        replaces: A version that is there may have another row now; then none is new.
        new: Columns that the history gets by this commit.
    """
    names = ", ".join(quoted(name) for name in versions.columns)
    values = ", ".join(f"s.{quoted(name)}" for name in versions.columns)
    compared = versions.schema if replaces else T.StructType([versions.schema[END]])
    differs = f"NOT ({comparable_sql(compared, 't')} <=> {comparable_sql(compared, 's')})"
    assignments = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in compared.names)
    run_once(
        plainly_typed(versions) if new else versions,
        f"""
        {merge_into(path_table(path), new)} USING {SOURCE} AS s ON {same_key(keys)} AND t.{START} = s.{START}
        WHEN MATCHED AND {differs} THEN UPDATE SET {assignments}
        WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})
        """,
        recorded,
        options,
    )
