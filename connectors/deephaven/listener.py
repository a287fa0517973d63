"""What a client tells the program that uses it: one call per event, column by column.

`Notifier` stands between a session's events and its listeners: it decodes column messages and checks them against the
subscribe response. Calls come in the order of the messages, from one thread; what a listener has missed that is added
later, from the thread that adds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import pyarrow as pa

from conf.errors import RemoteProtocolError, SilverfoldError
from connectors.deephaven.columns import ColumnValues, check_column, decode_column, decode_removed
from connectors.deephaven.layouts import Longs
from connectors.deephaven.messages import (
    BadFrame,
    ColumnInfo,
    ColumnReceived,
    ConnectionResponse,
    Event,
    RowsRemovedReceived,
    SubscribeResponse,
    SubscriptionError,
    UnknownMessage,
    UnsubscribeResponse,
    UpdateBegan,
    UpdateEnded,
    UpdateVoided,
)
from connectors.deephaven.roles import Roles


class Listener:
    """Override what you need; every method here does nothing. A call must not block: nothing is read meanwhile."""

    def on_connection_response(self, message_buffer_size: int) -> None:
        """The server spoke; its messages have at most this many bytes."""

    def on_connection_error(self, error: SilverfoldError) -> None:
        """The connection is over, and not because it was closed here outside any update. Nothing follows."""

    def on_subscribe_response(self, subscription_id: int, columns: Mapping[int, ColumnInfo]) -> None:
        """A subscription stands; its columns by column id, in the order of the server."""

    def on_unsubscribe_response(self, subscription_id: int) -> None:
        """A subscription has ended."""

    def on_subscription_error(self, subscription_id: int, code: str, text: str) -> None:
        """The server said no."""

    def on_begin_table_update(self, subscription_id: int) -> None:
        """An atomic update begins."""

    def on_end_table_update(self, subscription_id: int) -> None:
        """The update is whole: only now may its rows be shown."""

    def on_void_table_update(self, subscription_id: int) -> None:
        """The update that began will never end: drop its rows."""

    def on_rows_added(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Values of one column for added rows; both arrays are of one length, the next call may go on."""

    def on_rows_modified(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Values of one column for modified rows."""

    def on_rows_removed(self, subscription_id: int, ranges: Longs) -> None:
        """Removed rows, as ranges of shape (n, 2), both ends inclusive; a range may cover far more keys than exist."""


class Notifier:
    """Turns events into calls of listeners. One per session.

    Args:
        listener: The first of them.
    """

    def __init__(self, listener: Listener) -> None:
        self._lock = threading.RLock()  # a listener may add another
        self._listeners = [listener]
        self._waiting: list[Listener] = []
        self._columns: dict[int, Mapping[int, ColumnInfo]] = {}
        self._standing: dict[int, Mapping[int, ColumnInfo]] = {}
        self._open: set[int] = set()
        self._buffer_size: int | None = None
        self._lost: SilverfoldError | None = None

    def add(self, listener: Listener) -> None:
        """Let another listener hear, from any thread: of what stands now, and all that comes from then on.

        It begins when no update is open, so that it hears whole ones only.
        """
        with self._lock:
            self._waiting.append(listener)
            self._admit()

    def notify(self, event: Event, roles: Roles) -> None:
        """Decode an event and call the listeners.

        Raises:
            WireError: A column message or a RowsRemoved cannot be decoded.
            RemoteProtocolError: A column that is not in the response, or has another type there.
        """
        with self._lock:
            self._notify(event, roles)
            if self._waiting:
                self._admit()

    def lost(self, error: SilverfoldError) -> None:
        """Tell the listeners that the connection is over."""
        with self._lock:
            voided = sorted(self._open)
            self._open.clear()
            self._lost = error
            with ExitStack() as calls:  # all of them, though one raises; the last one first
                calls.callback(self._admit)
                for listener in reversed(self._listeners):
                    calls.callback(listener.on_connection_error, error)
                    for subscription_id in reversed(voided):
                        calls.callback(listener.on_void_table_update, subscription_id)

    def _admit(self) -> None:
        while self._waiting and not self._open:
            listener = self._waiting.pop(0)
            if self._buffer_size is not None:
                listener.on_connection_response(self._buffer_size)
            for subscription_id, columns in self._standing.items():
                listener.on_subscribe_response(subscription_id, columns)
            if self._lost is not None:
                listener.on_connection_error(self._lost)
            self._listeners.append(listener)

    def _call(self, method: Callable[..., None], *told: object) -> None:
        for listener in tuple(self._listeners):
            getattr(listener, method.__name__)(*told)

    def _notify(self, event: Event, roles: Roles) -> None:
        match event:
            case ColumnReceived():
                self._rows(decode_column(roles, event.body))
            case RowsRemovedReceived():
                self._call(Listener.on_rows_removed, *decode_removed(roles, event.body))
            case UpdateBegan():
                self._open.add(event.subscription_id)
                self._call(Listener.on_begin_table_update, event.subscription_id)
            case UpdateEnded():
                self._open.discard(event.subscription_id)
                self._call(Listener.on_end_table_update, event.subscription_id)
            case _:
                self._control(event)

    def _rows(self, values: ColumnValues) -> None:
        columns = self._columns.get(values.subscription_id)
        if columns is None:
            raise RemoteProtocolError(f"subscription {values.subscription_id} has no columns yet")
        check_column(values, columns)
        method = Listener.on_rows_modified if values.modified else Listener.on_rows_added
        self._call(method, values.subscription_id, values.column_id, values.row_keys, values.values)

    def _control(self, event: Event) -> None:
        match event:
            case ConnectionResponse():
                self._buffer_size = event.message_buffer_size
                self._call(Listener.on_connection_response, event.message_buffer_size)
            case SubscribeResponse():
                columns = {column.column_id: column for column in event.columns}
                self._columns[event.subscription_id] = self._standing[event.subscription_id] = columns
                self._call(Listener.on_subscribe_response, event.subscription_id, columns)
            case UnsubscribeResponse():
                self._standing.pop(event.subscription_id, None)
                self._call(Listener.on_unsubscribe_response, event.subscription_id)
            case SubscriptionError():
                self._call(Listener.on_subscription_error, event.subscription_id, event.code, event.text)
            case UpdateVoided():
                self._open.discard(event.subscription_id)
                self._call(Listener.on_void_table_update, event.subscription_id)
            case BadFrame():
                self.lost(event.error)
            case UnknownMessage():  # the schema cannot say what it is for
                pass
