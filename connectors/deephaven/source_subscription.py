"""Watches one table of a source by a subscription of its own, so that silver can be held against the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from conf.errors import SilverfoldError, SourceRefused
from connectors.base import Feed, ReferenceUpdate
from connectors.deephaven.client import TableClient
from connectors.deephaven.handshake import Expected
from connectors.deephaven.layouts import Longs
from connectors.deephaven.listener import Listener
from connectors.deephaven.messages import ColumnInfo, SubscribeMode
from connectors.deephaven.options import DeephavenOptions
from connectors.deephaven.reference import KEYS, ReferenceValues, UpdateRows
from connectors.deephaven.schemas import load_roles
from connectors.transport import parse_address
from connectors.update_queue import UpdateQueue

_SUBSCRIPTION = 1


class DeephavenSourceSubscription(Listener):
    """A `connectors.base.SourceSubscription`: a client of one subscription. Connects as its ``with`` block begins.

    The table is asked for with its columns and its filter, and with updates whatever its mode is.
    """

    def __init__(self, feed: Feed, values: ReferenceValues) -> None:
        assert isinstance(feed.options, DeephavenOptions)
        self._feed, self._options, self._values = feed, feed.options, values
        self._found = UpdateQueue()
        self._infos: Mapping[int, ColumnInfo] = {}
        self._open = UpdateRows()
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
        """Return the whole updates since the last call; see `connectors.base.SourceSubscription.take`."""
        return self._found.take(seconds)

    def on_subscribe_response(self, subscription_id: int, columns: Mapping[int, ColumnInfo]) -> None:
        """Remember the columns."""
        self._infos, self.columns = columns, tuple(info.name for info in columns.values())

    def on_subscription_error(self, subscription_id: int, code: str, text: str) -> None:
        """There will be nothing."""
        self._found.end(SourceRefused(code=code, text=text))

    def on_connection_error(self, error: SilverfoldError) -> None:
        """There will be nothing more."""
        self._found.end(error)

    def on_begin_table_update(self, subscription_id: int) -> None:
        """Start to collect."""
        self._open = UpdateRows()

    def on_rows_added(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect."""
        self._write(column_id, row_keys, values, modified=False)

    def on_rows_modified(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect."""
        self._write(column_id, row_keys, values, modified=True)

    def on_rows_removed(self, subscription_id: int, ranges: Longs) -> None:
        """Collect."""
        self._open.remove(ranges.tolist())

    def on_end_table_update(self, subscription_id: int) -> None:
        """Hand the update over. The first of the subscription is its snapshot."""
        self._found.put(ReferenceUpdate(self._is_first, list(self._open.changes())))
        self._is_first = False

    def _write(self, column_id: int, row_keys: Longs, values: pa.Array, *, modified: bool) -> None:
        info = self._infos[column_id]
        self._open.write(info.name, row_keys.tolist(), self._values.of(info, values), modified=modified)
