"""Spells names, texts and bounds for SQL text. No other value travels inside SQL text.

Spark substitutes ``${…}`` in whatever text it parses, backslashes mean what a setting says, and a time means another
moment in another zone. So texts are written as the bytes they are, and bounds are whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T


def quoted(name: str) -> str:
    """Return the name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def type_text(kind: T.DataType) -> str:
    """Return SQL for a type. Spark's own text of one leaves the names of fields as they are, which may be any."""
    match kind:
        case T.StructType():
            return f"struct<{', '.join(f'{quoted(each.name)}: {type_text(each.dataType)}' for each in kind)}>"
        case T.ArrayType():
            return f"array<{type_text(kind.elementType)}>"
        case T.MapType():
            return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
        case T.TimestampType():
            return "timestamp_ltz"  # what "timestamp" is, a setting says
        case _:
            return kind.simpleString()


def has_order(kind: T.DataType) -> bool:
    """Return whether Spark can sort by values of a type."""
    match kind:
        case T.ArrayType():
            return has_order(kind.elementType)
        case T.StructType():
            return all(has_order(field.dataType) for field in kind)
    return not isinstance(kind, (T.MapType, T.VariantType, T.NullType))


def path_table(path: str) -> str:
    """Return how SQL names the Delta table at a path or URL."""
    return f"delta.{quoted(path)}"


def literal(text: str) -> str:
    """Return SQL for a text: its UTF-8 bytes in hex, which mean the same under every setting."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def between(bounds: Mapping[str, tuple[int, int]], table: str) -> str:
    """Return the condition that columns of a table, named by its alias, are within bounds, both inclusive."""
    limits = [f"{table}.{quoted(name)} BETWEEN {least:d} AND {most:d}" for name, (least, most) in bounds.items()]
    return " AND ".join(limits) or "TRUE"
