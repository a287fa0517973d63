"""Which columns a silver table has: those of its settings, then all that its webhooks have named, in that order.

No webhook tells all columns of its table. A receiver lands a control frame before the first webhook that names a
column, so that what a table's columns are at a position depends on what landed before, and on nothing else::

    {"stream": "chinook.sqlite/albums", "columns": ["AlbumId", "Title"]}

Each webhook is read with the columns told before it, so a cut may have webhooks from before and after: the frame is of
no stream, for one of a stream ends a cut. (Those that landed before 2026-11-23 are of their stream.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from conf.names import folded
from connectors.base import ControlFrame, Frame, Kind
from connectors.sqlitecloud.values import Column
from connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable

MOST_COLUMNS: Final = 2_000
"""Most columns of a table that are told: SQLite's own limit, unless it is compiled with another."""

_OTHERS: Final = "string"
"""Type of a column of which nobody says it."""


@dataclass(frozen=True)
class Context:
    """The columns that were told, by stream, in order, each with the position at first. Small and picklable."""

    told: Mapping[str, Mapping[str, int]]

    def of(self, stream: str) -> Mapping[str, int]:
        """Return the columns told of a stream."""
        return self.told.get(stream, {})


class ToldColumn(NamedTuple):
    """A silver column, and the position at which it was told; -1 of one that the settings name."""

    column: Column
    at: int


def telling(stream: str, names: Sequence[str]) -> Frame:
    """Return the control frame that tells of new columns."""
    body = json.dumps({"stream": stream, "columns": names}, ensure_ascii=False).encode()
    return Frame(body, Kind.CONTROL)


def read_context(control: Iterable[ControlFrame]) -> Context:
    """Return what control frames tell. One that cannot be read tells nothing."""
    told: dict[str, dict[str, int]] = {}
    for frame in control:
        stream, names = told_by(frame)
        for name in names:
            told.setdefault(stream, {}).setdefault(name, frame.frame_seq)
    return Context(told)


def told_by(frame: ControlFrame) -> tuple[str, list[str]]:
    """Return of which stream a control frame tells which names."""
    try:
        found: Any = json.loads(frame.body)
    except (ValueError, RecursionError):
        found = None
    said = found if isinstance(found, dict) else {}
    names = said.get("columns")
    stream = said.get("stream") if frame.stream is None else frame.stream
    return str(stream), [name for name in names or () if isinstance(name, str)]


def columns_of(told: Mapping[str, int], table: WebhookTable, options: WebhookOptions) -> tuple[ToldColumn, ...]:
    """Return the silver columns of a table. Of names that differ in case only, the first is the column's.

    One that is called as a column of ours is none of the table's: a webhook that names it cannot be read.
    """
    names: dict[str, tuple[str, int]] = {}
    possible = ((name, at) for name, at in told.items() if folded(name) not in table.reserved_names)
    for name, at in (*((name, -1) for name in (*table.keys, *table.types)), *possible):
        names.setdefault(folded(name), (name, at))
    return tuple(
        ToldColumn(Column(name, table.types.get(name, _OTHERS), options.blob, is_key=name in table.keys), at)
        for name, at in names.values()
    )
