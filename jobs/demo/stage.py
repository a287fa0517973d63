"""The course of the demo, from the first row at the source to the last compared cell."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

from silverfold.connectors.base import Connector, Feed
from silverfold.jobs.common.context import Invocation
from silverfold.jobs.common.logs import start_logs
from silverfold.jobs.demo.check import compare, read_silver
from silverfold.jobs.demo.conf import FEED, write_conf
from silverfold.jobs.demo.follow import FeedFollower
from silverfold.jobs.demo.receiver import ReceiverProcess
from silverfold.jobs.demo.show import Progress, cuts_table, differences_table
from silverfold.jobs.demo.source import CHANGES_PER_SECOND, DemoSource
from silverfold.jobs.demo.tables import TABLES
from silverfold.jobs.sql import Format, ask, write
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.cuts import read_cuts
from silverfold.pipelines.places import Places, places_of
from silverfold.pipelines.reading.status import FeedStatus, read_status
from silverfold.pipelines.reading.views import register_views
from silverfold.pipelines.spark.session import start_spark, stop_spark

QUERY = """
SELECT Symbol, count(*) AS trades, sum(Lot) AS lots, round(median(Price), 2) AS median_price, max(At) AS latest
FROM trades GROUP BY Symbol ORDER BY trades DESC, Symbol LIMIT 5
"""

_SEED = 1
_CUTS_SHOWN = 8
_ABANDONED_AFTER = 1800.0


def perform(run: Invocation, home: Path, cleanup: ExitStack, console: Console, *, seconds: float, rows: int) -> bool:
    """Run the demo in a folder of its own; return whether silver equals the source.

    Args:
        cleanup: Receives everything that must be stopped.
        seconds: How long the tables change after the build has begun to follow.
        rows: Number of initial rows of each table.

    Raises:
        ConfigError: One of the user's settings is invalid.
        SparkUnavailable: Spark does not start; the message says what to do.
    """
    began = time.monotonic()
    log = cleanup.enter_context((home / "demo.log").open("w", encoding="utf-8"))  # closed last: the others log to it
    source = cleanup.enter_context(DemoSource(rows=rows, seed=_SEED))
    ours = write_conf(run, home, source.address)
    settings = ours.settings()
    connector, feed = ours.feed(FEED, settings)
    places = places_of(settings)
    start_logs(settings.log_level, log)
    receiver = cleanup.enter_context(_receive(ours, home, seconds))
    look = partial(_status, places, connector, feed)
    progress = Progress(console, source.tables, look, began=began, phase="starting Spark")
    progress.say(f"source: a table server on {source.address}; {_description(source)}")
    progress.say(f"receiver: process {receiver.pid}; tables change, {CHANGES_PER_SECOND:.0f} rows a second in each")
    last_rows = source.change(seconds, say=progress.say)
    elsewhere = cleanup.enter_context(ThreadPoolExecutor(settings.build.tables_at_once, "demo-build"))
    with progress:
        spark = start_spark(settings, app="silverfold demo")
        cleanup.callback(stop_spark, spark)
        progress.say("Spark has started")
        build = cleanup.enter_context(FeedBuild(lambda: spark, settings, connector, feed))
        poll_seconds = settings.build.poll_ms / 1000
        follower = FeedFollower(build, receiver, progress, elsewhere, last_rows, source.watch, poll_seconds)
        wrong = follower.run() or _stopped(receiver)
    if wrong is not None:
        console.print(Text(f"silverfold: the demo did not get to its end: {wrong}", "red"))
        return False
    progress.say("the receiver stopped in order, with everything landed")
    _show(spark, places, console)
    return _compare(places, source, console)


def _receive(ours: Invocation, home: Path, seconds: float) -> ReceiverProcess:
    return ReceiverProcess(
        ["--conf", str(ours.conf_dir), "--env", ours.env],
        FEED,
        home / "receiver.log",
        longest=seconds + _ABANDONED_AFTER,
        environ=ours.environ,
    )


def _status(places: Places, connector: Connector, feed: Feed) -> FeedStatus:
    return read_status(places, connector, feed, now=datetime.now(UTC))


def _description(source: DemoSource) -> str:
    """Return a description of the source's tables."""
    kinds = {kind.name for table in source.tables.values() for kind in table.columns.values()}
    (rows,) = {len(table) for table in source.tables.values()}
    return f"{len(source.tables)} tables of {rows:,} rows, all {len(kinds)} column types"


def _stopped(receiver: ReceiverProcess) -> str | None:
    """Stop the receiver; return an error message if it did not end properly, else None."""
    code = receiver.stop()
    if code == 0:
        return None
    ended = "did not stop in time" if code is None else f"stopped with exit code {code}"
    return f"the receiver {ended}:\n{receiver.last_words()}"


def _show(spark: SparkSession, places: Places, console: Console) -> None:
    """Print the result of a query, and the last cuts."""
    views = register_views(spark, places, {FEED: list(TABLES)})
    console.print(Text(f"\nA query over silver:\n{QUERY.strip()}", "bold"))
    write(ask(spark, QUERY, limit=100, views=views), Format.TABLE, sys.stdout)
    cuts = read_cuts(places, FEED)
    console.print(Text(f"\nThe last of {len(cuts)} cuts:", "bold"))
    console.print(cuts_table(cuts[-_CUTS_SHOWN:]))


def _compare(places: Places, source: DemoSource, console: Console) -> bool:
    """Compare every table with the source's rows and print the result; return whether all are equal."""
    console.print(Text("\nSilver, read without Spark, against the source's own rows, cell by cell:", "bold"))
    equal = True
    for name, table in source.tables.items():
        silver = read_silver(places.silver(FEED, name), list(table.columns))
        found = compare(table.columns, table.rows(), silver)
        equal &= found.different == 0
        if found.different:
            console.print(differences_table(name, found))
        else:
            console.print(f"{name}: {found.rows:,} rows, {found.cells:,} cells, equal")
    verdict = (
        Text("Silver is the source, cell for cell.", "green") if equal else Text("Silver is not the source.", "red")
    )
    console.print(verdict)
    return equal
