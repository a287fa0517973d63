"""Callbacks of a client: one call per event, column by column.

`Notifier` connects a session's events to its listeners: it decodes column messages and checks them against the
subscribe response. Calls come in message order, from one thread. A listener added later gets the subscriptions that are
confirmed from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa
import structlog

from silverfold.conf.errors import LocalProtocolError, RemoteProtocolError, SilverfoldError
from silverfold.connectors.deephaven.protocol.columns.decode import (
    ColumnValues,
    check_column,
    decode_column,
    decode_removed,
)
from silverfold.connectors.deephaven.protocol.layouts import Longs
from silverfold.connectors.deephaven.protocol.messages import (
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
from silverfold.connectors.deephaven.protocol.roles import Roles

_log = structlog.get_logger("deephaven.client")


class Listener:
    """Base class whose callbacks do nothing; override as needed. A call must not block: nothing is read meanwhile."""

    def on_connection_response(self, message_buffer_size: int) -> None:
        """Called with the server's first message: its messages have at most this many bytes.

        A listener that is added later is not.
        """

    def on_connection_error(self, error: SilverfoldError) -> None:
        """Called when the connection is over, unless it was closed here outside any update. No call follows.

        A listener that is added after that is called at once, by the thread that adds it.
        """

    def on_subscribe_response(self, subscription_id: int, columns: Mapping[int, ColumnInfo]) -> None:
        """Called when a subscription is confirmed; columns by column id, in server order."""

    def on_unsubscribe_response(self, subscription_id: int) -> None:
        """Called when a subscription has ended."""

    def on_subscription_error(self, subscription_id: int, code: str, text: str) -> None:
        """Called with an error from the server."""

    def on_begin_table_update(self, subscription_id: int) -> None:
        """Called when an atomic update begins."""

    def on_end_table_update(self, subscription_id: int) -> None:
        """Called when the update is complete: only now may its rows be shown."""

    def on_void_table_update(self, subscription_id: int) -> None:
        """Called when the open update will never end: drop its rows."""

    def on_rows_added(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Called with values of one column for added rows; both arrays have equal length.

        The next call may continue the same column.
        """

    def on_rows_modified(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Called with values of one column for modified rows."""

    def on_rows_removed(self, subscription_id: int, ranges: Longs) -> None:
        """Called with removed rows as ranges, shape (n, 2), both ends inclusive; may cover far more keys than exist."""


class _Recipient(NamedTuple):
    listener: Listener
    earlier: frozenset[int]
    """Subscriptions confirmed before the listener was added: it gets no call about them."""
    open: set[int]
    """Subscriptions with an update whose beginning it got, and not its end."""


class Notifier:
    """Turns events into calls of listeners. One per session.

    Args:
        listener: The first listener.
    """

    def __init__(self, listener: Listener) -> None:
        self._lock = threading.RLock()  # a listener may add another
        self._recipients = [_Recipient(listener, frozenset(), set())]
        self._columns: dict[int, Mapping[int, ColumnInfo]] = {}
        self._connection_error: SilverfoldError | None = None
        self._logged = set[tuple[int, int, str]]()

    def add(self, listener: Listener) -> None:
        """Add a listener, from any thread. It gets the subscriptions that are confirmed from now on.

        Raises:
            LocalProtocolError: It was added before.
        """
        with self._lock:
            if any(each.listener is listener for each in self._recipients):
                raise LocalProtocolError("this listener was added before")
            if self._connection_error is not None:
                listener.on_connection_error(self._connection_error)
            self._recipients.append(_Recipient(listener, frozenset(self._columns), set()))

    def notify(self, event: Event, roles: Roles) -> None:
        """Decode an event and call the listeners. Warnings of column messages are logged, once each and column.

        Raises:
            WireError: A column message or a RowsRemoved cannot be decoded.
            RemoteProtocolError: A column is missing from the subscribe response, or has another type there.
        """
        with self._lock:
            self._notify(event, roles)

    def connection_lost(self, error: SilverfoldError) -> None:
        """Report to the listeners that the connection is over, and open updates void. Only the first call counts."""
        with self._lock:
            if self._connection_error is not None:
                return
            self._connection_error = error
            with ExitStack() as calls:  # runs every call even if one raises, the last one first
                for each in reversed(self._recipients):
                    calls.callback(each.listener.on_connection_error, error)
                    for subscription_id in sorted(each.open, reverse=True):
                        calls.callback(each.listener.on_void_table_update, subscription_id)
                    each.open.clear()

    def _recipients_of(self, subscription_id: int) -> Iterator[_Recipient]:
        return (each for each in tuple(self._recipients) if subscription_id not in each.earlier)

    def _call(self, method: Callable[..., None], subscription_id: int, *args: object) -> None:
        for each in self._recipients_of(subscription_id):
            getattr(each.listener, method.__name__)(subscription_id, *args)

    def _end_update(self, method: Callable[..., None], subscription_id: int) -> None:
        for each in self._recipients_of(subscription_id):
            each.open.discard(subscription_id)
            getattr(each.listener, method.__name__)(subscription_id)

    def _notify(self, event: Event, roles: Roles) -> None:
        match event:
            case ColumnReceived():
                self._rows(decode_column(roles, event.body))
            case RowsRemovedReceived():
                self._call(Listener.on_rows_removed, *decode_removed(roles, event.body))
            case UpdateBegan():
                for each in self._recipients_of(event.subscription_id):
                    each.open.add(event.subscription_id)
                    each.listener.on_begin_table_update(event.subscription_id)
            case UpdateEnded():
                self._end_update(Listener.on_end_table_update, event.subscription_id)
            case _:
                self._control(event)

    def _log_warnings(self, values: ColumnValues, column: ColumnInfo) -> None:
        for kind in values.warnings:
            if (values.subscription_id, values.column_id, kind) not in self._logged:
                self._logged.add((values.subscription_id, values.column_id, kind))
                _log.warning("strange column", subscription=values.subscription_id, column=column.name, kind=kind)

    def _rows(self, values: ColumnValues) -> None:
        columns = self._columns.get(values.subscription_id)
        if columns is None:
            raise RemoteProtocolError(f"subscription {values.subscription_id} has no columns yet")
        self._log_warnings(values, check_column(values, columns))
        method = Listener.on_rows_modified if values.modified else Listener.on_rows_added
        self._call(method, values.subscription_id, values.column_id, values.row_keys, values.values)

    def _control(self, event: Event) -> None:
        match event:
            case ConnectionResponse():
                for each in tuple(self._recipients):
                    each.listener.on_connection_response(event.message_buffer_size)
            case SubscribeResponse():
                columns = {column.column_id: column for column in event.columns}
                self._columns[event.subscription_id] = columns
                self._call(Listener.on_subscribe_response, event.subscription_id, columns)
            case UnsubscribeResponse():
                self._call(Listener.on_unsubscribe_response, event.subscription_id)
            case SubscriptionError():
                self._call(Listener.on_subscription_error, event.subscription_id, event.code, event.text)
            case UpdateVoided():
                self._end_update(Listener.on_void_table_update, event.subscription_id)
            case BadFrame():
                self.connection_lost(event.error)
            case UnknownMessage():  # the schema does not describe its purpose
                pass
