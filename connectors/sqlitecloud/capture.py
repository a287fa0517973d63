"""Tells which rows a transaction of an SQLite connection changes, in the forms in which SQLite itself reports it.

Two ways, because nobody knows which one the hosted service goes: `SessionCapture` (SQLite's session extension: the net
change of each key) and `HookCapture` (the preupdate hook: every step, in the order of statements). A connection has
one of them. Both are asked inside the transaction, before it commits: afterwards others' changes would leak in, and
inside the commit hook SQLite refuses.
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
    """Who reports changes, and how much of an updated row."""

    SESSION = "session"
    """The session extension: key and changed columns."""
    HOOK_FULL = "hook-full"
    """The preupdate hook, whole rows."""
    HOOK_CHANGED = "hook-changed"
    """The preupdate hook, key and changed columns."""


class RowChange(NamedTuple):
    """One row inserted, updated or deleted."""

    op: Op
    values: dict[str, SqliteValue]
    """Columns that are told, in the order of the table: all of an INSERT, none of a DELETE."""
    old_key: tuple[SqliteValue, ...]
    """Key before an UPDATE or DELETE, in the order of the key's names; empty for an INSERT."""
    key_changed: bool = False
    """Whether an UPDATE gave the row another key."""


class TableChanges(NamedTuple):
    """What one transaction did to one table."""

    table: str
    key: tuple[str, ...]
    """Names of the key's columns in declared order; empty for a table without a key."""
    changes: tuple[RowChange, ...]


class Unreportable(Exception):
    """SQLite cannot say what the transaction changed; it may commit all the same."""


class Capture(Protocol):
    """Records the changes of one connection, one transaction at a time."""

    def begin(self) -> None:
        """Record from now on. Whatever was recorded before is forgotten."""

    def place(self) -> int:
        """Return a name for this moment, for `back_to`."""

    def back_to(self, place: int) -> None:
        """Forget what happened since then: a statement failed, or a savepoint was rolled back."""

    def statement_done(self) -> None:
        """Take notice that a statement has run to its end."""

    def changes(self) -> list[TableChanges]:
        """Return what has changed, per table. Call inside the transaction.

        Raises:
            Unreportable: SQLite cannot tell.
        """

    def end(self) -> None:
        """Stop recording and forget. May be repeated."""


class TableShape(NamedTuple):
    """Columns of a table as changes count them."""

    stored: tuple[str, ...]
    """Columns that have a place in rows, stored generated ones included."""
    plain: frozenset[str]
    """Those that are not generated: what a row can be made from."""
    key: tuple[str, ...]
    """Primary key, in declared order; empty where there is none."""


def table_shape(connection: apsw.Connection, table: str) -> TableShape:
    """Return a table's columns; no columns for a table that is not there (SQLite's ``pragma_table_xinfo``)."""
    found = connection.execute("SELECT name, hidden, pk FROM pragma_table_xinfo(?, 'main')", (table,)).fetchall()
    columns = cast(list[tuple[str, int, int]], found)
    return TableShape(
        stored=tuple(name for name, hidden, _ in columns if hidden in (0, 3)),
        plain=frozenset(name for name, hidden, _ in columns if hidden == 0),
        key=tuple(name for _, name in sorted((place, name) for name, _, place in columns if place)),
    )


def capture_for(connection: apsw.Connection, mode: CaptureMode) -> Capture:
    """Return the capture of a connection; a connection takes one for its whole life."""
    if mode is CaptureMode.SESSION:
        return SessionCapture(connection)
    return HookCapture(connection, whole=mode is CaptureMode.HOOK_FULL)


