"""``silverfold build``: apply landed frames to the silver tables of some feeds, once or continuously.

With ``--json`` one object is printed at the end, with stable names and meanings: `pipelines.applying.run`.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.console import AsJson, print_json
from silverfold.jobs.common.context import Every, Names, invocation
from silverfold.jobs.common.ways_on import advice_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from silverfold.pipelines.applying.run import BuildReport


def build(
    ctx: typer.Context,
    feeds: Names = None,
    every: Every = False,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on with what lands next, or end with what has landed by now.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the silver tables of some feeds up to what has landed.

    Safe to stop and start at any moment, also by SIGKILL: a table's position is in its own log.
    Spark is started once there is something to apply. Tables take turns, one cut each.
    Exit code 1 when a table holds because of something it could not take; status says what. 3 when nothing but the
    store is to blame; 130 when `--once` is stopped before its end. A feed, or a table, that cannot be read at the start
    is told, and the others are built; a mistake in the settings of any feed named is told before anything is built.
    """
    settings = invocation(ctx).settings()
    opened = invocation(ctx).chosen_feeds(settings, feeds, every)
    from silverfold.jobs.common.pandas_later import import_pandas_later  # noqa: PLC0415 - --help needs no Arrow

    import_pandas_later()  # before the next import makes Arrow's first value
    from silverfold.pipelines.applying.run import build_feeds  # noqa: PLC0415 - --help must not load Spark
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    def start() -> SparkSession:
        with Console(stderr=True).status("starting Spark"):
            return start_spark(settings, app=f"silverfold build {', '.join(feed.name for _, feed in opened)}")

    with stopped_by_signals() as stop:
        built = build_feeds(start, settings, opened, follow=follow, stop=stop)
    if as_json:
        print_json(built)
    else:
        _print_faults(built)
    if not follow:
        exit_if_interrupted(stop)
    faults = [table.fault for feed in built.feeds for table in feed.tables if table.fault is not None]
    if faults:
        raise typer.Exit(3 if all(fault.retryable for fault in faults) else 1)


def exit_if_interrupted(stop: threading.Event) -> None:
    """Say that a build was stopped before its end, if it was, and exit with 130."""
    if stop.is_set():
        print("silverfold: interrupted: what had landed may not all be built", file=sys.stderr)
        raise typer.Exit(130)


def _print_faults(built: BuildReport) -> None:
    """Print what holds each table, and how to continue."""
    faults = {(feed.feed, each.table): each.fault for feed in built.feeds for each in feed.tables if each.fault}
    for (feed, table), fault in sorted(faults.items()):
        name = f"{feed}.{table}" if len(built.feeds) > 1 else table
        print(f"silverfold: {name} {'cannot be built now' if fault.retryable else 'holds'}: {fault.reason}")
        position = -1 if fault.position is None else fault.position
        if advice := advice_for(fault.error_class, feed=feed, table=table, position=position):
            print(f"silverfold: {advice}")


if __name__ == "__main__":
    main_of("build")
