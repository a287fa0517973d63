"""Execution of a session's SQL, and publication of each transaction's changes as it commits.

A write outside a transaction gets its own. Changes are collected inside the transaction. Commit and publication are one
step under the database's `order` lock, so that notifications keep the order of commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import apsw
import apsw.ext
import structlog

from silverfold.connectors.sqlitecloud.protocol.messages import Column, RawText, Value
from silverfold.connectors.sqlitecloud.protocol.sql_splitter import first_word
from silverfold.connectors.sqlitecloud.server.database import Database
from silverfold.connectors.sqlitecloud.server.pubsub.capture import CaptureMode, TableChanges, Unreportable, capture_for

_ENDS: Final = frozenset({"COMMIT", "END", "RELEASE"})
_CONTROLS: Final = _ENDS | {"BEGIN", "SAVEPOINT", "ROLLBACK"}
_STATEMENT: Final = '"a statement of silverfold"'
"""Savepoint around each write."""
_IS_TABLE: Final = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE"
_NEVER_WITHIN: Final = frozenset({"PRAGMA", "VACUUM", "ATTACH", "DETACH"})
"""SQLite refuses some of them inside a transaction, and none changes a row."""


class Rows(NamedTuple):
    """The result of a statement that returns rows, which are read from the database as they are consumed."""

    columns: tuple[Column, ...]
    rows: Iterator[tuple[Value, ...]]


class Written(NamedTuple):
    """The effect of a statement without a result."""

    last_rowid: int
    changes: int
    total_changes: int


class Transactions:
    """One connection to a database. Used by one thread at a time.

    Args:
        publish: Called with the changes of each committed transaction, under the database's `order` lock.
    """

    def __init__(
        self, database: Database, mode: CaptureMode, publish: Callable[[Sequence[TableChanges]], None]
    ) -> None:
        self._database, self._publish = database, publish
        self.connection = database.connect()
        self._capture = capture_for(self.connection, mode)
        self.connection.authorizer = self._authorize
        self._savepoint_name = ""
        self._savepoints: list[tuple[str, int, int]] = []
        """Name, capture marker, and number of pending `_on_commit` callbacks."""
        self._on_commit: list[Callable[[], None]] = []
        self._log = structlog.get_logger("sqlitecloud.server")

    def run(self, statement: str, take: Callable[[int], Sequence[Value]]) -> Rows | Written:
        """Run one statement. Its rows are from one moment; consume them before the next statement.

        Args:
            take: Returns the requested number of parameters.

        Raises:
            apsw.Error: SQLite refuses. An open transaction remains open, unless SQLite ended it.
        """
        first = first_word(statement)
        if first in _CONTROLS:
            self._control(first, statement)
            return self._written()
        details = apsw.ext.query_info(self.connection, statement)
        parameters = [_parameter(value) for value in take(details.bindings_count)]
        if details.is_readonly or first in _NEVER_WITHIN:
            cursor = self.connection.execute(statement, parameters)
            return Rows(self._columns(details), _consume(cursor)) if details.description else self._written()
        returned = self._write(statement, parameters)
        return Rows(self._columns(details), iter(returned)) if details.description else self._written()

    def has_table(self, name: str) -> bool:
        """Return whether a table exists.

        A read inside the open transaction is avoided: it could not write any more once another session has written.
        """
        is_free = not self.connection.in_transaction or self.connection.txn_state() == apsw.SQLITE_TXN_WRITE
        connection = self.connection if is_free else self._database.connect()
        try:
            return connection.execute(_IS_TABLE, (name,)).fetchone() is not None
        finally:
            if not is_free:
                connection.close()

    def at_commit(self, work: Callable[[], None]) -> None:
        """Run ``work`` under the database's `order` lock when the open transaction commits; now if none is open.

        It runs before that transaction's changes are published, so a LISTEN receives them. A rollback discards it.
        """
        if self.connection.in_transaction:
            self._on_commit.append(work)
        else:
            with self._database.order:
                work()

    def interrupt(self) -> None:
        """Interrupt a statement that runs in another thread, which then fails."""
        with contextlib.suppress(apsw.ConnectionClosedError):
            self.connection.interrupt()

    def close(self) -> None:
        """Roll back what is open, and close the connection."""
        self._end()
        self.connection.close(True)

    def _authorize(self, action: int, first: str | None, second: str | None, *_context: str | None) -> int:
        """Deny attaching files, and record savepoint names as SQLite parses them. VACUUM attaches a nameless file."""
        if action == apsw.SQLITE_SAVEPOINT:
            self._savepoint_name = (second or "").lower()
        return apsw.SQLITE_DENY if action == apsw.SQLITE_ATTACH and first else apsw.SQLITE_OK

    def _control(self, first: str, statement: str) -> None:
        outside, self._savepoint_name = not self.connection.in_transaction, ""
        if first in _ENDS:
            self._commit(statement)
        else:
            self.connection.execute(statement, can_cache=False)
        if not self.connection.in_transaction:
            self._end()
            return
        if outside:
            self._savepoints.clear()
            self._capture.begin()
        if self._savepoint_name:
            self._savepoint(first)

    def _savepoint(self, first: str) -> None:
        if first == "SAVEPOINT":
            self._savepoints.append((self._savepoint_name, self._capture.savepoint(), len(self._on_commit)))
            return
        while self._savepoints[-1][0] != self._savepoint_name:
            self._savepoints.pop()
        if first == "RELEASE":
            self._savepoints.pop()
        else:
            _, savepoint, callback_count = self._savepoints[-1]
            self._capture.rollback_to(savepoint)
            del self._on_commit[callback_count:]

    def _write(self, statement: str, parameters: Sequence[Value]) -> list[tuple[Value, ...]]:
        if self.connection.in_transaction:
            return self._step(statement, parameters)
        self.connection.execute("BEGIN IMMEDIATE")
        self._capture.begin()
        try:
            returned = self._step(statement, parameters)
            self._commit("COMMIT")
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._end()
        return returned

    def _step(self, statement: str, parameters: Sequence[Value]) -> list[tuple[Value, ...]]:
        """Run a statement inside the transaction. It leaves nothing behind if it fails, not even with OR FAIL.

        SQLite does not report which of a failed statement's changes it keeps, and the hook's have to be the database's.
        """
        savepoint = self._capture.savepoint()
        self.connection.execute(f"SAVEPOINT {_STATEMENT}")
        try:
            returned = self.connection.execute(statement, parameters).fetchall()
        except BaseException:
            self._capture.rollback_to(savepoint)
            if self.connection.in_transaction:
                self.connection.execute(f"ROLLBACK TO {_STATEMENT}")
                self.connection.execute(f"RELEASE {_STATEMENT}")
            else:  # ON CONFLICT ROLLBACK
                self._end()
            raise
        self.connection.execute(f"RELEASE {_STATEMENT}")
        self._capture.statement_done()
        return returned

    def _commit(self, statement: str) -> None:
        """Commit, or release a savepoint, which commits if it is the outermost."""
        with self._database.order:
            changes = self._changes() if self.connection.in_transaction else []
            self.connection.execute(statement, can_cache=False)
            if self.connection.in_transaction:
                return
            for work in self._on_commit:
                work()
            if changes:
                self._publish(changes)

    def _end(self) -> None:
        """Discard the state of the ended transaction."""
        self._capture.end()
        self._on_commit.clear()

    def _changes(self) -> Sequence[TableChanges]:
        try:
            return self._capture.changes()
        except Unreportable as error:
            self._log.warning("transaction_not_told", reason=str(error))
            return []

    def _written(self) -> Written:
        connection = self.connection
        return Written(connection.last_insert_rowid(), connection.changes(), connection.total_changes())

    def _columns(self, details: apsw.ext.QueryDetails) -> tuple[Column, ...]:
        full = details.description_full or ()
        return tuple(self._column(*parts) for parts in full)

    def _column(
        self, name: str, declared: str | None, database: str | None, table: str | None, origin: str | None
    ) -> Column:
        flags = (False, False, False)
        if database and table and origin:
            with contextlib.suppress(apsw.SQLError):  # a view's column has no such properties
                flags = self.connection.column_metadata(database, table, origin)[2:]
        return Column(name, declared, database, table, origin, *flags)


def _consume(cursor: apsw.Cursor) -> Iterator[tuple[Value, ...]]:
    try:
        yield from cursor
    finally:
        cursor.close(True)


def _parameter(value: Value) -> Value:
    return value.octets if isinstance(value, RawText) else value
