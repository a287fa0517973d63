"""Applies net rows to a Delta table: one MERGE, one commit, with the position reached in the same commit.

*Net rows* are change rows after folding: at most one per key, flat. Columns: ``_op`` (`transforms.changes`),
``_position``, ``_present`` (names of the columns sent; NULL, or no such column, means all), then the table's columns.

The position is Delta's transaction identifier (``txnAppId`` / ``txnVersion``): a commit at or below the recorded
version does nothing, so applying is idempotent. Only a higher ``_position`` overwrites a row. MERGE is written as SQL
text, which also works where the Python ``DeltaTable`` class does not (Spark Connect).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampNTZType

from silverfold.transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE, struct_type
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import between, has_order, literal, path_table, quoted, type_text

OP, POSITION, PRESENT = "_op", "_position", "_present"

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""Session setting: text that the session's commits carry."""
POSITION_OPTIONS = (_TXN_APP, _TXN_VERSION, USER_METADATA)
"""Session settings that carry a position into commits. A MERGE takes it from nowhere else."""
_SUBSTITUTE = "spark.sql.variable.substitute"

SOURCE = "silverfold_net_rows"
"""Name of the rows in a statement within `committing`."""

AT_HAND = {"spark.databricks.delta.merge.materializeSource": "none"}
"""For a statement with its rows embedded in the plan: each use sees the same rows without materialising them."""

WHOLE_FILES = {"spark.databricks.delta.merge.deletionVectors.persistent": "false"}
"""For a statement that rewrites the files it touches. For a small table this is cheaper than deletion vectors, and
leaves one file, where deletion vectors leave one more each time."""

_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""Prefix of the session settings for default properties of new Delta tables."""

_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "100"}
"""With deletion vectors the cost of a MERGE depends on its rows, not on the files that contain them.

A checkpoint every tenth commit, Delta's default, makes every tenth small cut half as slow again (9.7 s instead of 6.3).
Without it, delta-rs opens the log in 29 ms instead of 9 at 58 commits, and Spark's first MERGE is no slower.
"""

_MAPPED = {"delta.columnMapping.mode": "name"}
"""Columns have other names in files than in the table, so table column names may contain any character."""

_NTZ = {"delta.feature.timestampNtz": "supported"}
"""Property needed to add a timestamp without time zone to a table created without one."""

_REFUSED = frozenset(" ,;{}()\n\t=")
"""Characters that Delta allows in a column name only with column mapping."""


@dataclass(frozen=True)
class Recorded:
    """What a commit carries besides the rows.

    Args:
        app_id: Owner of the position, such as ``apply/market/quotes``.
        version: The position reached. A commit not above the recorded one does nothing.
        metadata: Text for the commit's ``userMetadata``.
    """

    app_id: str
    version: int
    metadata: str = ""


def net_rows(changes: DataFrame, *others: Column, position: str = "frame_seq") -> DataFrame:
    """Flatten change rows that are already one per key. Key columns that are not in ``row`` come first. Lazy.

    A key column that is also in ``row`` is taken from the key: a delete has no row. ``position`` becomes `POSITION`.

    Args:
        others: Named columns of the change rows to retain.
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
        net: Net rows. Their session carries the commit's settings and must not be shared with other writers.
        target: SQL name of the table (`path_table`), which has ``_position`` and the net rows' columns except ``new``.
        keys: Columns that identify a row. Never NULL, or the row would never be found again.
        new: Columns that this commit adds to the target; existing rows have NULL. Call `allow_columns` first.
        upsert: An update of a row that does not exist inserts it. Without, it does nothing.
        bounds: Smallest and largest value of integer key columns, both inclusive, by which Delta skips files.
        options: Session options while the statement runs, such as `AT_HAND` and `WHOLE_FILES`.

    Raises:
        ApplyError: Spark or Delta refused. The target is unchanged.
    """
    columns = _table_columns(net)
    values = [name for name in columns if name not in keys]
    newer, partial = f"s.{POSITION} > t.{POSITION}", PRESENT in net.columns
    assignments = [f"{quoted(name)} = {_patched(name, partial=partial, new=name in new)}" for name in values]
    statement = f"""
        MERGE INTO {target} AS t USING {SOURCE} AS s ON {same_key(keys)} AND {between(bounds, "t")}
        WHEN MATCHED AND {newer} AND s.{OP} = '{DELETE}' THEN DELETE
        WHEN MATCHED AND {newer} THEN UPDATE SET {", ".join([*assignments, f"{POSITION} = s.{POSITION}"])}
        WHEN NOT MATCHED AND s.{OP} IN ({", ".join(map(repr, _beginning(upsert)))}) THEN {_insert(columns)}
        """
    with committing(plainly_typed(net) if new else net, recorded, adding(new, options)) as session:
        session.sql(statement).collect()


def replace(
    net: DataFrame,
    target: str,
    *,
    keys: Sequence[str],
    recorded: Recorded,
    new: Collection[str] = (),
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make the target hold exactly the net rows, in one commit; equal rows are not rewritten.

    Equality is that of SQL: a stored -0.0 is not replaced by 0.0. Rows with a map or a variant, which SQL cannot
    compare, are always rewritten.

    The net rows must be complete existing rows: no deletes, and ``_present`` is ignored. Otherwise like `merge`.
    """
    columns = _table_columns(net)
    values = [name for name in columns if name not in keys]
    before = {name: "NULL" if name in new else f"t.{quoted(name)}" for name in values}
    unlike = [f"NOT ({before[name]} <=> s.{quoted(name)})" for name in values if has_order(net.schema[name].dataType)]
    differs = "TRUE" if len(unlike) < len(values) else " OR ".join(unlike) or "FALSE"
    statement = f"""
        MERGE INTO {target} AS t USING {SOURCE} AS s ON {same_key(keys)}
        WHEN MATCHED AND ({differs}) THEN
          UPDATE SET {", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in [*values, POSITION])}
        WHEN NOT MATCHED THEN {_insert(columns)}
        WHEN NOT MATCHED BY SOURCE THEN DELETE
        """
    with committing(plainly_typed(net) if new else net, recorded, adding(new, options)) as session:
        session.sql(statement).collect()


