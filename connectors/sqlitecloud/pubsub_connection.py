"""Hears notifications on the second connection of a session, in order, losing none."""

from __future__ import annotations

from conf.errors import LocalProtocolError, ProtocolError, SourceUnavailable
from connectors.sqlitecloud.event_reader import EventReader
from connectors.sqlitecloud.main_connection import broken
from connectors.sqlitecloud.messages import (
    BadFrame,
    ConnectionEnded,
    Notification,
    PauthAccepted,
    PubSubEvent,
    PubSubTicket,
    RequestRefused,
)
from connectors.sqlitecloud.protocol import PubSubStream
from connectors.transport import Connection


class PubSubConnection:
    """The second connection. Nothing is read ahead of who hears: a slow one slows the server down."""

    def __init__(self, connection: Connection, stream: PubSubStream, *, frame_timeout: float) -> None:
        self.connection, self._stream = connection, stream
        self._line: EventReader[PubSubEvent] = EventReader(connection, stream, frame_timeout=frame_timeout)
        self._is_heard = False
        self._end: ProtocolError | SourceUnavailable | None = None
        self.bad: BadFrame | None = None
        """What could not be read, once that ended the connection."""

    async def open(self, ticket: PubSubTicket, patience: float) -> None:
        """Show the ticket, which is sent as it came, and wait until it is accepted.

        Raises:
            StatementRefused: The server does not accept it.
            SourceUnavailable, RemoteProtocolError: The connection is over.
        """
        self.connection.write(self._stream.send(ticket))
        event = await self._line.next_event(patience)
        if isinstance(event, RequestRefused):
            raise event.error
        if not isinstance(event, PauthAccepted):
            self._note_end(event)
            assert self._end is not None
            raise self._end

    async def hear(self) -> list[Notification]:
        """Return what has come since the last call, at least one notification. Cancelling loses none.

        Raises:
            LocalProtocolError: Another task is hearing.
            SourceUnavailable, RemoteProtocolError: The connection is over, and all was heard that came before.
        """
        if self._is_heard:
            raise LocalProtocolError("another task hears the notifications")
        self._is_heard = True
        try:
            while self._end is None:
                events = await self._line.events()
                self._note_end(events[-1])
                if heard := [event for event in events if isinstance(event, Notification)]:
                    return heard
        finally:
            self._is_heard = False
        raise self._end.with_traceback(None)

    def arrived(self) -> list[Notification]:
        """Return what has arrived and was not heard yet, without waiting."""
        heard: list[Notification] = []
        while self._end is None and (events := self._line.arrived()):
            self._note_end(events[-1])
            heard += [event for event in events if isinstance(event, Notification)]
        return heard

    def _note_end(self, event: PubSubEvent) -> None:
        if isinstance(event, ConnectionEnded):
            self._end = SourceUnavailable("the server closed the pub/sub connection")
        elif isinstance(event, BadFrame):
            self.bad, self._end = event, broken(event)
