"""Sends one message to many connections. It is encoded once, and a slow member delays no other."""

from __future__ import annotations

import asyncio

import structlog

from silverfold.conf.errors import OversizedMessage, SilverfoldError
from silverfold.connectors.tengi.protocol.heads import encode_message
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, TypeRegistry
from silverfold.connectors.tengi.protocol.values import Message
from silverfold.connectors.tengi.transports.connection import Connection
from silverfold.connectors.tengi.transports.listeners import ConnectionListener, Registration


class Broadcaster(ConnectionListener):
    """A group of connections. Ended ones leave it; one whose queue is full is ended at once, and its queue dropped.

    Args:
        types: User types of the members: the ``types`` of their server's configuration.
    """

    def __init__(self, types: TypeRegistry = BUILT_IN) -> None:
        self._types = types
        self._members: dict[Connection, Registration] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("tengi.broadcaster")

    @property
    def members(self) -> list[Connection]:
        """The connections, in the order they were added."""
        return list(self._members)

    def add(self, connection: Connection) -> None:
        """Add a member, unless its connection has ended. Safe to repeat."""
        if connection not in self._members and not connection.has_ended:
            self._members[connection] = connection.add_connection_listener(self)

    def remove(self, connection: Connection) -> None:
        """Remove a member. Safe to repeat; the connection stays open."""
        registration = self._members.pop(connection, None)
        if registration is not None:
            registration.remove()

    def send(self, value: object) -> Message:
        """Queue an object for each member, without waiting, and return its message.

        Raises:
            InvalidValue: The value, such as None, is no object of tengi's. Nothing is sent.
            OversizedMessage: The packet exceeds a member's limit. That member stays; the others get the message.
        """
        message = value if isinstance(value, Message) else Message.create(value)
        encoded = encode_message(message, self._types)
        refusal: OversizedMessage | None = None
        for connection in self.members:
            try:
                if not connection.offer_encoded(encoded):
                    self._drop(connection)
            except OversizedMessage as error:
                refusal = error
            except SilverfoldError:  # it is ending, and sends what is queued
                self.remove(connection)
        if refusal is not None:
            raise refusal
        return message

    def on_closed(self, connection: Connection) -> None:
        """See `ConnectionListener.on_closed`."""
        self.remove(connection)

    def _drop(self, connection: Connection) -> None:
        self._log.warning("member_dropped", connection=str(connection.id), reason="it is too slow")
        self.remove(connection)
        task = asyncio.create_task(connection.abort())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
