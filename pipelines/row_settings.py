"""What of the settings says which rows a silver table has: its keys, its stream, and what its connector names.

Each cut notes it. Rows made under other settings mean something else, so whoever goes on from them, or compares with
them, asks first which setting says something else today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from conf.names import folded
from connectors.base import Connector, Feed

RowSettings: TypeAlias = Mapping[str, str | list[str]]
"""By name. Where one says ``error``, a table has no row that could be read in several ways: it waits."""


def row_settings(connector: Connector, feed: Feed, table: str, keys: Sequence[str]) -> RowSettings:
    """Return what today's settings say.

    Args:
        keys: The table's, those of its source where none are set; empty where they are not known.
    """
    said = {**connector.row_settings(feed, table), "stream": connector.stream(feed, table)}
    return {**said, "keys": list(keys)} if keys else said


def decided(settings: RowSettings) -> RowSettings:
    """Return those by which a table's rows may have been read: what says ``error`` may be set otherwise later."""
    return {name: value for name, value in settings.items() if value != "error"}


def differing(then: RowSettings, now: RowSettings) -> list[str]:
    """Return which of the settings of today say something else than they did.

    Lists are in any order, and keys in any letter case, as columns are.
    """
    return [name for name, value in now.items() if name in then and _meant(name, then[name]) != _meant(name, value)]


def otherwise(setting: str, then: RowSettings, now: RowSettings, *, what: str) -> str:
    """Say how a setting differs from what something was built with."""
    was, is_now = (_shown(each[setting]) for each in (then, now))
    return f"{setting} is {is_now}, {what} was built with {was}"


def _meant(name: str, value: str | list[str]) -> object:
    if not isinstance(value, list):
        return value
    return sorted(map(folded, value) if name == "keys" else value)


def _shown(value: str | list[str]) -> str:
    return (", ".join(value) if isinstance(value, list) else value) or "not set"
