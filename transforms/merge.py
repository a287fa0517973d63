"""Applies net rows to a Delta table: one MERGE, one commit, with the position reached inside that commit.

*Net rows* are change rows after folding: at most one per key, flat. Columns: ``_op`` (`transforms.changes`),
``_position``, ``_present`` (names of the columns sent; NULL, or no such column, means all), then the table's columns.

The position is Delta's own transaction identifier (``txnAppId`` / ``txnVersion``): a commit at or below the recorded
version does nothing, so applying twice is applying once. A row is only written by a higher ``_position``.
MERGE is written as SQL text, which also works where the Python ``DeltaTable`` class does not (Spark Connect).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampNTZType

from transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE, struct_type
from transforms.spark_errors import named_errors
from transforms.sql import between, literal, path_table, quoted, type_text

OP, POSITION, PRESENT = "_op", "_position", "_present"

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""Setting of a session: text that its commits carry."""
_SUBSTITUTE = "spark.sql.variable.substitute"

SOURCE = "silverfold_net_rows"
"""How a statement for `run_once` names its rows."""

AT_HAND = {"spark.databricks.delta.merge.materializeSource": "none"}
"""For a statement whose rows are part of its plan: each use of them is the same without keeping them somewhere."""

WHOLE_FILES = {"spark.databricks.delta.merge.deletionVectors.persistent": "false"}
"""For a statement that writes the files it touches anew: of a small table that is cheaper than to mark rows in them,
and leaves one file where marks leave one more each time."""

_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""How the settings of a session begin that say with which properties Delta makes tables."""

_DELETION_VECTORS = f"{_DEFAULTS}enableDeletionVectors"

_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "100"}
"""Deletion vectors make a MERGE cost by its rows, not by the files they are in.

A checkpoint every tenth commit, Delta's own choice, makes each tenth small cut take half as long again (9.7 s for 6.3).
Without, delta-rs opens the log in 29 ms instead of 9 at 58 commits, and Spark's first MERGE takes no longer.
"""

_MAPPED = {"delta.columnMapping.mode": "name"}
"""Columns have other names in files than in the table, which lets the table's have any character."""

_NTZ = {"delta.feature.timestampNtz": "supported"}
"""What a table needs that was made without timestamps without a zone, and is to have some."""

_REFUSED = frozenset(" ,;{}()\n\t=")
"""What Delta lets no column's name have without."""


@dataclass(frozen=True)
class Recorded:
    """What goes into the commit beside the rows.

    Args:
        app_id: Whose position it is, such as ``apply/market/quotes``.
        version: The position reached. A commit not above the recorded one does nothing.
        metadata: Text for the commit's ``userMetadata``.
    """

    app_id: str
    version: int
    metadata: str = ""


def net_rows(changes: DataFrame, *others: Column, position: str = "frame_seq") -> DataFrame:
    """Flatten change rows that are already one per key. Key columns that are not in ``row`` come first. Lazy.

    A key column that is in ``row`` too comes from the key: a delete has no row. ``position`` becomes `POSITION`.

    Args:
        others: Columns of the change rows to keep, named.
    """
    key, row = struct_type(changes, "key").names, struct_type(changes, "row").names
    return changes.select(
        F.col("op").alias(OP),
        F.col(position).alias(POSITION),
        F.col("present").alias(PRESENT),
        *(F.col(f"key.{quoted(name)}").alias(name) for name in key if name not in row),
        *(F.col(f"{'key' if name in key else 'row'}.{quoted(name)}").alias(name) for name in row),
        *others,
    )


