"""The course of the demo: make tables, serve and change them, receive, build, show, verify.

Each step calls what a command calls: ``simulate``, ``receive``, ``build --follow``, ``status``, ``sql`` and ``verify
--against-source``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from pyspark.sql import SparkSession
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from silverfold.conf.errors import SilverfoldError, StoreUnavailable
from silverfold.conf.model import Settings
from silverfold.conf.secrets import Secret
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.rate import Rate, change_steadily
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.workload import Changer
from silverfold.jobs.common.context import Invocation
from silverfold.jobs.common.logs import start_logs
from silverfold.jobs.demo.tables import TABLES
from silverfold.jobs.sql import Format, ask, write
from silverfold.jobs.status import picture
from silverfold.jobs.verify import show
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.run import run as follow_feeds
from silverfold.pipelines.places import Places, places_of
from silverfold.pipelines.reading.status import read_status
from silverfold.pipelines.reading.views import register_views
from silverfold.pipelines.spark.session import start_spark, stop_spark
from silverfold.pipelines.storage.cuts import position_reached
from silverfold.pipelines.verifying.verify import TableVerification, summarize
from silverfold.pipelines.verifying.verify_source import verify_against_source

FEED = "demo"
FEED_SETTINGS = """\
connector = "deephaven"
address = "{address}"

[tables.trades]
source = "Trades"
mode = "snapshot_with_updates"

[tables.baskets]
source = "Baskets"
mode = "snapshot_with_updates"
keys = ["Id"]
decimals = {{ Fee = 2 }}  # decimal(38, 2); without it, text
"""
QUERY = """
SELECT Symbol, count(*) AS trades, sum(Lot) AS lots, round(median(Price), 2) AS median_price, max(At) AS latest
FROM trades GROUP BY Symbol ORDER BY trades DESC, Symbol LIMIT 5
"""
Receiver: TypeAlias = subprocess.Popen[bytes]

CHANGES_PER_SECOND = 50.0
"""Rows changed per second, in each table."""
PATIENCE = 240.0
"""Seconds in which both tables must be built, and in which each must become equal to the source at rest."""

_SEED = 1
_ABANDONED_AFTER = 1800.0
_STOPPED_WITHIN = 30.0
_LAST_LINES = 5


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
    say = partial(_say, console, time.monotonic())
    log = cleanup.enter_context((home / "demo.log").open("w", encoding="utf-8"))  # closed last: the others log to it
    source, changers = _serve(rows, cleanup)
    ours = write_conf(run, home, f"127.0.0.1:{source.port}")
    settings = ours.settings()
    connector, feed = ours.feed(FEED, settings)
    places = places_of(settings)
    start_logs(settings.log_level, log)
    say(f"source: a table server on {feed.address}; 2 tables of {rows:,} rows, all {len(TYPES)} column types")
    receiver = cleanup.enter_context(_receiving(ours, home / "receiver.log", seconds + _ABANDONED_AFTER))
    say(f"receiver: process {receiver.pid}")
    look, is_built = _looking(places, connector, feed), partial(_is_built, places)
    live = Live(get_renderable=look, console=console, auto_refresh=console.is_terminal, transient=True)
    cleanup.enter_context(live)  # a second Ctrl-C must not interrupt its end
    try:
        spark, following, stop = _follow(settings, connector, feed, cleanup)
        say("Spark has started")
        say(f"the tables change, {CHANGES_PER_SECOND:.0f} rows a second in each")
        change = partial(_change, changers, receiver, following)
        change(PATIENCE, until=is_built)
        if is_built():  # else what is verified tells why
            say("both silver tables stand: the build follows the changes from now on")
        change(seconds / 2)
        source.disconnect_all()
        say("the source broke the connection: a new epoch begins with new snapshots")
        change(seconds / 2)
        say("the source is quiet from now on")
        verified = [verify_against_source(places, connector, feed, name, patience=PATIENCE) for name in TABLES]
        stop.set()
        following.result()
        if code := _stop(receiver):
            raise subprocess.CalledProcessError(code, receiver.args)
        say("the receiver stopped in order, with everything landed")
    except subprocess.CalledProcessError as error:
        last_words = "\n".join((home / "receiver.log").read_text(encoding="utf-8").splitlines()[-_LAST_LINES:])
        ended = f"the receiver ended with exit code {error.returncode}:\n{last_words}"
        console.print(Text(f"silverfold: the demo did not get to its end: {ended}", "red"))
        return False
    live.stop()
    console.print(look())
    _show_query(spark, places, console)
    return _show_verdict(places, verified, console)


def write_conf(run: Invocation, home: Path, address: str) -> Invocation:
    """Write ``home``/conf for a source at ``address``, and return an invocation that uses only these settings.

    The user's Spark options are copied, since Spark may not start without them. The user's warehouse and feeds are not,
    whether from files or from environment variables.

    Raises:
        ConfigError: One of the user's settings is invalid.
    """
    conf = home / "conf"
    (conf / "feeds").mkdir(parents=True)
    spark = (f"{json.dumps(name)} = {_toml(value)}" for name, value in run.settings().spark.items())
    settings = [f"warehouse = {_toml(str(home / 'warehouse'))}", "", "[spark]", *spark, ""]
    (conf / "settings.toml").write_text("\n".join(settings), encoding="utf-8")
    (conf / "feeds" / f"{FEED}.toml").write_text(FEED_SETTINGS.format(address=address), encoding="utf-8")
    environ = {name: value for name, value in run.environ.items() if not name.upper().startswith("SILVERFOLD_")}
    return Invocation(conf_dir=conf, env=run.env, environ=environ)


def _toml(value: str | Secret) -> str:
    """Return a TOML literal, which for these strings is the JSON literal."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return (
        f"{{ {', '.join(f'{name} = {_toml(where)}' for name, where in value.model_dump(exclude_none=True).items())} }}"
    )


