"""Asks a database for its tables, their columns and keys, and writes the SELECT of a snapshot.

No notification announces a change of the schema: that a table is made anew or renamed shows in a number of the database
alone, which every such statement raises (SQLite, "PRAGMA schema_version").
"""

from __future__ import annotations

from collections.abc import Sequence

from conf.errors import RemoteProtocolError, SourceRefused, StatementRefused
from connectors.sqlitecloud.client import Client
from connectors.sqlitecloud.control import Description, TableColumn
from connectors.sqlitecloud.messages import Rowset, Value
from connectors.sqlitecloud.options import SqliteCloudTable
from connectors.sqlitecloud.statements import quote_identifier

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
_COLUMNS = (
    'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo((SELECT name FROM sqlite_master WHERE name = ?))'
)
"""SQLite finds a table by its name in letters of either case; notifications bear the name as it was declared."""
_METADATA = "LIST METADATA TABLE ?;"
_SCHEMA_VERSION = "PRAGMA schema_version"


async def list_tables(db: Client) -> list[str]:
    """Return the names of the database's own tables, without those that SQLite keeps for itself."""
    return [str(name) for (name,) in await _rows(db, _TABLES)]


async def schema_version(db: Client) -> int | None:
    """Return the number that every change of the database's schema raises; None where the server does not say it."""
    try:
        found = await db.exec(_SCHEMA_VERSION)
    except StatementRefused:
        return None
    cells = [cell for row in found.rows for cell in row] if isinstance(found, Rowset) else []
    return next((cell for cell in cells if isinstance(cell, int)), None)


async def describe(db: Client, name: str, table: SqliteCloudTable) -> Description:
    """Return a table's columns, and what names a row: the keys of its settings, else its primary key.

    Raises:
        SourceRefused: ``no-table``: there is none of that name, in these letters. ``no-key``: it has no primary key,
            and its settings name none; or they name a column it has not.
    """
    columns = await _columns(db, name)
    if not columns:
        raise SourceRefused(code="no-table", text="the database has no table that is spelt so", stream=name)
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
    """Return the SELECT of a whole snapshot: columns by name, generated ones left out, as no notification has them."""
    names = ", ".join(quote_identifier(name) for name in described.names)
    return f"SELECT {names} FROM {quote_identifier(described.table)}"


def page_text(described: Description, *, first: bool) -> str:
    """Return the SELECT of one page, in the order of the key; the rows behind a key, unless it is the first page.

    Its parameters are the values of that key, then the number of rows. Keys are compared as row values.
    """
    keys = ", ".join(quote_identifier(name) for name in described.keys)
    marks = ", ".join("?" * len(described.keys))
    behind = "" if first else f" WHERE ({keys}) > ({marks})"
    return f"{select_text(described)}{behind} ORDER BY {keys} LIMIT ?"


async def _columns(db: Client, name: str) -> tuple[TableColumn, ...]:
    """Return the columns as SQLite tells them, or the server, where it does not let SQLite be asked."""
    try:
        rows = await _rows(db, _COLUMNS, name)
    except StatementRefused:
        found = await db.exec(_METADATA, name)
        return _of_metadata(found) if isinstance(found, Rowset) else ()
    return tuple(
        TableColumn(str(column), str(declared or ""), bool(not_null), _int(pk), _int(hidden))
        for column, declared, not_null, pk, hidden in rows
    )


def _of_metadata(found: Rowset) -> tuple[TableColumn, ...]:
    """Return the columns of LIST METADATA: the key in no order, and, but for `hidden`, generated ones as others."""
    names = [column.name for column in found.columns]
    told = [dict(zip(names, row, strict=True)) for row in found.rows]
    return tuple(
        TableColumn(
            str(row.get("name")),
            str(row.get("data_type") or ""),
            bool(row.get("not_null")),
            _int(row.get("primary_key")) and place,
            _int(row.get("hidden")),
        )
        for place, row in enumerate(told, start=1)
    )


async def _rows(db: Client, sql: str, *parameters: Value) -> Sequence[tuple[Value, ...]]:
    found = await db.exec(sql, *parameters)
    if not isinstance(found, Rowset):
        raise RemoteProtocolError("a SELECT is not answered with a rowset")
    return found.rows


def _int(value: Value) -> int:
    return value if isinstance(value, int) else 0
