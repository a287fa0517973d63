"""Turns landed messages of one template into change rows, in Arrow batches: the feed's decoder runs it in Spark.

For a table with keys each row is a change: the one its operation field gives, or else an update. It covers the columns
that the message has; fields newer than its version, or beyond its block, are absent and unchanged. For a table without
keys every row is an insert, which is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.change_rows import Bools, ChangeRows, error_rows, key_type, names_sent
from silverfold.connectors.sbe.decoder.layout import Layout, Source, column_options
from silverfold.connectors.sbe.options import SbeTable
from silverfold.connectors.sbe.protocol.operations import DELETE, INSERT, UPDATE, operations, unknown, unlisted, unnamed
from silverfold.connectors.wire.sbe.columnar.blocks import block_ends
from silverfold.connectors.wire.sbe.columnar.decode import column_reader
from silverfold.connectors.wire.sbe.columnar.options import BLOCK_LENGTH, VERSION
from silverfold.connectors.wire.sbe.schema.model import Schema

Longs: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """The root blocks, or the entries of one group of the path: their columns, and the table rows they belong to.

    Args:
        rows: One struct for each block or entry.
        owner: For each row of the table, the index into ``rows``.
    """

    rows: pa.Array
    owner: Longs

    def of_rows(self, source: Source) -> pa.Array:
        """Return a column, one value for each row of the table; nested entries are without their shapes."""
        return pc.struct_field(self.rows, source.element).take(pa.array(self.owner)).cast(source.type)

    def numbers(self, element: str) -> Longs:
        """Return a column of non-null numbers, one for each row of the table."""
        found: Longs = np.asarray(pc.struct_field(self.rows, element))[self.owner]
        return found


@dataclass(frozen=True)
class ChangeReader:
    """Reads the messages of one silver table. Picklable.

    Args:
        table: The table's settings.
    """

    schema: Schema
    table: SbeTable
    layout: Layout
    rows: ChangeRows = field(init=False)

    def __post_init__(self) -> None:
        row = pa.struct(list(self.layout.row))
        rows = ChangeRows(row, key_type(row, self.table.keys), omitted=frozenset({"old_key"}))
        object.__setattr__(self, "rows", rows)

    @property
    def type(self) -> pa.Schema:
        """Schema of the change rows."""
        return self.rows.type

    def read(self, positions: pa.Array, bodies: pa.Array) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of frames, and one row with ``error`` for each unreadable message."""
        reader = column_reader(self.schema, column_options(self.table, shapes=True))
        for part in reader.parts(bodies, only={self.layout.message.name}):
            for origin, rows in part.rows.values():
                yield from self._changes(np.asarray(positions)[origin], rows.to_struct_array())
            if len(part.unread):
                errors = reader.errors(bodies, part.unread)
                found = zip(errors.column("error_class").to_pylist(), errors.column("message").to_pylist(), strict=True)
                yield error_rows(self.type, positions.take(pa.array(part.unread)), found)

    def _changes(self, positions: Longs, messages: pa.Array) -> Iterator[pa.RecordBatch]:
        levels = self._levels(messages)
        message = levels[0].owner
        ordinals = np.arange(len(message)) - np.searchsorted(message, message)
        columns = [levels[source.level].of_rows(source) for source in self.layout.columns]
        ops, known = self._operations(columns)
        rows = Rows(pa.array(positions[message]), pa.array(ordinals, pa.int32()), columns, ops)
        named = {source.name: self._has_known_values(rows, source) for source in self._checked_columns}
        good = reduce(pc.and_, named.values(), known)
        sent = self._sent(levels, columns)
        if self.layout.lists_sent:
            rows = rows._replace(columns=[*columns, self._names(sent, np.ones(len(message), np.bool_))])
        present = self._present(rows, sent) if self.table.keys else None
        ops = ops.fill_null(DELETE)  # unknown ones become errors, not changes
        batch = self.rows.batch(rows.positions, ops, rows.columns, ordinals=rows.ordinals, present=present)
        yield batch.filter(good)
        yield from self._value_errors(rows, self.table.operation, known, unlisted)
        for name, which in named.items():
            yield from self._value_errors(rows, name, which, unnamed if name in self.table.keys else unknown)

    def _levels(self, messages: pa.Array) -> list[Level]:
        levels = [Level(messages, np.arange(len(messages)))]
        for group in self.table.path:
            lists = pc.struct_field(levels[-1].rows, group)
            parents = np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
            levels = [Level(level.rows, level.owner[parents]) for level in levels]
            entries = pc.list_flatten(lists)
            levels.append(Level(entries, np.arange(len(entries))))
        return levels

    def _operations(self, columns: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Return the operation of each row, and whether it is known."""
        count = len(columns[0])
        if not self.table.operation:
            every = UPDATE if self.table.keys else INSERT
            return pa.array([every]).take(pa.array(np.zeros(count, np.int8))), pa.array(np.ones(count, np.bool_))
        source = self.layout.column(self.table.operation)
        assert source is not None, "settings are checked before"
        known = operations(self.table, source.values.values())
        ops = pa.array(known.values(), pa.string()).take(
            pc.index_in(columns[self.layout.columns.index(source)], pa.array(known, pa.string()))
        )
        return ops, ops.is_valid()

    def _sent(self, levels: Sequence[Level], columns: Sequence[pa.Array]) -> list[Bools]:
        """Return, for each column, a mask of the rows whose message has it."""
        return [_sent(levels[s.level], s, column) for s, column in zip(self.layout.columns, columns, strict=True)]

    def _present(self, rows: Rows, sent: Sequence[Bools]) -> pa.Array:
        """Return the names of the columns that each row's message has, or NULL if it has all, or deletes the row."""
        is_there = np.asarray(pc.not_equal(rows.ops, DELETE).fill_null(False))
        return self._names(sent, is_there & ~np.logical_and.reduce(sent))

    def _names(self, sent: Sequence[Bools], of: Bools) -> pa.Array:
        return names_sent([source.name for source in self.layout.columns], sent, of)

    @property
    def _checked_columns(self) -> list[Source]:
        """The enum columns whose values must all be known: those of the key, or all."""
        every = self.table.unknown_values == "error"
        return [source for source in self.layout.columns if source.values and (every or source.name in self.table.keys)]

    def _has_known_values(self, rows: Rows, source: Source) -> pa.Array:
        """Return, for each row, whether an enum's value is null or known to the schema."""
        values = rows.columns[self.layout.columns.index(source)]
        return pc.or_(pc.is_in(values, pa.array(source.values.values(), pa.string())), values.is_null())

    def _value_errors(
        self, rows: Rows, name: str, good: pa.Array, refusal: Callable[[str, str, Any], InvalidValue]
    ) -> Iterator[pa.RecordBatch]:
        """Yield errors for the rows with an invalid value in a column, if there are any."""
        if pc.all(good, min_count=0).as_py():
            return
        which = pc.invert(good)
        values = rows.columns[self.layout.row.get_field_index(name)].filter(which).to_pylist()
        reasons = [refusal(self.layout.message.name, name, value) for value in values]
        yield error_rows(self.type, rows.positions.filter(which), reasons)


class Rows(NamedTuple):
    """Rows of the table, and the operation of each."""

    positions: pa.Array
    ordinals: pa.Array
    columns: Sequence[pa.Array]
    ops: pa.Array


def _sent(level: Level, source: Source, column: pa.Array) -> Bools:
    if not source.ends:
        valid: Bools = np.asarray(column.is_valid())
        return valid
    version = level.numbers(VERSION)
    known: Bools = version >= source.since
    return known & (level.numbers(BLOCK_LENGTH) >= block_ends(source.ends, version))
