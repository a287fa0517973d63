"""Subscriptions to tables: requests of each connection in, packets out. Without socket and clock.

Connections pull their packets. A slow subscriber falls behind in history, and nothing is queued for it. It gets a
snapshot if history no longer has the updates that it needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from silverfold.conf.errors import InvalidValue, RemoteProtocolError, SilverfoldError
from silverfold.connectors.tengi.protocol.feed.packets import Ack, Ping, Pong, SourceError, Subscribe, read_packet
from silverfold.connectors.tengi.protocol.values import Identifier
from silverfold.connectors.tengi.server.feed.tables import Outgoing, PartLimits, SourceTable

UNKNOWN_TABLE, NOT_UNDERSTOOD, NOT_ALLOWED, UNAVAILABLE = 1, 2, 3, 4
"""Codes of ``error``."""

_MOST_ANSWERS: Final = 1_000
"""Most answers to pings and mistakes that wait on one connection. A peer that does not read them is dropped."""
_LONGEST_NAME: Final = 1_000
"""Most characters of a table's name that an error repeats. A receiver knows its subscription by the whole name."""


class Refusal(NamedTuple):
    """The error that answers subscriptions to a refused table."""

    code: int
    text: str


@dataclass(frozen=True)
class FeedOptions:
    """Switches of a source.

    Args:
        subscription_ttl: A receiver's subscriptions end after so many seconds without a packet from it.
        part_limits: Size of a snapshot's parts.
        new_id: Returns the id of a new snapshot.
    """

    subscription_ttl: float = 60.0
    part_limits: PartLimits = field(default_factory=PartLimits)
    new_id: Callable[[], Identifier] = Identifier.random


class FeedSource:
    """Tables, and all connections' subscriptions to them."""

    def __init__(self, tables: Iterable[SourceTable], options: FeedOptions | None = None) -> None:
        self.tables = {table.name: table for table in tables}
        self.options = options or FeedOptions()
        self.refusals: dict[str, Refusal] = {}
        """Tables that are refused from now on, by name."""
        self.sessions: set[FeedSession] = set()

    def release(self, table: SourceTable) -> None:
        """Drop from a table's history the updates that all its subscribers have acknowledged."""
        subscriptions = [each.subscriptions.get(table.name) for each in self.sessions]
        table.release(min((each.acknowledged for each in subscriptions if each is not None), default=0))


class FeedSession:
    """One connection of a receiver. Ends with `close`.

    Args:
        now: Seconds, by the clock of all calls.
    """

    def __init__(self, source: FeedSource, now: float) -> None:
        self._source = source
        self._received_at = now
        self._answers = deque[Outgoing]()
        self.subscriptions: dict[str, Subscription] = {}
        """By table, in the order of their turns."""
        source.sessions.add(self)

    def receive(self, body: object, now: float) -> None:
        """Take the body of a message, or the error of an unreadable one.

        Raises:
            RemoteProtocolError: The receiver does not read its answers. Drop the connection.
        """
        self._received_at = now
        if len(self._answers) >= _MOST_ANSWERS:
            raise RemoteProtocolError("the receiver reads no answers", reason="unread_answers")
        if isinstance(body, SilverfoldError):
            self._refuse(NOT_UNDERSTOOD, str(body))
            return
        try:
            request = read_packet(body)
        except InvalidValue as error:
            self._refuse(NOT_UNDERSTOOD, str(error))
            return
        match request:
            case Subscribe():
                self._subscribe(request)
            case Ack():
                self._acknowledge(request)
            case Ping():
                newest = {name: each.table.newest for name, each in self.subscriptions.items()}
                self._answers.append(Outgoing.of(Pong(request.seq, newest).to_packet()))
            case Pong():
                pass
            case _:
                self._refuse(NOT_UNDERSTOOD, f"a source takes no {type(request).__name__.lower()}")

    def next_packet(self) -> Outgoing | None:
        """Return the next packet to send. None if there is none before a table changes or a message comes.

        Answers come first. Subscriptions take turns, packet by packet.
        """
        if self._answers:
            return self._answers.popleft()
        for name, subscription in list(self.subscriptions.items()):
            packet = subscription.next_packet()
            if packet is not None:
                self.subscriptions[name] = self.subscriptions.pop(name)
                return packet
        return None

    @property
    def expires_at(self) -> float:
        """When the subscriptions end, unless the receiver sends something first."""
        return self._received_at + self._source.options.subscription_ttl

    def close(self) -> None:
        """End all subscriptions. Idempotent."""
        self._source.sessions.discard(self)
        self.subscriptions.clear()
        self._answers.clear()

    def _subscribe(self, request: Subscribe) -> None:
        name = request.table
        table, refusal = self._source.tables.get(name), self._source.refusals.get(name)
        self.subscriptions.pop(name, None)
        if table is None or refusal is not None:
            self._refuse(*refusal or (UNKNOWN_TABLE, "there is no such table"), table=name[:_LONGEST_NAME])
            return
        self.subscriptions[name] = Subscription(table, request.from_seq, request.epoch, self._source.options)
        self._source.release(table)

    def _acknowledge(self, request: Ack) -> None:
        subscription = self.subscriptions.get(request.table)
        if subscription is not None:
            subscription.acknowledge(*request.position)
            self._source.release(subscription.table)

    def _refuse(self, code: int, text: str, table: str | None = None) -> None:
        self._answers.append(Outgoing.of(SourceError(code, text, table).to_packet()))


class Subscription:
    """One connection's progress in a table.

    Args:
        after: Number of the last update that the receiver has; -1 for none.
        epoch: Source epoch of that number; None if the receiver knows none.
    """

    def __init__(self, table: SourceTable, after: int, epoch: str | None, options: FeedOptions) -> None:
        self.table = table
        self._options = options
        self._epoch, self._next = epoch if after >= 0 else None, after + 1
        self._acknowledged = after if self._has_position() else 0
        self._version = 0
        self._parts: Iterator[Outgoing] = iter(())

    def next_packet(self) -> Outgoing | None:
        """Return the next part of a snapshot, schema or update; None after the table's newest update."""
        part = next(self._parts, None)
        if part is not None:
            return part
        table = self.table
        has_position = self._has_position()
        version = table.update_version(self._next) if has_position else table.version
        if version != self._version:
            self._version = version
            return table.schema(version)
        if not has_position:
            self._epoch, self._next, self._acknowledged = table.epoch, table.seq + 1, 0
            self._parts = table.snapshot(self._options.part_limits, self._options.new_id)
            return next(self._parts)
        if self._next > table.seq:
            return None
        self._next += 1
        return table.update(self._next - 1)

    def acknowledge(self, epoch: str, seq: int) -> None:
        """Take an acknowledgement. It is ignored unless its position was sent."""
        if epoch == self._epoch and seq < self._next:
            self._acknowledged = max(self._acknowledged, seq)

    @property
    def acknowledged(self) -> int:
        """Number of the newest update that need not be sent again; 0 for none."""
        return self._acknowledged if self._epoch == self.table.epoch else 0

    def _has_position(self) -> bool:
        return self._epoch == self.table.epoch and self.table.can_continue(self._next)
