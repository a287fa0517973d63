"""Commands that list what a server or a database has, or tell one fact of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, cast

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.sqlitecloud.protocol.commands import Command
from silverfold.connectors.sqlitecloud.protocol.encode import encode_value
from silverfold.connectors.sqlitecloud.protocol.messages import Value
from silverfold.connectors.sqlitecloud.server.error_codes import NOT_FOUND
from silverfold.connectors.sqlitecloud.server.results import rows_frames, table_frame
from silverfold.connectors.sqlitecloud.server.selftest import KEYWORDS
from silverfold.connectors.sqlitecloud.server.served_databases import MEMORY
from silverfold.connectors.sqlitecloud.server.state import ServedSession
from silverfold.connectors.sqlitecloud.server.transactions import Rows

_INTERNAL: Final = "name LIKE 'sqlite\\_%' ESCAPE '\\'"
_TABLES: Final = "SELECT schema, name, type, ncol, wr, strict FROM pragma_table_list WHERE {} ORDER BY name"
_SHOWN: Final = f"schema = 'main' AND type IN ('table', 'view') AND NOT {_INTERNAL}"
_INDEXES: Final = f"SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index' AND NOT {_INTERNAL} ORDER BY name"
_COLUMNS: Final = """
SELECT t.name, c.name FROM pragma_table_list AS t, pragma_table_xinfo(t.name, 'main') AS c
WHERE t.schema = 'main' AND t.type = 'table' AND {} ORDER BY t.name, c.cid"""
_METADATA: Final = ("name", "data_type", "col_seq", "not_null", "primary_key", "auto_inc")
"""The columns of a table's metadata; those of all tables have two more (the vendor's tests)."""
_AFFINITIES: Final = (
    ("D", ("INT",)),
    ("B", ("CHAR", "CLOB", "TEXT")),
    ("A", ("BLOB",)),
    ("E", ("REAL", "FLOA", "DOUB")),
)
"""SQLite's codes of affinities, and the parts of a declared type that give them (SQLite, "Datatypes", 3.1)."""


def _get_database(session: ServedSession, command: Command) -> Iterator[bytes]:
    used = MEMORY if session.used is not None and session.used.startswith(MEMORY) else session.used
    yield encode_value(used, zero_terminated=bool(session.keys.zerotext))


def _list_databases(session: ServedSession, command: Command) -> Iterator[bytes]:
    yield table_frame(("name",), [(name,) for name in session.served.databases.names], session.keys)


def _list_indexes(session: ServedSession, command: Command) -> Iterator[bytes]:
    yield from _select(session, _INDEXES)


def _list_keywords(session: ServedSession, command: Command) -> Iterator[bytes]:
    yield table_frame(("key",), [(word,) for word in KEYWORDS], session.keys)


def _list_tables(session: ServedSession, command: Command) -> Iterator[bytes]:
    yield from _select(session, _TABLES.format(_SHOWN))


def _list_metadata(session: ServedSession, command: Command) -> Iterator[bytes]:
    """Reply as SQLite describes columns (``sqlite3_table_column_metadata``): those of all tables, or of one."""
    one, connection = command.operands.get("table"), session.transactions.connection
    where = _SHOWN.replace("schema", "t.schema").replace("type", "t.type").replace("name", "t.name")
    columns = connection.execute(_COLUMNS.format("t.name = ?" if one else where), (one,) if one else ()).fetchall()
    rows: list[tuple[Value, ...]] = []
    for table, column in cast(list[tuple[str, str]], columns):
        declared, collation, *flags = connection.column_metadata("main", table, column)
        described: tuple[Value, ...] = (column, declared, collation, *(int(flag) for flag in flags))
        rows.append(described if one else (*described, table, _affinity(declared)))
    yield table_frame(_METADATA if one else (*_METADATA, "tablename", "affinity_type"), rows, session.keys)


def _affinity(declared: str | None) -> int:
    """Return the affinity of a declared type, by the code that SQLite uses internally. The service's is not known."""
    if not declared:
        return ord("A")
    found = (code for code, parts in _AFFINITIES if any(part in declared.upper() for part in parts))
    return ord(next(found, "C"))


def _get_sql(session: ServedSession, command: Command) -> Iterator[bytes]:
    connection = session.transactions.connection
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (command["table"],)).fetchone()
    if found is None:
        raise SourceRefused(code=NOT_FOUND, text=f"Table {command['table']} not found.")
    yield encode_value(found[0], zero_terminated=bool(session.keys.zerotext))


def _select(session: ServedSession, query: str) -> Iterator[bytes]:
    rows = session.transactions.run(query, lambda _count: ())
    assert isinstance(rows, Rows)
    yield from rows_frames(rows, session.keys, chunk_bytes=session.served.options.chunk_bytes)


LISTINGS: Final[dict[str, Callable[[ServedSession, Command], Iterator[bytes]]]] = {
    **dict.fromkeys(("GET DATABASE", "GET DATABASE NAME"), _get_database),
    "GET SQL": _get_sql,
    "LIST DATABASES": _list_databases,
    "LIST INDEXES": _list_indexes,
    "LIST KEYWORDS": _list_keywords,
    "LIST METADATA": _list_metadata,
    "LIST METADATA TABLE": _list_metadata,
    "LIST TABLES": _list_tables,
}
"""The handler of each command, which yields the frames of its reply."""
