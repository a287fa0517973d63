"""Queries for a database's tables, columns and keys; the SELECT statements of a snapshot.

No notification announces a schema change. A recreated or renamed table shows only in a counter of the database, which
every such statement increments (SQLite, "PRAGMA schema_version").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from silverfold.conf.errors import RemoteProtocolError, SourceRefused, StatementRefused
from silverfold.connectors.sqlitecloud.client.client import Client
from silverfold.connectors.sqlitecloud.options import SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.connectors.sqlitecloud.protocol.messages import Rowset, RowsetChunk, Value
from silverfold.connectors.sqlitecloud.protocol.statements import quote_identifier

PASSES: Final = frozenset({"5", "6", "7", "10", "10000", "10003", "10006"})
"""Codes of refusals that may pass: busy, locked, failures of a server (memory, disk, within), and no leader."""

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
_COLUMNS = (
    'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo((SELECT name FROM sqlite_master WHERE name = ?))'
)
"""SQLite matches table names case-insensitively; notifications use the name as declared."""
_METADATA = "LIST METADATA TABLE ?;"
_SCHEMA_VERSION = "PRAGMA schema_version"


async def list_tables(db: Client) -> list[str]:
    """Return the names of the database's tables, excluding SQLite's internal ones."""
    return [str(name) for (name,) in await _rows(db, _TABLES, columns=1)]


async def schema_version(db: Client) -> int | None:
    """Return the schema version, which every schema change increments; None if the server does not report it."""
    try:
        found = await db.exec(_SCHEMA_VERSION)
    except StatementRefused:
        return None
    cells = [cell for row in found.rows for cell in row] if isinstance(found, Rowset) else []
    return next((cell for cell in cells if isinstance(cell, int)), None)


async def describe(db: Client, name: str, table: SqliteCloudTable) -> Description:
    """Return a table's columns and key: the configured keys, else its primary key.

    Raises:
        SourceRefused: ``no-table``: no table has exactly this name. ``no-key``: the table has no primary key and none
            is configured, or a configured key column does not exist. ``nul-in-name``: no statement can name the table
            or a column of it.
    """
    if "\0" in name:
        raise SourceRefused(code="nul-in-name", text="its name contains a NUL", stream=name)
    columns = await _columns(db, name)
    if not columns:
        raise SourceRefused(code="no-table", text="the database has no table that is spelt so", stream=name)
    if any("\0" in column.name for column in columns):
        raise SourceRefused(code="nul-in-name", text="a column has a NUL in its name", stream=name)
    own = sorted((column for column in columns if column.pk), key=lambda column: column.pk)
    keys = table.keys or tuple(column.name for column in own)
    if not keys:
        text = "the table has no primary key, so its rows cannot be told apart: name its keys in the settings"
        raise SourceRefused(code="no-key", text=text, stream=name)
    missing = sorted(set(keys) - {column.name for column in columns if not column.hidden})
    if missing:
        raise SourceRefused(code="no-key", text=f"the table has no column {', '.join(missing)}", stream=name)
    return Description(name, columns, keys)


def select_text(described: Description) -> str:
    """Return the SELECT of a complete snapshot: columns by name, without generated ones, which are never notified."""
    names = ", ".join(quote_identifier(name) for name in described.names)
    return f"SELECT {names} FROM {quote_identifier(described.table)}"


def page_text(described: Description, *, first: bool) -> str:
    """Return the SELECT of one page in key order, after a given key unless it is the first page.

    Its parameters are the values of that key, then the number of rows. Keys are compared as row values.
    """
    keys = ", ".join(quote_identifier(name) for name in described.keys)
    placeholders = ", ".join("?" * len(described.keys))
    behind = "" if first else f" WHERE ({keys}) > ({placeholders})"
    return f"{select_text(described)}{behind} ORDER BY {keys} LIMIT ?"


async def _columns(db: Client, name: str) -> tuple[TableColumn, ...]:
    """Return the columns as reported by SQLite, or by the server if it refuses that query for good."""
    try:
        rows = await _rows(db, _COLUMNS, name, columns=5)
    except StatementRefused as refused:
        if refused.code in PASSES:
            raise
        found = await db.exec(_METADATA, name)
        return _parse_metadata(found) if isinstance(found, Rowset) else ()
    return tuple(
        TableColumn(str(column), str(declared or ""), bool(not_null), _int(pk), _int(hidden))
        for column, declared, not_null, pk, hidden in rows
    )


def _parse_metadata(found: Rowset) -> tuple[TableColumn, ...]:
    """Parse LIST METADATA: key columns in no order, and generated columns like all others."""
    names = [column.name for column in found.columns]
    rows = [dict(zip(names, row, strict=True)) for row in found.rows]
    return tuple(
        TableColumn(
            str(row.get("name")),
            str(row.get("data_type") or ""),
            bool(row.get("not_null")),
            _int(row.get("primary_key")) and position,
        )
        for position, row in enumerate(rows, start=1)
    )


async def _rows(db: Client, sql: str, *parameters: Value, columns: int) -> Sequence[tuple[Value, ...]]:
    return checked_rows(await db.exec(sql, *parameters), columns)


def checked_rows(answer: object, columns: int) -> Sequence[tuple[Value, ...]]:
    """Return the rows of a SELECT's answer, or of a chunk of it.

    Raises:
        RemoteProtocolError: It is no rowset, or has other columns than were selected.
    """
    if not isinstance(answer, Rowset | RowsetChunk):
        raise RemoteProtocolError("a SELECT is not answered with a rowset")
    if answer.rows and len(answer.rows[0]) != columns:
        raise RemoteProtocolError(f"a SELECT of {columns} columns is answered with {len(answer.rows[0])}")
    return answer.rows


def _int(value: Value) -> int:
    return value if isinstance(value, int) else 0
