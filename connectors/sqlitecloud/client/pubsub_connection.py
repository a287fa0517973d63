"""Notifications from the second connection of a session, in order and without loss."""

from __future__ import annotations

from silverfold.conf.errors import LocalProtocolError, ProtocolError, SourceUnavailable
from silverfold.connectors.common.transport import Connection
from silverfold.connectors.sqlitecloud.client.event_reader import EventReader
from silverfold.connectors.sqlitecloud.client.main_connection import broken
from silverfold.connectors.sqlitecloud.protocol.connection import PubSubStream
from silverfold.connectors.sqlitecloud.protocol.messages import (
    BadFrame,
    ConnectionEnded,
    Notification,
    PauthAccepted,
    PubSubEvent,
    PubSubTicket,
    RequestRefused,
)


class PubSubConnection:
    """The second connection. Nothing is read ahead: a slow reader slows the server down."""

    def __init__(self, connection: Connection, stream: PubSubStream, *, frame_timeout: float) -> None:
        self.connection, self._stream = connection, stream
        self._reader: EventReader[PubSubEvent] = EventReader(connection, stream, frame_timeout=frame_timeout)
        self._is_read = False
        self._end: ProtocolError | SourceUnavailable | None = None
        self.bad: BadFrame | None = None
        """The unreadable input, once that has ended the connection."""

    async def open(self, ticket: PubSubTicket, patience: float) -> None:
        """Send the ticket unaltered, and wait until it is accepted.

        Raises:
            StatementRefused: The server does not accept it.
            SourceUnavailable, RemoteProtocolError: The connection is over.
        """
        self.connection.write(self._stream.send(ticket))
        event = await self._reader.next_event(patience)
        if isinstance(event, RequestRefused):
            raise event.error
        if not isinstance(event, PauthAccepted):
            self._note_end(event)
            assert self._end is not None
            raise self._end

    async def next_notifications(self) -> list[Notification]:
        """Return all notifications since the last call, waiting for at least one. Cancelling loses none.

        Raises:
            LocalProtocolError: Another task is waiting for notifications.
            SourceUnavailable, RemoteProtocolError: The connection is over, and everything before was delivered.
        """
        if self._is_read:
            raise LocalProtocolError("another task hears the notifications")
        self._is_read = True
        try:
            while self._end is None:
                events = await self._reader.events()
                self._note_end(events[-1])
                if notifications := [event for event in events if isinstance(event, Notification)]:
                    return notifications
        finally:
            self._is_read = False
        raise self._end.with_traceback(None)

    def arrived(self) -> list[Notification]:
        """Return the arrived, undelivered notifications without waiting."""
        notifications: list[Notification] = []
        while self._end is None and (events := self._reader.arrived()):
            self._note_end(events[-1])
            notifications += [event for event in events if isinstance(event, Notification)]
        return notifications

    def _note_end(self, event: PubSubEvent) -> None:
        if isinstance(event, ConnectionEnded):
            self._end = SourceUnavailable("the server closed the pub/sub connection")
        elif isinstance(event, BadFrame):
            self.bad, self._end = event, broken(event)