class SessionCapture:
    """By the session extension: at most one change per key, in the order of its hash table.

    Tables without a declared key and rows with NULL in the key are not reported; generated columns are left out.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._session: apsw.Session | None = None

    def begin(self) -> None:
        """See `Capture.begin`."""
        self.end()
        self._session = apsw.Session(self._connection, "main")
        self._session.attach()

    def place(self) -> int:
        """Return nothing of interest: SQLite undoes by itself."""
        return 0

    def back_to(self, place: int) -> None:
        """Do nothing: a changeset compares with what is there at the end."""

    def statement_done(self) -> None:
        """Do nothing."""

    def changes(self) -> list[TableChanges]:
        """See `Capture.changes`. A table changed and then altered or dropped makes the whole untellable."""
        if self._session is None or self._session.is_empty:
            return []
        try:
            changeset = self._session.changeset()
            return self._told(apsw.Changeset.iter(changeset))
        except (apsw.Error, UnicodeDecodeError) as error:
            raise Unreportable(f"the session extension fails: {error}") from error

    def end(self) -> None:
        """See `Capture.end`."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _told(self, changeset: Iterable[apsw.TableChange]) -> list[TableChanges]:
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
    """By the preupdate hook: every step, those of triggers and foreign keys too, in the order in which they happen.

    The hook also fires for what is undone later; `back_to` drops that. A row of a table with virtual generated columns
    or with text that is not UTF-8 cannot be read in the hook: its transaction is untellable.

    Args:
        whole: Tell all columns of an updated row; otherwise those of its key and those that changed.
    """

    def __init__(self, connection: apsw.Connection, *, whole: bool) -> None:
        self._connection, self._whole = connection, whole
        self._fired: list[tuple[str, Op, _Values | None, _Values | None]] = []
        self._told: list[tuple[str, tuple[str, ...], RowChange]] = []
        self._failed = ""
        self._recording = False
        connection.preupdate_hook(self._on_change, id=self)

    def begin(self) -> None:
        """See `Capture.begin`."""
        self.end()
        self._recording = True

    def place(self) -> int:
        """See `Capture.place`."""
        return len(self._told)

    def back_to(self, place: int) -> None:
        """See `Capture.back_to`."""
        self._fired.clear()
        del self._told[place:]

    def statement_done(self) -> None:
        """Name the columns of what the statement changed: the next one may alter tables."""
        shapes: dict[str, TableShape] = {}
        for table, op, old, new in self._fired:
            shape = shapes.get(table) or shapes.setdefault(table, table_shape(self._connection, table))
            if len(old or new or ()) != len(shape.stored):
                self._failed = self._failed or f"the columns of {table} are not those of its changes"
                break
            self._told.append((table, shape.key, _row_change(shape, op, old, self._shown(shape, old, new))))
        self._fired.clear()

    def changes(self) -> list[TableChanges]:
        """See `Capture.changes`."""
        if self._failed:
            raise Unreportable(self._failed)
        found: dict[tuple[str, tuple[str, ...]], list[RowChange]] = {}
        for table, key, change in self._told:
            found.setdefault((table, key), []).append(change)
        return [TableChanges(table, key, tuple(changes)) for (table, key), changes in found.items()]

    def end(self) -> None:
        """See `Capture.end`."""
        self._fired.clear()
        self._told.clear()
        self._failed, self._recording = "", False

    def _on_change(self, update: apsw.PreUpdate) -> None:
        if not self._recording or update.database_name != "main":
            return
        try:
            self._fired.append((update.table_name, cast(Op, update.op), update.old, update.new))
        except (apsw.Error, UnicodeDecodeError) as error:
            self._failed = self._failed or f"the hook cannot read a row of {update.table_name}: {error}"

    def _shown(self, shape: TableShape, old: _Values | None, new: _Values | None) -> _Values | None:
        if self._whole or old is None or new is None:
            return new
        return tuple(apsw.no_change if _same(*pair) else pair[1] for pair in zip(old, new, strict=True))


def _without_generated(shape: TableShape) -> TableShape:
    return shape._replace(stored=tuple(name for name in shape.stored if name in shape.plain))


def _row_change(shape: TableShape, op: Op, old: _Values | None, new: _Values | None) -> RowChange:
    """Return a change by its column values, where ``no_change`` stands for what is not told or did not change."""
    before = _told(shape, old)
    after = _told(shape, new)
    old_key = tuple(before[name] for name in shape.key) if before else ()
    if op != "UPDATE":
        return RowChange(op, after, old_key)
    key = dict(zip(shape.key, old_key, strict=True)) | {name: after[name] for name in shape.key if name in after}
    values = {name: after.get(name, key.get(name)) for name in shape.stored if name in after or name in key}
    return RowChange(op, values, old_key, key_changed=tuple(key.values()) != old_key)


def _told(shape: TableShape, values: _Values | None) -> dict[str, SqliteValue]:
    named = zip(shape.stored, values or (), strict=values is not None)
    return {
        name: cast(SqliteValue, value) for name, value in named if value is not apsw.no_change and name in shape.plain
    }


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
