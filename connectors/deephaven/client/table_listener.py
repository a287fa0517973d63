"""A listener that rebuilds the subscribed tables in memory, and lets a program wait for events.

An update shows only when it is complete: removed rows go first, then added and modified rows take effect. Of two values
for one cell the later message wins. A removed row loses its values. An update that never ends leaves no trace.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import LocalProtocolError, SilverfoldError, SourceUnavailable
from silverfold.conf.unix_time import timestamp_micros
from silverfold.connectors.deephaven.client.listener import Listener
from silverfold.connectors.deephaven.protocol.layouts import Longs
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo
from silverfold.connectors.deephaven.protocol.types import TYPES, ColumnType, Shape

Row: TypeAlias = dict[str, Any]

_TIMESTAMP: Final = pa.timestamp("us", "UTC")

DEADLINE = 20.0
"""Default timeout of the waits, in seconds."""


@dataclass
class _Update:
    removed: list[tuple[int, int]] = field(default_factory=list)
    added: list[tuple[str, list[int], list[Any]]] = field(default_factory=list)
    modified: list[tuple[str, list[int], list[Any]]] = field(default_factory=list)


class TableListener(Listener):
    """Tables by subscription id. Safe to read from any thread while the client's thread writes.

    Args:
        date_times: Form of date-times, also in arrays: whole nanoseconds since 1970, or `datetime.datetime` in UTC,
            which has microseconds.
    """

    def __init__(self, *, date_times: Literal["nanoseconds", "datetime"] = "nanoseconds") -> None:
        self._date_times = date_times
        self._changed = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._columns: dict[int, Mapping[int, ColumnInfo]] = {}
        self._tables: dict[int, dict[int, Row]] = {}
        self._open: dict[int, _Update] = {}
        self.errors: list[tuple[int, str, str]] = []
        """Refusals so far: subscription id, code, text."""
        self.connection_error: SilverfoldError | None = None
        self.last_subscription_id: int | None = None
        """The subscription last confirmed, or ended on request."""

    def rows(self, subscription_id: int) -> dict[int, Row]:
        """Return a copy of the table after its last complete update: row key → column → value.

        Values are Python's, None for null; decimals are `decimal.Decimal`. A column that the server never sent for a
        row is missing there. Empty for an unknown id.
        """
        with self._changed:
            return {key: dict(row) for key, row in sorted(self._tables.get(subscription_id, {}).items())}

    def row_keys(self, subscription_id: int) -> list[int]:
        """Return the keys of the table's rows, ascending."""
        with self._changed:
            return sorted(self._tables.get(subscription_id, {}))

    def column_data(self, subscription_id: int, name: str, row_keys: Sequence[int] | None = None) -> list[Any]:
        """Return one column's values as in `rows`, None where missing: of all rows, or of ``row_keys`` in their order.

        Raises:
            LocalProtocolError: The subscription has no such column.
        """
        with self._changed:
            self._info(subscription_id, name)
            table = self._tables.get(subscription_id, {})
            return [table.get(key, {}).get(name) for key in (sorted(table) if row_keys is None else row_keys)]

    def column_array(self, subscription_id: int, name: str, row_keys: Sequence[int] | None = None) -> pa.Array:
        """Return the same as an Arrow array of the column's type (`ColumnType.arrow`), date-times in the chosen form.

        Raises:
            LocalProtocolError: As `column_data`; or the schema does not define the column's type.
        """
        kind = self._info(subscription_id, name).type
        if kind is None:
            raise LocalProtocolError(f"nothing says of which type column {name} is")
        values = self.column_data(subscription_id, name, row_keys)
        if kind.shape is Shape.DECIMAL:
            values = [None if value is None else str(value) for value in values]
        if not self._uses_datetimes(kind):
            return pa.array(values, kind.arrow)
        return pa.array(values, _TIMESTAMP if kind.element is None else pa.list_(_TIMESTAMP))

    def blobs(self, subscription_id: int, name: str, row_keys: Sequence[int] | None = None) -> list[bytes | None]:
        """Return the values of a ByteArray column as bytes; a null element is the byte 0x80, as received.

        Raises:
            LocalProtocolError: As `column_data`; or the column is not a ByteArray.
        """
        kind = self._info(subscription_id, name).type
        if kind is None or kind.name != "ByteArray":
            raise LocalProtocolError(f"column {name} has no arrays of bytes")
        found = self.column_data(subscription_id, name, row_keys)
        null = TYPES["Byte"].null
        assert null is not None
        octets = [None if value is None else [int(null) if each is None else each for each in value] for value in found]
        return [None if value is None else np.array(value, np.int8).tobytes() for value in octets]

    def columns(self, subscription_id: int) -> tuple[ColumnInfo, ...]:
        """Return the subscribed columns in server order. Empty before the response."""
        with self._changed:
            return tuple(self._columns.get(subscription_id, {}).values())

    def expect_subscribe_responses(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` subscriptions were confirmed, in total.

        Raises:
            SourceUnavailable: They were not, within ``timeout`` seconds. The other waits raise the same.
            SilverfoldError: The connection ended first; the error is the one that ended it.
        """
        self._expect("subscribe responses", count, timeout)

    def expect_unsubscribe_responses(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` subscriptions were ended on request, in total."""
        self._expect("unsubscribe responses", count, timeout)

    def expect_subscription_errors(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` refusals have arrived, in total."""
        self._expect("subscription errors", count, timeout)

    @property
    def last_error(self) -> tuple[int, str, str] | None:
        """The newest refusal in `errors`; None when there is none."""
        return self.errors[-1] if self.errors else None

    def expect_begun_updates(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` updates have begun, in total over all subscriptions."""
        self._expect("begun updates", count, timeout)

    def expect_rows_added(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` messages with values of added rows have arrived, in total."""
        self._expect("messages of added rows", count, timeout)

    def expect_rows_modified(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` messages with values of modified rows have arrived, in total."""
        self._expect("messages of modified rows", count, timeout)

    def expect_rows_removed(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` messages with removed rows have arrived, in total."""
        self._expect("messages of removed rows", count, timeout)

    def expect_updates(self, count: int = 1, *, timeout: float = DEADLINE) -> None:
        """Wait until ``count`` updates have ended, in total over all subscriptions."""
        self._expect("updates", count, timeout)

    def expect_rows(
        self, subscription_id: int, wanted: Callable[[dict[int, Row]], bool], *, timeout: float = DEADLINE
    ) -> None:
        """Wait until a table, as `rows` returns it, satisfies ``wanted``."""
        self._wait(lambda: wanted(self.rows(subscription_id)), f"such rows of subscription {subscription_id}", timeout)

    def on_connection_error(self, error: SilverfoldError) -> None:
        """Store the error, which waits raise from now on, and drop open updates."""
        with self._changed:
            self.connection_error = error
            self._open.clear()
            self._changed.notify_all()

    def on_subscribe_response(self, subscription_id: int, columns: Mapping[int, ColumnInfo]) -> None:
        """Start with an empty table."""
        with self._changed:
            self._columns[subscription_id] = columns
            self._tables[subscription_id] = {}
            self.last_subscription_id = subscription_id
            self._increment("subscribe responses")

    def on_unsubscribe_response(self, subscription_id: int) -> None:
        """Count the response; the table stays readable."""
        with self._changed:
            self.last_subscription_id = subscription_id
            self._increment("unsubscribe responses")

    def on_subscription_error(self, subscription_id: int, code: str, text: str) -> None:
        """Append the error to `errors`."""
        with self._changed:
            self.errors.append((subscription_id, code, text))
            self._increment("subscription errors")

    def on_begin_table_update(self, subscription_id: int) -> None:
        """Start collecting."""
        self._open[subscription_id] = _Update()
        self._count("begun updates")

    def on_void_table_update(self, subscription_id: int) -> None:
        """Drop the collected rows."""
        self._open.pop(subscription_id, None)

    def on_rows_added(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect the values."""
        self._open[subscription_id].added.append(self._decode_column(subscription_id, column_id, row_keys, values))
        self._count("messages of added rows")

    def on_rows_modified(self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array) -> None:
        """Collect the values."""
        self._open[subscription_id].modified.append(self._decode_column(subscription_id, column_id, row_keys, values))
        self._count("messages of modified rows")

    def on_rows_removed(self, subscription_id: int, ranges: Longs) -> None:
        """Collect the ranges, which meet the existing rows when the update ends."""
        self._open[subscription_id].removed += map(tuple, ranges.tolist())
        self._count("messages of removed rows")

    def on_end_table_update(self, subscription_id: int) -> None:
        """Apply the update atomically."""
        update = self._open.pop(subscription_id)
        with self._changed:
            _apply(update, self._tables[subscription_id])
            self._increment("updates")

    def _decode_column(
        self, subscription_id: int, column_id: int, row_keys: Longs, values: pa.Array
    ) -> tuple[str, list[int], list[Any]]:
        column = self._columns[subscription_id][column_id]
        found = values.to_pylist()
        if column.type is not None and column.type.shape is Shape.DECIMAL:
            found = [None if value is None else Decimal(value) for value in found]
        if column.type is not None and self._uses_datetimes(column.type):
            found = [_as_datetimes(value) for value in found]
        return column.name, row_keys.tolist(), found

    def _uses_datetimes(self, kind: ColumnType) -> bool:
        return self._date_times == "datetime" and "DateTime" in (kind.name, kind.element and kind.element.name)

    def _info(self, subscription_id: int, name: str) -> ColumnInfo:
        for column in self._columns.get(subscription_id, {}).values():
            if column.name == name:
                return column
        raise LocalProtocolError(f"subscription {subscription_id} has no column {name}")

    def _count(self, what: str) -> None:
        with self._changed:
            self._increment(what)

    def _increment(self, what: str) -> None:
        self._counts[what] += 1
        self._changed.notify_all()

    def _expect(self, what: str, count: int, timeout: float) -> None:
        self._wait(lambda: self._counts[what] >= count, f"{count} {what}", timeout)

    def _wait(self, done: Callable[[], bool], what: str, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: done() or self.connection_error is not None, timeout)
            if done():
                return
            if self.connection_error is not None:
                raise self.connection_error
        raise SourceUnavailable(f"waited {timeout} s for {what}")


def _as_datetimes(nanoseconds: int | list[int | None] | None) -> Any:
    """Return a datetime, or a list of them."""
    if isinstance(nanoseconds, list):
        return [_as_datetimes(each) for each in nanoseconds]
    return None if nanoseconds is None else timestamp_micros(nanoseconds // 1000)


def _removed_keys(ranges: Sequence[tuple[int, int]], table: Mapping[int, Row]) -> list[int]:
    """Return the keys of ranges, which may overlap; of wide ranges only the keys in the table."""
    if sum(last - first + 1 for first, last in ranges) <= len(table):
        return [key for first, last in ranges for key in range(first, last + 1)]
    keys, found, behind = sorted(table), list[int](), 0
    for first, last in sorted(ranges):
        end = bisect_right(keys, last, behind)
        found += keys[bisect_left(keys, first, behind) : end]
        behind = end
    return found


def _apply(update: _Update, table: dict[int, Row]) -> None:
    for key in _removed_keys(update.removed, table):
        table.pop(key, None)
    fresh: dict[int, Row] = {}
    for name, keys, values in update.added:
        for key, value in zip(keys, values, strict=True):
            fresh.setdefault(key, {})[name] = value
    table.update(fresh)
    for name, keys, values in update.modified:
        for key, value in zip(keys, values, strict=True):
            table.setdefault(key, {})[name] = value
