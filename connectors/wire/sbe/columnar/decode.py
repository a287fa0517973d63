"""Decodes many messages of one schema to a table for each template, and reports those that could not be read.

Invariant: each message has the same values or the same error as with the decoder of single messages. Absent and null
are both NULL. Only a time outside the range of a timestamp is an error here but not there, where times are numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import OversizedMessage, WireError
from silverfold.connectors.wire.sbe.codec.decode import MessageReader
from silverfold.connectors.wire.sbe.codec.skip import Skipper
from silverfold.connectors.wire.sbe.columnar.blocks import Blocks
from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bodies, Longs, bodies_of
from silverfold.connectors.wire.sbe.columnar.composites import FieldColumn
from silverfold.connectors.wire.sbe.columnar.headers import HeaderColumns, Headers
from silverfold.connectors.wire.sbe.columnar.levels import FIRST_GROUP, BlockTable
from silverfold.connectors.wire.sbe.columnar.logical_types import check_times
from silverfold.connectors.wire.sbe.columnar.numeric import struct_of
from silverfold.connectors.wire.sbe.columnar.options import BLOCK_LENGTH, VERSION, ColumnOptions
from silverfold.connectors.wire.sbe.columnar.plan import BodyPlan
from silverfold.connectors.wire.sbe.columnar.state import TooMuchAtOnce, WalkState
from silverfold.connectors.wire.sbe.columnar.texts import DataValues
from silverfold.connectors.wire.sbe.columnar.walk import Shapes, Walk
from silverfold.connectors.wire.sbe.schema.model import Body, Buffer, ByteOrder, Message, Schema


class BodyRows:
    """Builds one struct for each body of a level; its children are in schema order."""

    def __init__(self, body: Body, order: ByteOrder, options: ColumnOptions) -> None:
        self._fields = [FieldColumn(field, order, options) for field in body.fields]
        self._groups: list[BodyRows] = [BodyRows(group, order, options) for group in body.groups]
        self._data = [DataValues(data, options) for data in body.data]
        self._size = max((field.end for field in self._fields), default=0)
        columns = [(field.name, field.type) for field in self._fields]
        columns += [(part.name, pa.list_(group.type)) for part, group in zip(body.groups, self._groups, strict=True)]
        columns += [(part.name, data.type) for part, data in zip(body.data, self._data, strict=True)]
        self._shapes = options.shapes
        columns += [(VERSION, pa.int64()), (BLOCK_LENGTH, pa.int64())] if options.shapes else []
        self.type: pa.DataType = pa.struct(columns)

    def make(self, level: BlockTable, state: WalkState) -> pa.Array:
        """Return the structs of a finalized level, in order. Marks messages with invalid values as bad."""
        blocks = Blocks(level, state, self._size)
        columns = [field.make(blocks) for field in self._fields]
        for number, group in enumerate(self._groups):
            entries = group.make(level.groups[number], state)
            columns.append(_list_array(level.rows[FIRST_GROUP + number], entries))
        for number, data in enumerate(self._data):
            column = level.data_column(number)
            columns.append(data.make(blocks, level.rows[column], level.rows[column + 1]))
        if self._shapes:
            columns += [pa.array(blocks.version), pa.array(blocks.length)]
        return struct_of(columns, self.type, blocks.count)


def _list_array(counts: Longs, entries: pa.Array) -> pa.Array:
    """Return the entries of each body as a list; NULL where the count is negative."""
    absent = counts < 0
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(np.where(absent, 0, counts), out=offsets[1:])
    mask = pa.array(absent) if absent.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), entries, mask=mask)


_MESSAGES_AT_ONCE = 1 << 14
"""Few enough that the arrays of a walk stay in the processor's cache."""
_BYTES_AT_ONCE = 1 << 24
"""Most bytes of messages walked together; a single message may be larger."""
_LARGEST = (1 << 31) - 1
"""Most bytes of one message; Arrow's text cannot be longer."""

Messages: TypeAlias = "pa.Array | Sequence[Buffer]"
"""A binary array, or a sequence of messages."""

