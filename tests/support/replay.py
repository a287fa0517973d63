"""Rebuilds a source table from landed frames, update by update, in plain Python: proof that bronze suffices."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from silverfold.connectors.deephaven.protocol.columns.decode import decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.control import decode_subscribe_response
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo
from silverfold.connectors.deephaven.protocol.roles import Roles
from tests.support.deephaven.frames import ROLES
from tests.support.landing import Landed

Rows = dict[int, dict[str, Any]]


def replay(frames: Iterable[Landed], stream: str, roles: Roles = ROLES) -> Rows | None:
    """Rows by key after the stream's last complete update of the last epoch; None without a snapshot in that epoch."""
    rows: Rows | None = None
    columns: dict[int, ColumnInfo] = {}
    pending: list[Landed] = []
    for frame in frames:
        if frame.kind == "mark" and json.loads(frame.body)["mark"] == "opened":
            rows, pending = None, []
        if frame.stream != stream:
            continue
        if frame.kind == "control" and roles.template_id(frame.body) == roles.response.message.id:
            columns = {column.column_id: column for column in decode_subscribe_response(roles, frame.body).columns}
        elif frame.boundary == "begin":
            pending = [frame]
        elif frame.boundary in {"inside", "end"}:
            pending.append(frame)
        if frame.boundary == "end":
            rows = apply({} if frame.kind == "snapshot" else rows, pending[1:-1], columns, roles)
    return rows


def apply(rows: Rows | None, messages: list[Landed], columns: dict[int, ColumnInfo], roles: Roles) -> Rows:
    """Apply one update: removals, then added, then modified values."""
    assert rows is not None, "an update before the snapshot"
    removals = [message for message in messages if roles.template_id(message.body) == roles.removed.message.id]
    values = [decode_column(roles, message.body) for message in messages if message not in removals]
    for message in removals:
        for first, last in decode_removed(roles, message.body).ranges.tolist():
            for key in [key for key in rows if first <= key <= last]:
                del rows[key]
    for found in sorted(values, key=lambda found: found.modified):
        name = columns[found.column_id].name
        for key, value in zip(found.row_keys.tolist(), found.values.to_pylist(), strict=True):
            rows.setdefault(key, {})[name] = value
    return rows
