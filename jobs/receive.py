"""``silverfold receive``: the process that owns a feed's connection and lands what comes. It loads no Spark."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from random import SystemRandom
from typing import Annotated

import structlog
import typer

from conf.model import Settings
from connectors.base import Connector, Feed
from jobs.cli import main_of
from jobs.context import invocation
from pipelines.places import Places
from pipelines.receiving import receive as receive_feed

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def receive(
    ctx: typer.Context,
    feed: Annotated[str, typer.Argument(help="Name of the feed: its file is feeds/FEED.toml.")],
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0.0, help="End after this time; without it, never.")
    ] = None,
) -> None:
    """Land a feed's frames in bronze, until stopped.

    SIGINT and SIGTERM stop it with everything received landed; a second signal ends it at once. A lost connection
    is made anew for as long as it takes. Exit code 4 when another receiver took the feed over.
    """
    settings = invocation(ctx).settings()
    connector, opened = invocation(ctx).feed(feed, settings)
    rest_the_collector()
    asyncio.run(until_stopped(connector, opened, settings, seconds))


def rest_the_collector() -> None:
    """Let Python look for cycles a hundred times less often than it does: frames come in masses, and are in none."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def until_stopped(connector: Connector, feed: Feed, settings: Settings, seconds: float | None = None) -> int:
    """Receive until a signal comes or the time is over; return the last landed position. Raises as `receive_feed`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, end)
    if seconds is not None:
        loop.call_later(seconds, stop.set)
    return await receive_feed(
        feed,
        connector,
        Places(settings.warehouse, settings.storage()),
        stop=stop,
        clock=lambda: time.time_ns() // 1000,
        rng=SystemRandom(),
        log=structlog.get_logger("receive"),
    )


if __name__ == "__main__":
    main_of("receive")
