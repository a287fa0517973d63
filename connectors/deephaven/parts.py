"""The parts that messages, fields, groups and data of a schema play in the transport; `roles.bind` finds them.

Everything is frozen and picklable, so that Spark's workers read frames by the same plan as the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.deephaven.layouts import Entries, Flag, Ints, Number, Parts, Text
from connectors.deephaven.messages import SubscribeMode
from connectors.deephaven.types import ColumnType
from connectors.wire.sbe.model import Field, Message, Schema


@dataclass(frozen=True)
class Subscribed:
    """A message whose root names a subscription.

    Args:
        ids: The integers of its root that are read, the subscription id first.
        parts: What follows the root block.
    """

    message: Message
    ids: Ints
    parts: Parts


@dataclass(frozen=True)
class Connection:
    """ConnectionResponse."""

    message: Message
    buffer_size: Field
    parts: Parts


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
        type: What the entries are.
        entries: The group.
        value: The value of a fixed type.
        booleans: Raw numbers of false, true and null, in this order, for booleans.
        is_null: The null flag of the other types.
        scale: Of a decimal.
        text: Text of a string, magnitude of a decimal.
        elements: The nested group of an array.
        alone: Entries hold nothing but what is named here, so that they need not be walked part by part.
    """

    type: ColumnType
    entries: Entries
    value: Number | None = None
    booleans: tuple[int, int, int] | None = None
    is_null: Flag | None = None
    scale: Number | None = None
    text: Text | None = None
    elements: Values | None = None
    alone: bool = True


@dataclass(frozen=True)
class Column(Subscribed):
    """A ``ColumnData`` message: ``ids`` are subscription id, column id and the modified flag."""

    type: ColumnType
    modified: Flag
    ranges: Ranges
    values: Values


@dataclass(frozen=True)
class Roles:
    """All parts of one schema, in one byte order. Picklable.

    Messages a schema may lack are None; their features are then off.
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

    def column(self, kind: ColumnType) -> Column | None:
        """Return the message that carries columns of a type; None where the schema lacks it."""
        for column in self.columns.values():
            if column.type is kind or column.type == kind:
                return column
        return None