def merge(
    net: DataFrame,
    target: str,
    *,
    keys: Sequence[str],
    recorded: Recorded,
    new: Collection[str] = (),
    upsert: bool = False,
    bounds: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Apply net rows to the target in one commit. Runs Spark jobs; safe to repeat.

    Args:
        folds: Net rows. Their session carries the commit's settings and must not be shared with other writers.
        target: The table as SQL names it (`path_table`), with ``_position`` and the net rows' columns but the new ones.
        keys: Columns that name a row. Never NULL, or the row would never be found again.
        new: Columns that the target gets by this commit; rows that were there have NULL. `allow_columns` comes first.
        upsert: An update of a row that does not exist inserts it. Without, it does nothing.
        bounds: Smallest and largest value of key columns that are whole numbers, both inclusive: Delta skips files.
        options: Of the session while the statement runs, such as `AT_HAND` and `WHOLE_FILES`.

    Raises:
        ApplyError: Spark or Delta refused. The target stands as it was.
    """
    columns = _table_columns(net)
    values = [name for name in columns if name not in keys]
    newer, partial = f"s.{POSITION} > t.{POSITION}", PRESENT in net.columns
    assignments = [f"{quoted(name)} = {_patched(name, partial=partial, new=name in new)}" for name in values]
    statement = f"""
        {merge_into(target, new)} USING {SOURCE} AS s ON {same_key(keys)} AND {between(bounds, "t")}
        WHEN MATCHED AND {newer} AND s.{OP} = '{DELETE}' THEN DELETE
        WHEN MATCHED AND {newer} THEN UPDATE SET {", ".join([*assignments, f"{POSITION} = s.{POSITION}"])}
        WHEN NOT MATCHED AND s.{OP} IN ({", ".join(map(repr, _beginning(upsert)))}) THEN {_insert(columns)}
        """
    run_once(plainly_typed(net) if new else net, statement, recorded, options)


def replace(
    net: DataFrame,
    target: str,
    *,
    keys: Sequence[str],
    recorded: Recorded,
    new: Collection[str] = (),
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make the target hold exactly the net rows, in one commit; rows that are equal are not rewritten.

    They are equal as SQL has it: -0.0 stays where 0.0 comes.

    Net rows here are whole rows in existence: no deletes, ``_present`` is not looked at. Otherwise as `merge`.
    """
    columns = _table_columns(net)
    values = [name for name in columns if name not in keys]
    before = {name: "NULL" if name in new else f"t.{quoted(name)}" for name in values}
    differs = " OR ".join(f"NOT ({before[name]} <=> s.{quoted(name)})" for name in values) or "FALSE"
    run_once(
        plainly_typed(net) if new else net,
        f"""
        {merge_into(target, new)} USING {SOURCE} AS s ON {same_key(keys)}
        WHEN MATCHED AND ({differs}) THEN
          UPDATE SET {", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in [*values, POSITION])}
        WHEN NOT MATCHED THEN {_insert(columns)}
        WHEN NOT MATCHED BY SOURCE THEN DELETE
        """,
        recorded,
        options,
    )


def append(rows: DataFrame, path: str, *, recorded: Recorded) -> None:
    """Add rows to the Delta table at a path or URL, in one commit which makes the table where there is none.

    For a log of changes, and for the first rows of a table: a failure leaves no table, and no reader sees it empty.
    Columns that the table lacks it gets by the same commit; `allow_columns` comes first.
    """
    with named_errors(recorded.app_id), _recording(rows.sparkSession, recorded):
        _append(rows, path, mergeSchema="true")


def begun(net: DataFrame, *, upsert: bool) -> DataFrame:
    """Return the rows that net rows come to where there are none before them: what `merge` inserts. Lazy."""
    return net.where(F.col(OP).isin(_beginning(upsert))).drop(OP, PRESENT)


def overwrite(rows: DataFrame, path: str, *, recorded: Recorded | None = None, metadata: str = "") -> None:
    """Make the Delta table at a path or URL hold just these rows, with their columns, in one commit.

    Args:
        recorded: What the commit carries, if it carries a position.
        metadata: Text for its ``userMetadata``, if it carries none.
    """
    options = {"overwriteSchema": "true", **table_properties(rows.sparkSession, rows.schema)}
    if metadata:
        options["userMetadata"] = metadata
    with ExitStack() as recording:
        if recorded is not None:
            recording.enter_context(named_errors(recorded.app_id))
        allow_columns(rows.sparkSession, path, rows.schema)
        if recorded is not None:
            recording.enter_context(_recording(rows.sparkSession, recorded))
        plainly_typed(rows).write.format("delta").mode("overwrite").options(**options).save(path)


def make_without_vectors(session: SparkSession) -> None:
    """Let a session make tables without deletion vectors from now on."""
    session.conf.set(_DELETION_VECTORS, "false")


def table_properties(session: SparkSession, columns: StructType) -> dict[str, str]:
    """Return with which properties a session makes a table of such columns: ours where it has no default of its own."""
    ours = {
        name: value
        for name, value in _PROPERTIES.items()
        if session.conf.get(f"{_DEFAULTS}{name.removeprefix('delta.')}", None) is None
    }
    return {**ours, **_mapping(columns)}


def _mapping(columns: StructType) -> dict[str, str]:
    return _MAPPED if any(_REFUSED.intersection(name) for name, _ in _fields(columns)) else {}


def _fields(kind: DataType) -> Iterator[tuple[str, DataType]]:
    """Yield names and types of all fields, at any depth; elements, keys and values have no name."""
    match kind:
        case StructType():
            inside = [(each.name, each.dataType) for each in kind]
        case ArrayType():
            inside = [("", kind.elementType)]
        case MapType():
            inside = [("", kind.keyType), ("", kind.valueType)]
        case _:
            inside = []
    for name, each in inside:
        yield name, each
        yield from _fields(each)


def allow_columns(session: SparkSession, path: str, columns: StructType) -> None:
    """Let the Delta table at a path or URL, if there is one, take columns of such names and types. Safe to repeat."""
    has_ntz = any(isinstance(kind, TimestampNTZType) for _, kind in _fields(columns))
    wanted = _mapping(columns).items() | (_NTZ.items() if has_ntz else set())
    if not wanted:
        return
    table = path_table(path)
    try:
        have = {line.key: line.value for line in session.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    except AnalysisException:  # there is none
        return
    for name, value in wanted - have.items():
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{name}' = '{value}')").collect()


def plainly_typed(rows: DataFrame) -> DataFrame:
    """Return the rows with types as a new table is to name them. Lazy.

    Over Spark Connect a string comes as ``string collate UTF8_BINARY``. It is the same type, but delta-rs could not
    read a table that says so.
    """
    return rows.select(
        *(F.col(quoted(field.name)).cast(type_text(field.dataType)).alias(field.name) for field in rows.schema)
    )


def create_empty(session: SparkSession, schema: StructType, path: str) -> None:
    """Make the Delta table at a path or URL without rows or position, to merge into. Does nothing where there is one.

    By a write and not by ``CREATE TABLE``, which takes a log without a commit for a table that is there and does
    nothing: a process that dies while it makes the first commit leaves such a log.
    """
    try:
        session.read.format("delta").load(path).schema  # noqa: B018 - over Spark Connect, only this asks for it
    except AnalysisException:
        _append(session.createDataFrame([], schema), path)


def run_once(
    rows: DataFrame, statement: str, recorded: Recorded, options: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run a statement over some rows in one commit that carries the position: where it is recorded, nothing happens.

    Args:
        statement: SQL that names the rows by `SOURCE`.
        options: Of the session while it runs.
    """
    session = rows.sparkSession
    rows.createOrReplaceTempView(SOURCE)
    try:
        with named_errors(recorded.app_id), _recording(session, recorded, options):
            session.sql(statement).collect()
    finally:
        session.catalog.dropTempView(SOURCE)


@contextmanager
def settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Let a session have some settings inside the block; afterwards it has those of before."""
    before = {name: session.conf.get(name, None) for name in wanted}
    differing = {name: value for name, value in wanted.items() if before[name] != value}
    try:
        for name, value in differing.items():
            session.conf.set(name, value)
        yield
    finally:
        for name in differing:
            had = before[name]
            if had is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, had)


@contextmanager
def _recording(
    session: SparkSession, recorded: Recorded, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Let the session's next commit carry the position; later ones must not. Names in its text stand as they are.

    Afterwards the session has no position, whoever set one: of two threads, one could put back the other's.
    """
    carried = {_TXN_APP: recorded.app_id, _TXN_VERSION: str(recorded.version)}
    if recorded.metadata:
        carried[USER_METADATA] = recorded.metadata
    with settings(session, {**options, _SUBSTITUTE: "false"}):
        try:
            for name, value in carried.items():
                session.conf.set(name, value)
            yield
        finally:
            for name in carried:
                session.conf.unset(name)


def _append(rows: DataFrame, path: str, **options: str) -> None:
    options |= table_properties(rows.sparkSession, rows.schema)
    plainly_typed(rows).write.format("delta").options(**options).mode("append").save(path)


def _table_columns(net: DataFrame) -> list[str]:
    return [name for name in net.columns if name not in (OP, POSITION, PRESENT)]


def _beginning(upsert: bool) -> list[str]:
    """Return the changes that begin a row where there is none."""
    return [INSERT, SNAPSHOT, UPDATE] if upsert else [INSERT, SNAPSHOT]


def _patched(name: str, *, partial: bool, new: bool) -> str:
    """Return a column's value after the change; where it was not sent, that of the row before."""
    if not partial:
        return f"s.{quoted(name)}"
    sent = f"s.{PRESENT} IS NULL OR array_contains(s.{PRESENT}, {literal(name)})"
    return f"IF({sent}, s.{quoted(name)}, {'NULL' if new else f't.{quoted(name)}'})"


def merge_into(target: str, new: Collection[str]) -> str:
    """Return how a MERGE begins that gives the target ``t`` new columns, if there are any."""
    return f"MERGE {'WITH SCHEMA EVOLUTION ' if new else ''}INTO {target} AS t"


def same_key(keys: Sequence[str]) -> str:
    """Return the condition that target ``t`` and source ``s`` have the same key."""
    return " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)


def _insert(columns: Sequence[str]) -> str:
    names = [quoted(name) for name in (*columns, POSITION)]
    return f"INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
