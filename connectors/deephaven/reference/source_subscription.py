"""Follows one table of a source by its own subscription, so that silver can be compared with the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from conf.errors import SilverfoldError, SourceRefused
from connectors.base import Feed, ReferenceUpdate
from connectors.deephaven.client.client import TableClient
from connectors.deephaven.protocol.handshake import Expected
from connectors.deephaven.protocol.layouts import Longs
from connectors.deephaven.client.listener import Listener
from connectors.deephaven.protocol.messages import ColumnInfo, SubscribeMode
from connectors.deephaven.options import DeephavenOptions
from connectors.deephaven.reference.reader import KEYS, ReferenceValues, UpdateRows
from connectors.deephaven.protocol.schemas import load_roles
from connectors.common.transport import parse_address
from connectors.common.update_queue import UpdateQueue

_SUBSCRIPTION = 1


class DeephavenSourceSubscription(Listener):
    """A `connectors.base.SourceSubscription`: a client of one subscription. Connects on entering its ``with`` block.

    Subscribes to the table with its columns and filter, and always to a snapshot with updates, whatever its mode.
    """

    def __init__(self, feed: Feed, values: ReferenceValues) -> None:
        assert isinstance(feed.options, DeephavenOptions)
        self._feed, self._options, self._values = feed, feed.options, values
        self._updates = UpdateQueue()
        self._columns_by_id: Mapping[int, ColumnInfo] = {}
        self._collected = UpdateRows()
        self._is_first = True
        self.keys = KEYS
        self.columns: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        address, options, table = parse_address(self._feed.address), self._options, self._values.table
        expected = Expected(options.prefix_counts, options.byte_order, options.accept_schema_id)
        self._client = TableClient(
            address.host,
            address.port,
            self,
            roles=load_roles(options.schema_, options.text),
            expected=expected,
            timeout=self._feed.reconnect.connect_timeout,
        )
        mode = SubscribeMode.SNAPSHOT_WITH_UPDATES
        try:
            self._client.subscribe(_SUBSCRIPTION, mode, table.source, table.columns, table.filter)
        except BaseException:
            self._client.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def take(self, seconds: float) -> Sequence[ReferenceUpdate]:
        """Return the complete updates since the last call; see `connectors.base.SourceSubscription.take`."""
        return self._updates.take(seconds)

    def on_subscribe_response(self, subscription_id: int, columns: Mapping[int, ColumnInfo]) -> None:
        """Store the columns."""
        self._columns_by_id, self.columns = columns, tuple(info.name for info in columns.values())

    def on_subscription_error(self, subscription_id: int, code: str, text: str) -> None:
        """End the queue of updates with the refusal."""
        self._updates.end(SourceRefused(code=code, text=text))

    def on_connection_error(self, error: SilverfoldError) -> None:
        """End the queue of updates with the error."""
        self._updates.end(error)

    def on_begin_table_update(self, subscription_id: int) -> None:
        """Start collecting."""
        self._collected = UpdateRows()

    def on_rows_added(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect the values."""
        self._write(column_id, row_keys, values, modified=False)

    def on_rows_modified(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect the values."""
        self._write(column_id, row_keys, values, modified=True)

    def on_rows_removed(self, subscription_id: int, ranges: Longs) -> None:
        """Collect the ranges."""
        self._collected.remove(ranges.tolist())

    def on_end_table_update(self, subscription_id: int) -> None:
        """Queue the update. The first of the subscription is its snapshot."""
        self._updates.put(ReferenceUpdate(self._is_first, list(self._collected.changes())))
        self._is_first = False

    def _write(self, column_id: int, row_keys: Longs, values: pa.Array, *, modified: bool) -> None:
        info = self._columns_by_id[column_id]
        self._collected.write(info.name, row_keys.tolist(), self._values.convert(info, values), modified=modified)
