"""Reader of one of a session's connections: yields its stream's events, and limits the time per frame."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

from silverfold.conf.errors import SourceUnavailable
from silverfold.connectors.common.transport import Connection
from silverfold.connectors.sqlitecloud.protocol.messages import BadFrame, ConnectionEnded
from silverfold.connectors.sqlitecloud.protocol.streams import Stream

_Event = TypeVar("_Event")


class EventReader(Generic[_Event]):
    """A connection and its stream, read by one task at a time.

    Nothing is read ahead: unrequested data stays in the connection, up to its bound, and then at the sender. Cancelling
    a waiting reader loses nothing.

    Args:
        frame_timeout: Seconds within which a started frame must be complete.
    """

    def __init__(self, connection: Connection, stream: Stream[_Event], *, frame_timeout: float) -> None:
        self._connection, self._stream = connection, stream
        self._frame_timeout = frame_timeout
        self._frame_started: float | None = None

    async def next_event(self, patience: float | None = None) -> _Event | BadFrame | ConnectionEnded:
        """Return the next event. There is none after `ConnectionEnded`.

        Args:
            patience: Seconds within which something must arrive; None waits forever.

        Raises:
            SourceUnavailable: Nothing arrived in time, a frame was not completed in time, or the connection broke.
        """
        while (event := self._stream.next_event()) is None:
            await self._receive(patience)
        self._frame_started = None
        return event

    async def events(self, patience: float | None = None) -> list[_Event | BadFrame | ConnectionEnded]:
        """Return all available events, waiting for at least one. Raise as `next_event` does."""
        return self._with_following(await self.next_event(patience))

    def arrived(self) -> list[_Event | BadFrame | ConnectionEnded]:
        """Return all complete events that have arrived, without waiting."""
        if (event := self._stream.next_event()) is None and (chunk := self._connection.arrived()):
            self._stream.receive(chunk)
            event = self._stream.next_event()
        return [] if event is None else self._with_following(event)

    def _with_following(self, first: _Event | BadFrame | ConnectionEnded) -> list[_Event | BadFrame | ConnectionEnded]:
        events = [first]
        while not isinstance(events[-1], BadFrame) and (event := self._stream.next_event()) is not None:
            events.append(event)
        return events

    async def _receive(self, patience: float | None = None) -> None:
        self._frame_started = (self._frame_started or time.monotonic()) if self._stream.held else None
        try:
            chunk = await self._connection.read(self._wait(patience))
        except TimeoutError:
            raise SourceUnavailable(self._timeout_message(patience)) from None
        if chunk:
            self._stream.receive(chunk)
        else:
            self._stream.receive_eof()

    def _wait(self, patience: float | None) -> float | None:
        if self._frame_started is None:
            return patience
        left = max(0.0, self._frame_started + self._frame_timeout - time.monotonic())
        return left if patience is None else min(left, patience)

    def _timeout_message(self, patience: float | None) -> str:
        if self._frame_started is None:
            return f"no answer within {patience:g} s"
        if self._wait(patience) == 0.0:
            return f"a frame did not come to its end within {self._frame_timeout:g} s"
        return f"part of a frame came, and nothing more within {patience:g} s"
