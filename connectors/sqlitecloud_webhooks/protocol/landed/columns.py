"""The columns of a silver table: those of its settings, then all that webhooks have named, in that order.

No webhook lists all columns of its table. A receiver lands a control frame before the first webhook that names a
column. A table's columns at a position therefore depend only on what landed before::

    {"stream": "chinook.sqlite/albums", "columns": ["AlbumId", "Title"]}

Each webhook is decoded with the columns announced before it, so a cut may contain webhooks from before and after. The
frame has no stream, because a control frame of a stream ends a cut. (Those that landed before 2026-11-23 have their
stream.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from silverfold.conf.names import caseless
from silverfold.connectors.frames import ControlFrame, Frame, Kind
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable

MOST_COLUMNS: Final = 2_000
"""Maximum announced columns of a table: SQLite's own limit, unless compiled differently."""

_DEFAULT_TYPE: Final = "string"
"""Type of a column without a configured one."""


@dataclass(frozen=True)
class Context:
    """The announced columns by stream, in order, each with its first position. Small and picklable."""

    columns: Mapping[str, Mapping[str, int]]

    def stream_columns(self, stream: str) -> Mapping[str, int]:
        """Return the announced columns of a stream."""
        return self.columns.get(stream, {})


class AnnouncedColumn(NamedTuple):
    """A silver column, and the position at which it was announced; -1 if it comes from the settings."""

    column: Column
    at: int


def announcement(stream: str, names: Sequence[str]) -> Frame:
    """Return the control frame that announces new columns."""
    body = json.dumps({"stream": stream, "columns": names}, ensure_ascii=False).encode()
    return Frame(body, Kind.CONTROL)


def read_context(control: Iterable[ControlFrame]) -> Context:
    """Collect the columns announced in control frames. Unreadable frames are skipped."""
    announced: dict[str, dict[str, int]] = {}
    for frame in control:
        stream, names = read_announcement(frame)
        for name in names:
            announced.setdefault(stream, {}).setdefault(name, frame.frame_seq)
    return Context(announced)


def read_announcement(frame: ControlFrame) -> tuple[str, list[str]]:
    """Return the stream and the column names of a control frame."""
    try:
        found: Any = json.loads(frame.body)
    except (ValueError, RecursionError):
        found = None
    members = found if isinstance(found, dict) else {}
    names = members.get("columns")
    stream = members.get("stream") if frame.stream is None else frame.stream
    return str(stream), [name for name in names or () if isinstance(name, str)]


def columns_of(
    announced: Mapping[str, int], table: WebhookTable, options: WebhookOptions
) -> tuple[AnnouncedColumn, ...]:
    """Return the silver columns of a table. Of names that differ only in case, the first is used.

    A name reserved for silverfold's own columns is excluded: a webhook that uses it cannot be decoded.
    """
    names: dict[str, tuple[str, int]] = {}
    possible = ((name, at) for name, at in announced.items() if caseless(name) not in table.reserved_names)
    for name, at in (*((name, -1) for name in (*table.keys, *table.types)), *possible):
        names.setdefault(caseless(name), (name, at))
    return tuple(
        AnnouncedColumn(Column(name, table.types.get(name, _DEFAULT_TYPE), options.blob, is_key=name in table.keys), at)
        for name, at in names.values()
    )
