"""Subscriptions of all sessions, and delivery of commits and messages to them.

A session receives notifications in the order in which the server published them, across all its subscriptions:
publishers hold the database's `order` lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from silverfold.connectors.sqlitecloud.protocol.encode import encode_json, encode_text
from silverfold.connectors.sqlitecloud.protocol.statements import ALL
from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.capture import TableChanges
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import message_text, sender_text, table_text


class Topic(NamedTuple):
    """A subscription target."""

    name: str
    """A channel name; or a lower-case table name, or `ALL`."""
    database: str | None = None
    """The database of a table, or of a channel where each database has its own channels."""
    is_table: bool = False


class Subscriber(Protocol):
    """A listening session."""

    uuid: str

    def deliver(self, frame: bytes) -> None:
        """Receive a notification. Called from any thread; may block."""


class Broker:
    """The subscriptions of all sessions and the channels created so far. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[Topic, None] = {}
        self._subscriptions: dict[Topic, dict[Subscriber, None]] = {}

    def listen(self, subscriber: Subscriber, topic: Topic) -> None:
        """Subscribe a session to a topic. Idempotent."""
        with self._lock:
            self._subscriptions.setdefault(topic, {})[subscriber] = None

    def unlisten(self, subscriber: Subscriber, *topics: Topic) -> None:
        """Unsubscribe a session from the given topics, or from all if none is given."""
        with self._lock:
            self._forget(subscriber, topics or tuple(self._subscriptions))

    def unlisten_tables(self, subscriber: Subscriber, database: str | None) -> None:
        """Unsubscribe a session from all tables of a database."""
        with self._lock:
            self._forget(
                subscriber, [each for each in self._subscriptions if each.is_table and each.database == database]
            )

    def create(self, channel: Topic) -> bool:
        """Create a channel; return whether it is new."""
        with self._lock:
            new = channel not in self._channels
            self._channels[channel] = None
            return new

    def remove(self, channel: Topic) -> bool:
        """Remove a channel and its subscriptions; return whether it existed."""
        with self._lock:
            self._subscriptions.pop(channel, None)
            return self._channels.pop(channel, channel) is None

    def channels(self, database: str | None) -> list[str]:
        """Return the created channels of a database, or of the server, in order of creation."""
        with self._lock:
            return [each.name for each in self._channels if each.database == database]

    @property
    def registrations(self) -> list[tuple[str, Topic]]:
        """All subscriptions: session uuid and topic."""
        with self._lock:
            return [
                (subscriber.uuid, topic)
                for topic, subscribers in self._subscriptions.items()
                for subscriber in subscribers
            ]

    def publish_changes(
        self, options: ServerOptions, database: str, sender: str | None, changes: Sequence[TableChanges]
    ) -> None:
        """Publish the changes of one transaction: one notification per table.

        Args:
            sender: The uuid of the committing session; None for the server itself.
        """
        for each in changes:
            if subscribers := self._subscribers_of(
                *(Topic(name, database, True) for name in (each.table.lower(), ALL))
            ):
                sender_json = sender_text(sender, server=options.server_sender)
                _publish(options, subscribers, table_text(options.dialect, sender=sender_json, changes=each))

    def publish_message(self, options: ServerOptions, sender: str | None, channel: Topic, payload: str | None) -> None:
        """Publish a message to a channel's subscribers, the sender included, and to those of a table of that name."""
        table = [channel._replace(name=channel.name.lower(), is_table=True)] if options.has_channels_of_tables else []
        if subscribers := self._subscribers_of(channel, *table):
            sender_json = sender_text(sender, server=options.server_sender)
            _publish(
                options,
                subscribers,
                message_text(options.dialect, sender=sender_json, channel=channel.name, payload=payload),
            )

    def _forget(self, subscriber: Subscriber, topics: Sequence[Topic]) -> None:
        for each in topics:
            found = self._subscriptions.get(each, {})
            found.pop(subscriber, None)
            if not found:
                self._subscriptions.pop(each, None)

    def _subscribers_of(self, *topics: Topic) -> dict[Subscriber, None]:
        with self._lock:
            return {subscriber: None for topic in topics for subscriber in self._subscriptions.get(topic, {})}


def _publish(options: ServerOptions, subscribers: dict[Subscriber, None], text: str) -> None:
    frame = encode_json(text) if options.notification_frame == "#" else encode_text(text)
    for subscriber in subscribers:
        subscriber.deliver(frame)
