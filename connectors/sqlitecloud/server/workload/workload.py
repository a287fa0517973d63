"""A workload for a user's own database: reads its schema, and writes rows similar to the existing ones.

It inserts, updates some columns, deletes and changes keys, several per transaction. Changes that the database's
constraints refuse are skipped. Tables keep about their size, whatever cascading deletes remove: tables that lack rows
get more inserts, and rows whose deletion would cascade to them are not deleted. Small tables grow to ten rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, cast

import apsw
import structlog

from silverfold.conf.errors import ConfigError
from silverfold.connectors.sqlitecloud.protocol.statements import quote_identifier as quoted
from silverfold.connectors.sqlitecloud.server.pubsub.capture import SqliteValue
from silverfold.connectors.sqlitecloud.server.state import ServedSession
from silverfold.connectors.sqlitecloud.server.transactions import Written
from silverfold.connectors.sqlitecloud.server.workload.tables import WorkedColumn, WorkedTable, WorkedTables
from silverfold.connectors.sqlitecloud.server.workload.values import new_key, random_like, random_value

_TRIES: Final = 20
"""Maximum statements per transaction."""
_ENOUGH: Final = 0.4
"""The probability that a transaction ends after a statement."""
_REFUSED: Final = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.BusyError)
"""Errors with which a database may refuse a row or a commit."""
_SAMPLED: Final = 1_000
"""Rows from which one is drawn in a table without rowids."""
_IN_NEED: Final = 6
"""The weight of a table that lacks rows, relative to the others."""


class Workload:
    """Changes every table of a database, in a session of the server itself. Used by one thread.

    Args:
        session: Uses the database; foreign keys are enforced in it from now on.
        seed: The same seed and database give the same sequence of changes.

    Raises:
        ConfigError: The database has no table.
    """

    def __init__(self, session: ServedSession, seed: int | str) -> None:
        self._session = session
        self._connection = session.transactions.connection
        self._connection.pragma("foreign_keys", True)
        self._chance = Random(seed)  # noqa: S311 - repeatable, not secret
        self._version = self._connection.pragma("schema_version")
        self._tables = WorkedTables(self._connection)
        self._log = structlog.get_logger("sqlitecloud.workload")
        if not self._tables.all:
            path = str(session.database.path) if session.database else ""
            raise ConfigError(file=path, key="database", found="no table", allowed="a database with tables")

    def change(self) -> int:
        """Commit one transaction; return the number of changed rows, at least 1 even if every change was refused."""
        made = 0
        try:
            self._run("BEGIN IMMEDIATE")
            self._reload_tables()
            made = self._change_rows()
            if self._connection.in_transaction:
                self._run("COMMIT")
        except _REFUSED as error:  # another session holds the database, or a deferred constraint fails
            self._log.info("transaction_refused", reason=str(error))
        finally:
            if self._connection.in_transaction:
                self._run("ROLLBACK")
        return max(made, 1)

    def _change_rows(self) -> int:
        made, tables = 0, self._tables.all
        for _ in range(_TRIES if tables else 0):
            weights = [_IN_NEED if self._tables.lacks(table) else 1 for table in tables]
            made += self._try(*self._chance.choices(tables, weights))
            if (made and self._chance.random() < _ENOUGH) or not self._connection.in_transaction:
                break
        return made

    def _run(self, statement: str, parameters: Sequence[SqliteValue] = ()) -> int:
        found = self._session.transactions.run(statement, lambda _count: parameters)
        return found.changes if isinstance(found, Written) else 0

    def _reload_tables(self) -> None:
        """Reload the tables if the schema has changed."""
        version = self._connection.pragma("schema_version")
        if version != self._version:
            self._version, self._tables = version, WorkedTables(self._connection)

    def _try(self, table: WorkedTable) -> int:
        rows, before = self._tables.rows(table), self._connection.total_changes()
        (work,) = self._chance.choices((self._insert, self._update, self._delete, self._move), self._weights(table))
        row = self._random_row(table, rows)
        if row is None and work != self._insert:
            return 0
        try:
            made = work(table, row or {})
        except _REFUSED as error:
            self._log.debug("refused", table=table.name, reason=str(error))
            made = 0
        elsewhere = self._connection.total_changes() - before - made
        self._tables.note(table, {self._insert: made, self._delete: -made}.get(work, 0), elsewhere)
        return made

    def _weights(self, table: WorkedTable) -> tuple[int, ...]:
        """Return the weights of insert, update, delete and move for a table, so that it keeps its size."""
        if self._tables.lacks(table):
            return 70, 20, 0, 10
        deletes = 20 * self._tables.may_lose(table)
        return (0, 60, 2 * deletes, 10) if self._tables.has_enough(table) else (30, 40, deletes, 10)

    def _random_row(self, table: WorkedTable, rows: int) -> dict[str, SqliteValue] | None:
        """Return a random row, with its address; None from an empty table."""
        names = [*table.address, *(column.name for column in table.columns)]
        found = self._any_row(table, names, rows)
        return dict(zip(names, found, strict=True)) if found else None

    def _any_row(self, table: WorkedTable, names: Sequence[str], rows: int) -> tuple[SqliteValue, ...] | None:
        query = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(table.name)} "
        if not table.has_rowid:
            return self._fetch_one(query + "LIMIT 1 OFFSET ?", self._chance.randrange(max(1, min(rows, _SAMPLED))))
        (highest,) = self._fetch_one(f"SELECT max(rowid) FROM {quoted(table.name)}") or (None,)
        least = self._chance.randint(1, max(cast(int, highest), 1)) if highest else 0
        return self._fetch_one(query + "WHERE rowid >= ?", least)

    def _fetch_one(self, query: str, *parameters: SqliteValue) -> tuple[SqliteValue, ...] | None:
        return self._connection.execute(query + " LIMIT 1" * ("LIMIT" not in query), parameters).fetchone()

    def _insert(self, table: WorkedTable, like: dict[str, SqliteValue]) -> int:
        row = {column.name: self._value(table, column, like.get(column.name)) for column in table.columns}
        names, placeholders = ", ".join(map(quoted, row)), ", ".join("?" * len(row))
        return self._run(f"INSERT INTO {quoted(table.name)}({names}) VALUES({placeholders})", list(row.values()))

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
            (highest,) = self._fetch_one(f"SELECT max({quoted(column.name)}) FROM {quoted(table.name)}") or (None,)
            return new_key(like, highest, column.declared, self._chance)
        if not column.required and self._chance.random() < 0.1:
            return None
        if like is None or self._chance.random() < 0.2:
            return random_value(column.declared, self._chance) if like is None else like
        return random_like(like, column.declared, self._chance)

    def _parent(self, column: WorkedColumn, like: SqliteValue) -> SqliteValue:
        """Return a value of the parent table, if it has any."""
        assert column.parent is not None
        name, parent = column.parent[1], self._tables.named(column.parent[0])
        found = self._any_row(parent, [name], self._tables.rows(parent)) if parent else None
        return found[0] if found else like


def _where(table: WorkedTable) -> str:
    return "WHERE " + " AND ".join(f"{quoted(name)} IS ?" for name in table.address)


def _at(table: WorkedTable, row: dict[str, SqliteValue]) -> list[SqliteValue]:
    return [row[name] for name in table.address]
