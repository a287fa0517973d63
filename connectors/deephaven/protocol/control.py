"""Reads and writes the messages that control a session, for both sides.

All layouts come from `Roles`: no template id, offset or enum number appears here. Other parts of a schema are skipped
when reading; when writing, they are null, zero or empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from silverfold.conf.errors import InvalidValue, LocalProtocolError, RemoteProtocolError, UnknownTemplate, WireError
from silverfold.connectors.deephaven.protocol.groups import OpenMessage
from silverfold.connectors.deephaven.protocol.messages import (
    ColumnInfo,
    ErrorCode,
    Request,
    SubscribeMode,
    SubscribeResponse,
    SubscriptionError,
    TableSubscribe,
    TableUnsubscribe,
    UnreadableSubscribe,
)
from silverfold.connectors.deephaven.protocol.roles import Header, Refusal, Roles, Subscribed
from silverfold.connectors.deephaven.protocol.types import ColumnType

_Role = TypeVar("_Role", bound=Subscribed)


def encode_connection_response(roles: Roles, message_buffer_size: int) -> bytes:
    """Return a ConnectionResponse, the server's first message."""
    return roles.write(roles.connection, (message_buffer_size,))


def encode_subscribe(
    roles: Roles,
    subscription_id: int,
    mode: SubscribeMode,
    table: str,
    *,
    columns: Iterable[str] = (),
    row_filter: str = "",
) -> bytes:
    """Return a TableSubscribe. No columns: all of them; an empty filter: all rows.

    Raises:
        InvalidValue: The schema's types cannot hold the id or a text.
        LocalProtocolError: The schema lacks the mode.
    """
    role = roles.subscribe
    if mode not in role.modes:
        raise LocalProtocolError(f"the schema has no mode {mode}")
    name = role.column_name
    entries = [role.columns.write_entry({name.name: name.write(name.encode(column))}) for column in columns]
    given = {
        role.columns.name: role.columns.write(entries),
        role.table.name: role.table.write(role.table.encode(table)),
        role.filter.name: role.filter.write(role.filter.encode(row_filter)),
    }
    return roles.write(role, (subscription_id, role.modes[mode]), given)


def encode_unsubscribe(roles: Roles, subscription_id: int) -> bytes:
    """Return a TableUnsubscribe. Raises LocalProtocolError when the schema lacks it."""
    return roles.write(_require(roles.unsubscribe, "TableUnsubscribe"), (subscription_id,))


def encode_subscribe_response(
    roles: Roles, subscription_id: int, columns: Iterable[tuple[int, str, ColumnType]]
) -> bytes:
    """Return a TableSubscribeResponse with the id, name and type of each column.

    Raises:
        LocalProtocolError: The schema has no message for a column's type.
        InvalidValue: The schema's types cannot hold an id or a name, or there are too many columns.
    """
    role = roles.response
    entries = []
    for column_id, name, kind in columns:
        message = roles.column(kind)
        if message is None:
            raise LocalProtocolError(f"the schema has no {kind.message}, which column {name} needs")
        given = {role.column_name.name: role.column_name.write(role.column_name.encode(name))}
        entries.append(role.columns.write_entry(given, role.column, (column_id, message.message.id)))
    return roles.write(role, (subscription_id,), {role.columns.name: role.columns.write(entries)})


def encode_unsubscribe_response(roles: Roles, subscription_id: int) -> bytes:
    """Return a TableUnsubscribeResponse. Raises LocalProtocolError when the schema lacks it."""
    return roles.write(_require(roles.unsubscribed, "TableUnsubscribeResponse"), (subscription_id,))


def encode_subscription_error(roles: Roles, subscription_id: int, code: str, text: str) -> bytes:
    """Return a TableSubscriptionError; a code the schema lacks becomes UNEXPECTED_ERROR.

    Characters that its charset lacks become question marks: the text may quote a value.

    Raises:
        LocalProtocolError: The schema lacks the message, or both codes.
    """
    role: Refusal = _require(roles.refusal, "TableSubscriptionError")
    raw = role.codes.get(code, role.codes.get(ErrorCode.UNEXPECTED_ERROR))
    if raw is None:
        raise LocalProtocolError(f"the schema has no error code {code}")
    return roles.write(
        role, (subscription_id, raw), {role.text.name: role.text.write(role.text.encode(text, "replace"))}
    )


def encode_begin(roles: Roles, subscription_id: int) -> bytes:
    """Return a BeginTableUpdate."""
    return roles.write(roles.begin, (subscription_id,))


