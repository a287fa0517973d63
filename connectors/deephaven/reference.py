"""What silver is verified by: a second reader of landed frames, and a subscription of its own to the source.

The reader turns frames into changes row by row, in pure Python. It shares the protocol's messages with the decoder, and
nothing else, so that an error in one is detected by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context as DecimalContext
from decimal import Decimal, InvalidOperation
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, SilverfoldError, SourceRefused, UnknownTemplate
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.common.transport import parse_address
from silverfold.connectors.common.update_queue import UpdateQueue
from silverfold.connectors.deephaven.client.client import TableClient
from silverfold.connectors.deephaven.client.listener import Listener
from silverfold.connectors.deephaven.options import DeephavenFeed, DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol.columns.decode import check_column, decode_column, decode_removed
from silverfold.connectors.deephaven.protocol.control import decode_subscribe_response
from silverfold.connectors.deephaven.protocol.handshake import Expected, roles_of_epoch
from silverfold.connectors.deephaven.protocol.layouts import Longs
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo, SubscribeMode
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.types import Shape
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.verification import ReferenceChange, ReferenceUpdate

KEYS: Final = ("_row_key",)
"""Deephaven identifies a row by its 64-bit row key."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SILVER: Final = DecimalContext(prec=38)
_DATE_TIME = "DateTime"


@dataclass(frozen=True)
class ReferenceValues:
    """Converts decoded values to those that silver must show, according to the settings of a feed and a table."""

    options: DeephavenOptions
    table: DeephavenTable

    def convert(self, info: ColumnInfo, values: pa.Array) -> list[Any]:
        """Return one column's values; None for null.

        Raises:
            UnknownTemplate: The schema lacks the column's message.
            InvalidValue: A decimal does not fit the scale in the settings.
        """
        kind = info.type
        found: list[Any] = values.to_pylist()
        if kind is None:
            raise UnknownTemplate(f"column {info.name} has no message in the schema", reason="unknown-template")
        if kind.shape is Shape.DECIMAL and info.name in self.table.decimals:
            scale = self.table.decimals[info.name]
            return [None if text is None else _decimal(text, scale, info.name) for text in found]
        if self.options.date_times == "nanoseconds":
            return found
        if kind.name == _DATE_TIME:
            return _moments(found)
        if kind.element is not None and kind.element.name == _DATE_TIME:
            return [None if elements is None else _moments(elements) for elements in found]
        return found


class UpdateRows:
    """Collects the messages of one update, then yields its changes, once."""

    def __init__(self) -> None:
        self._removed: list[ReferenceChange] = []
        self._added: dict[int, dict[str, Any]] = {}
        self._modified: dict[int, dict[str, Any]] = {}
        self._added_at: dict[int, int] = {}
        self._modified_at: dict[int, int] = {}

    def remove(self, ranges: Iterable[Sequence[int]], position: int = 0) -> None:
        """Take removed ranges, both ends inclusive."""
        self._removed += [ReferenceChange("delete", position, (first,), last_key=(last,)) for first, last in ranges]

    def write(
        self, name: str, keys: Sequence[int], values: Sequence[Any], *, modified: bool, position: int = 0
    ) -> None:
        """Take one column's values of added or modified rows."""
        rows, at = (self._modified, self._modified_at) if modified else (self._added, self._added_at)
        for key, value in zip(keys, values, strict=True):
            rows.setdefault(key, {})[name] = value
            at[key] = position

    def changes(self) -> Iterator[ReferenceChange]:
        """Yield the collected changes in order of effect, and release them: a snapshot has many rows."""
        yield from self._removed
        for key in list(self._added):
            yield ReferenceChange("insert", self._added_at[key], (key,), self._added.pop(key))
        for key in list(self._modified):
            yield ReferenceChange("update", self._modified_at[key], (key,), self._modified.pop(key))


