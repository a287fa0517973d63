"""Turns landed webhooks of one table into change rows, in Arrow: what the feed's decoder runs in Spark.

A webhook is decoded whole or not at all: it becomes its changes, or one row with ``error``. None depends on another, so
they may come in any order, and in any number of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import pyarrow as pa

from conf.errors import InvalidValue, WireError
from conf.names import folded
from connectors.sqlitecloud.change_rows import ERROR, NAMES, error_rows, without
from connectors.sqlitecloud_webhooks.columns import ToldColumn
from connectors.sqlitecloud_webhooks.messages import Addressed, Op, read_webhook

_AT_ONCE: Final = 1 << 13
"""Webhooks that become one batch."""


class _Told(NamedTuple):
    """One change."""

    position: int
    ordinal: int
    op: Op
    row: dict[str, Any]
    """By names of silver's columns."""
    present: list[str] | None


@dataclass(frozen=True)
class ChangeReader:
    """Reads the webhooks of one table's stream in one cut. Picklable.

    Args:
        where: What they say they are of.
        columns: The silver table's, keys first. A webhook is read with those told before it.
        keys: Names of its keys.
        insert_absent: `options.WebhookOptions.insert_absent`.
    """

    where: Addressed
    columns: tuple[ToldColumn, ...]
    keys: tuple[str, ...]
    insert_absent: str
    type: pa.Schema = field(init=False)
    """Of the change rows, as far as `transforms.changes` needs them: the other columns are always NULL."""

    def __post_init__(self) -> None:
        row = pa.struct([(column.name, column.arrow) for column, _ in self.columns])
        key = pa.struct([row.field(name) for name in self.keys])
        own = [("frame_seq", pa.int64()), ("ordinal", pa.int32()), ("op", pa.string()), ("key", key)]
        object.__setattr__(self, "type", pa.schema([*own, ("row", row), ("present", NAMES), ("error", ERROR)]))

    def read(self, positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of webhooks; one with ``error`` for each that cannot be read."""
        for start in range(0, len(positions), _AT_ONCE):
            told: list[_Told] = []
            wrong: dict[int, WireError] = {}
            for position, body in zip(
                positions[start : start + _AT_ONCE], bodies[start : start + _AT_ONCE], strict=True
            ):
                try:
                    told += self._changes(position, body)
                except WireError as error:
                    wrong[position] = error
            if told:
                batch = self._batch(told, wrong)
                yield without(batch, wrong)
            if wrong:
                yield error_rows(list(wrong), list(wrong.values()), self.type)

    def _changes(self, position: int, body: bytes) -> list[_Told]:
        where, webhook = read_webhook(body)
        if where != self.where:
            raise InvalidValue(f"it is of {where.table!r:.80} in {where.database!r:.80}", reason="other_table")
        known = self._known(position)
        names = [_silver_name(name, known) for name in webhook.columns]
        op, present = self._meaning(webhook.op, names, list(known.values()))
        rows = [dict(zip(names, row, strict=True)) for row in webhook.rows]
        for row in rows:
            self._check_key(row)
        return [_Told(position, ordinal, op, row, present) for ordinal, row in enumerate(rows)]

    def _known(self, position: int) -> Mapping[str, str]:
        """Return the columns that had been told before a position: as silver calls them, by their lower case."""
        return self._all if position > self._last_told else _named(told for told in self.columns if told.at < position)

    @cached_property
    def _all(self) -> Mapping[str, str]:
        return _named(self.columns)

    @cached_property
    def _last_told(self) -> int:
        """Position at which the last column was told."""
        return max((told.at for told in self.columns), default=-1)

    def _meaning(self, op: Op, names: Sequence[str], known: Sequence[str]) -> tuple[Op, list[str] | None]:
        """Return what is done to the row by whatever stood there, and which columns are sent; None for all."""
        whole = known if op == "insert" else self.columns  # of a column told later an update says nothing
        if op == "delete" or len(names) == len(whole):
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

    def _batch(self, told: Sequence[_Told], wrong: dict[int, WireError]) -> pa.RecordBatch:
        """Return the changes as one batch; ``wrong`` gets the webhooks with a value that does not fit."""
        deleted = [change.op == "delete" for change in told]
        pairs = list(zip(told, deleted, strict=True))
        cells: dict[str, pa.Array] = {}
        for column, _ in self.columns:
            is_key = column.name in self.keys
            sent = [None if gone and not is_key else each.row.get(column.name) for each, gone in pairs]
            cells[column.name], unfit = column.array(sent, sent=True)
            for index, error in unfit.items():
                wrong.setdefault(told[index].position, error)
        row, key = self.type.field("row").type, self.type.field("key").type
        columns = [
            pa.array([each.position for each in told], pa.int64()),
            pa.array([each.ordinal for each in told], pa.int32()),
            pa.array([each.op for each in told], pa.string()),
            pa.StructArray.from_arrays([cells[name] for name in self.keys], fields=list(key)),
            pa.StructArray.from_arrays(list(cells.values()), fields=list(row), mask=pa.array(deleted)),
            pa.array([each.present for each in told], NAMES),
            pa.nulls(len(told), ERROR),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.type)


def _named(columns: Iterable[ToldColumn]) -> Mapping[str, str]:
    return {folded(column.name): column.name for column, _ in columns}


def _silver_name(name: str, known: Mapping[str, str]) -> str:
    found = known.get(folded(name))
    if found is None:
        detail = f"column {name!r:.80} was not told before, or is called as one of silverfold's own"
        raise InvalidValue(detail, reason="unknown_column")
    return found
