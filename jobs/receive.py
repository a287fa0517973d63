"""``silverfold receive``: owns the connections of feeds and lands their frames. Never loads Spark."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from random import SystemRandom
from typing import Annotated

import structlog
import typer

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.model import Settings
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.common.stopping import end_at_next_signal, ending
from silverfold.jobs.cli import main_of
from silverfold.jobs.common.context import Every, Names, invocation
from silverfold.pipelines.landing.receiving import receive as receive_feed
from silverfold.pipelines.places import places_of


def receive(
    ctx: typer.Context,
    feeds: Names = None,
    every: Every = False,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0.0, help="End after this time; without it, never.")
    ] = None,
) -> None:
    """Land the frames of some feeds in bronze, until stopped.

    SIGINT and SIGTERM stop it with everything received landed; a second signal ends it at once. A lost connection
    is made anew for as long as it takes. Exit code 4 when another receiver took a feed over. Of several feeds, one
    that ends is logged, and the others go on.
    """
    settings = invocation(ctx).settings()
    opened = invocation(ctx).chosen_feeds(settings, feeds, every)
    collect_rarely()
    asyncio.run(until_stopped(opened, settings, seconds))


def collect_rarely() -> None:
    """Make cyclic garbage collection a hundred times rarer: frames are many, and never part of cycles."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def until_stopped(
    feeds: Sequence[tuple[Connector, Feed]], settings: Settings, seconds: float | None = None
) -> None:
    """Receive until a signal arrives, the time is over, or every feed has ended.

    Once all feeds have ended, raise the error of the first one that failed (see `receive_feed`).
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
            await receive_feed(feed, connector, places, stop=stop, clock=_microseconds, rng=SystemRandom(), log=log)
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


def _microseconds() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    main_of("receive")
