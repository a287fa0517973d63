"""Columns and keys of a table by version: the schemas that frames of a cut may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType, whole


@dataclass(frozen=True)
class Schema:
    """One version of a table's columns. Columns of earlier versions come first, then new ones by name. Picklable."""

    version: int
    keys: tuple[str, ...]
    """None for a table that takes inserts only."""
    columns: Mapping[str, ColumnType]
    unreadable: str | None = None
    """Why a column's type is none that silver has; the other versions' frames need its names alone."""


@dataclass(frozen=True)
class TableSchemas:
    """The schemas that frames of one table may have. Picklable.

    Args:
        newest: The schema of the change rows.
        landed: The schemas by position; empty if the settings declare the columns for all versions.
    """

    newest: Schema
    landed: tuple[tuple[int, Schema], ...] = ()

    def names(self, version: object, position: int) -> Iterable[str]:
        """Return the columns of a whole row in a frame. Raises InvalidValue: ``unknown_version``, ``wrong_type``."""
        if not self.landed:
            return self.newest.columns
        number = whole(version, 32, "version")
        for at, schema in reversed(self.landed):
            if schema.version == number and at < position:
                return schema.columns
        raise InvalidValue(f"no schema of version {number} came before", reason="unknown_version")
