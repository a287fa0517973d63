"""Spells names for SQL text."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return the name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def path_table(path: str) -> str:
    """Return how SQL names the Delta table at a path or URL."""
    return f"delta.{quoted(path)}"
