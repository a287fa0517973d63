"""Breaks ties between two rows for the same key and sequence, in a DataFrame and inside a MERGE. One wins as a whole.

A source should send one change per key and ``sequence``. If it sends two, the winner depends on their content, never on
arrival. Otherwise different splits of the same changes into batches would give different results:

1. an upsert wins over a delete, since an update is often sent as a delete and an insert;
2. of two upserts the row with more non-NULL values wins;
3. of two with equally many the larger one wins: columns compare one by one, in the order of their lower-case names,
   NULL least.

Strings compare by their bytes, -0.0 is less than 0.0, NaN greater than all, a map compares by its entries in the order
of its keys, a variant by its JSON and schema; likewise inside arrays, structs and maps. SQL reveals no more of a
variant: of two that agree in both (0.1 as decimal and as double, in an array of several types) either may win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.transforms.changes import DELETE, struct_type
from silverfold.transforms.merge import SOURCE, Recorded, committing
from silverfold.transforms.sql import path_table, quoted


def comparable(row: T.StructType, column: str, *, zeros: bool = True) -> Column:
    """Return the cells of a struct column in comparable form, whatever their types and order.

    Args:
        zeros: Whether -0.0 and 0.0 differ.
    """
    return F.expr(comparable_sql(row, quoted(column), zeros=zeros))


def comparable_sql(row: T.StructType, alias: str, *, zeros: bool = True) -> str:
    """Return the same as SQL, of the columns of a table or struct."""
    fields = sorted(row, key=lambda field: field.name.lower())
    cells = (_comparable(f"{alias}.{quoted(each.name)}", each.dataType, zeros=zeros) for each in fields)
    return f"struct({', '.join(cells)})"


def rank(row: T.StructType, column: str) -> Column:
    """Return the rank of the rows in a struct column: the highest wins."""
    return F.expr(rank_sql(row, quoted(column)))


def rank_sql(row: T.StructType, alias: str) -> str:
    """Return the same as SQL, of the columns of a table or struct."""
    values = ", ".join(f"IF({alias}.{quoted(name)} IS NULL, NULL, 1)" for name in row.names)
    return f"struct(size(array_compact(array({values}))), {comparable_sql(row, alias)})"


def differs_sql(row: T.StructType) -> str:
    """Return the condition that target ``t`` and the row of source ``s`` differ in any column."""
    return f"NOT ({comparable_sql(row, 't')} <=> {comparable_sql(row, 's.`row`')})"


def winners(changes: DataFrame, *per: str) -> DataFrame:
    """Return the winner of each group of changes, by ``sequence``, then by the rules of this module. Lazy.

    Args:
        changes: Columns ``key``, ``sequence``, ``op`` and ``row``.
        per: Grouping columns: either ``key``, or ``key`` and ``sequence``.
    """
    best = F.struct("sequence", F.col("op") != DELETE, rank(struct_type(changes, "row"), "row"))
    found = changes.groupBy(*per).agg(F.max_by(F.struct("sequence", "op", "row"), best).alias("best"))
    return found.select("key", "best.*")


def merge_rows(
    rows: DataFrame,
    path: str,
    *,
    identity: Sequence[str],
    wins: str,
    ends: str = "TRUE",
    recorded: Recorded,
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the winning rows to the Delta table at a path or URL, in one commit. Runs Spark jobs; safe to repeat.

    The table's columns are passed in a struct, so that their names cannot clash with ours.

    Args:
        rows: ``op`` and ``row``, a struct of the table's columns; at most one row per identity.
        identity: Columns that identify a row of the table; NULL equals NULL.
        wins: Condition under which row ``s.row`` replaces ``t``.
        ends: Condition under which a delete ends ``t``.
        options: Session options while the MERGE runs (`transforms.merge`).
    """
    names = struct_type(rows, "row").names
    columns, values = (", ".join(prefix + quoted(name) for name in names) for prefix in ("", "s.`row`."))
    same = " AND ".join(f"t.{quoted(name)} <=> s.`row`.{quoted(name)}" for name in identity)
    assignments = ", ".join(f"t.{quoted(name)} = s.`row`.{quoted(name)}" for name in names)
    statement = f"""
        MERGE INTO {path_table(path)} AS t USING {SOURCE} AS s ON {same}
        WHEN MATCHED AND s.`op` = '{DELETE}' AND ({ends}) THEN DELETE
        WHEN MATCHED AND s.`op` <> '{DELETE}' AND ({wins}) THEN UPDATE SET {assignments}
        WHEN NOT MATCHED AND s.`op` <> '{DELETE}' THEN INSERT ({columns}) VALUES ({values})
        """
    with committing(rows, recorded, options) as session:
        session.sql(statement).collect()


def _comparable(value: str, kind: T.DataType, depth: int = 0, *, zeros: bool) -> str:
    each, within = f"each_{depth}", partial(_comparable, zeros=zeros)
    match kind:
        case T.StringType():
            sql = f"CAST({value} AS BINARY)"
        case T.FloatType() | T.DoubleType() if zeros:
            sql = f"struct({value}, CAST({value} AS STRING) = '0.0')"
        case T.StructType():
            fields = (within(f"{value}.{quoted(field.name)}", field.dataType, depth) for field in kind)
            sql = f"IF({value} IS NULL, NULL, struct({', '.join(fields)}))"
        case T.ArrayType():
            sql = f"transform({value}, {each} -> {within(each, kind.elementType, depth + 1)})"
        case T.MapType():
            parts = {"key": kind.keyType, "value": kind.valueType}
            entry = (within(f"{each}.{part}", of, depth + 1) for part, of in parts.items())
            sql = f"sort_array(transform(map_entries({value}), {each} -> struct({', '.join(entry)})))"
        case T.VariantType():
            sql = f"to_json(struct({value} AS value), map('timeZone', 'UTC'))"
            sql = f"IF({value} IS NULL, NULL, struct({sql}, schema_of_variant({value})))"
        case _:
            sql = value
    return sql
