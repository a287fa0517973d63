"""A table client on a plain socket: collects complete, decoded updates and maintains the resulting tables."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.columns.decode import decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.messages import (
    BadFrame,
    ColumnReceived,
    ConnectionResponse,
    Event,
    RowsRemovedReceived,
    SubscribeMode,
    SubscribeResponse,
    SubscriptionError,
    UpdateBegan,
    UpdateEnded,
    UpdateVoided,
)
from silverfold.connectors.deephaven.protocol.schemas import load_transport_schema
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.wire.sbe.schema.model import Schema

PATIENCE = 20.0
"""Timeout in seconds for expected messages."""

Cells = dict[str, dict[int, Any]]
"""Column name → row key → value."""


@dataclass
class Update:
    """One atomic update as received."""

    subscription_id: int
    snapshot: bool
    added: Cells = field(default_factory=dict)
    modified: Cells = field(default_factory=dict)
    removed: list[tuple[int, int]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Kinds of its messages, in order: removed, added, modified."""
    sizes: list[int] = field(default_factory=list)
    """Sizes of its messages, without the length prefix."""


class Peer:
    """One connection."""

    def __init__(self, port: int, *, schema: Schema | None = None, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self.session = Session(bind(schema or load_transport_schema()))
        self.columns: dict[int, list[str]] = {}
        self.tables: dict[int, dict[int, dict[str, Any]]] = {}
        greeting = self.event()
        assert isinstance(greeting, ConnectionResponse)
        self.buffer_size = greeting.message_buffer_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def subscribe(
        self,
        subscription_id: int,
        table: str,
        mode: SubscribeMode = SubscribeMode.SNAPSHOT_WITH_UPDATES,
        columns: Sequence[str] = (),
        row_filter: str = "",
    ) -> SubscribeResponse | SubscriptionError:
        """Subscribe; return the response, which must be the next event."""
        self.socket.sendall(self.session.subscribe(subscription_id, mode, table, columns, row_filter))
        answer = self.event()
        assert isinstance(answer, SubscribeResponse | SubscriptionError)
        if isinstance(answer, SubscribeResponse):
            self.columns[subscription_id] = [column.name for column in answer.columns]
            self.tables[subscription_id] = {}
        return answer

    def unsubscribe(self, subscription_id: int) -> None:
        """Request the end of a subscription."""
        self.socket.sendall(self.session.unsubscribe(subscription_id))

    def send(self, body: bytes) -> None:
        """Send any message, including those the session would not send."""
        self.socket.sendall(frame(body, PrefixCounts.MESSAGE))

    def event(self) -> Event | None:
        """Return the next event; None at the end of the connection."""
        while True:
            event = self.session.next_event()
            if event is not None or self.session.ended:
                return event
            chunk = self.socket.recv(1 << 16)
            if chunk:
                self.session.receive(chunk)
            else:
                self.session.receive_eof()

    def update(self) -> Update:
        """Return the next update and apply it to `tables`. No other event may come before its end."""
        began = self.event()
        assert isinstance(began, UpdateBegan), began
        update = Update(began.subscription_id, began.snapshot)
        while not isinstance(event := self.event(), UpdateEnded):
            assert isinstance(event, ColumnReceived | RowsRemovedReceived), event
            update.sizes.append(len(event.body))
            self._take(update, event)
        self._apply(update)
        return update

    def failure(self) -> Event | None:
        """Return the next error, skipping parts of an update before it."""
        while isinstance(event := self.event(), UpdateBegan | ColumnReceived | RowsRemovedReceived | UpdateVoided):
            pass
        return event

    def rest(self) -> list[Event]:
        """Return all events until the connection ends, even in the middle of a frame."""
        events: list[Event] = []
        while not (events and isinstance(events[-1], BadFrame)) and (event := self.event()) is not None:
            events.append(event)
        return events

    def _take(self, update: Update, event: ColumnReceived | RowsRemovedReceived) -> None:
        if isinstance(event, RowsRemovedReceived):
            update.removed += [tuple(pair) for pair in decode_removed(self.session.roles, event.body).ranges.tolist()]
            update.order.append("removed")
            return
        found = decode_column(self.session.roles, event.body)
        name = self.columns[update.subscription_id][found.column_id]
        cells = update.modified if found.modified else update.added
        values = zip(found.row_keys.tolist(), found.values.to_pylist(), strict=True)
        cells.setdefault(name, {}).update(values)
        update.order.append("modified" if found.modified else "added")

    def _apply(self, update: Update) -> None:
        rows = self.tables[update.subscription_id]
        for first, last in update.removed:
            for key in [key for key in rows if first <= key <= last]:
                del rows[key]
        for name, values in update.added.items():
            for key, value in values.items():
                rows.setdefault(key, {})[name] = value
        for name, values in update.modified.items():
            for key, value in values.items():
                rows[key][name] = value