def _say(console: Console, began: float, text: str) -> None:
    """Print one line with the time since the start."""
    console.print(Text(f"{time.monotonic() - began:6.1f} s  {text}"))


def _serve(rows: int, cleanup: ExitStack) -> tuple[TableServer, Sequence[Changer]]:
    """Make the tables and start a server that exports them; return it, and what changes them."""
    source = cleanup.enter_context(TableServer.start())
    changers = []
    for name, table in TABLES.items():
        seed = f"{_SEED}/{name}"
        live = table.filled(rows, Random(seed))  # noqa: S311 - repeatable, not secret
        source.export_table(table.source, live)
        changers.append(Changer(live, seed, numbered=table.keys))
    return source, changers


@contextmanager
def _receiving(ours: Invocation, log: Path, longest: float) -> Iterator[Receiver]:
    """Run ``receive`` in a process of its own, which ends after ``longest`` seconds if nothing stops it."""
    # -P: a folder named like ours in the user's current directory must not shadow it.
    command = [sys.executable, "-P", "-m", "silverfold.jobs.receive", "--conf", str(ours.conf_dir), "--env", ours.env]
    with (
        log.open("wb") as out,
        # A session of its own: Ctrl-C in the terminal reaches only the demo, which then stops the receiver.
        subprocess.Popen(  # noqa: S603 - our own module, our own arguments
            [*command, FEED, "--for", str(longest)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=ours.environ,
            start_new_session=True,
        ) as receiver,
    ):
        try:
            yield receiver
        finally:
            _stop(receiver)


def _stop(receiver: Receiver) -> int:
    """Terminate the receiver, or kill it if it does not end in time; return its exit code."""
    receiver.terminate()
    try:
        return receiver.wait(_STOPPED_WITHIN)
    except subprocess.TimeoutExpired:
        receiver.kill()
        return receiver.wait()


def _follow(
    settings: Settings, connector: Connector, feed: Feed, cleanup: ExitStack
) -> tuple[SparkSession, Future[Mapping[tuple[str, str], SilverfoldError]], threading.Event]:
    """Start Spark, and a thread that does as ``build --follow`` until the event is set."""
    elsewhere = cleanup.enter_context(ThreadPoolExecutor(1, "demo-build"))  # ended last: without Spark its steps end
    spark = start_spark(settings, app="silverfold demo")
    cleanup.callback(stop_spark, spark)
    build = cleanup.enter_context(FeedBuild.open(lambda: spark, settings, connector, feed))
    build.refresh()
    stop = threading.Event()
    cleanup.callback(stop.set)
    return spark, elsewhere.submit(follow_feeds, [build], stop, follow=True), stop


def _change(
    changers: Sequence[Changer],
    receiver: Receiver,
    following: Future[Any],
    seconds: float,
    *,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Change the tables for some seconds, unless ``until`` is true before.

    Raises:
        CalledProcessError: The receiver has ended; if it is the build that has, its error is raised.
    """

    def waited(pause: float) -> bool:
        time.sleep(pause)
        if following.done():
            following.result()
        if receiver.poll() is not None:
            raise subprocess.CalledProcessError(receiver.returncode, receiver.args)
        return until()

    change_steadily(changers, Rate(CHANGES_PER_SECOND, seconds), clock=time.monotonic, stopped_within=waited)


def _looking(places: Places, connector: Connector, feed: Feed) -> Callable[[], Group | Text]:
    """Return a function that returns what ``status`` shows, as of the last time that all tables could be read."""
    last: Group | Text = Text()

    def look() -> Group | Text:
        nonlocal last
        now = datetime.now(UTC)
        with suppress(StoreUnavailable):  # a table between two states; the next look succeeds
            last = picture(read_status(places, connector, feed, now=now), now)
        return last

    return look


def _is_built(places: Places) -> bool:
    return all(position_reached(places, FEED, name) >= 0 for name in TABLES)


def _show_query(spark: SparkSession, places: Places, console: Console) -> None:
    """Print what ``sql`` shows of a query."""
    console.print(Text(f"\nA query over silver:\n{QUERY.strip()}", "bold"))
    views = register_views(spark, places, {FEED: list(TABLES)})
    write(ask(spark, QUERY, limit=100, views=views), Format.TABLE, sys.stdout)


def _show_verdict(places: Places, verified: Sequence[TableVerification], console: Console) -> bool:
    """Print what ``verify --against-source`` shows; return whether all tables are equal."""
    console.print(Text("\nSilver, read without Spark, against the source's own rows:", "bold"))
    found = summarize(places, FEED, "source", verified, datetime.now(UTC))
    show(found, sys.stdout)
    verdict = ("Silver is the source, cell for cell.", "green") if found.equal else ("Silver is not the source.", "red")
    console.print(Text(*verdict))
    return found.equal
