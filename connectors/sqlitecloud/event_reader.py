"""Reads one of a session's connections: the events of its stream as they come, and no frame that takes for ever."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

from conf.errors import SourceUnavailable
from connectors.sqlitecloud.messages import BadFrame, ConnectionEnded
from connectors.sqlitecloud.streams import Stream
from connectors.transport import Connection

_Event = TypeVar("_Event")


class EventReader(Generic[_Event]):
    """A connection, and the stream that is read from it by one task at a time.

    Nothing is read ahead of who asks: what is not asked for waits in the connection, up to its bound, and then at the
    sender. Cancelling who waits loses nothing.

    Args:
        frame_timeout: Seconds within which a frame that has begun must be there.
    """

    def __init__(self, connection: Connection, stream: Stream[_Event], *, frame_timeout: float) -> None:
        self._connection, self._stream = connection, stream
        self._frame_timeout = frame_timeout
        self._begun: float | None = None

    async def next_event(self, patience: float | None = None) -> _Event | BadFrame | ConnectionEnded:
        """Return the next event. After `ConnectionEnded` there is none.

        Args:
            patience: Seconds in which something must arrive; None waits for ever.

        Raises:
            SourceUnavailable: Nothing came in time, a frame did not come to its end in time, or the connection broke.
        """
        while (event := self._stream.next_event()) is None:
            await self._more(patience)
        self._begun = None
        return event

    async def events(self, patience: float | None = None) -> list[_Event | BadFrame | ConnectionEnded]:
        """Return all events there are, at least one. Raises as `next_event`."""
        return self._and_all_behind(await self.next_event(patience))

    def arrived(self) -> list[_Event | BadFrame | ConnectionEnded]:
        """Return all events that have arrived, without waiting; none when there are none, or no whole one."""
        if (event := self._stream.next_event()) is None and (chunk := self._connection.arrived()):
            self._stream.receive(chunk)
            event = self._stream.next_event()
        return [] if event is None else self._and_all_behind(event)

    def _and_all_behind(self, first: _Event | BadFrame | ConnectionEnded) -> list[_Event | BadFrame | ConnectionEnded]:
        events = [first]
        while not isinstance(events[-1], BadFrame) and (event := self._stream.next_event()) is not None:
            events.append(event)
        return events

    async def _more(self, patience: float | None = None) -> None:
        self._begun = (self._begun or time.monotonic()) if self._stream.held else None
        try:
            chunk = await self._connection.read(self._wait(patience))
        except TimeoutError:
            raise SourceUnavailable(self._silence(patience)) from None
        if chunk:
            self._stream.receive(chunk)
        else:
            self._stream.receive_eof()

    def _wait(self, patience: float | None) -> float | None:
        if self._begun is None:
            return patience
        left = max(0.0, self._begun + self._frame_timeout - time.monotonic())
        return left if patience is None else min(left, patience)

    def _silence(self, patience: float | None) -> str:
        if self._begun is not None and self._wait(patience) == 0.0:
            return f"a frame did not come to its end within {self._frame_timeout:g} s"
        return f"no answer within {patience:g} s"
