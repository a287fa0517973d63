"""Binds a schema to the transport: finds the message, field, group and data for each role.

Parts are found by name, with the fallbacks of PROTOCOL.md; enum values by name, ignoring case. All other parts of the
schema are ignored. The vendor's XML and our reconstruction are bound by the same rules, so nothing outside the XML
knows a template id, an offset or an enum number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from silverfold.conf.errors import SchemaError
from silverfold.connectors.deephaven.protocol import groups, layouts
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.roles import (
    Column,
    Connection,
    Ranges,
    Refusal,
    Removed,
    Response,
    Roles,
    Subscribe,
    Subscribed,
    Values,
)
from silverfold.connectors.deephaven.protocol.types import TYPES, ColumnType, Shape
from silverfold.connectors.wire.sbe.schema.model import (
    Body,
    Data,
    Enum,
    Field,
    Group,
    Message,
    Presence,
    Scalar,
    Schema,
)
from silverfold.connectors.wire.sbe.schema.primitives import FLOATS, INTEGERS

__all__ = ["Roles", "bind"]

_HEADER = ("blockLength", "templateId", "schemaId", "version")
_COLUMN_DATA = "ColumnData"
_MODE_NAMES = ("mode", "subscribeMode", "subscriptionMode")
_MODE_VALUES = {
    SubscribeMode.SNAPSHOT_ONLY: ("SNAPSHOT_ONLY",),
    SubscribeMode.SNAPSHOT_WITH_UPDATES: ("SNAPSHOT_WITH_UPDATES",),
    SubscribeMode.UPDATES_ONLY: ("UPDATES_ONLY", "UPDATE_ONLY"),  # the guide's text uses UPDATE_ONLY
}

_Found = TypeVar("_Found", Field, Group, Data)
_Role = TypeVar("_Role")


def bind(schema: Schema, *, text: groups.TextErrors = "strict") -> Roles:
    """Return the roles of a schema.

    Args:
        text: How to handle bytes in a cell that are not valid text.

    Raises:
        SchemaError: A required part is missing; the error names what was looked for and what the message has.
    """
    return _Binding(schema, text).roles()


class _Binding:
    def __init__(self, schema: Schema, text: groups.TextErrors) -> None:
        self._schema, self._text_errors = schema, text

    def roles(self) -> Roles:
        columns = self._columns()
        return Roles(
            schema=self._schema,
            text=self._text_errors,
            header=layouts.structure_ints(self._schema, self._schema.header, *_HEADER),
            connection=self._connection(self._message("ConnectionResponse")),
            subscribe=self._subscribe(self._message("TableSubscribe")),
            response=self._response(self._message("TableSubscribeResponse")),
            begin=self._subscribed(self._message("BeginTableUpdate")),
            end=self._subscribed(self._message("EndTableUpdate")),
            removed=self._removed(self._message("RowsRemoved")),
            columns=columns,
            unsubscribe=self._optional("TableUnsubscribe", self._subscribed),
            unsubscribed=self._optional("TableUnsubscribeResponse", self._subscribed),
            refusal=self._optional("TableSubscriptionError", self._refusal),
        )

    def _message(self, name: str) -> Message:
        found = self._schema.messages.get(name)
        if found is None:
            raise self._missing(f"a message {name}", "the schema", self._schema.messages)
        return found

    def _optional(self, name: str, make: Callable[[Message], _Role]) -> _Role | None:
        found = self._schema.messages.get(name)
        return None if found is None else make(found)

    def _columns(self) -> Mapping[int, Column]:
        columns = {}
        for message in self._schema.messages.values():
            kind = TYPES.get(message.name.removesuffix(_COLUMN_DATA))
            if kind is not None and message.name.endswith(_COLUMN_DATA):
                columns[message.id] = self._column(message, kind)
        if not columns:
            wanted = f"at least one of {', '.join(kind.message for kind in TYPES.values())}"
            raise self._missing(wanted, "the schema", self._schema.messages)
        return columns

    def _subscription_id(self, message: Message) -> Field:
        """Return the integer field named subscriptionId, else the first integer of the root."""
        for field in message.fields:
            if field.name == "subscriptionId" and _is_integer(field):
                return field
        for field in message.fields:
            if _is_integer(field):
                return field
        raise self._missing("an integer field subscriptionId", message.name, _names(message.fields))

    def _root(self, message: Message, *fields: Field) -> tuple[layouts.Ints, layouts.NullDefaults, groups.VarPart]:
        """Return the parts common to all roles: the integers read, the nulls of other fields, and the variable part."""
        return (
            layouts.ints(self._schema, *fields),
            layouts.null_defaults(self._schema, message, fields),
            groups.tail(self._schema, message),
        )

    def _subscribed(self, message: Message) -> Subscribed:
        return Subscribed(message, *self._root(message, self._subscription_id(message)))

    def _connection(self, message: Message) -> Connection:
        integers = [field for field in message.fields if _is_integer(field)]
        named = [field for field in integers if field.name == "messageBufferSize"]
        size = self._only(named or integers, "an integer field messageBufferSize", message)
        return Connection(message, *self._root(message, size), size)

    def _subscribe(self, message: Message) -> Subscribe:
        mode, encoding = self._mode(message)
        columns = self._group(message, "columns")
        table, row_filter = self._table_and_filter(message)
        return Subscribe(
            message,
            *self._root(message, self._subscription_id(message), mode),
            modes=self._modes(encoding, message),
            columns=groups.entries(self._schema, columns),
            column_name=self._text(columns, "columnName", fallback=True),
            table=groups.text(self._schema, table),
            filter=groups.text(self._schema, row_filter),
        )

    def _mode(self, message: Message) -> tuple[Field, Enum]:
        enums = {field.name: field for field in message.fields if isinstance(field.encoding, Enum) and _on_wire(field)}
        named = [enums[name] for name in _MODE_NAMES if name in enums][:1]
        wanted = f"an enum field {', '.join(_MODE_NAMES)}"
        field = self._only(named or list(enums.values()), wanted, message)
        assert isinstance(field.encoding, Enum)
        return field, field.encoding

    def _modes(self, encoding: Enum, message: Message) -> Mapping[SubscribeMode, int]:
        raw = {name.upper(): value for value, name in encoding.values.items()}
        found = {mode: raw[name] for mode, names in _MODE_VALUES.items() for name in names if name in raw}
        if not found:
            wanted = f"a value {', '.join(names[0] for names in _MODE_VALUES.values())} of {encoding.name}"
            raise self._missing(wanted, message.name, encoding.values.values())
        return found

    def _table_and_filter(self, message: Message) -> tuple[Data, Data]:
        """Return the data of the table's name and of the filter; the filter is the data with "filter" in its name."""
        filters = [data for data in message.data if "filter" in data.name.lower()]
        others = [data for data in message.data if data not in filters]
        if len(others) > 1:
            others = [data for data in others if "table" in data.name.lower()]
        row_filter = self._only(filters, "one data whose name contains filter", message)
        return self._only(others, "one data beside the filter, for the table's name", message), row_filter

    def _response(self, message: Message) -> Response:
        columns = self._group(message, "columns")
        column = [self._integer(columns, "columnId"), self._integer(columns, "encoderTemplateId")]
        return Response(
            message,
            *self._root(message, self._subscription_id(message)),
            columns=groups.entries(self._schema, columns),
            column=layouts.ints(self._schema, *column),
            column_name=self._text(columns, "columnName"),
        )

    def _refusal(self, message: Message) -> Refusal:
        code = self._field(message, "errorCode")
        if not isinstance(code.encoding, Enum) or not _on_wire(code):
            raise self._missing("an enum field errorCode", message.name, _names(message.fields))
        return Refusal(
            message,
            *self._root(message, self._subscription_id(message), code),
            codes={name.upper(): value for value, name in code.encoding.values.items()},
            text=self._text(message, "errorMessage"),
        )

    def _removed(self, message: Message) -> Removed:
        return Removed(message, *self._root(message, self._subscription_id(message)), self._ranges(message))

    def _ranges(self, message: Message) -> Ranges:
        group = self._group(message, "ranges")
        return Ranges(
            groups.entries(self._schema, group),
            layouts.number(self._schema, self._integer(group, "startIndex")),
            layouts.number(self._schema, self._integer(group, "endIndex")),
        )

    def _column(self, message: Message, kind: ColumnType) -> Column:
        ids = self._subscription_id(message), self._integer(message, "columnId"), self._field(message, "isModified")
        return Column(
            message,
            *self._root(message, *ids),
            type=kind,
            modified=self._flag(message, "isModified"),
            ranges=self._ranges(message),
            values=self._values(self._group(message, "data"), kind),
        )

    def _values(self, group: Group, kind: ColumnType) -> Values:
        if kind.shape is Shape.FIXED:
            return self._fixed(group, kind)
        entries = groups.entries(self._schema, group)
        if kind.element is not None:
            nested = self._group(group, "array")
            simple = len(group.groups) == 1 and not group.data
            elements = self._values(nested, kind.element)
            return Values(kind, entries, is_null=self._flag(group, "isNull"), elements=elements, simple=simple)
        simple = not group.groups and len(group.data) == 1
        if kind.shape is Shape.STRING:
            found = replace(self._text(group, "value"), errors=self._text_errors)
            return Values(kind, entries, is_null=self._flag(group, "isNull"), text=found, simple=simple)
        return Values(
            kind,
            entries,
            is_null=self._flag(group, "isNull"),
            scale=layouts.number(self._schema, self._integer(group, "scale")),
            text=self._text(group, "magnitude"),
            simple=simple,
        )

    def _fixed(self, group: Group, kind: ColumnType) -> Values:
        field = self._field(group, "value")
        assert kind.dtype is not None
        suitable = _is_float(field) if kind.dtype.kind == "f" else _is_whole(field)
        if not suitable:
            wanted = f"a field value that can hold a {kind.name}"
            raise self._missing(wanted, group.name, (f"{f.name} {f.encoding.name}" for f in group.fields))
        return Values(
            kind,
            groups.entries(self._schema, group),
            value=layouts.number(self._schema, field),
            booleans=self._booleans(field, group) if kind.name == "Boolean" else None,
            simple=not group.groups and not group.data,
        )

    def _booleans(self, field: Field, group: Group) -> tuple[int, int, int]:
        if not isinstance(field.encoding, Enum):
            return 0, 1, -1
        raw = {name.upper(): value for value, name in field.encoding.values.items()}
        try:
            return raw["FALSE"], raw["TRUE"], raw["NULL_BOOLEAN"]
        except KeyError:
            wanted = f"values FALSE, TRUE, NULL_BOOLEAN of {field.encoding.name}"
            raise self._missing(wanted, group.name, raw) from None

    def _flag(self, body: Body, name: str) -> layouts.Flag:
        field = self._field(body, name)
        if not _is_whole(field):
            raise self._missing(f"a flag {name}", body.name, _names(body.fields))
        found = layouts.number(self._schema, field)
        if not isinstance(field.encoding, Enum):
            return layouts.Flag(found, 0, 1)
        raw = {value_name.upper(): value for value, value_name in field.encoding.values.items()}
        if "FALSE" not in raw or "TRUE" not in raw:
            raise self._missing(f"values FALSE and TRUE of {field.encoding.name}", body.name, raw)
        return layouts.Flag(found, raw["FALSE"], raw["TRUE"])

    def _field(self, body: Body, name: str) -> Field:
        for field in body.fields:
            if field.name == name and _on_wire(field):
                return field
        raise self._missing(f"a field {name}", body.name, _names(body.fields))

    def _integer(self, body: Body, name: str) -> Field:
        field = self._field(body, name)
        if not _is_integer(field):
            raise self._missing(f"an integer field {name}", body.name, _names(body.fields))
        return field

    def _group(self, body: Body, name: str) -> Group:
        named = [group for group in body.groups if group.name == name]
        fallback = list(body.groups) if name == "columns" and body.name == "TableSubscribe" else []
        return self._only(named or fallback, f"a group {name}", body)

    def _text(self, body: Body, name: str, *, fallback: bool = False) -> groups.Text:
        named = [data for data in body.data if data.name == name]
        found = self._only(named or (list(body.data) if fallback else []), f"data {name}", body)
        return groups.text(self._schema, found)

    def _only(self, found: list[_Found], wanted: str, body: Body) -> _Found:
        if len(found) != 1:
            present = _names((*body.fields, *body.groups, *body.data))
            raise self._missing(wanted, body.name, present)
        return found[0]

    def _missing(self, wanted: str, where: str, present: Iterable[str]) -> SchemaError:
        detail = f"{where}: looked for {wanted}; found {', '.join(present) or 'nothing'}"
        return SchemaError(detail, file=self._schema.file, code="UNBOUND_ROLE")


def _names(parts: Iterable[Field | Group | Data]) -> list[str]:
    return [part.name for part in parts]


def _on_wire(field: Field) -> bool:
    return field.presence is not Presence.CONSTANT and field.size > 0


def _is_integer(field: Field) -> bool:
    encoding = field.encoding
    return isinstance(encoding, Scalar) and encoding.primitive in INTEGERS and _on_wire(field)


def _is_whole(field: Field) -> bool:
    """Return whether a field reads as a whole number: an integer, an enum or a single char."""
    return isinstance(field.encoding, Scalar | Enum) and not _is_float(field) and _on_wire(field)


def _is_float(field: Field) -> bool:
    encoding = field.encoding
    return isinstance(encoding, Scalar) and encoding.primitive in FLOATS and _on_wire(field)