def append(rows: DataFrame, path: str, *, recorded: Recorded) -> None:
    """Append rows to the Delta table at a path or URL, in one commit, which also creates the table if necessary.

    For a log of changes, and for the first rows of a table: a failure leaves no table, and no reader sees it empty.
    The same commit adds columns that the table lacks; call `allow_columns` first.
    """
    _prepare_feed(rows, path)
    with named_errors(recorded.app_id), _recording(rows.sparkSession, recorded):
        _append(rows, path, mergeSchema="true")


def begun(net: DataFrame, *, upsert: bool) -> DataFrame:
    """Return the rows that `merge` would insert into an empty table. Lazy."""
    return net.where(F.col(OP).isin(_beginning(upsert))).drop(OP, PRESENT)


def overwrite(rows: DataFrame, path: str, *, recorded: Recorded | None = None, metadata: str = "") -> None:
    """Replace the rows and columns of the Delta table at a path or URL with these, in one commit.

    Args:
        recorded: The position and metadata of the commit, if it carries a position.
        metadata: Text for the commit's ``userMetadata``, if it carries no position.
    """
    options = {"overwriteSchema": "true", **table_properties(rows.sparkSession, rows.schema)}
    if metadata:
        options["userMetadata"] = metadata
    with ExitStack() as recording:
        if recorded is not None:
            recording.enter_context(named_errors(recorded.app_id))
        allow_columns(rows.sparkSession, path, rows.schema)
        _prepare_feed(rows, path)
        if recorded is not None:
            recording.enter_context(_recording(rows.sparkSession, recorded))
        plainly_typed(rows).write.format("delta").mode("overwrite").options(**options).save(path)


def set_defaults(session: SparkSession, properties: Mapping[str, str]) -> None:
    """Make a session create tables with properties, such as ``delta.enableDeletionVectors``, from now on."""
    for name, value in properties.items():
        session.conf.set(f"{_DEFAULTS}{name.removeprefix('delta.')}", value)


