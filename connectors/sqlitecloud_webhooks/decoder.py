"""Landed webhooks to change rows, in Spark, without folding: the decoder of a feed, and its step over Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.conf.names import caseless
from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.change_rows import CHANGES_AT_ONCE, NAMES, ChangeRows, key_type
from silverfold.connectors.common.row_decoder import UnfoldedDecoder, decode_frames
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookFeed, WebhookTable
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.columns import (
    AnnouncedColumn,
    Context,
    columns_of,
    read_context,
)
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import Op, SourceTable, read_webhook


class _Change(NamedTuple):
    """One change."""

    position: int
    ordinal: int
    op: Op
    row: dict[str, Any]
    """Values by silver column name."""
    present: list[str] | None


@dataclass(frozen=True)
class ChangeReader:
    """Decodes the webhooks of one table's stream in one cut. Picklable.

    Args:
        where: The database and table that they must name.
        columns: The silver table's columns, keys first. A webhook is decoded with those announced before it.
        keys: Names of the key columns.
        insert_absent: `options.WebhookOptions.insert_absent`.
    """

    where: SourceTable
    columns: tuple[AnnouncedColumn, ...]
    keys: tuple[str, ...]
    insert_absent: str
    rows: ChangeRows = field(init=False)

    def __post_init__(self) -> None:
        row = pa.struct([(column.name, column.arrow) for column, _ in self.columns])
        rows = ChangeRows(row, key_type(row, self.keys), omitted=frozenset({"old_key"}))
        object.__setattr__(self, "rows", rows)

    @property
    def type(self) -> pa.Schema:
        """Schema of the change rows."""
        return self.rows.type

    def read(self, positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of webhooks; one with ``error`` for each that cannot be decoded."""
        for start in range(0, len(positions), CHANGES_AT_ONCE):
            changes: list[_Change] = []
            wrong: dict[int, WireError] = {}
            part = slice(start, start + CHANGES_AT_ONCE)
            for position, body in zip(positions[part], bodies[part], strict=True):
                try:
                    changes += self._changes(position, body)
                except WireError as error:
                    wrong[position] = error
            yield from self.rows.whole_frames(self._batch(changes, wrong), wrong)

    def _changes(self, position: int, body: bytes) -> list[_Change]:
        where, webhook = read_webhook(body)
        if where != self.where:
            raise InvalidValue(f"it is of {where.table!r:.80} in {where.database!r:.80}", reason="other_table")
        known = self._known(position)
        names = [_silver_name(name, known) for name in webhook.columns]
        op, present = self._effective_change(webhook.op, names, list(known.values()))
        rows = [dict(zip(names, row, strict=True)) for row in webhook.rows]
        for row in rows:
            self._check_key(row)
        return [_Change(position, ordinal, op, row, present) for ordinal, row in enumerate(rows)]

    def _known(self, position: int) -> Mapping[str, str]:
        """Return the columns announced before a position: silver names by lower-cased name."""
        return (
            self._all
            if position > self._last_announced
            else _names_by_folded(column for column in self.columns if column.at < position)
        )

    @cached_property
    def _all(self) -> Mapping[str, str]:
        return _names_by_folded(self.columns)

    @cached_property
    def _last_announced(self) -> int:
        """Position at which the last column was announced."""
        return max((column.at for column in self.columns), default=-1)

    def _effective_change(self, op: Op, names: Sequence[str], known: Sequence[str]) -> tuple[Op, list[str] | None]:
        """Return the operation to apply to whatever row exists, and the columns sent; None for all."""
        complete = known if op == "insert" else self.columns  # an update does not set later columns
        if op == "delete" or len(names) == len(complete):
            return op, None
        if op == "insert" and self.insert_absent == "error":
            absent = sorted({*known} - {*names})
            raise InvalidValue(f"an insert lacks {', '.join(absent)}", reason="absent_column")
        if op == "insert" and self.insert_absent == "null":
            return op, None
        return "update", [name for name in known if name in names]

    def _check_key(self, row: dict[str, Any]) -> None:
        for name in self.keys:
            if name not in row:
                raise InvalidValue(f"key column {name!r:.80} is absent", reason="no_key")
            if row[name] is None:
                raise InvalidValue(f"key column {name!r:.80} is NULL", reason="null_in_key")

    def _batch(self, changes: Sequence[_Change], wrong: dict[int, WireError]) -> pa.RecordBatch:
        """Return the changes as one batch; add errors of values that do not fit to ``wrong``."""
        deleted = [change.op == "delete" for change in changes]
        pairs = list(zip(changes, deleted, strict=True))
        cells: list[pa.Array] = []
        for column, _ in self.columns:
            is_key = column.name in self.keys
            sent = [None if is_delete and not is_key else each.row.get(column.name) for each, is_delete in pairs]
            array, errors = column.array(sent, sent=True)
            cells.append(array)
            for index, error in errors.items():
                wrong.setdefault(changes[index].position, error)
        return self.rows.batch(
            pa.array([each.position for each in changes], pa.int64()),
            pa.array([each.op for each in changes], pa.string()),
            cells,
            ordinals=pa.array([each.ordinal for each in changes], pa.int32()),
            present=pa.array([each.present for each in changes], NAMES),
        )


def _names_by_folded(columns: Iterable[AnnouncedColumn]) -> Mapping[str, str]:
    return {caseless(column.name): column.name for column, _ in columns}


def _silver_name(name: str, known: Mapping[str, str]) -> str:
    found = known.get(caseless(name))
    if found is None:
        detail = f"column {name!r:.80} was not told before, or is called as one of silverfold's own"
        raise InvalidValue(detail, reason="unknown_column")
    return found


@dataclass(frozen=True)
class WebhookDecoder(UnfoldedDecoder[WebhookTable]):
    """The `connectors.base.Decoder` of one feed."""

    feed: WebhookFeed

    def context(self, control: Iterable[ControlFrame]) -> Context:
        """Return the columns that webhooks have named."""
        return read_context(control)

    def row_type(self, context: Context, cut: Cut, table: WebhookTable) -> StructType:
        """Return the table's columns: keys, those with configured types, then the others in order of appearance."""
        return from_arrow_schema(pa.schema(list(self._reader(context, cut, table).type.field("row").type)))

    def changes(self, frames: ArrowRows, context: Context, cut: Cut, table: WebhookTable) -> ArrowRows:
        """Return a change for each row of a webhook."""
        return decode_frames(frames, self._reader(context, cut, table))

    def _reader(self, context: Context, cut: Cut, table: WebhookTable) -> ChangeReader:
        options = self.feed.options
        columns = columns_of(context.stream_columns(cut.stream), table, options)
        database, name = options.database, cut.stream.removeprefix(f"{options.database}/")
        return ChangeReader(SourceTable(database, name), columns, table.keys, options.insert_absent)
