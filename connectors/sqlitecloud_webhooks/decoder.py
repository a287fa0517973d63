"""Landed webhooks to change rows, in Spark, without folding: the decoder of a feed, and its step over Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.conf.names import folded
from silverfold.connectors.base import ControlFrame, Cut
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.row_decoder import EachFrame, UnfoldedDecoder
from silverfold.connectors.sqlitecloud.decoder.change_rows import ERROR, NAMES, error_rows, without
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookFeed, WebhookTable
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.columns import (
    AnnouncedColumn,
    Context,
    columns_of,
    read_context,
)
from silverfold.connectors.sqlitecloud_webhooks.protocol.landed.messages import Op, SourceTable, read_webhook

_AT_ONCE: Final = 1 << 13
"""Webhooks per batch."""


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
    type: pa.Schema = field(init=False)
    """Schema of the change rows, limited to what `transforms.changes` needs: its other columns are always NULL."""

    def __post_init__(self) -> None:
        row = pa.struct([(column.name, column.arrow) for column, _ in self.columns])
        key = pa.struct([row.field(name) for name in self.keys])
        own = [("frame_seq", pa.int64()), ("ordinal", pa.int32()), ("op", pa.string()), ("key", key)]
        object.__setattr__(self, "type", pa.schema([*own, ("row", row), ("present", NAMES), ("error", ERROR)]))

    def read(self, positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of webhooks; one with ``error`` for each that cannot be decoded."""
        for start in range(0, len(positions), _AT_ONCE):
            changes: list[_Change] = []
            wrong: dict[int, WireError] = {}
            for position, body in zip(
                positions[start : start + _AT_ONCE], bodies[start : start + _AT_ONCE], strict=True
            ):
                try:
                    changes += self._changes(position, body)
                except WireError as error:
                    wrong[position] = error
            if changes:
                batch = self._batch(changes, wrong)
                yield without(batch, wrong)
            if wrong:
                yield error_rows(list(wrong), list(wrong.values()), self.type)

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
        cells: dict[str, pa.Array] = {}
        for column, _ in self.columns:
            is_key = column.name in self.keys
            sent = [None if is_delete and not is_key else each.row.get(column.name) for each, is_delete in pairs]
            cells[column.name], errors = column.array(sent, sent=True)
            for index, error in errors.items():
                wrong.setdefault(changes[index].position, error)
        row, key = self.type.field("row").type, self.type.field("key").type
        columns = [
            pa.array([each.position for each in changes], pa.int64()),
            pa.array([each.ordinal for each in changes], pa.int32()),
            pa.array([each.op for each in changes], pa.string()),
            pa.StructArray.from_arrays([cells[name] for name in self.keys], fields=list(key)),
            pa.StructArray.from_arrays(list(cells.values()), fields=list(row), mask=pa.array(deleted)),
            pa.array([each.present for each in changes], NAMES),
            pa.nulls(len(changes), ERROR),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.type)


def _names_by_folded(columns: Iterable[AnnouncedColumn]) -> Mapping[str, str]:
    return {folded(column.name): column.name for column, _ in columns}


def _silver_name(name: str, known: Mapping[str, str]) -> str:
    found = known.get(folded(name))
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
        reader = self._reader(context, cut, table)
        return frames.run(EachFrame(_Read(reader), reader.type), reader.type, "frame_seq", "body")

    def _reader(self, context: Context, cut: Cut, table: WebhookTable) -> ChangeReader:
        options = self.feed.options
        columns = columns_of(context.stream_columns(cut.stream), table, options)
        database, name = options.database, cut.stream.removeprefix(f"{options.database}/")
        return ChangeReader(SourceTable(database, name), columns, table.keys, options.insert_absent)


@dataclass(frozen=True)
class _Read:
    reader: ChangeReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.reader.read(batch.column("frame_seq").to_pylist(), batch.column("body").to_pylist())
