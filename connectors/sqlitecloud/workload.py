"""Keeps a user's own database changing: reads its schema, and writes rows like those that are there.

Inserts, updates of some columns, deletes and moves of keys, several in a transaction. What the database's constraints
refuse is left undone. Tables grow to about twice their size, and stay there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, cast

import apsw
import structlog

from conf.errors import ConfigError
from connectors.sqlitecloud.capture import SqliteValue
from connectors.sqlitecloud.naming import quote_identifier as quoted
from connectors.sqlitecloud.server_state import ServedSession
from connectors.sqlitecloud.transactions import Written
from connectors.sqlitecloud.workload_values import made_up, new_key, varied

_TRIES: Final = 20
"""Statements of one transaction, at most."""
_ENOUGH: Final = 0.4
"""How likely a transaction ends after a statement."""
_REFUSED: Final = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.BusyError)
"""What a database may say to a row or a commit."""
_LOOKED_AT: Final = 1_000
"""Rows from which a table without rowids has one drawn."""
_COUNTED_AFTER: Final = 100
"""Changes tried in a table, at least, after which its rows are counted again."""
_PARENTS: Final = 50
"""Rows that a foreign key is chosen from."""


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

    @property
    def address(self) -> tuple[str, ...]:
        """Columns by which one row is found."""
        return ("rowid",) if self.has_rowid else tuple(column.name for column in self.columns if column.in_key)


@dataclass
class _Size:
    """How many rows a table has, about: what foreign keys and triggers do to it is seen when it is counted again."""

    rows: int
    tries_left: int


class Workload:
    """Changes every table of a database, by a session of the server's own. Used by one thread.

    Args:
        session: Uses the database; foreign keys are enforced in it from now on.
        seed: Same seed and same database, same sequence of changes.

    Raises:
        ConfigError: The database has no table.
    """

    def __init__(self, session: ServedSession, seed: int | str) -> None:
        self._session = session
        self._connection = session.transactions.connection
        self._connection.pragma("foreign_keys", True)
        self._chance = Random(seed)  # noqa: S311 - repeatable, not secret
        self._version: object = None
        self._tables: list[WorkedTable] = []
        self._sizes: dict[str, _Size] = {}
        self._log = structlog.get_logger("sqlitecloud.workload")
        if not self._looked_at():
            path = str(session.database.path) if session.database else ""
            raise ConfigError(file=path, key="database", found="no table", allowed="a database with tables")

    def change(self) -> int:
        """Commit one transaction; return how many rows it changed, 1 where all that was tried was refused."""
        made = 0
        try:
            self._run("BEGIN IMMEDIATE")
            made = self._changed(self._looked_at())
            if self._connection.in_transaction:
                self._run("COMMIT")
        except _REFUSED as error:  # others hold the database, or what was put off until the commit is wrong
            self._log.info("transaction_refused", reason=str(error))
        finally:
            if self._connection.in_transaction:
                self._run("ROLLBACK")
        return max(made, 1)

    def _changed(self, tables: Sequence[WorkedTable]) -> int:
        made = 0
        for _ in range(_TRIES if tables else 0):
            made += self._try(self._chance.choice(tables))
            if (made and self._chance.random() < _ENOUGH) or not self._connection.in_transaction:
                break
        return made

    def _run(self, statement: str, parameters: Sequence[SqliteValue] = ()) -> int:
        found = self._session.transactions.run(statement, lambda _count: parameters)
        return found.changes if isinstance(found, Written) else 0

    def _looked_at(self) -> list[WorkedTable]:
        """Return the tables as they are now."""
        version = self._connection.pragma("schema_version")
        if version != self._version:
            self._version = version
            self._tables = _tables(self._connection)
            self._sizes.clear()
        return self._tables

    def _size(self, table: WorkedTable) -> _Size:
        size = self._sizes.get(table.name)
        if size is None or not size.tries_left:
            rows = _count(self._connection, table.name)
            size = self._sizes[table.name] = _Size(rows, max(_COUNTED_AFTER, rows // 10))
        return size

    def _try(self, table: WorkedTable) -> int:
        size = self._size(table)
        size.tries_left -= 1
        weights = _weights(size.rows, table.rows)
        (work,) = self._chance.choices((self._insert, self._update, self._delete, self._move), weights)
        row = self._drawn(table, size.rows)
        if row is None and work != self._insert:
            return 0
        try:
            made = work(table, row or {})
        except _REFUSED as error:
            self._log.debug("refused", table=table.name, reason=str(error))
            return 0
        size.rows += {self._insert: made, self._delete: -made}.get(work, 0)
        return made

    def _drawn(self, table: WorkedTable, rows: int) -> dict[str, SqliteValue] | None:
        """Return any row, with its address; None from an empty table."""
        names = [*table.address, *(column.name for column in table.columns)]
        query = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(table.name)} "
        if table.has_rowid:
            (highest,) = self._one(f"SELECT max(rowid) FROM {quoted(table.name)}") or (None,)
            found = highest and self._one(
                query + "WHERE rowid >= ?", self._chance.randint(1, max(cast(int, highest), 1))
            )
        else:
            found = self._one(query + "LIMIT 1 OFFSET ?", self._chance.randrange(max(1, min(rows, _LOOKED_AT))))
        return dict(zip(names, found, strict=True)) if found else None

    def _one(self, query: str, *parameters: SqliteValue) -> tuple[SqliteValue, ...] | None:
        return self._connection.execute(query + " LIMIT 1" * ("LIMIT" not in query), parameters).fetchone()

    def _insert(self, table: WorkedTable, like: dict[str, SqliteValue]) -> int:
        row = {column.name: self._value(table, column, like.get(column.name)) for column in table.columns}
        names, places = ", ".join(map(quoted, row)), ", ".join("?" * len(row))
        return self._run(f"INSERT INTO {quoted(table.name)}({names}) VALUES({places})", list(row.values()))

    def _update(self, table: WorkedTable, row: dict[str, SqliteValue]) -> int:
        free = [column for column in table.columns if not column.in_key]
        some = self._chance.sample(free, self._chance.randint(1, min(3, len(free)))) if free else []
        return self._set(table, row, some)

    def _move(self, table: WorkedTable, row: dict[str, SqliteValue]) -> int:
        return self._set(table, row, [column for column in table.columns if column.in_key])

    def _set(self, table: WorkedTable, row: dict[str, SqliteValue], columns: Sequence[WorkedColumn]) -> int:
        if not columns:
            return 0
        values = [self._value(table, column, row[column.name]) for column in columns]
        assignments = ", ".join(f"{quoted(column.name)} = ?" for column in columns)
        return self._run(f"UPDATE {quoted(table.name)} SET {assignments} {_where(table)}", [*values, *_at(table, row)])

    def _delete(self, table: WorkedTable, row: dict[str, SqliteValue]) -> int:
        return self._run(f"DELETE FROM {quoted(table.name)} {_where(table)}", _at(table, row))

    def _value(self, table: WorkedTable, column: WorkedColumn, like: SqliteValue) -> SqliteValue:
        if column.parent is not None:
            return self._parent(column, like)
        if column.in_key:
            (highest,) = self._one(f"SELECT max({quoted(column.name)}) FROM {quoted(table.name)}") or (None,)
            return new_key(like, highest, column.declared, self._chance)
        if not column.required and self._chance.random() < 0.1:
            return None
        if like is None or self._chance.random() < 0.2:
            return made_up(column.declared, self._chance) if like is None else like
        return varied(like, column.declared, self._chance)

    def _parent(self, column: WorkedColumn, like: SqliteValue) -> SqliteValue:
        """Return a value that the parent table has, if it has any."""
        assert column.parent is not None
        table, name = map(quoted, column.parent)
        found = self._connection.execute(f"SELECT {name} FROM {table} LIMIT {_PARENTS}").fetchall()
        return self._chance.choice(found)[0] if found else like


def _weights(rows: int, found: int) -> tuple[int, ...]:
    """Return how likely each kind of change is in a table of so many rows, found with so many: it keeps its size."""
    if rows > 2 * found + 100:
        return 10, 40, 40, 10
    return (45, 35, 12, 8) if rows > found // 2 + 3 else (60, 30, 0, 10)


def _where(table: WorkedTable) -> str:
    return "WHERE " + " AND ".join(f"{quoted(name)} IS ?" for name in table.address)


def _at(table: WorkedTable, row: dict[str, SqliteValue]) -> list[SqliteValue]:
    return [row[name] for name in table.address]


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
    return WorkedTable(name, columns, has_rowid, _count(connection, name))


def _count(connection: apsw.Connection, table: str) -> int:
    (rows,) = cast(tuple[int], connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone())
    return rows


def _parents(connection: apsw.Connection, table: str) -> dict[str, tuple[str, str]]:
    """Return where the values of columns must be; a foreign key that names no column means the parent's key."""
    query = """SELECT k."from", k."table", coalesce(k."to", p.name)
        FROM pragma_foreign_key_list(?, 'main') AS k
        LEFT JOIN pragma_table_xinfo(k."table", 'main') AS p ON p.pk = k.seq + 1"""
    found = cast(list[tuple[str, str, str | None]], connection.execute(query, (table,)).fetchall())
    return {column.lower(): (parent, name) for column, parent, name in found if name is not None}
