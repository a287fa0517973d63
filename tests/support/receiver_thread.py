"""Runs a feed's receiver in its own thread; stops it gracefully or lets it die."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.landing.receiving import receive
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from tests.support.deaths import Died, dying
from tests.support.landing import LOG

PATIENCE = 30.0


class ReceiverThread:
    """A receiver that runs from construction on."""

    def __init__(self, feed: Feed, connector: Connector, places: Places, rng: Random) -> None:
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._work = receive(
            feed,
            connector,
            places,
            stop=self._stop,
            clock=lambda: time.time_ns() // 1_000,
            rng=Random(rng.random()),
            log=LOG,
        )
        self._failed: BaseException | None = None
        self._loop.set_exception_handler(lambda *_: None)  # ignore what a simulated death leaves behind
        self._thread = threading.Thread(target=self._lands)
        self._thread.start()

    def stop(self) -> None:
        """Stop gracefully: everything received is in bronze. The receiver must not have failed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE)
        if self._failed is not None:
            raise self._failed

    @contextmanager
    def dies(self, *, after: bool) -> Iterator[None]:
        """Let it die before or after its next commit, losing what it has in memory.

        The end of the block waits for the death, so something must be received inside it.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BronzeWriter, "append", dying(BronzeWriter.append, after))
            yield
            self._thread.join(PATIENCE)
        assert isinstance(self._failed, Died), self._failed

    def _lands(self) -> None:
        try:
            self._loop.run_until_complete(self._work)
        except BaseException as error:
            self._failed = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
