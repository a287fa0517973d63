"""The command line: ``silverfold [--conf DIR] [--env NAME] COMMAND``.

Each command is a file of its own in this folder, imported when it is called: a receiver never loads Spark, and
``--help`` loads no command. Errors that silverfold raises on purpose print one line each on stderr and set an exit
code:

===  ====================================================
0    success
1    negative result: a check or comparison found a difference
2    usage error or bad input
3    source, store or Spark unavailable
4    fenced: another process took over
70   a bug in silverfold: a traceback is shown
130  interrupted
===  ====================================================

conf/README.md says for each command what 1 means.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from silverfold.conf.errors import ConfigError, Fenced, SilverfoldError, SparkUnavailable
from silverfold.conf.files import FULL
from silverfold.jobs.common.streams import open_streams

HELP: Final = "markdown"
"""Markup of help texts: lines of a paragraph are joined."""


class Job(NamedTuple):
    """One command, described without importing its module."""

    target: str
    """``module:attribute``, where the attribute is a function for typer or a `typer.Typer` of sub-commands."""
    summary: str
    """First sentence of the command's help."""


JOBS = {
    "demo": Job(
        "silverfold.jobs.demo.__main__:demo", "Show everything at work: a live source, receiver, build, and a proof."
    ),
    "simulate": Job("silverfold.jobs.simulate:app", "Run a connector's own source, and keep its tables changing."),
    "receive": Job("silverfold.jobs.receive:receive", "Land the frames of some feeds in bronze, until stopped."),
    "build": Job("silverfold.jobs.build:build", "Bring the silver tables of some feeds up to what has landed."),
    "rebuild": Job(
        "silverfold.jobs.rebuild:rebuild", "Make a silver table anew from bronze and swap it in, in one commit."
    ),
    "maintain": Job(
        "silverfold.jobs.maintain:maintain", "Keep a feed's tables small: drop old frames, join and remove files."
    ),
    "verify": Job(
        "silverfold.jobs.verify:verify", "Compare silver tables with what bronze, or the source, says they must hold."
    ),
    "check": Job(
        "silverfold.jobs.check:check", "Judge the rows of silver tables by their rules, `expect` in the settings."
    ),
    "quality": Job(
        "silverfold.jobs.quality:quality",
        "Judge silver tables by their rules and your own suites, with pages of results.",
    ),
    "sql": Job("silverfold.jobs.sql:sql", "Run a query over the silver tables, by table name."),
    "status": Job("silverfold.jobs.status:status", "Show, per feed and table, what has landed and what is applied."),
    "report": Job(
        "silverfold.jobs.report.__main__:report", "Write a page about a feed, with charts, to send or to keep."
    ),
    "quarantine": Job(
        "silverfold.jobs.quarantine:app", "See what silver tables could not take; try it again, or go on without it."
    ),
    "sbe": Job(
        "silverfold.jobs.sbe.__main__:app",
        "Decode messages of Simple Binary Encoding, and judge and compare their schemas.",
    ),
    "prepare": Job(
        "silverfold.jobs.prepare:prepare",
        "Fetch Delta's JARs, and archive the classes that Spark loads, so that it starts in half the time.",
    ),
    "config": Job("silverfold.jobs.config:app", "Look at the settings."),
    "metrics": Job(
        "silverfold.jobs.metrics.__main__:metrics",
        "Tell Prometheus the state of feeds and tables, as `silverfold status` shows it.",
    ),
}


