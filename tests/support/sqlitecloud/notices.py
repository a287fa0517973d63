"""Encodes SQLite Cloud notifications and snapshots for tests: a minimal encoder, independent of the product's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn

GOLDEN = Path(__file__).parents[2] / "golden" / "sqlitecloud"
WORDS = {
    "old": ("type", "pk", "type", "pv"),
    "new": ("channel_type", "sqlite_pk_name", "sqlite_type", "sqlite_pk_value"),
}


def vectors(name: str) -> list[dict[str, Any]]:
    """Return a group of golden vectors."""
    found = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return found if isinstance(found, list) else found[name]


def framed(text: str) -> bytes:
    """Return the frame of a notification."""
    octets = text.encode()
    return b"#%d %s" % (len(octets), octets)


def cell(value: Any) -> bytes:
    """Return an encoded cell of a rowset."""
    match value:
        case None:
            return b"_ "
        case int():
            return b":%d " % value
        case float():
            return b",%r " % value
        case bytes():
            return b"$%d %s" % (len(value), value)
        case str():
            return b"+%d %s" % (len(value.encode()), value.encode())
    raise TypeError(value)


def rowset(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return a complete result as a frame."""
    cells = b"".join(map(cell, names)) + b"".join(cell(value) for row in rows for value in row)
    body = b"0:1 %d %d %s" % (len(rows), len(names), cells)
    return b"*%d %s" % (len(body), body)


def described(table: str, columns: Mapping[str, str], keys: Sequence[str]) -> Description:
    """Return the description of a table with these declared types, all columns selected."""
    table_columns = tuple(
        TableColumn(name, kind, pk=1 + keys.index(name) if name in keys else 0) for name, kind in columns.items()
    )
    return Description(table, table_columns, tuple(keys))


def control(description: Description, *, at: int = 0, epoch: int = 1) -> ControlFrame:
    """Return the control frame with a table's description, landed at a position."""
    return ControlFrame(at, epoch, description.table, description.to_json())


def table_text(
    channel: str, keys: Sequence[str], entries: Sequence[tuple[str, Sequence[Any] | None, dict[str, Any]]], dialect: str
) -> str:
    """Return the notification of a table in a dialect; entries are (operation, old key, columns)."""
    kind, names, op, old = WORDS[dialect]
    listed = []
    for word, old_key, columns in entries:
        members = [(op, word), *columns.items(), *([] if old_key is None else [(old, list(old_key))])]
        listed.append("{" + ",".join(f"{_to_json(name)}:{_to_json(value)}" for name, value in members) + "}")
    head = f'{{"sender":"s","channel":{_to_json(channel)},"{kind}":"TABLE","{names}":{_to_json(list(keys))}'
    return f'{head},"payload":[{",".join(listed)}]}}'


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