@dataclass
class DeephavenReferenceReader:
    """A `connectors.verification.ReferenceReader` of one stream.

    Args:
        roles: Roles of the feed's schema, in its own byte order.
    """

    stream: str
    values: ReferenceValues
    roles: Roles
    keys: tuple[str, ...] = KEYS
    columns: tuple[str, ...] = ()
    _roles_by_epoch: dict[int, Roles] = field(default_factory=dict)
    _columns_by_id: dict[tuple[int, int], dict[int, ColumnInfo]] = field(default_factory=dict)

    def control(self, frame: ControlFrame) -> None:
        """Take a control frame: an epoch's ConnectionResponse, which comes first, or a subscribe response."""
        roles = self._roles_by_epoch.get(frame.epoch)
        if roles is None:
            self._roles_by_epoch[frame.epoch] = roles_of_epoch(self.roles, frame.body)
        elif frame.stream == self.stream and roles.template_id(frame.body) == roles.response.message.id:
            response = decode_subscribe_response(roles, frame.body)
            columns = {info.column_id: info for info in response.columns}
            self._columns_by_id[frame.epoch, response.subscription_id] = columns
            self.columns = tuple(info.name for info in response.columns)

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterable[ReferenceChange]:
        """Return one update's changes; see `connectors.verification.ReferenceReader.changes`."""
        rows = UpdateRows()
        for position, body in frames:
            self._read(rows, epoch, position, body, within)
        return rows.changes()

    def _read(self, rows: UpdateRows, epoch: int, position: int, body: bytes, within: KeySpan) -> None:
        roles = self._roles_by_epoch.get(epoch)
        if roles is None:
            raise InvalidValue(f"epoch {epoch} has no connection response", reason="no-context")
        template = roles.template_id(body)
        if template in roles.columns:
            found = decode_column(roles, body)
            columns = self._columns_by_id.get((epoch, found.subscription_id), {})
            info = check_column(found, columns)
            inside = _inside(found.row_keys, within)
            if info.name in self.values.table.decimals and not inside.all():
                self.values.convert(info, found.values)  # a decimal that does not fit makes the whole update unreadable
            values = self.values.convert(info, found.values.filter(pa.array(inside)))
            keys = found.row_keys[inside].tolist()
            rows.write(info.name, keys, values, modified=found.modified, position=position)
        elif template == roles.removed.message.id:
            rows.remove(decode_removed(roles, body).ranges.tolist(), position)
        elif template not in (roles.begin.message.id, roles.end.message.id):
            raise UnknownTemplate(f"template {template} inside an update", reason="unknown-template")


def _inside(row_keys: Longs, within: KeySpan) -> npt.NDArray[np.bool_]:
    """Return a mask of the row keys in a span."""
    inside = np.ones(len(row_keys), np.bool_)
    if within.first is not None:
        inside &= row_keys >= within.first[0]
    if within.end is not None:
        inside &= row_keys < within.end[0]
    return inside


def _moments(nanoseconds: Sequence[int | None]) -> list[datetime | None]:
    """Return datetimes of microseconds; finer digits are dropped, towards the past."""
    return [None if count is None else _EPOCH + timedelta(microseconds=count // 1000) for count in nanoseconds]


def _decimal(text: str, scale: int, name: str) -> Decimal:
    value = Decimal(text)
    try:
        fitted = value.quantize(Decimal(1).scaleb(-scale), context=_SILVER)
    except InvalidOperation as error:
        raise InvalidValue(f"{name}: {text[:80]} does not fit decimal(38, {scale})", reason="decimal-scale") from error
    if fitted != value:
        raise InvalidValue(f"{name}: {text} has more than {scale} digits after the point", reason="decimal-scale")
    return fitted


_SUBSCRIPTION = 1


class DeephavenSourceSubscription(Listener):
    """A `SourceSubscription`: a client of one subscription. Connects on entering its ``with`` block.

    Subscribes to the table with its columns and filter, and always to a snapshot with updates, whatever its mode.
    """

    def __init__(self, feed: DeephavenFeed, table: str) -> None:
        self._feed, self._values = feed, ReferenceValues(feed.options, feed.tables[table])
        self._updates = UpdateQueue()
        self._columns_by_id: Mapping[int, ColumnInfo] = {}
        self._collected = UpdateRows()
        self._is_first = True
        self.keys = KEYS
        self.columns: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        address, options, table = parse_address(self._feed.address), self._feed.options, self._values.table
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
        """Return the complete updates since the last call; see `connectors.verification.SourceSubscription.take`."""
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
