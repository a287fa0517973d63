"""Passes a subscription's updates from the thread that finds them to the one that consumes them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.verification import ReferenceUpdate


class UpdateQueue:
    """Updates found but not yet taken, in order, and the error that ended them. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._updates: deque[ReferenceUpdate] = deque()
        self._error: SilverfoldError | None = None

    def put(self, update: ReferenceUpdate) -> None:
        """Append an update."""
        with self._condition:
            self._updates.append(update)
            self._condition.notify_all()

    def end(self, error: SilverfoldError) -> None:
        """Set the error after which no update follows."""
        with self._condition:
            self._error = error
            self._condition.notify_all()

    def take(self, seconds: float) -> Sequence[ReferenceUpdate]:
        """Return the updates put since the last call; see `connectors.verification.SourceSubscription.take`.

        Raises:
            SilverfoldError: The error passed to `end`, once all updates are taken.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._updates or self._error, seconds)
            if not self._updates and self._error is not None:
                raise self._error
            taken = list(self._updates)
            self._updates.clear()
        return taken
