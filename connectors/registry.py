"""Finds a connector by name. Importing this module imports no connector.

A new connector is one folder and one line here: `connectors` says what else.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from pydantic import BaseModel

from silverfold.conf.errors import ConfigError
from silverfold.conf.model import FeedSettings, Settings
from silverfold.conf.names import CHANGE_FEED, HISTORY, TAKEN, caseless
from silverfold.conf.validate import together, validated
from silverfold.connectors.base import Connector, Feed, Problem

CONNECTORS: Final = {
    "deephaven": "silverfold.connectors.deephaven.connector",
    "hstreamdb": "silverfold.connectors.hstreamdb.connector",
    "sbe": "silverfold.connectors.sbe.connector",
    "sqlitecloud": "silverfold.connectors.sqlitecloud.connector",
    "sqlitecloud_webhooks": "silverfold.connectors.sqlitecloud_webhooks.connector",
    "tengi": "silverfold.connectors.tengi.connector",
}
"""Maps a connector's name to the module that defines its ``CONNECTOR``."""


_OF_COLUMNS: Final = ("keys", "columns", "types")
"""Settings of a table that name columns of its source, as far as a connector has them."""


def find_connector(name: str) -> Connector:
    """Import and return the named connector. Raises KeyError if there is none."""
    connector: Connector = import_module(CONNECTORS[name]).CONNECTOR
    return connector


def hyphenated_name(connector: Connector) -> str:
    """Return the name of a connector's extra, and of its simulator on the command line."""
    return connector.name.replace("_", "-")


def missing_extra(connector: Connector) -> str | None:
    """Return what to install if packages of the connector are not here, as the end of an error message."""
    if all(find_spec(package) for package in connector.packages):
        return None
    return f"one whose packages are here: install silverfold[{hyphenated_name(connector)}]"


def open_feed(name: str, settings: Settings) -> tuple[Connector, Feed]:
    """Return a feed's connector and its settings, validated by that connector. Connects to nothing.

    Raises:
        ConfigError: No feed has this name, or one of its settings is wrong; ``others`` has the further mistakes.
    """
    if name not in settings.feeds:
        known = ", ".join(sorted(settings.feeds)) or "none yet: each is a file feeds/<feed>.toml"
        raise ConfigError(file="settings", key="feeds", found=name, allowed=known)
    raw = settings.feeds[name]
    if raw.connector not in CONNECTORS:
        raise _config_error(raw, "connector", raw.connector, ", ".join(sorted(CONNECTORS)))
    connector = find_connector(raw.connector)
    if missing := missing_extra(connector):
        raise _config_error(raw, "connector", raw.connector, missing)
    feed = _validate(name, raw, connector)
    problems = [*connector.problems(feed), *_history_problems(connector, feed), *_name_problems(connector, feed)]
    mistakes = [_config_error(raw, *problem) for problem in problems]
    if mistakes:
        raise together(mistakes)
    return connector, feed


def _validate(name: str, raw: FeedSettings, connector: Connector) -> Feed:
    """Validate options and tables with the connector's models; report all mistakes at once."""
    mistakes: list[ConfigError] = []
    validated_models: dict[str, Any] = {}
    for prefix, model, given in _parts(raw, connector):
        try:
            validated_models[prefix] = validated(model, given, file=raw.file_of, prefix=prefix)
        except ConfigError as error:
            mistakes.append(error)
    if mistakes:
        raise together(mistakes)
    tables = {table: validated_models[f"tables.{table}"] for table in raw.tables}
    options = validated_models["options"]
    return Feed(name, raw.connector, raw.address, options, tables, raw.commit, raw.reconnect, raw.catalog)


def _history_problems(connector: Connector, feed: Feed) -> Iterator[Problem]:
    """Yield the tables that cannot have a history: a snapshot has no place in a source's own order."""
    for name, table in feed.tables.items():
        if table.keeps_history and connector.source_ordered and connector.has_snapshots(table):
            allowed = "1: the order of its changes does not say where a snapshot belongs"
            yield Problem(f"tables.{name}.stored_as_scd_type", 2, allowed)


def _name_problems(connector: Connector, feed: Feed) -> Iterator[Problem]:
    """Yield the settings that name a column of the source as silverfold or Delta name one of theirs."""
    for name, table in feed.tables.items():
        reserved = connector.reserved_names(table)
        for setting in _OF_COLUMNS:
            taken = [column for column in getattr(table, setting, ()) if caseless(column) in reserved]
            if taken:
                yield Problem(f"tables.{name}.{setting}", taken[0], _free_name(caseless(taken[0])))


def _free_name(taken: str) -> str:
    if taken in CHANGE_FEED:
        return "other columns: with change_data_feed Delta adds one of this name"
    if taken in HISTORY:
        return "other columns: with stored_as_scd_type = 2 silverfold adds one of this name"
    return f"other columns: one of this name is {'one of Delta' if taken in TAKEN else 'silverfold'}'s own"


def _parts(raw: FeedSettings, connector: Connector) -> Iterator[tuple[str, type[BaseModel], dict[str, Any]]]:
    yield "options", connector.Options, raw.options
    for table, given in raw.tables.items():
        yield f"tables.{table}", connector.TableOptions, given


def _config_error(raw: FeedSettings, key: str, found: object, allowed: str) -> ConfigError:
    return ConfigError(file=raw.file_of(tuple(key.split("."))), key=key, found=found, allowed=allowed)
