"""Context of every command: the location of its settings, which are read on demand.

`jobs.cli` puts one `Invocation` into typer's context; a job gets it with `invocation(ctx)`. Nothing is read before a
job asks for it, so that ``--help`` needs no settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silverfold.conf.errors import ConfigError
from silverfold.conf.load import load_settings, look_at_settings
from silverfold.conf.validate import together
from silverfold.jobs.common.logs import start_logs

if TYPE_CHECKING:
    from silverfold.conf.model import Settings
    from silverfold.connectors.base import Connector, Feed
    from silverfold.connectors.common.transport import Address


Names = Annotated[
    list[str] | None, typer.Argument(metavar="FEED...", help="Names of feeds: the file of each is feeds/FEED.toml.")
]
Every = Annotated[bool, typer.Option("--all", help="All feeds there are.")]
Tables = Annotated[
    list[str] | None, typer.Option("--table", metavar="NAME", help="Only this table; may be given several times.")
]


@dataclass(frozen=True)
class Invocation:
    """One run of the program.

    Args:
        conf_dir: Directory of the user's ``settings.toml`` and ``feeds/``; None for the packaged settings alone.
        env: Name of the packaged layer, such as ``local``.
        environ: Environment variables, for ``SILVERFOLD__`` settings and secrets.
    """

    conf_dir: Path | None = None
    env: str = "local"
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    def settings(self) -> Settings:
        """Load and validate all layers, and configure logging accordingly. Raises ConfigError."""
        settings = load_settings(self.conf_dir, self.env, self.environ)
        start_logs(settings.log_level)
        return settings

    def checked(self) -> tuple[Settings, list[tuple[Connector, Feed]]]:
        """Load and validate all layers and all feeds. Raises ConfigError with all errors."""
        settings, mistakes = look_at_settings(self.conf_dir, self.env, self.environ)
        try:
            found = self.feeds(settings)
        except ConfigError as error:
            mistakes = [*mistakes, error]
        if mistakes:
            raise together(mistakes)
        start_logs(settings.log_level)
        return settings, found

    def feed(self, name: str, settings: Settings | None = None) -> tuple[Connector, Feed]:
        """Return a feed's connector and its settings, validated by the connector.

        Raises:
            ConfigError: There is no such feed, or one of its settings is invalid.
        """
        from silverfold.connectors.registry import open_feed  # noqa: PLC0415 - import only the connectors in use

        return open_feed(name, settings or self.settings())

    def feeds(self, settings: Settings, names: Sequence[str] | None = None) -> list[tuple[Connector, Feed]]:
        """Return the named feeds, each once, or all feeds without names. Raises ConfigError with the errors of all."""
        found: list[tuple[Connector, Feed]] = []
        mistakes: list[ConfigError] = []
        for name in dict.fromkeys(settings.feeds if names is None else names):
            try:
                found.append(self.feed(name, settings))
            except ConfigError as error:
                mistakes.append(error)
        mistakes += [*_listening_twice(settings, found), *_sharing(settings, found)]
        if mistakes:
            raise together(mistakes)
        return found

    def chosen_feeds(
        self, settings: Settings, names: Sequence[str] | None, every: bool
    ) -> list[tuple[Connector, Feed]]:
        """Return the feeds selected by `Names` and `Every`, at least one. Raises ConfigError."""
        if every == bool(names):
            found = "names and --all" if every else None
            raise ConfigError(file="command line", key="FEED", found=found, allowed="names of feeds, or --all")
        opened = self.feeds(settings, names or None)
        if not opened:
            raise ConfigError(file="command line", key="--all", found="no feeds", allowed="files feeds/FEED.toml")
        return opened


def _listening_twice(settings: Settings, feeds: Sequence[tuple[Connector, Feed]]) -> Iterator[ConfigError]:
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


def _sharing(settings: Settings, feeds: Sequence[tuple[Connector, Feed]]) -> Iterator[ConfigError]:
    """Yield an error for each feed that has what an earlier one must have for itself."""
    seen: dict[tuple[str, str], str] = {}
    for connector, feed in feeds:
        key, own = connector.exclusive(feed)
        owners = {seen.setdefault((connector.name, each), feed.name): each for each in own}
        file = settings.feeds[feed.name].file_of(tuple(key.split(".")))
        for owner, found in owners.items():
            if owner != feed.name:
                yield ConfigError(file=file, key=key, found=found, allowed=f"another one: the feed {owner} has it")


def chosen_tables(feed: Feed, wanted: Sequence[str] | None) -> list[str]:
    """Return the tables selected by `Tables`, in the order of the settings; all without names. Raises ConfigError."""
    for name in wanted or ():
        if name not in feed.tables:
            raise ConfigError(file="command line", key="--table", found=name, allowed=", ".join(sorted(feed.tables)))
    return [name for name in feed.tables if not wanted or name in wanted]


def invocation(ctx: typer.Context) -> Invocation:
    """Return the invocation that `jobs.cli` put into the context."""
    assert isinstance(ctx.obj, Invocation)
    return ctx.obj
