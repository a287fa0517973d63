"""The tables of a database that the workload can change, and estimates of their row counts.

Cascading deletes in other tables are not reported. Those tables are recounted once enough rows may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import apsw

from silverfold.connectors.sqlitecloud.protocol.statements import quote_identifier as quoted

_COUNTED_AFTER: Final = 20
"""Minimum changes of a table before its rows are recounted."""
_FEW: Final = 10
"""Smaller tables grow to this number of rows."""
_LACKS: Final = 0.9
_HAS_ENOUGH: Final = 1.25


class WorkedColumn(NamedTuple):
    """A writable column."""

    name: str
    declared: str
    required: bool
    in_key: bool
    parent: tuple[str, str] | None
    """The parent table and column of its values, from a foreign key."""


class WorkedTable(NamedTuple):
    """A table that is written to."""

    name: str
    columns: tuple[WorkedColumn, ...]
    has_rowid: bool
    rows: int
    """The row count when the table was loaded."""
    cascading: frozenset[str]
    """Parent tables, in lower case, whose deletes cascade to this table."""

    @property
    def address(self) -> tuple[str, ...]:
        """Columns that identify one row."""
        return ("rowid",) if self.has_rowid else tuple(column.name for column in self.columns if column.in_key)


@dataclass
class _Size:
    """The approximate row count of a table."""

    rows: int
    left: int
    """Changes until the next recount."""


class WorkedTables:
    """The tables of a database, as of construction.

    Args:
        connection: Queries them, now and later.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.all = _tables(connection)
        self._named = {table.name.lower(): table for table in self.all}
        above = [(table, self._above(table)) for table in self.all]
        self._below = {
            table.name: [below for below, names in above if below is not table and table.name.lower() in names]
            for table in self.all
        }
        self._sizes = {table.name: _initial_size(table.rows) for table in self.all}

    def named(self, name: str) -> WorkedTable | None:
        """Return the table with a name, ignoring case."""
        return self._named.get(name.lower())

    def rows(self, table: WorkedTable) -> int:
        """Return the approximate row count of a table."""
        if self._sizes[table.name].left <= 0:
            self._sizes[table.name] = _initial_size(_count(self._connection, table.name))
        return self._sizes[table.name].rows

    def lacks(self, table: WorkedTable) -> bool:
        """Return whether a table has fewer rows than it had initially."""
        return self._fullness(table) < _LACKS

    def has_enough(self, table: WorkedTable) -> bool:
        """Return whether a table has grown so much that it should lose rows."""
        return self._fullness(table) > _HAS_ENOUGH

    def may_lose(self, table: WorkedTable) -> bool:
        """Return whether rows of a table may be deleted: neither it nor a table its deletes cascade to lacks rows."""
        return not any(map(self.lacks, [table, *self._below[table.name]]))

    def note(self, table: WorkedTable, added: int, elsewhere: int) -> None:
        """Record a change: the rows it added, and those it changed in other tables."""
        size = self._sizes[table.name]
        size.rows += added
        size.left -= 1
        for below in self._below[table.name] if elsewhere else ():
            self._sizes[below.name].left -= elsewhere

    def _fullness(self, table: WorkedTable) -> float:
        return self.rows(table) / max(table.rows, _FEW)

    def _above(self, table: WorkedTable) -> set[str]:
        """Return the tables, in lower case, whose deletes may cascade to this one, directly or indirectly."""
        seen, found = set[str](), set(table.cascading)
        while new := found - seen:
            seen |= new
            found |= {name for each in new if (parent := self.named(each)) for name in parent.cascading}
        return found


def _initial_size(rows: int) -> _Size:
    return _Size(rows, max(_COUNTED_AFTER, rows // 10))


def _tables(connection: apsw.Connection) -> list[WorkedTable]:
    query = (
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
    )
    found = cast(list[tuple[str, int]], connection.execute(query + " ORDER BY name").fetchall())
    return [_table(connection, name, has_rowid=not without) for name, without in found]


def _table(connection: apsw.Connection, name: str, *, has_rowid: bool) -> WorkedTable:
    parents = _parents(connection, name)
    query = 'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?, ?) WHERE hidden = 0'
    found = cast(list[tuple[str, str, int, int]], connection.execute(query, (name, "main")).fetchall())
    columns = tuple(
        WorkedColumn(column, declared, bool(required or position), bool(position), parents.get(column.lower()))
        for column, declared, required, position in found
    )
    return WorkedTable(name, columns, has_rowid, _count(connection, name), _cascading(connection, name))


def _count(connection: apsw.Connection, table: str) -> int:
    (rows,) = cast(tuple[int], connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone())
    return rows


def _parents(connection: apsw.Connection, table: str) -> Mapping[str, tuple[str, str]]:
    """Return the parent of each foreign key column; without a named column it is the parent's primary key."""
    query = """SELECT k."from", k."table", coalesce(k."to", p.name)
        FROM pragma_foreign_key_list(?, 'main') AS k
        LEFT JOIN pragma_table_xinfo(k."table", 'main') AS p ON p.pk = k.seq + 1"""
    found = cast(list[tuple[str, str, str | None]], connection.execute(query, (table,)).fetchall())
    return {column.lower(): (parent, name) for column, parent, name in found if name is not None}


def _cascading(connection: apsw.Connection, table: str) -> frozenset[str]:
    query = """SELECT lower("table") FROM pragma_foreign_key_list(?, 'main') WHERE on_delete = 'CASCADE'"""
    return frozenset(cast(str, name) for (name,) in connection.execute(query, (table,)))
