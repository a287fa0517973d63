"""Hands a watch's updates from the thread that finds them to the one that takes them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from conf.errors import SilverfoldError
from connectors.base import ReferenceUpdate


class UpdateQueue:
    """Updates that were found and not taken yet, in order, and why there will be no more. For any threads."""

    def __init__(self) -> None:
        self._come = threading.Condition()
        self._updates: deque[ReferenceUpdate] = deque()
        self._error: SilverfoldError | None = None

    def put(self, update: ReferenceUpdate) -> None:
        """Hand an update over."""
        with self._come:
            self._updates.append(update)
            self._come.notify_all()

    def end(self, error: SilverfoldError) -> None:
        """Say why nothing more will be put."""
        with self._come:
            self._error = error
            self._come.notify_all()

    def take(self, seconds: float) -> Sequence[ReferenceUpdate]:
        """Return what was put since the last call; see `connectors.base.SourceSubscription.take`.

        Raises:
            SilverfoldError: What `end` was told, once all that was put is taken.
        """
        with self._come:
            self._come.wait_for(lambda: self._updates or self._error, seconds)
            if not self._updates and self._error is not None:
                raise self._error
            taken = list(self._updates)
            self._updates.clear()
        return taken
