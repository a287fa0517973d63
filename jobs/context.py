"""What every command gets: where its settings come from, read when it first asks.

`jobs.cli` puts one `Invocation` into typer's context; a job reaches it with `invocation(ctx)`. Nothing is read
before a job asks, so that ``--help`` needs no settings at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conf.errors import ConfigError
from conf.load import load_settings, look_at_settings
from conf.validate import together
from jobs.logs import start_logs

if TYPE_CHECKING:
    from conf.model import Settings
    from connectors.base import Connector, Feed
    from connectors.transport import Address


Names = Annotated[
    list[str] | None, typer.Argument(metavar="FEED...", help="Names of feeds: the file of each is feeds/FEED.toml.")
]
Every = Annotated[bool, typer.Option("--all", help="All feeds there are.")]


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
        """Read and check every layer, and log as they say from here on. Raises ConfigError."""
        settings = load_settings(self.conf_dir, self.env, self.environ)
        start_logs(settings.log_level)
        return settings

    def checked(self) -> tuple[Settings, list[tuple[Connector, Feed]]]:
        """Read and check every layer and every feed. Raises ConfigError with all mistakes there are."""
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
        """Return a feed's connector and its settings, checked by that connector.

        Raises:
            ConfigError: No feed has this name, or one of its settings is wrong.
        """
        from connectors.registry import open_feed  # noqa: PLC0415 - a connector's imports are its own, paid when used

        return open_feed(name, settings or self.settings())

    def feeds(self, settings: Settings, names: Sequence[str] | None = None) -> list[tuple[Connector, Feed]]:
        """Return some feeds, each once; all there are without names. Raises ConfigError with the mistakes of all."""
        found: list[tuple[Connector, Feed]] = []
        mistakes: list[ConfigError] = []
        for name in dict.fromkeys(settings.feeds if names is None else names):
            try:
                found.append(self.feed(name, settings))
            except ConfigError as error:
                mistakes.append(error)
        mistakes += _listening_twice(settings, found)
        if mistakes:
            raise together(mistakes)
        return found

    def chosen_feeds(
        self, settings: Settings, names: Sequence[str] | None, every: bool
    ) -> list[tuple[Connector, Feed]]:
        """Return the feeds that `Names` and `Every` ask for, at least one. Raises ConfigError."""
        if every == bool(names):
            found = "names and --all" if every else None
            raise ConfigError(file="command line", key="FEED", found=found, allowed="names of feeds, or --all")
        opened = self.feeds(settings, names or None)
        if not opened:
            raise ConfigError(file="command line", key="--all", found="no feeds", allowed="files feeds/FEED.toml")
        return opened


def _listening_twice(settings: Settings, feeds: Sequence[tuple[Connector, Feed]]) -> Iterator[ConfigError]:
    """Yield the feeds that are to listen where one before them does."""
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


def invocation(ctx: typer.Context) -> Invocation:
    """Return the invocation that `jobs.cli` put into the context."""
    assert isinstance(ctx.obj, Invocation)
    return ctx.obj
