"""Spells names, values and conditions for SQL text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any


def quoted(name: str) -> str:
    """Return the name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def path_table(path: str) -> str:
    """Return how SQL names the Delta table at a path or URL."""
    return f"delta.{quoted(path)}"


def literal(value: Any) -> str | None:
    """Return a whole number, text, date or time as SQL writes it; None for values of other types."""
    match value:
        case bool():
            return None
        case int():
            return str(value)
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case datetime():
            return f"TIMESTAMP{'' if value.tzinfo else '_NTZ'} '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
    return None


def between(bounds: Mapping[str, tuple[Any, Any]], table: str = "") -> str:
    """Return the condition that columns are within bounds, both inclusive; those no literal can be written of are free.

    Args:
        table: Alias to name the columns by.
    """
    prefix = f"{table}." if table else ""
    spelt = [(name, literal(least), literal(most)) for name, (least, most) in bounds.items()]
    limits = [f"{prefix}{quoted(name)} BETWEEN {a} AND {b}" for name, a, b in spelt if a is not None and b is not None]
    return " AND ".join(limits) or "TRUE"