def encode_end(roles: Roles, subscription_id: int) -> bytes:
    """Return an EndTableUpdate."""
    return roles.write(roles.end, (subscription_id,))


def decode_subscribe_response(roles: Roles, body: bytes, header: Header | None = None) -> SubscribeResponse:
    """Parse a TableSubscribeResponse.

    Raises:
        WireError: The bytes do not match the schema, or two columns have the same id (``duplicate-column``).
    """
    role = roles.response
    header = header or roles.read_header(body)
    (subscription_id,) = role.read(body, header)
    opened = roles.open(body, header)
    found = role.columns.open(opened, _part_offset(role, opened, header, role.columns.name))
    if found.entries:
        role.column.require(found.block_length, header.version, found.start)
    walked = role.columns.walk(opened, found, role.column_name.name)
    columns = []
    for start, name_offset in zip(walked.starts, walked.offsets, strict=True):
        column_id, template_id = role.column.read(body, start)
        column = roles.columns.get(template_id)
        name = role.column_name.read(opened, name_offset)
        columns.append(ColumnInfo(column_id, template_id, name, None if column is None else column.type))
    if len({column.column_id for column in columns}) != len(columns):
        raise InvalidValue("two columns have one id", offset=found.start, reason="duplicate-column")
    return SubscribeResponse(body, subscription_id, tuple(columns))


def decode_subscription_error(roles: Roles, body: bytes, header: Header | None = None) -> SubscriptionError:
    """Parse a TableSubscriptionError. Bytes that are not in the text's charset are replaced.

    Raises:
        WireError: The bytes do not match the schema.
    """
    role: Refusal = _require(roles.refusal, "TableSubscriptionError")
    header = header or roles.read_header(body)
    subscription_id, raw = role.read(body, header)
    opened = roles.open(body, header)
    start, end = role.text.find(opened, _part_offset(role, opened, header, role.text.name))
    names = [name for name, value in role.codes.items() if value == raw]
    text = body[start:end].decode(role.text.codec, "replace")
    return SubscriptionError(body, subscription_id, names[0] if names else str(raw), text)


def decode_request(roles: Roles, body: bytes) -> Request:
    """Parse a client's request.

    Raises:
        UnknownTemplate: The schema lacks the template.
        WireError: The bytes do not match the schema, and no subscription id can be read.
        RemoteProtocolError: A message that only servers send.
    """
    header = roles.read_header(body)
    if header.template_id == roles.subscribe.message.id:
        subscription_id, mode = roles.subscribe.read(body, header)
        try:
            return _decode_subscribe(roles, body, header, subscription_id, mode)
        except WireError as error:
            return UnreadableSubscribe(body, subscription_id, error)
    if roles.unsubscribe is not None and header.template_id == roles.unsubscribe.message.id:
        return TableUnsubscribe(body, *roles.unsubscribe.read(body, header))
    message = roles.schema.templates.get(header.template_id)
    if message is None:
        raise UnknownTemplate(f"template id {header.template_id}", offset=0, reason="unknown-template")
    raise RemoteProtocolError(f"a client sent {message.name}")


def _decode_subscribe(roles: Roles, body: bytes, header: Header, subscription_id: int, raw: int) -> TableSubscribe:
    role, opened = roles.subscribe, roles.open(body, header)
    modes = [mode for mode, value in role.modes.items() if value == raw]
    if not modes:
        raise InvalidValue(f"mode is {raw}", offset=roles.schema.header.size, reason="mode")
    found = role.columns.open(opened, _part_offset(role, opened, header, role.columns.name))
    walked = role.columns.walk(opened, found, role.column_name.name)
    return TableSubscribe(
        body,
        subscription_id,
        modes[0],
        role.table.read(opened, _part_offset(role, opened, header, role.table.name)),
        tuple(role.column_name.read(opened, name_offset) for name_offset in walked.offsets),
        role.filter.read(opened, _part_offset(role, opened, header, role.filter.name)),
    )


def _part_offset(role: Subscribed, opened: OpenMessage, header: Header, part: str) -> int:
    offsets, _ = role.tail.locate(opened, header.end_of_root)
    if part not in offsets:
        detail = f"{role.message.name} in version {header.version} lacks {part}"
        raise InvalidValue(detail, offset=header.end_of_root, reason="absent")
    return offsets[part]


def _require(role: _Role | None, name: str) -> _Role:
    if role is None:
        raise LocalProtocolError(f"the schema has no {name}")
    return role
