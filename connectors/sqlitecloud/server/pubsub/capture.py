"""Capture of the rows that a transaction changes, as SQLite itself reports them.

There are two implementations, because it is not known which one the hosted service uses: `SessionCapture` (SQLite's
session extension: the net change of each key) and `HookCapture` (the preupdate hook: every step, in statement order). A
connection uses one of them. Both are read inside the transaction, before it commits: afterwards changes of other
connections would leak in, and inside the commit hook SQLite refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, TypeAlias, cast

import apsw

SqliteValue: TypeAlias = int | float | str | bytes | None
_Values: TypeAlias = tuple[object, ...]
Op: TypeAlias = Literal["INSERT", "UPDATE", "DELETE"]


class CaptureMode(StrEnum):
    """The source of changes, and how much of an updated row it includes."""

    SESSION = "session"
    """The session extension: key and changed columns."""
    HOOK_FULL = "hook-full"
    """The preupdate hook, complete rows."""
    HOOK_CHANGED = "hook-changed"
    """The preupdate hook, key and changed columns."""


class RowChange(NamedTuple):
    """One row inserted, updated or deleted."""

    op: Op
    values: dict[str, SqliteValue]
    """The reported columns, in table order: all for an INSERT, none for a DELETE."""
    old_key: tuple[SqliteValue, ...]
    """Key before an UPDATE or DELETE, in the order of the key columns; empty for an INSERT."""
    key_changed: bool = False
    """Whether an UPDATE changed the row's key."""


class TableChanges(NamedTuple):
    """The changes of one transaction to one table."""

    table: str
    key: tuple[str, ...]
    """The key columns in declared order; empty for a table without a key."""
    changes: tuple[RowChange, ...]


class Unreportable(Exception):
    """SQLite cannot report the changes of the transaction; it may commit all the same."""


class Capture(Protocol):
    """Records the changes of one connection, one transaction at a time."""

    def begin(self) -> None:
        """Start recording. Discard earlier records."""

    def savepoint(self) -> int:
        """Return a savepoint marker for `rollback_to`."""

    def rollback_to(self, savepoint: int) -> None:
        """Discard changes recorded since the marker, after a failed statement or a rolled-back savepoint."""

    def statement_done(self) -> None:
        """Record that a statement has completed."""

    def changes(self) -> list[TableChanges]:
        """Return the changes per table. Call inside the transaction.

        Raises:
            Unreportable: SQLite cannot report them.
        """

    def end(self) -> None:
        """Stop recording and discard. Idempotent."""


class TableShape(NamedTuple):
    """The columns of a table, as changes index them."""

    stored: tuple[str, ...]
    """Columns stored in rows, stored generated ones included."""
    writable: frozenset[str]
    """Columns that are not generated, which suffice to write a row."""
    key: tuple[str, ...]
    """Primary key columns in declared order; empty if there is none."""


def table_shape(connection: apsw.Connection, table: str) -> TableShape:
    """Return a table's columns (SQLite's ``pragma_table_xinfo``); empty if the table does not exist."""
    rows = connection.execute("SELECT name, hidden, pk FROM pragma_table_xinfo(?, 'main')", (table,)).fetchall()
    columns = cast(list[tuple[str, int, int]], rows)
    return TableShape(
        stored=tuple(name for name, hidden, _ in columns if hidden in (0, 3)),
        writable=frozenset(name for name, hidden, _ in columns if hidden == 0),
        key=tuple(name for _, name in sorted((position, name) for name, _, position in columns if position)),
    )


def capture_for(connection: apsw.Connection, mode: CaptureMode) -> Capture:
    """Return the capture of a connection. Call once per connection."""
    if mode is CaptureMode.SESSION:
        return SessionCapture(connection)
    return HookCapture(connection, full_rows=mode is CaptureMode.HOOK_FULL)


class SessionCapture:
    """Capture by the session extension: at most one change per key, in the order of its hash table.

    Tables without a declared key and rows with NULL in the key are not reported; generated columns are omitted.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._session: apsw.Session | None = None

    def begin(self) -> None:
        """See `Capture.begin`."""
        self.end()
        self._session = apsw.Session(self._connection, "main")
        self._session.attach()

    def savepoint(self) -> int:
        """Return a dummy: SQLite itself handles rollback."""
        return 0

    def rollback_to(self, savepoint: int) -> None:
        """Do nothing: a changeset compares with the final state."""

    def statement_done(self) -> None:
        """Do nothing."""

    def changes(self) -> list[TableChanges]:
        """See `Capture.changes`. A table altered or dropped after a change makes the transaction unreportable."""
        if self._session is None or self._session.is_empty:
            return []
        try:
            changeset = self._session.changeset()
            return self._table_changes(apsw.Changeset.iter(changeset))
        except (apsw.Error, UnicodeDecodeError) as error:
            raise Unreportable(f"the session extension fails: {error}") from error

    def end(self) -> None:
        """See `Capture.end`."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _table_changes(self, changeset: Iterable[apsw.TableChange]) -> list[TableChanges]:
        found: dict[str, tuple[TableShape, list[RowChange]]] = {}
        for change in changeset:
            if change.name not in found:
                found[change.name] = (_without_generated(table_shape(self._connection, change.name)), [])
            shape, changes = found[change.name]
            if change.column_count != len(shape.stored):
                raise Unreportable(f"the columns of {change.name} are not those of its changes")
            changes.append(_row_change(shape, cast(Op, change.op), change.old, change.new))
        return [TableChanges(table, shape.key, tuple(changes)) for table, (shape, changes) in found.items()]


