"""The settings that decide which rows a silver table has: its keys, its stream, and those its connector names.

Each cut records them. Rows made under other settings mean something else, so code that continues from them, or compares
with them, first checks which settings differ today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from silverfold.conf.names import caseless
from silverfold.connectors.base import Connector, Feed

RowSettings: TypeAlias = Mapping[str, str | list[str]]
"""Settings by name. With the value ``error``, the table has no ambiguous rows: it holds instead."""


def row_settings(connector: Connector, feed: Feed, table: str, keys: Sequence[str]) -> RowSettings:
    """Return today's settings.

    Args:
        keys: The table's keys, or its source's where none are set; empty if unknown.
    """
    settings = {**connector.row_settings(feed, table), "stream": connector.stream(feed, table)}
    return {**settings, "keys": list(keys)} if keys else settings


def without_undecided(settings: RowSettings) -> RowSettings:
    """Return the settings that affected how rows were read. One with the value ``error`` may still be changed later."""
    return {name: value for name, value in settings.items() if value != "error"}


def differing(then: RowSettings, now: RowSettings) -> list[str]:
    """Return the names of today's settings whose values differ from earlier ones.

    Lists are compared in any order, and keys in any letter case, as column names are.
    """
    return [
        name
        for name, value in now.items()
        if name in then and _comparable(name, then[name]) != _comparable(name, value)
    ]


def describe_difference(setting: str, then: RowSettings, now: RowSettings, *, what: str) -> str:
    """Return a message on how a setting differs from the one something was built with."""
    was, is_now = (_shown(each[setting]) for each in (then, now))
    return f"{setting} is {is_now}, {what} was built with {was}"


def _comparable(name: str, value: str | list[str]) -> object:
    if not isinstance(value, list):
        return value
    return sorted(map(caseless, value) if name == "keys" else value)


def _shown(value: str | list[str]) -> str:
    return (", ".join(value) if isinstance(value, list) else value) or "not set"
