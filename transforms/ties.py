"""Decides which of two rows wins that claim one place, in a DataFrame and inside a MERGE: always one as a whole.

A source should give a key one change per ``sequence``. Where it gives two, the winner depends on what they are, never
on when they came, or splits of the same changes into batches would differ:

1. an upsert wins over a delete, for an update is often sent as a delete and an insert;
2. of two upserts the row with more values that are not NULL wins;
3. of two as full as each other the larger one: columns compare one by one, in the order of their names in small
   letters, NULL least.

Texts compare by their bytes; values of types that have no order (maps, variants) by their JSON.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from transforms.changes import DELETE, struct_type
from transforms.merge import SOURCE, Recorded, run_once
from transforms.sql import path_table, quoted

_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_EXACTLY = {"timestampFormat": f"{_MICROSECONDS}XXX", "timestampNTZFormat": _MICROSECONDS, "timeZone": "UTC"}
"""JSON has milliseconds otherwise, in the session's time zone."""


def has_order(kind: T.DataType) -> bool:
    """Return whether Spark can sort by values of a type."""
    match kind:
        case T.ArrayType():
            return has_order(kind.elementType)
        case T.StructType():
            return all(has_order(field.dataType) for field in kind)
    return not isinstance(kind, (T.MapType, T.VariantType, T.NullType))


def comparable(row: T.StructType, column: str) -> Column:
    """Return the cells of a struct column so that they can be compared, whatever their types and order."""
    return F.struct(*(_comparable(F.col(column).getField(field.name), field.dataType) for field in _by_name(row)))


def comparable_sql(row: T.StructType, alias: str) -> str:
    """Return the same as SQL, of the columns of a table or struct."""
    return f"struct({', '.join(_comparable_sql(f'{alias}.{quoted(f.name)}', f.dataType) for f in _by_name(row))})"


def rank(row: T.StructType, column: str) -> Column:
    """Return what the rows in a struct column win by."""
    values = (F.when(F.col(column).getField(name).isNotNull(), F.lit(1)) for name in row.names)
    return F.struct(F.size(F.array_compact(F.array(*values))), comparable(row, column))


def rank_sql(row: T.StructType, alias: str) -> str:
    """Return the same as SQL, of the columns of a table or struct."""
    values = ", ".join(f"IF({alias}.{quoted(name)} IS NULL, NULL, 1)" for name in row.names)
    return f"struct(size(array_compact(array({values}))), {comparable_sql(row, alias)})"


def differs_sql(row: T.StructType) -> str:
    """Return the condition that target ``t`` and the row of source ``s`` are not equal in some columns."""
    return f"NOT ({comparable_sql(row, 't')} <=> {comparable_sql(row, 's.`row`')})"


def winners(changes: DataFrame, *per: str) -> DataFrame:
    """Return the winner of those changes that are the same in some columns, by ``sequence``, then as above. Lazy.

    Args:
        changes: Columns ``key``, ``sequence``, ``op`` and ``row``.
        per: Either ``key``, or ``key`` and ``sequence``.
    """
    best = F.struct("sequence", F.col("op") != DELETE, rank(struct_type(changes, "row"), "row"))
    found = changes.groupBy(*per).agg(F.max_by(F.struct("sequence", "op", "row"), best).alias("best"))
    return found.select("key", "best.*")


def merge_rows(
    rows: DataFrame, path: str, *, identity: Sequence[str], wins: str, ends: str = "TRUE", recorded: Recorded
) -> None:
    """Write rows to the Delta table at a path or URL where they win, in one commit. Runs Spark jobs; safe to repeat.

    The table's columns travel in a struct, so that no name of ours can meet one of them.

    Args:
        rows: ``op`` and ``row``, a struct of the table's columns; at most one of each identity.
        identity: Columns that name a row of the table; NULL is a value like others.
        wins: Condition under which row ``s.row`` replaces ``t``.
        ends: Condition under which a delete ends ``t``.
    """
    names = struct_type(rows, "row").names
    columns, values = (", ".join(prefix + quoted(name) for name in names) for prefix in ("", "s.`row`."))
    same = " AND ".join(f"t.{quoted(name)} <=> s.`row`.{quoted(name)}" for name in identity)
    assignments = ", ".join(f"t.{quoted(name)} = s.`row`.{quoted(name)}" for name in names)
    run_once(
        rows,
        f"""
        MERGE INTO {path_table(path)} AS t USING {SOURCE} AS s ON {same}
        WHEN MATCHED AND s.`op` = '{DELETE}' AND ({ends}) THEN DELETE
        WHEN MATCHED AND s.`op` <> '{DELETE}' AND ({wins}) THEN UPDATE SET {assignments}
        WHEN NOT MATCHED AND s.`op` <> '{DELETE}' THEN INSERT ({columns}) VALUES ({values})
        """,
        recorded,
    )


def _by_name(row: T.StructType) -> list[T.StructField]:
    return sorted(row, key=lambda field: field.name.lower())


def _comparable(value: Column, kind: T.DataType) -> Column:
    if not has_order(kind):
        return F.to_json(F.struct(value.alias("value")), _EXACTLY)
    return value.cast("binary") if isinstance(kind, T.StringType) else value


def _comparable_sql(value: str, kind: T.DataType) -> str:
    if not has_order(kind):
        options = ", ".join(f'"{name}", "{option}"' for name, option in _EXACTLY.items())
        return f"to_json(struct({value} AS value), map({options}))"
    return f"CAST({value} AS BINARY)" if isinstance(kind, T.StringType) else value
