"""Formats identifiers, strings and bounds for SQL text. No other values are embedded in SQL text.

Spark substitutes ``${…}`` in any text it parses, settings change the meaning of backslashes, and a time denotes another
moment in another time zone. So bounds are integers, and strings are hex bytes wherever an expression may stand.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T

ESCAPES = {"spark.sql.parser.escapedStringLiterals": "false"}
"""For a statement with texts of `escaped`: the default, which a session may have changed."""


def quoted(name: str) -> str:
    """Return the name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def type_text(kind: T.DataType) -> str:
    """Return SQL for a type. Spark's own text does not quote field names, which may contain any character."""
    match kind:
        case T.StructType():
            return f"struct<{', '.join(f'{quoted(each.name)}: {type_text(each.dataType)}' for each in kind)}>"
        case T.ArrayType():
            return f"array<{type_text(kind.elementType)}>"
        case T.MapType():
            return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
        case T.TimestampType():
            return "timestamp_ltz"  # the meaning of "timestamp" depends on a setting
        case _:
            return kind.simpleString()


def has_order(kind: T.DataType) -> bool:
    """Return whether Spark can sort values of a type."""
    match kind:
        case T.ArrayType():
            return has_order(kind.elementType)
        case T.StructType():
            return all(has_order(field.dataType) for field in kind)
    return not isinstance(kind, (T.MapType, T.VariantType, T.NullType))


def path_table(path: str) -> str:
    """Return the SQL name of the Delta table at a path or URL."""
    return f"delta.{quoted(path)}"


def literal(text: str) -> str:
    """Return SQL for a string: its UTF-8 bytes in hex, which no setting reinterprets."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def escaped(text: str) -> str:
    """Return a SQL string literal, for where no expression may stand. All but letters and digits is escaped."""
    return "'" + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text) + "'"


def between(bounds: Mapping[str, tuple[int, int]], table: str) -> str:
    """Return the SQL condition that columns of a table alias are within bounds, both inclusive."""
    limits = [f"{table}.{quoted(name)} BETWEEN {least:d} AND {most:d}" for name, (least, most) in bounds.items()]
    return " AND ".join(limits) or "TRUE"
