"""Feeds received from a source in the test's own process, such as a connector's server, and built."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from silverfold.conf.unix_time import now_micros
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.registry import open_feed
from silverfold.jobs.testing.recorded import in_warehouse
from silverfold.jobs.testing.silver import SilverFeed
from silverfold.pipelines.landing.receiving import PATIENCE, receive
from silverfold.pipelines.logs import get_logger
from silverfold.pipelines.places import Places, places_of
from silverfold.pipelines.project import Project, open_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE = 0.1
"""Seconds between builds, and for which the source is compared with silver each time."""


@contextmanager
def simulated(
    spark: SparkSession, conf: str | Path, feed: str, address: str, warehouse: str | Path
) -> Iterator[SimulatedFeed]:
    """Receive a feed, in a thread, from a source at an address, until the block ends.

    The source is the test's: a server of the feed's connector, which listens on a free port::

        with (
            TableServer.start() as source,
            simulated(spark, "my", "market", f"127.0.0.1:{source.port}", warehouse) as market,
        ):
            source.export_table("Quotes", quotes)
            market.catch_up()
            assert_silver_equals(spark, market, "quotes", [{"Sym": "AAPL", "Bid": 11}])

    At the end all that was received is in bronze.

    Args:
        spark: Session that builds, and stays as it is.
        conf: Folder of the project's settings. Of these the warehouse, ``storage_options`` and ``spark`` do not apply.
        address: What the feed has as its ``address`` here.
        warehouse: Folder for the tables.

    Raises:
        ConfigError: A setting is wrong.
        SilverfoldError: At the end of the block: the receiver has ended with this error.
    """
    settings = in_warehouse(open_project(conf).settings, warehouse)
    if feed in settings.feeds:  # else `open_feed` says so
        own = settings.feeds[feed].model_copy(update={"address": address})
        settings = settings.model_copy(update={"feeds": {**settings.feeds, feed: own}})
    connector, opened = open_feed(feed, settings)
    receiver = ReceiverThread(opened, connector, places_of(settings))
    try:
        yield SimulatedFeed(Project(settings, spark), feed, receiver=receiver)
    finally:
        receiver.stop()


@dataclass(frozen=True)
class SimulatedFeed(SilverFeed):
    """A feed that is received while the block of `simulated` runs."""

    receiver: ReceiverThread = field(kw_only=True)

    def catch_up(self, until: Callable[[], bool] | None = None, *, patience: float = 60.0) -> None:
        """Build what lands until silver is what the source has, which is to be at rest. Runs Spark jobs.

        Args:
            until: Returns whether enough is built. Needed for a source that is not at rest, or that silver cannot be
                compared with. By default `Project.verify` compares all tables with the source.
            patience: Seconds after which it gives up.

        Raises:
            AssertionError: It has given up. The message says why tables hold, or are not equal to the source's.
            SilverfoldError: The receiver has ended with this error, or the source cannot be reached.
        """
        end = time.monotonic() + patience
        while True:
            self.receiver.check()
            built = self.project.build(self.name)
            reasons = {each.table: each.fault.reason for each in built.feeds[0].tables if each.fault is not None}
            if until is None:
                found = self.project.verify(self.name, against_source=True, patience=_PAUSE)
                is_done = found.equal
                reasons = {each.table: each.reason or each.verdict.value for each in found.tables} | reasons
            else:
                is_done = until()
            if is_done:
                return
            if time.monotonic() > end:
                ways_on = "; until=… tells what else to wait for" if until is None else ""
                raise AssertionError(f"feed {self.name} has not caught up in {patience} s: {reasons}{ways_on}")
            time.sleep(_PAUSE)


class ReceiverThread:
    """A feed's receiver in a thread, which runs from construction on.

    Args:
        rng: Spreads waits between connections, and names what the receiver writes.
        log: By default `pipelines.logs`.
    """

    def __init__(
        self,
        feed: Feed,
        connector: Connector,
        places: Places,
        rng: Random | None = None,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._work = receive(
            feed,
            connector,
            places,
            stop=self._stop,
            clock=now_micros,
            rng=rng or SystemRandom(),
            log=log or get_logger("receive"),
        )
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"silverfold receive {feed.name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error with which it has ended, if any."""
        if self._failed is not None:
            raise self._failed

    def stop(self) -> None:
        """Stop in order: everything received is in bronze. Safe to repeat.

        Raises:
            SilverfoldError: It has ended before, with this error.
        """
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(2 * PATIENCE)
        self.check()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work)
        except BaseException as error:
            self._failed = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
