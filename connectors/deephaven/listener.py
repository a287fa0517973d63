"""What a client tells the program that uses it: one call per event, column by column.

`Notifier` stands between a session's events and a listener: it decodes column messages and checks them against the
subscribe response. Calls come in the order of the messages, from one thread.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from connectors.deephaven.parts import Roles


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
    """Turns events into calls of a listener. One per session; not thread safe."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._columns: dict[int, Mapping[int, ColumnInfo]] = {}

    def notify(self, event: Event, roles: Roles) -> None:
        """Decode an event and call the listener.

        Raises:
            WireError: A column message or a RowsRemoved cannot be decoded.
            RemoteProtocolError: A column that is not in the response, or has another type there.
        """
        listener = self._listener
        match event:
            case ColumnReceived():
                self._rows(decode_column(roles, event.body))
            case RowsRemovedReceived():
                listener.on_rows_removed(*decode_removed(roles, event.body))
            case UpdateBegan():
                listener.on_begin_table_update(event.subscription_id)
            case UpdateEnded():
                listener.on_end_table_update(event.subscription_id)
            case _:
                self._control(event)

    def _rows(self, values: ColumnValues) -> None:
        columns = self._columns.get(values.subscription_id)
        if columns is None:
            raise RemoteProtocolError(f"subscription {values.subscription_id} has no columns yet")
        check_column(values, columns)
        call = self._listener.on_rows_modified if values.modified else self._listener.on_rows_added
        call(values.subscription_id, values.column_id, values.row_keys, values.values)

    def _control(self, event: Event) -> None:
        listener = self._listener
        match event:
            case ConnectionResponse():
                listener.on_connection_response(event.message_buffer_size)
            case SubscribeResponse():
                columns = {column.column_id: column for column in event.columns}
                self._columns[event.subscription_id] = columns
                listener.on_subscribe_response(event.subscription_id, columns)
            case UnsubscribeResponse():
                listener.on_unsubscribe_response(event.subscription_id)
            case SubscriptionError():
                listener.on_subscription_error(event.subscription_id, event.code, event.text)
            case UpdateVoided():
                listener.on_void_table_update(event.subscription_id)
            case BadFrame():
                listener.on_connection_error(event.error)
            case UnknownMessage():  # the schema cannot say what it is for
                pass
