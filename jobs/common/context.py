"""Context of every command: the location of its settings, which are read on demand.

`jobs.cli` puts one `Invocation` into typer's context; a job gets it with `invocation(ctx)`. Nothing is read before a
job asks for it, so that ``--help`` needs no settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    from silverfold.connectors.feeds import OpenFeed


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

    def checked(self) -> tuple[Settings, list[OpenFeed]]:
        """Load and validate all layers and all feeds. Raises ConfigError with all errors."""
        from silverfold.connectors.feeds import open_feeds  # noqa: PLC0415 - --help needs no connector

        settings, mistakes = look_at_settings(self.conf_dir, self.env, self.environ)
        try:
            found = open_feeds(settings)
        except ConfigError as error:
            mistakes = [*mistakes, error]
        if mistakes:
            raise together(mistakes)
        start_logs(settings.log_level)
        return settings, found

    def feed(self, name: str, settings: Settings | None = None) -> OpenFeed:
        """Return a feed's connector and its settings, validated by the connector.

        Raises:
            ConfigError: There is no such feed, or one of its settings is invalid.
        """
        from silverfold.connectors.registry import open_feed  # noqa: PLC0415 - import only the connectors in use

        return open_feed(name, settings or self.settings())

    def chosen_feeds(self, settings: Settings, names: Sequence[str] | None, every: bool) -> list[OpenFeed]:
        """Return the feeds selected by `Names` and `Every`, at least one. Raises ConfigError."""
        from silverfold.connectors.feeds import open_feeds  # noqa: PLC0415 - --help needs no connector

        if every == bool(names):
            found = "names and --all" if every else None
            raise ConfigError(file="command line", key="FEED", found=found, allowed="names of feeds, or --all")
        opened = open_feeds(settings, names or None)
        if not opened:
            raise ConfigError(file="command line", key="--all", found="no feeds", allowed="files feeds/FEED.toml")
        return opened


def invocation(ctx: typer.Context) -> Invocation:
    """Return the invocation that `jobs.cli` put into the context."""
    assert isinstance(ctx.obj, Invocation)
    return ctx.obj