class LazyGroup(TyperGroup):
    """A group that lists commands by their summaries and imports a command when it is called: see `add_lazily`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the called command, importing it now."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and listed.callback and listed.callback(), rest


def add_lazily(group: typer.Typer, name: str, summary: str, load: Callable[[], Any]) -> None:
    """Add a command to a `LazyGroup`.

    Args:
        summary: First sentence of the command's help.
        load: Imports and returns the command.
    """

    def stand_in() -> Any:
        return load()

    stand_in.__doc__ = summary
    group.command(name)(stand_in)


def load(name: str) -> Any:
    """Import a job and return it as a command."""
    module, _, attribute = JOBS[name].target.partition(":")
    return as_command(name, getattr(import_module(module), attribute))


def as_command(name: str, found: Any) -> Any:
    """Return a function for typer, or a `typer.Typer` of sub-commands, as a command."""
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = HELP
        return without_flag_metavars(typer.main.get_group(found))
    alone = typer.Typer(add_completion=False, rich_markup_mode=HELP)
    alone.command(name)(found)
    return without_flag_metavars(typer.main.get_command(alone))


def without_flag_metavars(command: Any) -> Any:
    """Return a command without ``<bool>`` in the help of its flags and of its sub-commands: flags take no value."""
    options = [*command.params, command.get_help_option(typer.Context(command))]
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        without_flag_metavars(below)
    return command


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"silverfold {version('silverfold')}")
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, rich_markup_mode=HELP, pretty_exceptions_enable=False)
for _name, _job in JOBS.items():
    add_lazily(app, _name, _job.summary, partial(load, _name))


@app.callback()
def begin(
    ctx: typer.Context,
    conf: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="SILVERFOLD_CONF", help="Folder with settings.toml and feeds/FEED.toml."),
    ] = None,
    env: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="SILVERFOLD_ENV", help="Packaged settings: local, cluster, databricks."),
    ] = "local",
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show which silverfold this is.")
    ] = False,
) -> None:
    """Fold foreign change feeds into silver Delta tables.

    Settings come in layers, later wins: the packaged base.toml and NAME.toml, DIR/settings.toml,
    DIR/feeds/FEED.toml, environment variables such as SILVERFOLD__WAREHOUSE.
    """
    from silverfold.jobs.common.context import Invocation  # noqa: PLC0415 - --help needs no settings, and their models take time to load

    ctx.obj = Invocation(conf_dir=conf, env=env)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. ``arguments`` default to those of the process."""
    open_streams()
    try:
        command = without_flag_metavars(typer.main.get_command(app))
        try:
            command(args=None if arguments is None else list(arguments), prog_name="silverfold")
        finally:
            sys.stdout.flush()
    except SilverfoldError as error:
        others = error.others if isinstance(error, ConfigError) else ()
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():  # only once the settings have been read
            structlog.get_logger("silverfold").debug("traceback", exc_info=error)
        _print_errors(*map(str, (error, *others)))
        sys.exit(exit_code(error))
    except Exception as error:  # a bug gets its own exit code: scripts must not mistake it for a negative result
        message = _environment_error(error)
        if message is None:
            traceback.print_exc()
            sys.exit(70)
        _print_errors(message)
        sys.exit(3)


def _print_errors(*lines: str) -> None:
    for each in lines:
        print(f"silverfold: {each}", file=sys.stderr)


def _environment_error(error: Exception) -> str | None:
    """Return a message for an error that is no bug although it is not ours: a full disk, or no Spark (any more)."""
    spark = sys.modules.get("silverfold.pipelines.spark.session")
    if spark is not None and spark.has_ended():
        return str(spark.ENDED)
    if isinstance(error, ModuleNotFoundError) and error.name in ("pyspark", "py4j"):
        return "Spark is not installed here: install silverfold[spark], or run this where a Spark is"
    if not (isinstance(error, OSError) and error.errno in FULL):
        return None
    if error.filename is None:  # most likely our own output: Python would try to flush the rest at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"{error.strerror}: {error.filename or 'what was to be written is not whole'}"


def main_of(name: str) -> None:
    """Run one job as ``python -m silverfold.jobs.<name>``; --conf and --env may precede its own arguments."""
    arguments = sys.argv[1:]
    own = count_before_command(arguments)
    main([*arguments[:own], name, *arguments[own:]])


def count_before_command(arguments: Sequence[str]) -> int:
    """Return the number of arguments that precede a command's name: --conf, --env and their values."""
    own = 0
    while own < len(arguments) and arguments[own].split("=")[0] in ("--conf", "--env"):
        own += 1 if "=" in arguments[own] else 2
    return own


def exit_code(error: SilverfoldError) -> int:
    """Return the process's exit code for an error."""
    if isinstance(error, Fenced):
        return 4
    return 3 if error.retryable or isinstance(error, SparkUnavailable) else 2


if __name__ == "__main__":
    main()