ERROR = pa.schema(
    [
        ("index", pa.int64()),
        ("error_class", pa.string()),
        ("reason", pa.string()),
        ("element", pa.string()),
        ("offset", pa.int64()),
        ("message", pa.string()),
    ]
)
"""Errors of unreadable messages: index in the input, the attributes of the `WireError`, and its text."""


class Rows(NamedTuple):
    """Decoded messages of one template."""

    origin: Longs
    """Index in the input of each row's message, ascending."""
    table: pa.Table
    """One row per message, with the columns of `arrow_schema`."""


class Columns(NamedTuple):
    """Decoded messages."""

    rows: dict[str, Rows]
    """By message name; only templates of which a message was read."""
    errors: pa.Table
    """With schema `ERROR`, in input order."""


class Part(NamedTuple):
    """Result of messages that were walked together."""

    rows: dict[str, tuple[Longs, pa.RecordBatch]]
    """By message name: the input index of each row's message, and the rows."""
    unread: Longs
    """Indexes of messages that could not be read, ascending."""


class ColumnReader:
    """Decodes messages of one schema. Caches compiled readers: use one instance for many calls."""

    def __init__(self, schema: Schema, options: ColumnOptions | None = None) -> None:
        self._schema, self._options = schema, options or ColumnOptions()
        self._headers, self._skipper = HeaderColumns(schema), Skipper(schema)
        self._templates: dict[str, tuple[BodyPlan, BodyRows]] = {}
        self._single = MessageReader(
            schema,
            text=self._options.text,
            strict=self._options.strict,
            max_empty_entries=self._options.max_empty_entries,
        )

    def schema(self, template: str) -> pa.Schema:
        """Return the columns of a message; raises KeyError if the schema has none of that name."""
        return pa.schema(list(self._template(self._schema.messages[template])[1].type))

    def parts(self, messages: Messages, *, only: Collection[str] | None = None) -> Iterator[Part]:
        """Yield the decoded messages in parts, so that memory stays bounded.

        Args:
            only: Names of messages to read. Other templates are skipped; unknown templates are still errors.
        """
        bodies = bodies_of(messages)
        first = 0
        while first < len(bodies.start):
            full = np.searchsorted(bodies.end, bodies.start[first] + _BYTES_AT_ONCE, "right")
            last = max(first + 1, min(int(full), first + _MESSAGES_AT_ONCE))
            yield from self._parts(bodies, first, last, only)
            first = last

    def errors(self, messages: Messages, unread: Longs) -> pa.RecordBatch:
        """Return the errors of messages that could not be read, with schema `ERROR`."""
        bodies = bodies_of(messages)
        errors = [self._error(bodies.body(index)) for index in unread.tolist()]
        columns = (
            [error.error_class for error in errors],
            [error.reason for error in errors],
            [error.element for error in errors],
            [error.offset for error in errors],
            [str(error) for error in errors],
        )
        arrays = [pa.array(column, kind) for column, kind in zip(columns, ERROR.types[1:], strict=True)]
        return pa.RecordBatch.from_arrays([pa.array(unread), *arrays], schema=ERROR)

    def _error(self, body: Buffer) -> WireError:
        if len(body) > _LARGEST:
            detail = f"message of {len(body)} bytes, columns can hold {_LARGEST}"
            return OversizedMessage(detail, offset=0, reason="frame-too-large")
        try:
            found = self._single.read(body)
            check_times(found.message, found.values, self._options, found.message.name)
        except WireError as error:
            return error
        raise AssertionError("a message read alone must fail as it does among others")

    def _parts(self, bodies: Bodies, first: int, last: int, only: Collection[str] | None) -> Iterator[Part]:
        try:
            yield self._part(bodies.part(first, last), first, only)
        except TooMuchAtOnce:
            middle = (first + last) // 2
            yield from self._parts(bodies, first, middle, only)
            yield from self._parts(bodies, middle, last, only)

    def _part(self, bodies: Bodies, first: int, only: Collection[str] | None) -> Part:
        if len(bodies.octets) > _LARGEST:  # one message: no more are walked together
            return Part({}, np.array([first]))
        headers, foreign = self._headers.read(bodies)
        rows, unread = {}, [foreign]
        for template in _distinct(headers.template):
            of_template = headers.of(headers.template == template)
            message = self._schema.templates.get(template)
            if message is None:
                unread.append(of_template.message)
            elif only is None or message.name in only:
                index, batch, bad = self._rows(message, bodies, of_template)
                rows[message.name] = index + first, batch
                unread.append(bad)
        return Part(rows, np.sort(np.concatenate(unread)) + first)

    def _rows(self, message: Message, bodies: Bodies, headers: Headers) -> tuple[Longs, pa.RecordBatch, Longs]:
        """Return the messages of a template that were read, their rows, and the messages that could not be read."""
        plan, rows = self._template(message)
        own = Bodies(bodies.octets, bodies.start[headers.message], bodies.end[headers.message])
        state = WalkState(own, headers.version, self._schema.header.size, empty_entries=self._options.max_empty_entries)
        level = BlockTable(message)
        Walk(state, self._skipper).messages(plan, level, Shapes(headers.block_length, headers.groups, headers.data))
        if self._options.strict:
            state.bad |= (state.cursor < state.end) & (state.version <= self._schema.version) & ~state.stopped
        structs = self._structs(rows, level, state)
        read = headers.message[level.rows[0]]
        return read, pa.RecordBatch.from_struct_array(structs), headers.message[state.bad]

    def _structs(self, rows: BodyRows, level: BlockTable, state: WalkState) -> pa.Array:
        """Return the rows of good messages; repeated without those found to have invalid values."""
        bad = -1
        while bad != state.bad.sum():
            bad = int(state.bad.sum())
            level.finalize(state.bad)
            structs = rows.make(level, state)
        return structs

    def _template(self, message: Message) -> tuple[BodyPlan, BodyRows]:
        if message.name not in self._templates:
            order = self._schema.byte_order
            self._templates[message.name] = BodyPlan(message, order, root=True), BodyRows(message, order, self._options)
        return self._templates[message.name]


