"""Applies net rows to a Delta table: one MERGE, one commit, with the position reached inside that commit.

*Net rows* are change rows after folding: at most one per key, flat. Columns: ``_op`` (`transforms.changes`),
``_position``, ``_present`` (names of the columns sent; NULL, or no such column, means all), then the table's columns.

The position is Delta's own transaction identifier (``txnAppId`` / ``txnVersion``): a commit at or below the recorded
version does nothing, so applying twice is applying once. A row is only written by a higher ``_position``.
MERGE is written as SQL text, which also works where the Python ``DeltaTable`` class does not (Spark Connect).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from conf.conditions import respelled
from transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE, struct_type
from transforms.explain import EXPECTS
from transforms.faults import DUPLICATE_KEY, EXPECTATION, UNEXPLAINED, named_errors
from transforms.sql import between, literal, quoted

OP, POSITION, PRESENT = "_op", "_position", "_present"

VACATED = "_vacated"
"""Only in re-keyed net rows: the row that silver has at this key leaves it in this cut."""

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_SOURCE = "silverfold_net_rows"

_PROPERTIES = {"delta.enableDeletionVectors": "true"}
"""Deletion vectors make a MERGE cost by its rows, not by the files they are in."""


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
    upsert: bool = False,
    bounds: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
    identity: str | None = None,
    rules: Sequence[str] = (),
) -> None:
    """Apply net rows to the target in one commit. Runs Spark jobs; safe to repeat.

    Args:
        net: Net rows. Their session carries the commit's settings and must not be shared with other writers. With the
            column `transforms.explain.EXPECTS`, what it says is checked.
        target: The table as SQL names it (`path_table`), with the net rows' columns and ``_position``.
        keys: Columns that name a row. Never NULL, or the row would never be found again.
        upsert: An update of a row that does not exist inserts it. Without, it does nothing.
        bounds: Smallest and largest value of key columns, both inclusive: lets Delta skip files.
        identity: Column by which the source names the row, where ``keys`` are others (`transforms.rekey`). A key taken
            by a row that does not leave it in this cut is a DuplicateKey.
        rules: Conditions on the table's columns that every row written must meet, once it is complete.

    Raises:
        ExpectationFailed: A row does not meet a rule. The target stands as it was.
        Unexplained: A row stands where none is expected, or none where one is. The target stands as it was.
        DuplicateKey: Two rows claim one key. The target stands as it was.
        ApplyError: Spark or Delta refused, or a key is NULL. The target stands as it was.
    """
    columns = _table_columns(net)
    values = [name for name in columns if name not in keys]
    partial, guards = PRESENT in net.columns, EXPECTS in net.columns
    assignments = [f"t.{quoted(c)} = {_now(c, 't' if partial else None)}" for c in values]
    inserting = [INSERT, SNAPSHOT, UPDATE] if upsert else [INSERT, SNAPSHOT]
    newer, begins = f"s.{POSITION} > t.{POSITION}", f"s.{OP} IN ({', '.join(map(repr, inserting))})"
    ends = _guarded_end(newer) if guards else f"{newer} AND s.{OP} = '{DELETE}'"
    comes = f"({begins} OR s.{EXPECTS})" if guards else begins
    rightly = f"{begins} AND s.{EXPECTS} IS NOT TRUE" if guards else begins
    patched, begun = (_failing(rules, columns, stood=row) for row in ("t" if partial else None, None))
    failing = [
        f"WHEN MATCHED AND {newer} AND {patched} THEN UPDATE SET t.{POSITION} = {_raising(EXPECTATION)}",
        f"WHEN NOT MATCHED AND {rightly} AND {begun} THEN INSERT ({POSITION}) VALUES ({_raising(EXPECTATION)})",
    ]
    clauses = [
        _taken(identity),
        f"WHEN MATCHED AND {ends} THEN DELETE",
        failing[0] if rules else "",
        f"WHEN MATCHED AND {newer} THEN UPDATE SET {', '.join([*assignments, f't.{POSITION} = s.{POSITION}'])}",
        failing[1] if rules else "",
        f"WHEN NOT MATCHED AND {comes} THEN {_insert(columns, guards=guards)}",
    ]
    on = f"{same_key(keys)} AND {between(bounds, 't')}"
    statement = f"MERGE INTO {target} AS t USING {{source}} AS s ON {on} {' '.join(clauses)}"
    run_once(net, statement, recorded)


def replace(net: DataFrame, target: str, *, keys: Sequence[str], recorded: Recorded) -> None:
    """Make the target hold exactly the net rows, in one commit; rows that are equal are not rewritten.

    Net rows here are whole rows in existence: no deletes, ``_present`` is not looked at. Otherwise as `merge`.
    """
    columns = _table_columns(net)
    values = [name for name in columns if name not in keys]
    differs = " OR ".join(f"NOT (t.{quoted(c)} <=> s.{quoted(c)})" for c in values) or "FALSE"
    run_once(
        net,
        f"""
        MERGE INTO {target} AS t USING {{source}} AS s ON {same_key(keys)}
        WHEN MATCHED AND ({differs}) THEN
          UPDATE SET {", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in [*values, POSITION])}
        WHEN NOT MATCHED THEN {_insert(columns)}
        WHEN NOT MATCHED BY SOURCE THEN DELETE
        """,
        recorded,
    )


def append(rows: DataFrame, path: str, *, recorded: Recorded) -> None:
    """Add rows to the Delta table at a path or URL, in one commit which makes the table where there is none.

    For a log of changes, and for the first rows of a table: a failure leaves no table, and no reader sees it empty.
    """
    with named_errors(recorded.app_id), _recording(rows.sparkSession, recorded):
        plainly_typed(rows).write.format("delta").options(**_PROPERTIES).mode("append").save(path)


def plainly_typed(rows: DataFrame) -> DataFrame:
    """Return the rows with types as a new table is to name them. Lazy.

    Over Spark Connect a string comes as ``string collate UTF8_BINARY``. It is the same type, but delta-rs could not
    read a table that says so.
    """
    return rows.select(
        *(F.col(quoted(field.name)).cast(field.dataType.simpleString()).alias(field.name) for field in rows.schema)
    )


def create_empty(session: SparkSession, schema: StructType, target: str) -> None:
    """Make the target without rows or position, to merge into. Does nothing where it exists."""
    columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema)
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
    session.sql(f"CREATE TABLE IF NOT EXISTS {target} ({columns}) USING DELTA TBLPROPERTIES ({properties})")


def run_once(rows: DataFrame, statement: str, recorded: Recorded) -> None:
    """Run a statement over some rows in one commit that carries the position: where it is recorded, nothing happens.

    Args:
        statement: SQL with ``{source}`` where the rows are to stand.
    """
    session = rows.sparkSession
    rows.createOrReplaceTempView(_SOURCE)
    try:
        with named_errors(recorded.app_id), _recording(session, recorded):
            session.sql(statement.replace("{source}", _SOURCE)).collect()
    finally:
        session.catalog.dropTempView(_SOURCE)


@contextmanager
def _recording(session: SparkSession, recorded: Recorded) -> Iterator[None]:
    """Let the session's next commit carry the position; later ones must not."""
    session.conf.set(_TXN_APP, recorded.app_id)
    session.conf.set(_TXN_VERSION, str(recorded.version))
    if recorded.metadata:
        session.conf.set(_USER_METADATA, recorded.metadata)
    try:
        yield
    finally:
        for name in (_TXN_APP, _TXN_VERSION, _USER_METADATA):
            session.conf.unset(name)


def _table_columns(net: DataFrame) -> list[str]:
    return [name for name in net.columns if name not in (OP, POSITION, PRESENT, VACATED, EXPECTS)]


def _taken(identity: str | None) -> str:
    """Return the clause that fails when a row comes to a key whose row stays."""
    if identity is None:
        return ""
    stays = f"NOT s.{VACATED} AND t.{quoted(identity)} <> s.{quoted(identity)}"
    return f"WHEN MATCHED AND {stays} THEN UPDATE SET t.{POSITION} = {_raising(DUPLICATE_KEY)}"


def _raising(marker: str) -> str:
    return f"CAST(raise_error('{marker}') AS BIGINT)"


def _guarded_end(newer: str) -> str:
    """Return the condition of a delete, which fails of any row that stands where none is expected.

    In the condition, not in a clause of its own: a clause more makes every MERGE dearer. Spark works conditions out for
    rows without a match too, so what may fail is asked last.
    """
    return f"IF({newer}, s.{OP} = IF(NOT s.{EXPECTS}, raise_error('{UNEXPLAINED}'), '{DELETE}'), FALSE)"


def _failing(rules: Sequence[str], columns: Sequence[str], *, stood: str | None) -> str:
    """Return the condition that a row, as it is about to be, does not meet a rule.

    Args:
        stood: Where the values come from that were not sent; None for a row that begins, or is sent whole.
    """
    names = {name.lower(): name for name in columns}
    met = " AND ".join(f"({respelled(rule, lambda name: _now(names[name.lower()], stood))})" for rule in rules)
    return f"NOT coalesce({met}, FALSE)"


def _now(name: str, stood: str | None) -> str:
    """Return a column's value after the change; where it was not sent, that of the row that stood."""
    if stood is None:
        return f"s.{quoted(name)}"
    sent = f"s.{PRESENT} IS NULL OR array_contains(s.{PRESENT}, {literal(name)})"
    return f"IF({sent}, s.{quoted(name)}, {stood}.{quoted(name)})"


def same_key(keys: Sequence[str]) -> str:
    """Return the condition that target ``t`` and source ``s`` have the same key."""
    return " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)


def _insert(columns: Sequence[str], *, guards: bool = False) -> str:
    """Return the action that inserts; with ``guards`` it fails of a row that is expected to stand."""
    names = [quoted(name) for name in columns]
    position = f"IF(s.{EXPECTS}, {_raising(UNEXPLAINED)}, s.{POSITION})" if guards else f"s.{POSITION}"
    return f"INSERT ({', '.join([*names, POSITION])}) VALUES ({', '.join([*(f's.{n}' for n in names), position])})"