class HookCapture:
    """Capture by the preupdate hook: every step in order, those of triggers and foreign keys included.

    The hook also fires for changes undone later; `rollback_to` drops these. The hook cannot read rows of tables with
    virtual generated columns, nor text that is not UTF-8: the transaction is then unreportable.

    Args:
        full_rows: Report all columns of an updated row; otherwise those of its key and those that changed.
    """

    def __init__(self, connection: apsw.Connection, *, full_rows: bool) -> None:
        self._connection, self._full_rows = connection, full_rows
        self._fired: list[tuple[str, Op, _Values | None, _Values | None]] = []
        self._recorded: list[tuple[str, tuple[str, ...], RowChange]] = []
        self._failed = ""
        self._recording = False
        connection.preupdate_hook(self._on_change, id=self)

    def begin(self) -> None:
        """See `Capture.begin`."""
        self.end()
        self._recording = True

    def savepoint(self) -> int:
        """See `Capture.savepoint`."""
        return len(self._recorded)

    def rollback_to(self, savepoint: int) -> None:
        """See `Capture.rollback_to`."""
        self._fired.clear()
        del self._recorded[savepoint:]

    def statement_done(self) -> None:
        """Resolve the column names of the statement's changes, before the next one may alter tables."""
        shapes: dict[str, TableShape] = {}
        for table, op, old, new in self._fired:
            shape = shapes.get(table) or shapes.setdefault(table, table_shape(self._connection, table))
            if len(old or new or ()) != len(shape.stored):
                self._failed = self._failed or f"the columns of {table} are not those of its changes"
                break
            self._recorded.append((table, shape.key, _row_change(shape, op, old, self._reported(shape, old, new))))
        self._fired.clear()

    def changes(self) -> list[TableChanges]:
        """See `Capture.changes`."""
        if self._failed:
            raise Unreportable(self._failed)
        found: dict[tuple[str, tuple[str, ...]], list[RowChange]] = {}
        for table, key, change in self._recorded:
            found.setdefault((table, key), []).append(change)
        return [TableChanges(table, key, tuple(changes)) for (table, key), changes in found.items()]

    def end(self) -> None:
        """See `Capture.end`."""
        self._fired.clear()
        self._recorded.clear()
        self._failed, self._recording = "", False

    def _on_change(self, update: apsw.PreUpdate) -> None:
        if not self._recording or update.database_name != "main":
            return
        try:
            self._fired.append((update.table_name, cast(Op, update.op), update.old, update.new))
        except (apsw.Error, UnicodeDecodeError) as error:
            self._failed = self._failed or f"the hook cannot read a row of {update.table_name}: {error}"

    def _reported(self, shape: TableShape, old: _Values | None, new: _Values | None) -> _Values | None:
        if self._full_rows or old is None or new is None:
            return new
        return tuple(apsw.no_change if _is_same(*pair) else pair[1] for pair in zip(old, new, strict=True))


def _without_generated(shape: TableShape) -> TableShape:
    return shape._replace(stored=tuple(name for name in shape.stored if name in shape.writable))


def _row_change(shape: TableShape, op: Op, old: _Values | None, new: _Values | None) -> RowChange:
    """Build a change from column values; ``no_change`` marks values that are unreported or unchanged."""
    before = _named_values(shape, old)
    after = _named_values(shape, new)
    old_key = tuple(before[name] for name in shape.key) if before else ()
    if op != "UPDATE":
        return RowChange(op, after, old_key)
    key = dict(zip(shape.key, old_key, strict=True)) | {name: after[name] for name in shape.key if name in after}
    values = {name: after.get(name, key.get(name)) for name in shape.stored if name in after or name in key}
    return RowChange(op, values, old_key, key_changed=tuple(key.values()) != old_key)


def _named_values(shape: TableShape, values: _Values | None) -> dict[str, SqliteValue]:
    named = zip(shape.stored, values or (), strict=values is not None)
    return {
        name: cast(SqliteValue, value)
        for name, value in named
        if value is not apsw.no_change and name in shape.writable
    }


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