def _distinct(templates: Longs) -> list[int]:
    if len(templates) and bool((templates == templates[0]).all()):
        return [int(templates[0])]
    return [int(template) for template in np.unique(templates)]


def decode_columns(
    schema: Schema, messages: Messages, *, options: ColumnOptions | None = None, only: Collection[str] | None = None
) -> Columns:
    """Decode many complete messages; Arrow input is not copied.

    Rows are in input order. A message that cannot be read is in ``errors`` and in no table; null counts as an empty
    message.

    Args:
        only: Names of messages to read. Other templates are skipped; unknown templates are still errors.
    """
    reader = column_reader(schema, options)
    parts = list(reader.parts(messages, only=only))
    rows: dict[str, Rows] = {}
    for name in {name: None for part in parts for name in part.rows}:
        read = [part.rows[name] for part in parts if name in part.rows]
        origin = np.concatenate([numbers for numbers, _ in read])
        if len(origin):
            rows[name] = Rows(origin, pa.Table.from_batches([batch for _, batch in read]))
    unread = np.concatenate([np.empty(0, np.int64), *(part.unread for part in parts)])
    return Columns(rows, pa.Table.from_batches([reader.errors(messages, unread)]))


def arrow_schema(schema: Schema, template: str, options: ColumnOptions | None = None) -> pa.Schema:
    """Return the columns of a template's table; raises KeyError if the schema has no message of that name."""
    return column_reader(schema, options).schema(template)


def column_reader(schema: Schema, options: ColumnOptions | None = None) -> ColumnReader:
    """Return the reader for these options, cached in the schema."""
    key = ("columns", options or ColumnOptions())
    reader = schema.plans.get(key)
    if reader is None:
        reader = schema.plans[key] = ColumnReader(schema, options)
    assert isinstance(reader, ColumnReader)
    return reader
