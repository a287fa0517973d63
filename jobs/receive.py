"""``silverfold receive``: owns the connections of feeds and lands their frames. Never loads Spark."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import SystemRandom
from types import MappingProxyType
from typing import Annotated

import structlog
import typer

from silverfold.conf.errors import ConfigError, SilverfoldError
from silverfold.conf.model import Settings
from silverfold.conf.unix_time import now_micros
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.stopping import end_at_next_signal, ending
from silverfold.connectors.common.transport import Address
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import Every, Names, invocation
from silverfold.jobs.metrics import require_extra
from silverfold.pipelines.landing.receiving import receive as receive_feed
from silverfold.pipelines.landing.totals import LandingTotals
from silverfold.pipelines.places import places_of


def receive(
    ctx: typer.Context,
    feeds: Names = None,
    every: Every = False,
    *,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0.0, help="End after this time; without it, never.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Serve counters to Prometheus on this TCP port; 0: any free.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve them on, without authentication.")] = "127.0.0.1",
) -> None:
    """Land the frames of some feeds in bronze, until stopped.

    SIGINT and SIGTERM stop it with everything received landed; a second signal ends it at once. A lost connection
    is made anew for as long as it takes. Exit code 4 when another receiver took a feed over. Of several feeds, one
    that ends is logged, and the others go on; a mistake in the settings of any is told before one begins.
    """
    settings = invocation(ctx).settings()
    opened = invocation(ctx).chosen_feeds(settings, feeds, every)
    totals = {feed.name: _totals(connector, feed) for connector, feed in opened}
    if metrics_port is not None:
        _check_apart(opened, Address(metrics_host, metrics_port))
    with _counters_served(totals, metrics_host, metrics_port):
        collect_rarely()
        asyncio.run(until_stopped(opened, settings, seconds, totals))


def _totals(connector: Connector, feed: Feed) -> LandingTotals:
    """Return the totals of a feed of which nothing has come yet."""
    return LandingTotals(snapshots=dict.fromkeys((connector.stream(feed, table) for table in feed.tables), False))


def _check_apart(feeds: Sequence[tuple[Connector, Feed]], metrics: Address) -> None:
    """Raise ConfigError if metrics are to be served where a feed listens."""
    for connector, feed in feeds:
        here = connector.listens_at(feed)
        if here is not None and here.meets(metrics):
            allowed = f"another port: the feed {feed.name} listens there"
            raise ConfigError(file="command line", key="--metrics-port", found=metrics.port, allowed=allowed)


@contextmanager
def _counters_served(totals: Mapping[str, LandingTotals], host: str, port: int | None) -> Iterator[None]:
    """Serve the totals of each feed to Prometheus in the block, if there is a port to do so."""
    if port is None:
        yield
        return
    require_extra("--metrics-port", port)
    from silverfold.jobs.metrics.collectors import ReceiverCollector  # noqa: PLC0415 - needs an extra
    from silverfold.jobs.metrics.exposition import served  # noqa: PLC0415 - as above

    with served(ReceiverCollector(totals), host, port, option="--metrics-port") as address:
        structlog.get_logger("receive").info("serving metrics", address=address)
        yield


def collect_rarely() -> None:
    """Make cyclic garbage collection a hundred times rarer: frames are many, and never part of cycles."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def until_stopped(
    feeds: Sequence[tuple[Connector, Feed]],
    settings: Settings,
    seconds: float | None = None,
    totals: Mapping[str, LandingTotals] = MappingProxyType({}),
) -> None:
    """Receive until a signal arrives, the time is over, or every feed has ended.

    Once all feeds have ended, raise the error of the first one that failed (see `receive_feed`).

    Args:
        totals: Counts what comes of feeds, by name.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        for number in ending():
            loop.remove_signal_handler(number)
        end_at_next_signal()

    for number in ending():
        loop.add_signal_handler(number, end)
    if seconds is not None:
        loop.call_later(seconds, stop.set)
    log = structlog.get_logger("receive")
    ended: list[Exception] = []

    async def received(connector: Connector, feed: Feed) -> None:
        places = places_of(settings)
        try:
            await receive_feed(
                feed,
                connector,
                places,
                stop=stop,
                clock=now_micros,
                rng=SystemRandom(),
                log=log,
                totals=totals.get(feed.name),
            )
        except SilverfoldError as error:
            ended.append(error)
            if len(feeds) > 1:
                log.error("feed ended", feed=feed.name, error_class=error.error_class, reason=str(error))
        except Exception as bug:  # a bug in one feed must not affect the others
            ended.append(bug)
            if len(feeds) > 1:
                log.error("feed ended", feed=feed.name, exc_info=bug)

    async with asyncio.TaskGroup() as group:
        for connector, feed in feeds:
            group.create_task(received(connector, feed))
    if ended:
        raise ended[0]


if __name__ == "__main__":
    main_of("receive")
