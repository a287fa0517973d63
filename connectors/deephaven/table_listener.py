"""A listener that rebuilds the subscribed tables in memory, and lets a program wait for what comes.

An update shows only when it is whole: removed rows go first, then added and modified rows take effect, and of two
values for one cell the later message wins. A removed row loses its values. An update that never ends leaves no trace.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from conf.errors import SilverfoldError, SourceUnavailable
from connectors.deephaven.layouts import Longs
from connectors.deephaven.listener import Listener
from connectors.deephaven.messages import ColumnInfo
from connectors.deephaven.types import Shape

Row: TypeAlias = dict[str, Any]

DEADLINE = 20.0
"""Seconds to wait for something that should come."""


@dataclass
class _Update:
    removed: list[tuple[int, int]] = field(default_factory=list)
    added: list[tuple[str, list[int], list[Any]]] = field(default_factory=list)
    modified: list[tuple[str, list[int], list[Any]]] = field(default_factory=list)


class TableListener(Listener):
    """Tables by subscription id. Safe to read from any thread while the client's thread writes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seen: Counter[str] = Counter()
        self._columns: dict[int, Mapping[int, ColumnInfo]] = {}
        self._tables: dict[int, dict[int, Row]] = {}
        self._open: dict[int, _Update] = {}
        self.errors: list[tuple[int, str, str]] = []
        """Refusals so far: subscription id, code, text."""
        self.connection_error: SilverfoldError | None = None

    def rows(self, subscription_id: int) -> dict[int, Row]:
        """Return a copy of the table after its last whole update: row key → column → value.

        Values are Python's, None for null; decimals are `decimal.Decimal`, date-times nanoseconds. A column that the
        server never sent for a row is missing there. Empty for an unknown id.
        """
        with self._changed:
            return {key: dict(row) for key, row in sorted(self._tables.get(subscription_id, {}).items())}

    def columns(self, subscription_id: int) -> tuple[ColumnInfo, ...]:
        """Return the subscribed columns in the order of the server. Empty before the response."""
        with self._changed:
            return tuple(self._columns.get(subscription_id, {}).values())

    def expect_subscribe_responses(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until as many subscriptions were confirmed, in total.

        Raises:
            SourceUnavailable: They were not, within ``timeout`` seconds. So do the other waits.
            SilverfoldError: The connection ended before; the error is the one that ended it.
        """
        self._expect("subscribe responses", count, timeout)

    def expect_unsubscribe_responses(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until as many subscriptions were ended on request, in total."""
        self._expect("unsubscribe responses", count, timeout)

    def expect_subscription_errors(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until as many refusals have come, in total."""
        self._expect("subscription errors", count, timeout)

    def expect_updates(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until as many updates have ended, in total over all subscriptions."""
        self._expect("updates", count, timeout)

    def expect_rows(
        self, subscription_id: int, wanted: Callable[[dict[int, Row]], bool], *, timeout: float = DEADLINE
    ) -> None:
        """Wait until a table, as `rows` returns it, is as wanted."""
        self._wait(lambda: wanted(self.rows(subscription_id)), f"such rows of subscription {subscription_id}", timeout)

    def on_connection_error(self, error: SilverfoldError) -> None:
        """Remember the error, which waits raise from now on, and drop what was open."""
        with self._changed:
            self.connection_error = error
            self._open.clear()
            self._changed.notify_all()

    def on_subscribe_response(self, subscription_id: int, columns: Mapping[int, ColumnInfo]) -> None:
        """Start with an empty table."""
        with self._changed:
            self._columns[subscription_id] = columns
            self._tables[subscription_id] = {}
            self._note("subscribe responses")

    def on_unsubscribe_response(self, subscription_id: int) -> None:
        """Count it; the table stays readable."""
        with self._changed:
            self._note("unsubscribe responses")

    def on_subscription_error(self, subscription_id: int, code: str, text: str) -> None:
        """Keep it in `errors`."""
        with self._changed:
            self.errors.append((subscription_id, code, text))
            self._note("subscription errors")

    def on_begin_table_update(self, subscription_id: int) -> None:
        """Start to collect."""
        self._open[subscription_id] = _Update()

    def on_void_table_update(self, subscription_id: int) -> None:
        """Drop what was collected."""
        self._open.pop(subscription_id, None)

    def on_rows_added(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect."""
        self._open[subscription_id].added.append(self._named(subscription_id, column_id, row_keys, values))

    def on_rows_modified(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect."""
        self._open[subscription_id].modified.append(self._named(subscription_id, column_id, row_keys, values))

    def on_rows_removed(self, subscription_id: int, ranges: Longs) -> None:
        """Collect ranges; they meet the existing rows when the update ends."""
        self._open[subscription_id].removed += map(tuple, ranges.tolist())

    def on_end_table_update(self, subscription_id: int) -> None:
        """Apply the update, all at once."""
        update = self._open.pop(subscription_id)
        with self._changed:
            _apply(update, self._tables[subscription_id])
            self._note("updates")

    def _named(
        self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array
    ) -> tuple[str, list[int], list[Any]]:
        column = self._columns[subscription_id][column_id]
        found = values.to_pylist()
        if column.type is not None and column.type.shape is Shape.DECIMAL:
            found = [None if value is None else Decimal(value) for value in found]
        return column.name, row_keys.tolist(), found

    def _note(self, what: str) -> None:
        self._seen[what] += 1
        self._changed.notify_all()

    def _expect(self, what: str, count: int, timeout: float) -> None:
        self._wait(lambda: self._seen[what] >= count, f"{count} {what}", timeout)

    def _wait(self, come: Callable[[], bool], what: str, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: come() or self.connection_error is not None, timeout)
            if come():
                return
            if self.connection_error is not None:
                raise self.connection_error
        raise SourceUnavailable(f"waited {timeout} s for {what}")


def _apply(update: _Update, table: dict[int, Row]) -> None:
    for first, last in update.removed:
        few = last - first < len(table)
        for key in range(first, last + 1) if few else [key for key in table if first <= key <= last]:
            table.pop(key, None)
    fresh: dict[int, Row] = {}
    for name, keys, values in update.added:
        for key, value in zip(keys, values, strict=True):
            fresh.setdefault(key, {})[name] = value
    table.update(fresh)
    for name, keys, values in update.modified:
        for key, value in zip(keys, values, strict=True):
            table.setdefault(key, {})[name] = value