def table_properties(session: SparkSession, columns: StructType) -> dict[str, str]:
    """Return the properties of a new table with the given columns: ours, unless the session has its own default."""
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
    """Enable the table features that the given columns need, if there is a table at the path or URL. Safe to repeat."""
    has_ntz = any(isinstance(kind, TimestampNTZType) for _, kind in _fields(columns))
    wanted = _mapping(columns).items() | (_NTZ.items() if has_ntz else set())
    if not wanted:
        return
    table = path_table(path)
    try:
        have = {line.key: line.value for line in session.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    except AnalysisException:  # no table
        return
    for name, value in wanted - have.items():
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{name}' = '{value}')").collect()


def plainly_typed(rows: DataFrame) -> DataFrame:
    """Return the rows with types in the notation for a new table, and with the columns' comments. Lazy.

    Over Spark Connect a string has type ``string collate UTF8_BINARY``. It is the same type, but delta-rs cannot read a
    table declared so.
    """
    return rows.select(
        *(
            commented(F.col(quoted(field.name)).cast(type_text(field.dataType)), field.name, comment_of(field))
            for field in rows.schema
        )
    )


def comment_of(field: StructField) -> str:
    """Return a column's comment; empty for none."""
    return str(field.metadata.get("comment", ""))


def commented(value: Column, name: str, comment: str) -> Column:
    """Return a value as a column with a comment, if there is one."""
    return value.alias(name, metadata={"comment": comment}) if comment else value.alias(name)


def create_empty(session: SparkSession, schema: StructType, path: str) -> None:
    """Create the Delta table at a path or URL without rows or position, to merge into. Do nothing if it exists.

    By a write and not by ``CREATE TABLE``, which takes a log without commits for an existing table and does nothing: a
    process that dies during the first commit leaves such a log.
    """
    try:
        session.read.format("delta").load(path).schema  # noqa: B018 - over Spark Connect, loading is lazy
    except AnalysisException:
        _append(session.createDataFrame([], schema), path)


@contextmanager
def committing(
    rows: DataFrame, recorded: Recorded, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """Yield a session for one statement that refers to the rows as `SOURCE`.

    Its commit carries the position; if that is already recorded, nothing happens.

    Args:
        options: Session options inside the block.
    """
    session = rows.sparkSession
    rows.createOrReplaceTempView(SOURCE)
    try:
        with named_errors(recorded.app_id), _recording(session, recorded, options):
            yield session
    finally:
        session.catalog.dropTempView(SOURCE)


@contextmanager
def settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to a session inside the block, and restore the previous ones afterwards."""
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
    """Make the session's commit inside the block carry the position, with variable substitution off.

    Afterwards the session has no position, even if one was set before: restoring it could restore another thread's.
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


def _prepare_feed(rows: DataFrame, path: str) -> None:
    """Create an empty table, if there is none, where Delta refuses to create one with rows.

    So it does with a change data feed and names that need mapping (DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION).
    """
    has_feed = rows.sparkSession.conf.get(f"{_DEFAULTS}enableChangeDataFeed", None) == "true"
    if has_feed and _mapping(rows.schema):
        create_empty(rows.sparkSession, rows.schema, path)


def _append(rows: DataFrame, path: str, **options: str) -> None:
    options |= table_properties(rows.sparkSession, rows.schema)
    plainly_typed(rows).write.format("delta").options(**options).mode("append").save(path)


def _table_columns(net: DataFrame) -> list[str]:
    return [name for name in net.columns if name not in (OP, POSITION, PRESENT)]


def _beginning(upsert: bool) -> list[str]:
    """Return the operations that begin a row where there is none."""
    return [INSERT, SNAPSHOT, UPDATE] if upsert else [INSERT, SNAPSHOT]


def _patched(name: str, *, partial: bool, new: bool) -> str:
    """Return SQL for a column's value after the change; if it was not sent, that of the previous row."""
    if not partial:
        return f"s.{quoted(name)}"
    sent = f"s.{PRESENT} IS NULL OR array_contains(s.{PRESENT}, {literal(name)})"
    return f"IF({sent}, s.{quoted(name)}, {'NULL' if new else f't.{quoted(name)}'})"


def adding(new: Collection[str], options: Mapping[str, str]) -> Mapping[str, str]:
    """Return session options with which a MERGE adds new columns; its own clause for that fails with Delta 4.0."""
    return {**options, "spark.databricks.delta.schema.autoMerge.enabled": "true"} if new else options


def same_key(keys: Sequence[str]) -> str:
    """Return the condition that target ``t`` and source ``s`` have the same key."""
    return " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)


def _insert(columns: Sequence[str]) -> str:
    names = [quoted(name) for name in (*columns, POSITION)]
    return f"INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
