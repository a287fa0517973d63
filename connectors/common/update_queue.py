"""Runs a subscription in a thread of its own, and passes its updates to the one that consumes them."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Self

from silverfold.conf.errors import RemoteProtocolError, SilverfoldError, SourceUnavailable, WireError
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


class LoopSubscription(ABC):
    """Base of a `connectors.verification.SourceSubscription` that runs in a loop and a thread of its own.

    Entering its ``with`` block waits until `_subscribe` has set ``connected``; updates arrive while the block runs.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._updates = UpdateQueue()
        self._connected: Future[None] = Future()

    @abstractmethod
    async def _subscribe(self) -> None:
        """Connect, set ``_connected``, then put updates until cancelled, or until an error ends them."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._subscribe())
        self._thread = threading.Thread(target=self._run, name=f"watch-{self._stream}", daemon=True)
        self._thread.start()
        try:
            self._connected.result()
        except SilverfoldError:
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def take(self, seconds: float) -> Sequence[ReferenceUpdate]:
        """Return the complete updates since the last call; see `connectors.verification.SourceSubscription.take`."""
        return self._updates.take(seconds)

    def _run(self) -> None:
        error: SilverfoldError = SourceUnavailable("the watch has ended")
        try:
            self._loop.run_until_complete(self._task)
        except WireError as raised:
            error = RemoteProtocolError(str(raised), stream=self._stream)
        except SilverfoldError as raised:
            error = raised
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()
            self._updates.end(error)
            if not self._connected.done():
                self._connected.set_exception(error)
