"""The roles that messages, fields, groups and data of a schema play in the transport; `binding.bind` assigns them.

Everything is frozen and picklable, so that Spark's workers parse frames by the same plan as the receiver.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.deephaven.protocol.groups import Entries, OpenMessage, Text, TextErrors, VarPart
from silverfold.connectors.deephaven.protocol.layouts import Flag, Ints, NullDefaults, Number
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.types import ColumnType
from silverfold.connectors.wire.sbe.schema.model import Field, Message, Schema


class Header(NamedTuple):
    """The message header, and the end offset of the root block."""

    block_length: int
    template_id: int
    schema_id: int
    version: int
    end_of_root: int


@dataclass(frozen=True)
class Subscribed:
    """A message whose root names a subscription.

    Args:
        ids: The integers read from its root, the subscription id first.
        null_defaults: Other optional fields of the root: `struct` format, offset and null value.
        tail: The parts after the root block.
    """

    message: Message
    ids: Ints
    null_defaults: NullDefaults
    tail: VarPart

    def read(self, body: bytes, header: Header) -> tuple[int, ...]:
        """Return the integers of the root. Raises InvalidValue ``absent`` when the block lacks them."""
        at = header.end_of_root - header.block_length
        self.ids.require(header.block_length, header.version, at)
        return self.ids.read(body, at)


@dataclass(frozen=True)
class Connection(Subscribed):
    """ConnectionResponse, the only message without a subscription: ``ids`` is the buffer size alone."""

    buffer_size: Field


@dataclass(frozen=True)
class Subscribe(Subscribed):
    """TableSubscribe: ``ids`` are subscription id and mode."""

    modes: Mapping[SubscribeMode, int]
    columns: Entries
    column_name: Text
    table: Text
    filter: Text


@dataclass(frozen=True)
class Response(Subscribed):
    """TableSubscribeResponse: ``column`` are column id and template id of one entry."""

    columns: Entries
    column: Ints
    column_name: Text


@dataclass(frozen=True)
class Refusal(Subscribed):
    """TableSubscriptionError: ``ids`` are subscription id and code."""

    codes: Mapping[str, int]
    text: Text


@dataclass(frozen=True)
class Ranges:
    """The group of inclusive row ranges."""

    entries: Entries
    first: Number
    last: Number


@dataclass(frozen=True)
class Removed(Subscribed):
    """RowsRemoved."""

    ranges: Ranges


@dataclass(frozen=True)
class Values:
    """A group whose entries are values: those of a column, or the elements of one array.

    Args:
        type: Type of the entries.
        entries: The group.
        value: The value of a fixed type.
        booleans: Raw numbers of false, true and null, in this order, for booleans.
        is_null: The null flag of the other types.
        scale: Scale of a decimal.
        text: Text of a string, magnitude of a decimal.
        elements: The nested group of an array.
        simple: Entries have no other parts, so they need not be walked part by part.
    """

    type: ColumnType
    entries: Entries
    value: Number | None = None
    booleans: tuple[int, int, int] | None = None
    is_null: Flag | None = None
    scale: Number | None = None
    text: Text | None = None
    elements: Values | None = None
    simple: bool = True


@dataclass(frozen=True)
class Column(Subscribed):
    """A ``ColumnData`` message: ``ids`` are subscription id, column id and the modified flag."""

    type: ColumnType
    modified: Flag
    ranges: Ranges
    values: Values


@dataclass(frozen=True)
class Roles:
    """All roles of one schema, in one byte order. Picklable.

    Messages that a schema may omit are None; their features are then off.
    """

    schema: Schema
    header: Ints
    """Block length, template id, schema id and version."""
    connection: Connection
    subscribe: Subscribe
    response: Response
    begin: Subscribed
    end: Subscribed
    removed: Removed
    columns: Mapping[int, Column]
    """By template id."""
    unsubscribe: Subscribed | None = None
    unsubscribed: Subscribed | None = None
    refusal: Refusal | None = None
    text: TextErrors = "strict"
    """How bytes in a cell that are not valid text are handled."""

    def read_header(self, body: bytes) -> Header:
        """Read the header and check that the root block is complete.

        Raises:
            TruncatedMessage: ``short-frame``: incomplete header; ``truncated``: incomplete root block.
            InvalidValue: ``schema-id``: a message of another schema.
        """
        size = self.schema.header.size
        if len(body) < size:
            detail = f"a message of {len(body)} bytes is below the {size}-byte header"
            raise TruncatedMessage(detail, offset=0, reason="short-frame")
        block_length, template_id, schema_id, version = self.header.read(body, 0)
        if schema_id != self.schema.id:
            detail = f"schema id {schema_id}, expected {self.schema.id}"
            raise InvalidValue(detail, offset=0, reason="schema-id")
        if size + block_length > len(body):
            detail = f"the root block needs {block_length} bytes, {len(body) - size} are left"
            raise TruncatedMessage(detail, offset=size, reason="truncated")
        return Header(block_length, template_id, schema_id, version, size + block_length)

    def open(self, body: bytes, header: Header) -> OpenMessage:
        """Return the message, ready for reading its parts."""
        return OpenMessage(self.schema, body, header.version)

    def template_id(self, body: bytes) -> int:
        """Return the template id of a message. Raises the same errors as `read_header`."""
        return self.read_header(body).template_id

    def write_root(self, role: Subscribed, values: Sequence[int]) -> bytearray:
        """Return the header and root block of a message. Raises InvalidValue for an integer its field cannot hold."""
        message, size = role.message, self.schema.header.size
        root = bytearray(size + message.block_length)
        self.header.write(root, 0, (message.block_length, message.id, self.schema.id, self.schema.version))
        role.ids.write(root, size, values)
        for code, offset, null in role.null_defaults:
            struct.pack_into(code, root, size + offset, null)
        return root

    def write(self, role: Subscribed, values: Sequence[int], parts: Mapping[str, bytes] | None = None) -> bytes:
        """Return a complete message, given its encoded parts by name. Raises the same errors as `write_root`."""
        return bytes(self.write_root(role, values) + role.tail.write(parts or {}))

    def column(self, kind: ColumnType) -> Column | None:
        """Return the message for columns of a type; None where the schema lacks it."""
        for column in self.columns.values():
            if column.type is kind or column.type == kind:
                return column
        return None
