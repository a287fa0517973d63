"""Knows which sessions listen to what, and lets them hear of commits and messages.

The order in which a session hears is the order in which its server was told, whatever it listens to: what tells holds
the database's `order`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from connectors.sqlitecloud.capture import TableChanges
from connectors.sqlitecloud.dialect import message_text, sender_text, table_text
from connectors.sqlitecloud.encode import encode_json, encode_text
from connectors.sqlitecloud.server_options import ServerOptions
from connectors.sqlitecloud.statements import ALL


class Topic(NamedTuple):
    """What a session listens to."""

    name: str
    """A channel; or a table in small letters, or `ALL`."""
    database: str | None = None
    """Of a table, or of a channel where each database has its own."""
    is_table: bool = False


class Subscriber(Protocol):
    """A session that listens."""

    uuid: str

    def hear(self, frame: bytes) -> None:
        """Take a notification. Called in any thread, and may take its time."""


class Broker:
    """The registrations of all sessions, and the channels that were made. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[Topic, None] = {}
        self._interests: dict[Topic, dict[Subscriber, None]] = {}

    def listen(self, hearer: Subscriber, interest: Topic) -> None:
        """Let a session hear of something. Safe to repeat."""
        with self._lock:
            self._interests.setdefault(interest, {})[hearer] = None

    def unlisten(self, hearer: Subscriber, *interests: Topic) -> None:
        """Let a session hear no more of some things; of anything where none is named."""
        with self._lock:
            self._forget(hearer, interests or tuple(self._interests))

    def unlisten_tables(self, hearer: Subscriber, database: str | None) -> None:
        """Let a session hear no more of any table of a database."""
        with self._lock:
            self._forget(hearer, [each for each in self._interests if each.is_table and each.database == database])

    def create(self, channel: Topic) -> bool:
        """Make a channel; return whether it is new."""
        with self._lock:
            new = channel not in self._channels
            self._channels[channel] = None
            return new

    def remove(self, channel: Topic) -> bool:
        """Remove a channel and end listening to it; return whether there was one."""
        with self._lock:
            self._interests.pop(channel, None)
            return self._channels.pop(channel, channel) is None

    def channels(self, database: str | None) -> list[str]:
        """Return the channels that were made, in that order: those of a database, or of the server."""
        with self._lock:
            return [each.name for each in self._channels if each.database == database]

    @property
    def registrations(self) -> list[tuple[str, Topic]]:
        """Who listens to what, by uuid."""
        with self._lock:
            return [(hearer.uuid, interest) for interest, hearers in self._interests.items() for hearer in hearers]

    def tell_changes(
        self, behaviour: ServerOptions, database: str, sender: str | None, changes: Sequence[TableChanges]
    ) -> None:
        """Tell what one transaction did: a notification for each table.

        Args:
            sender: The uuid of the session that committed, None for the server itself.
        """
        for each in changes:
            if hearers := self._hearers(*(Topic(name, database, True) for name in (each.table.lower(), ALL))):
                by = sender_text(sender, server=behaviour.server_sender)
                _tell(behaviour, hearers, table_text(behaviour.dialect, sender=by, changes=each))

    def tell_message(self, behaviour: ServerOptions, sender: str | None, channel: Topic, payload: str | None) -> None:
        """Send a message to all that listen to a channel, the sender included; also where it is called as a table."""
        table = [channel._replace(name=channel.name.lower(), is_table=True)] if behaviour.has_channels_of_tables else []
        if hearers := self._hearers(channel, *table):
            by = sender_text(sender, server=behaviour.server_sender)
            _tell(behaviour, hearers, message_text(behaviour.dialect, sender=by, channel=channel.name, payload=payload))

    def _forget(self, hearer: Subscriber, interests: Sequence[Topic]) -> None:
        for each in interests:
            found = self._interests.get(each, {})
            found.pop(hearer, None)
            if not found:
                self._interests.pop(each, None)

    def _hearers(self, *interests: Topic) -> dict[Subscriber, None]:
        with self._lock:
            return {hearer: None for interest in interests for hearer in self._interests.get(interest, {})}


def _tell(behaviour: ServerOptions, hearers: dict[Subscriber, None], text: str) -> None:
    frame = encode_json(text) if behaviour.notification_frame == "#" else encode_text(text)
    for hearer in hearers:
        hearer.hear(frame)
