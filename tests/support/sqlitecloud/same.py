"""Compares rows built from a database's notifications with the database itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw

Rows = Sequence[Mapping[str, Any]]


def stored(path: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows in SQLite, read with the server's library, since the server may run in this process.

    Using a second SQLite library would release the locks of the first.
    """
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        query = f'SELECT * FROM "{table}"'
        names = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        return [dict(zip(names, row, strict=True)) for row in connection.execute(query)]


def unlike(held: Rows, found: Rows, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the differences between SQLite and the rows found, each as key, column and both cells.

    For a row on one side only, the column is an empty string, and the cells are whether the row exists.
    """
    ours, theirs = ({tuple(row[key] for key in keys): row for row in rows} for rows in (found, held))
    assert (len(ours), len(theirs)) == (len(found), len(held)), "a key stands twice"
    one_sided = [(key, "", key in theirs, key in ours) for key in ours.keys() ^ theirs.keys()]
    return one_sided + [
        (key, name, cell, ours[key].get(name))
        for key in theirs.keys() & ours.keys()
        for name, cell in theirs[key].items()
        if not is_same(ours[key].get(name), cell)
    ]


def is_same(found: Any, cell: Any) -> bool:
    """Return whether silver's value equals SQLite's; columns of any type are text in silver."""
    if isinstance(found, Decimal):
        return found == Decimal(repr(cell))
    if not isinstance(found, str) or isinstance(cell, str | None):
        return bool(found == cell)
    return math.isclose(float(found), cell, rel_tol=0) if isinstance(cell, float) else found == str(cell)
