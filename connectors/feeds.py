"""Opens the feeds that a program works on, and checks that they go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from silverfold.conf.errors import ConfigError
from silverfold.conf.names import caseless, caseless_schema
from silverfold.conf.validate import together
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.registry import open_feed

if TYPE_CHECKING:
    from silverfold.conf.model import Settings
    from silverfold.connectors.common.transport import Address

OpenFeed: TypeAlias = tuple[Connector, Feed]
"""A feed's connector, and the settings that it has validated."""


def open_feeds(settings: Settings, names: Sequence[str] | None = None) -> list[OpenFeed]:
    """Return the named feeds, each once, or all feeds without names. Raises ConfigError with the errors of all."""
    found: list[OpenFeed] = []
    mistakes: list[ConfigError] = []
    for name in dict.fromkeys(settings.feeds if names is None else names):
        try:
            found.append(open_feed(name, settings))
        except ConfigError as error:
            mistakes.append(error)
    mistakes += [*_listening_twice(settings, found), *_sharing(settings, found), *_named_twice(settings, found)]
    if mistakes:
        raise together(mistakes)
    return found


def chosen_tables(
    feed: Feed, wanted: Sequence[str] | None, *, argument: tuple[str, str] = ("command line", "--table")
) -> list[str]:
    """Return the wanted tables in the order of the settings; all without names.

    Args:
        argument: Where the wanted tables were named, for the error.

    Raises:
        ConfigError: The feed has no such table.
    """
    for name in wanted or ():
        if name not in feed.tables:
            raise ConfigError(file=argument[0], key=argument[1], found=name, allowed=", ".join(sorted(feed.tables)))
    return [name for name in feed.tables if not wanted or name in wanted]


def _listening_twice(settings: Settings, feeds: Sequence[OpenFeed]) -> Iterator[ConfigError]:
    """Yield an error for each feed that would listen on the address of an earlier one."""
    seen: list[tuple[str, Address]] = []
    for connector, feed in feeds:
        here = connector.listens_at(feed)
        first = next((name for name, there in seen if here is not None and here.meets(there)), None)
        if here is not None:
            seen.append((feed.name, here))
        if first is not None:
            file = settings.feeds[feed.name].file_of(("address",))
            allowed = f"another port: the feed {first} listens there"
            yield ConfigError(file=file, key="address", found=str(here), allowed=allowed)


def _sharing(settings: Settings, feeds: Sequence[OpenFeed]) -> Iterator[ConfigError]:
    """Yield an error for each feed that has what an earlier one must have for itself."""
    seen: dict[tuple[str, str], str] = {}
    for connector, feed in feeds:
        key, own = connector.exclusive(feed)
        owners = {seen.setdefault((connector.name, each), feed.name): each for each in own}
        file = settings.feeds[feed.name].file_of(tuple(key.split(".")))
        for owner, found in owners.items():
            if owner != feed.name:
                yield ConfigError(file=file, key=key, found=found, allowed=f"another one: the feed {owner} has it")


def _named_twice(settings: Settings, feeds: Sequence[OpenFeed]) -> Iterator[ConfigError]:
    """Yield an error for each feed that registers a table under the name of an earlier feed's."""
    seen: dict[tuple[str, ...], str] = {}
    for _, feed in (each for each in feeds if each[1].catalog):
        schema = caseless_schema(feed.catalog)
        owners = {seen.setdefault((*schema, caseless(table)), feed.name): table for table in feed.tables}
        file = settings.feeds[feed.name].file_of(("catalog",))
        for owner, table in owners.items():
            if owner != feed.name:
                allowed = (
                    f"another schema, or another name for table {table}: the feed {owner} has one of that name there"
                )
                yield ConfigError(file=file, key="catalog", found=feed.catalog, allowed=allowed)
