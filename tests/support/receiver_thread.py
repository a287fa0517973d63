"""Runs a feed's receiver in its own thread; stops it gracefully or lets it die."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from silverfold.connectors.base import Connector, Feed
from silverfold.jobs.testing import simulated
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from tests.support.deaths import Died, dying
from tests.support.landing import LOG

PATIENCE = 30.0


class ReceiverThread(simulated.ReceiverThread):
    """A receiver that logs nothing and may die."""

    def __init__(self, feed: Feed, connector: Connector, places: Places, rng: Random) -> None:
        super().__init__(feed, connector, places, Random(rng.random()), LOG)
        self._loop.set_exception_handler(lambda *_: None)  # ignore what a simulated death leaves behind

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
