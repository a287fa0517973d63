"""Reads which tables of a database can be worked on, and keeps count of their rows.

What a delete takes with it in other tables is not told. So these are counted again, once enough may have gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import apsw

from connectors.sqlitecloud.statements import quote_identifier as quoted

_COUNTED_AFTER: Final = 20
"""Changes of a table, at least, after which its rows are counted again."""
_FEW: Final = 10
"""Rows that a table comes to have where it has fewer."""
_LACKS: Final = 0.9
_HAS_ENOUGH: Final = 1.25


class WorkedColumn(NamedTuple):
    """A column that can be written."""

    name: str
    declared: str
    required: bool
    in_key: bool
    parent: tuple[str, str] | None
    """Table and column that its values must be in."""


class WorkedTable(NamedTuple):
    """A table that is written to."""

    name: str
    columns: tuple[WorkedColumn, ...]
    has_rowid: bool
    rows: int
    """How many it had when it was looked at."""
    cascading: frozenset[str]
    """Tables, in small letters, a delete in which deletes rows of this one."""

    @property
    def address(self) -> tuple[str, ...]:
        """Columns by which one row is found."""
        return ("rowid",) if self.has_rowid else tuple(column.name for column in self.columns if column.in_key)


@dataclass
class _Size:
    """How many rows a table has, about."""

    rows: int
    left: int
    """Changes after which it is counted again."""


class WorkedTables:
    """The tables of a database as they were when this was made.

    Args:
        connection: Looks at them, now and later.
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
        self._sizes = {table.name: _sized(table.rows) for table in self.all}

    def named(self, name: str) -> WorkedTable | None:
        """Return the table of a name, in letters of either case."""
        return self._named.get(name.lower())

    def rows(self, table: WorkedTable) -> int:
        """Return how many rows a table has, about."""
        if self._sizes[table.name].left <= 0:
            self._sizes[table.name] = _sized(_count(self._connection, table.name))
        return self._sizes[table.name].rows

    def lacks(self, table: WorkedTable) -> bool:
        """Tell whether a table has fewer rows than it had."""
        return self._fullness(table) < _LACKS

    def has_enough(self, table: WorkedTable) -> bool:
        """Tell whether a table has more rows than it had, by so many that it should lose some."""
        return self._fullness(table) > _HAS_ENOUGH

    def may_lose(self, table: WorkedTable) -> bool:
        """Tell whether rows of a table may be deleted: neither it nor what these take with them lacks any."""
        return not any(map(self.lacks, [table, *self._below[table.name]]))

    def note(self, table: WorkedTable, added: int, elsewhere: int) -> None:
        """Take note of a change: how many rows it added, and how many it changed in any other table."""
        size = self._sizes[table.name]
        size.rows += added
        size.left -= 1
        for below in self._below[table.name] if elsewhere else ():
            self._sizes[below.name].left -= elsewhere

    def _fullness(self, table: WorkedTable) -> float:
        return self.rows(table) / max(table.rows, _FEW)

    def _above(self, table: WorkedTable) -> set[str]:
        """Return the tables, in small letters, a delete in which may reach one, be it through others."""
        seen, found = set[str](), set(table.cascading)
        while new := found - seen:
            seen |= new
            found |= {name for each in new if (parent := self.named(each)) for name in parent.cascading}
        return found


def _sized(rows: int) -> _Size:
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
        WorkedColumn(column, declared, bool(required or place), bool(place), parents.get(column.lower()))
        for column, declared, required, place in found
    )
    return WorkedTable(name, columns, has_rowid, _count(connection, name), _cascading(connection, name))


def _count(connection: apsw.Connection, table: str) -> int:
    (rows,) = cast(tuple[int], connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone())
    return rows


def _parents(connection: apsw.Connection, table: str) -> Mapping[str, tuple[str, str]]:
    """Return where the values of columns must be; a foreign key that names no column means the parent's key."""
    query = """SELECT k."from", k."table", coalesce(k."to", p.name)
        FROM pragma_foreign_key_list(?, 'main') AS k
        LEFT JOIN pragma_table_xinfo(k."table", 'main') AS p ON p.pk = k.seq + 1"""
    found = cast(list[tuple[str, str, str | None]], connection.execute(query, (table,)).fetchall())
    return {column.lower(): (parent, name) for column, parent, name in found if name is not None}


def _cascading(connection: apsw.Connection, table: str) -> frozenset[str]:
    query = """SELECT lower("table") FROM pragma_foreign_key_list(?, 'main') WHERE on_delete = 'CASCADE'"""
    return frozenset(cast(str, name) for (name,) in connection.execute(query, (table,)))
