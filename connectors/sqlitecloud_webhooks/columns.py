"""Which columns a silver table has: those of its settings, then all that its webhooks have named, in that order.

No webhook tells all columns of its table. A receiver lands a control frame before the first webhook that names a
column, so that what a table's columns are at a position depends on what landed before, and on nothing else::

    {"columns": ["AlbumId", "Title"]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from connectors.base import Boundary, ControlFrame, Frame, Kind
from connectors.sqlitecloud.values import Column
from connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable

MOST_COLUMNS: Final = 2_000
"""Most columns of a table that are told: SQLite's own limit, unless it is compiled with another."""

_OTHERS: Final = "string"
"""Type of a column of which nobody says it."""


@dataclass(frozen=True)
class Context:
    """The columns that were told, by stream, in order. Small and picklable."""

    told: Mapping[str, tuple[str, ...]]

    def names(self, stream: str) -> tuple[str, ...]:
        """Return the columns told of a stream."""
        return self.told.get(stream, ())


def telling(stream: str, names: Sequence[str]) -> Frame:
    """Return the control frame that tells of new columns."""
    body = json.dumps({"columns": names}, ensure_ascii=False).encode()
    return Frame(body, Kind.CONTROL, Boundary.NONE, stream)


def read_context(control: Iterable[ControlFrame]) -> Context:
    """Return what control frames tell. One that cannot be read tells nothing."""
    told: dict[str, dict[str, None]] = {}
    for frame in control:
        if frame.stream is not None:
            told.setdefault(frame.stream, {}).update(dict.fromkeys(told_by(frame.body)))
    return Context({stream: tuple(names) for stream, names in told.items()})


def told_by(body: bytes) -> Iterator[str]:
    """Yield the names that a control frame tells."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return
    names = found.get("columns") if isinstance(found, dict) else None
    yield from (name for name in names or () if isinstance(name, str))


def columns_of(told: Iterable[str], table: WebhookTable, options: WebhookOptions) -> tuple[Column, ...]:
    """Return the silver columns of a table. Of names that differ in case only, the first is the column's."""
    names: dict[str, str] = {}
    for name in (*table.keys, *table.types, *told):
        names.setdefault(name.lower(), name)
    return tuple(
        Column(name, table.types.get(name, _OTHERS), options.blob, is_key=name in table.keys) for name in names.values()
    )
