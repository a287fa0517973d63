"""``silverfold metrics``: tell Prometheus the state of feeds. Reads only the store, never loads Spark."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from silverfold.conf.errors import ConfigError
from silverfold.connectors.common.stopping import stopped_by_signals
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import Every, Names, invocation
from silverfold.jobs.metrics import require_extra
from silverfold.pipelines.places import places_of


def metrics(
    ctx: typer.Context,
    feeds: Names = None,
    every: Every = False,
    *,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Serve on this TCP port, until stopped; 0 for any free one.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. There is no authentication.")] = "127.0.0.1",
    textfile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write once to this file instead, whose name ends in .prom."),
    ] = None,
) -> None:
    """Tell Prometheus the state of feeds and tables, as `silverfold status` shows it.

    Each request reads the store anew, at most once a second. A feed that cannot be read is `silverfold_feed_up 0`, and
    the others are shown. The text served says what each metric means. `silverfold receive --metrics-port` has those
    of a receiver's process; jobs/metrics has alerts and a dashboard for both.

    SIGINT and SIGTERM end it at once. `--textfile` is for node_exporter's textfile collector.
    """
    require_extra("COMMAND", "metrics")
    if (port is None) == (textfile is None):
        found = None if port is None else "--port and --textfile"
        raise ConfigError(file="command line", key="--port", found=found, allowed="a port, or --textfile")
    from silverfold.jobs.metrics.collectors import FeedCollector  # noqa: PLC0415 - --help needs no extra
    from silverfold.jobs.metrics.exposition import served, write  # noqa: PLC0415 - as above
    from silverfold.jobs.metrics.readings import read_feeds  # noqa: PLC0415 - as above

    settings = invocation(ctx).settings()
    opened = invocation(ctx).chosen_feeds(settings, feeds, every)
    collector = FeedCollector(partial(read_feeds, places_of(settings), opened))
    if textfile is not None:
        write(collector, textfile)
    elif port is not None:
        with stopped_by_signals() as stop, served(collector, host, port, option="--port") as address:
            typer.echo(f"serving {address}")
            sys.stdout.flush()
            stop.wait()
            os._exit(0)  # requests may be deep in the store's library: Python's own end would wait for its threads


if __name__ == "__main__":
    main_of("metrics")
