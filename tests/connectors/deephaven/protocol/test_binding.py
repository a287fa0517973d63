"""Binding a schema by names: what is found, by which fallbacks, and what is missing."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from silverfold.conf.errors import SchemaError
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.columns.decode import decode_column
from silverfold.connectors.deephaven.protocol.control import decode_subscription_error, encode_subscription_error
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.deephaven.columns import encoded
from tests.support.deephaven.vectors import VECTORS, builtin_roles, other_roles

XML = (Path(__file__).parents[4] / "connectors" / "deephaven" / "schema.xml").read_text()


def bound(xml: str) -> Roles:
    return bind(load_schema(xml.encode(), file="their.xml"))


def without_message(name: str) -> str:
    changed = re.sub(rf'<sbe:message name="{name}".*?</sbe:message>', "", XML, flags=re.DOTALL)
    assert changed != XML
    return changed


def changed(old: str, new: str, message: str) -> str:
    """The schema with one text of one message replaced."""
    start = XML.index(f'<sbe:message name="{message}"')
    end = XML.index("</sbe:message>", start)
    assert old in XML[start:end]
    return XML[:start] + XML[start:end].replace(old, new) + XML[end:]


def test_flags_may_be_an_enum_of_characters() -> None:
    head, enum, rest = XML.partition('<enum name="SimpleBool" encodingType="int8">')
    flags = head + enum.replace("int8", "char") + rest.replace(">0<", ">N<", 1).replace(">1<", ">Y<", 1)
    assert flags != XML
    roles = bound(flags)
    (body,) = encoded(roles, "String", ["a", None])
    assert decode_column(roles, body).values.to_pylist() == ["a", None]


def test_a_refusal_is_written_in_whatever_charset() -> None:
    roles = bound(XML.replace('characterEncoding="UTF-8"', 'characterEncoding="ISO-8859-1"'))
    body = encode_subscription_error(roles, 7, "UNEXPECTED_ERROR", "'日' is no ä")
    assert decode_subscription_error(roles, body, roles.read_header(body)).text == "'?' is no ä"


def test_every_column_type_has_its_message() -> None:
    types = {column.type.name for column in builtin_roles().columns.values()}

    assert types == set(TYPES)
    assert len(types) == 22


def test_the_documented_template_ids_are_those_of_the_reconstruction() -> None:
    ids = {column.type.name: template for template, column in builtin_roles().columns.items()}

    assert (ids["String"], ids["Boolean"], ids["Long"], ids["DateTime"], ids["StringSet"]) == (100, 101, 107, 119, 120)


def test_roles_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(other_roles()))

    assert copy.read_header(bytes.fromhex("01fb 1267 0003 0010 0000") + b"\0" * 16).template_id == 507


def test_parts_with_other_names_are_found_by_their_place() -> None:
    role = other_roles().subscribe

    assert (role.table.name, role.filter.name) == ("sourceTable", "rowFilter")
    assert (role.columns.name, role.column_name.name) == ("fields", "fieldName")
    assert role.ids.names == ("subscriptionId", "subscriptionMode")
    assert other_roles().connection.buffer_size.name == "bufferBytes"
    assert other_roles().unsubscribe is not None
    assert other_roles().unsubscribe.ids.names == ("id",)


def test_modes_are_found_by_name_in_any_case() -> None:
    assert other_roles().subscribe.modes == {
        SubscribeMode.SNAPSHOT_ONLY: 300,
        SubscribeMode.UPDATES_ONLY: 301,
        SubscribeMode.SNAPSHOT_WITH_UPDATES: 302,
    }


def test_a_mode_called_as_in_the_guides_text_is_found() -> None:
    roles = bound(XML.replace('"UPDATES_ONLY"', '"UPDATE_ONLY"'))

    assert roles.subscribe.modes[SubscribeMode.UPDATES_ONLY] == 0


@pytest.mark.parametrize("name", ["TableUnsubscribe", "TableUnsubscribeResponse", "TableSubscriptionError"])
def test_a_message_that_may_be_missing_is_none(name: str) -> None:
    roles = bound(without_message(name))

    assert sum(role is None for role in (roles.unsubscribe, roles.unsubscribed, roles.refusal)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "ConnectionResponse",
        "TableSubscribe",
        "TableSubscribeResponse",
        "BeginTableUpdate",
        "EndTableUpdate",
        "RowsRemoved",
    ],
)
def test_a_message_that_must_be_there_is_named_with_what_the_schema_has(name: str) -> None:
    with pytest.raises(SchemaError, match=rf"their\.xml: UNBOUND_ROLE: .*looked for a message {name}; found .*Column"):
        bound(without_message(name))


def test_a_schema_without_column_messages_is_refused() -> None:
    with pytest.raises(SchemaError, match="looked for at least one of ByteColumnData"):
        bound(XML.replace('ColumnData"', 'ColumnRows"'))


@pytest.mark.parametrize(
    ("old", "new", "message", "text"),
    [
        ('name="columnId"', 'name="column"', "LongColumnData", "a field columnId; found subscriptionId, column, isMod"),
        ('name="isModified"', 'name="changed"', "LongColumnData", "a field isModified; found"),
        ('name="ranges"', 'name="rows"', "LongColumnData", "a group ranges; found"),
        ('name="data"', 'name="cells"', "LongColumnData", "a group data; found subscriptionId, .*, ranges, cells"),
        ('name="value"', 'name="cell"', "LongColumnData", "data: looked for a field value; found cell"),
        (
            'type="double"',
            'type="int64"',
            "DoubleColumnData",
            "a field value that can hold a Double; found value int64",
        ),
        ('id="8" type="int64"', 'id="8" type="double"', "LongColumnData", "a field value that can hold a Long"),
        ('name="isNull"', 'name="missing"', "StringColumnData", "a field isNull; found missing"),
        ('name="startIndex"', 'name="start"', "RowsRemoved", "a field startIndex; found start, endIndex"),
        (
            'name="encoderTemplateId"',
            'name="kind"',
            "TableSubscribeResponse",
            "encoderTemplateId; found columnId, kind",
        ),
        ('name="filter"', 'name="where"', "TableSubscribe", "one data whose name contains filter; found"),
        (
            'type="SubscribeMode"',
            'type="int8"',
            "TableSubscribe",
            "an enum field mode, subscribeMode, subscriptionMode",
        ),
        (
            'type="DbBoolean"',
            'type="SimpleBool"',
            "BooleanColumnData",
            "values FALSE, TRUE, NULL_BOOLEAN of SimpleBool",
        ),
        ('type="TableSubscriptionErrorCode"', 'type="int32"', "TableSubscriptionError", "an enum field errorCode"),
    ],
)
def test_a_missing_part_is_named_with_what_the_message_has(old: str, new: str, message: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        bound(changed(old, new, message))


def test_booleans_and_flags_may_be_plain_numbers() -> None:
    roles = bound(XML.replace('type="DbBoolean"', 'type="int8"').replace('type="SimpleBool"', 'type="uint8"'))

    assert roles.columns[101].values.booleans == (0, 1, -1)
    assert (roles.columns[101].modified.false, roles.columns[101].modified.true) == (0, 1)


def test_a_charset_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SchemaError, match="characterEncoding KLINGON"):
        bound(XML.replace('characterEncoding="UTF-8"', 'characterEncoding="KLINGON"'))


def test_messages_nobody_asked_for_are_ignored() -> None:
    extra = '<sbe:message name="Heartbeat" id="50"><field name="at" id="1" type="int64"/></sbe:message>'

    roles = bound(XML.replace("</sbe:messageSchema>", extra + "</sbe:messageSchema>"))

    assert roles.read_header(VECTORS["begin-table-update"].body).template_id == 7
