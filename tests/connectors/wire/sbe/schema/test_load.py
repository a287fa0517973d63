"""What a schema resolves to: offsets, sizes, presences, versions, names; and what it is warned about."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from silverfold.conf.errors import SchemaError
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.schema.load import load_schema, with_byte_order
from silverfold.connectors.wire.sbe.schema.model import Array, Composite, Enum, Presence, Primitive, Scalar
from silverfold.connectors.wire.sbe.schema.primitives import TRAITS
from tests.support.sbe.basics import HEADER, message_of, schema_of

SAMPLE = Path(__file__).parents[4] / "golden" / "sbe" / "sample.xml"
SIDE = '<enum name="Side" encodingType="char"><validValue name="Buy">B</validValue></enum>'


def fields(schema):
    return {field.name: field for field in schema.messages["M"].fields}


def test_fields_of_the_sample_lie_where_the_standard_puts_them():
    quote = load_schema(SAMPLE).messages["Quote"]

    assert {field.name: (field.offset, field.size) for field in quote.fields} == {
        "seq": (0, 4),
        "code": (8, 6),
        "side": (14, 1),
        "level": (15, 1),
        "flags": (16, 1),
        "triple": (17, 6),
        "opt": (23, 1),
        "venue": (24, 0),
        "fixedSide": (24, 0),
        "price": (24, 8),
        "stop": (32, 8),
        "at": (40, 8),
        "qty": (48, 7),
    }
    assert (quote.content_length, quote.block_length) == (55, 64)
    assert quote.group("legs").block_length == 6
    assert quote.group("legs").group("marks").block_length == 1
    assert quote.group("legs").group("marks").dimensions.size == 8


def test_members_of_a_composite_lie_where_they_ask_to():
    quantity = load_schema(SAMPLE).encodings["Quantity"]

    assert isinstance(quantity, Composite)
    assert [(member.name, member.offset) for member in quantity.members] == [
        ("mantissa", 0),
        ("exponent", 4),
        ("side", 6),
    ]
    assert quantity.size == 7


def test_a_schema_survives_pickling_after_it_was_used():
    schema = load_schema(SAMPLE)
    body = bytes.fromhex("00000b000700030006000000000000")
    decode(schema, body)

    restored = pickle.loads(pickle.dumps(schema))

    assert restored.messages["Quote"].field("qty") == schema.messages["Quote"].field("qty")
    assert decode(restored, body).values["text"] == ""


def test_the_other_byte_order_is_the_same_tree():
    schema = load_schema(SAMPLE)

    swapped = with_byte_order(schema, ">")

    assert swapped.byte_order == ">"
    assert swapped.messages == schema.messages
    assert schema.byte_order == "<"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('<messageSchema id="1" version="0">', "</messageSchema>"),
        (
            '<x:messageSchema xmlns:x="http://www.fixprotocol.org/ns/simple/1.0" id="1" version="0">',
            "</x:messageSchema>",
        ),
        ('<messageSchema xmlns="urn:any" id="1" version="0">', "</messageSchema>"),
    ],
    ids=["none", "prefix", "default"],
)
def test_namespaces_do_not_matter(start, end):
    text = f'{start}<types>{HEADER}</types><message name="M" id="3"><field name="f" id="1" type="int8"/></message>{end}'

    schema = load_schema(text.encode())

    assert schema.templates[3].field("f").size == 1
    assert schema.warnings == ()


def test_encodings_may_be_used_before_they_are_defined_and_after_the_messages():
    text = (
        '<messageSchema id="1" version="0"><message name="M" id="1"><field name="f" id="1" type="e"/></message>'
        '<types><enum name="e" encodingType="t"><validValue name="a">1</validValue></enum></types>'
        f'<types>{HEADER}<type name="t" primitiveType="uint16"/></types></messageSchema>'
    )

    schema = load_schema(text.encode())

    assert schema.messages["M"].field("f").size == 2


def test_an_include_names_its_file_by_a_uri_in_the_namespace_of_xinclude(tmp_path: Path):
    include = '<i:include xmlns:i="http://www.w3.org/{}/XInclude" href="more%20types.xml"/>'
    text = f'<messageSchema id="1" version="0">{include}<types>{HEADER}</types></messageSchema>'
    (tmp_path / "more types.xml").write_text(f"<types>{SIDE}</types>")
    (tmp_path / "main.xml").write_text(text.format(2001))
    (tmp_path / "old.xml").write_text(text.format(2003))

    assert "Side" in load_schema(tmp_path / "main.xml").encodings
    with pytest.raises(SchemaError, match=r"namespace of an include is http://www\.w3\.org/2001/XInclude, not .*2003"):
        load_schema(tmp_path / "old.xml")


def test_a_value_reference_reaches_an_enum_of_an_included_file(tmp_path: Path):
    include = '<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{}"/>'
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "enums.xml").write_text(f"<types>{SIDE}{include.format('more.xml')}</types>")
    (tmp_path / "deep" / "more.xml").write_text('<types><type name="tiny" primitiveType="int8"/></types>')
    (tmp_path / "main.xml").write_text(
        f'<messageSchema id="1" version="0">{include.format("deep/enums.xml")}<types>{HEADER}</types>'
        '<message name="M" id="1"><field name="side" id="1" type="Side" presence="constant" valueRef="Side.Buy"/>'
        '<field name="tiny" id="2" type="tiny"/></message></messageSchema>'
    )

    schema = load_schema(tmp_path / "main.xml")

    assert fields(schema)["side"].constant == "Buy"
    assert fields(schema)["tiny"].size == 1


def test_a_type_with_the_name_of_a_primitive_wins():
    schema = message_of(
        '<field name="f" id="1" type="int32"/>', '<type name="int32" primitiveType="int32" presence="optional"/>'
    )

    assert fields(schema)["f"].presence is Presence.OPTIONAL
    assert [warning.split(": ")[1] for warning in schema.warnings] == ["W01"]


def test_a_type_that_is_the_primitive_of_its_name_is_not_warned_about():
    types = "".join(f'<type name="{name}" primitiveType="{name}" description="as it is"/>' for name in TRAITS)

    assert message_of('<field name="f" id="1" type="int32"/>', types).warnings == ()


def test_the_last_of_two_definitions_counts():
    schema = message_of(
        '<field name="f" id="1" type="t"/>',
        '<type name="t" primitiveType="int8"/><type name="t" primitiveType="int16"/>',
    )

    assert fields(schema)["f"].size == 2
    assert [warning.split(": ")[1] for warning in schema.warnings] == ["W01"]


def test_limits_and_null_of_a_type_replace_those_of_its_primitive():
    schema = message_of(
        '<field name="f" id="1" type="t"/>',
        '<type name="t" primitiveType="int16" presence="optional" nullValue="-1" minValue="0" maxValue="9"/>',
    )

    scalar = fields(schema)["f"].encoding
    assert isinstance(scalar, Scalar)
    assert (scalar.null, scalar.minimum, scalar.maximum, scalar.null_declared) == (-1, 0, 9, True)


@pytest.mark.parametrize(
    ("primitive", "size", "null", "minimum", "maximum"),
    [
        ("char", 1, 0, 0x20, 0x7E),
        ("int8", 1, -128, -127, 127),
        ("uint8", 1, 255, 0, 254),
        ("int16", 2, -32768, -32767, 32767),
        ("uint16", 2, 65535, 0, 65534),
        ("int32", 4, -2147483648, -2147483647, 2147483647),
        ("uint32", 4, 4294967295, 0, 4294967294),
        ("int64", 8, -9223372036854775808, -9223372036854775807, 9223372036854775807),
        ("uint64", 8, 18446744073709551615, 0, 18446744073709551614),
        ("float", 4, pytest.approx(math.nan, nan_ok=True), -3.4028234663852886e38, 3.4028234663852886e38),
        ("double", 8, pytest.approx(math.nan, nan_ok=True), -1.7976931348623157e308, 1.7976931348623157e308),
    ],
)
def test_primitives_have_the_standard_limits(primitive, size, null, minimum, maximum):
    scalar = fields(message_of(f'<field name="f" id="1" type="{primitive}"/>'))["f"].encoding

    assert isinstance(scalar, Scalar)
    assert (scalar.size, scalar.null, scalar.minimum, scalar.maximum) == (size, null, minimum, maximum)


@pytest.mark.parametrize(
    ("attributes", "text", "value", "size"),
    [
        ('primitiveType="char"', "X", "X", 1),
        ('primitiveType="char"', " XLON ", "XLON", 4),
        ('primitiveType="char" length="6"', "XLON", "XLON", 6),
        ('primitiveType="int8"', "-2", -2, 1),
        ('primitiveType="double"', "0.5", 0.5, 8),
        ('primitiveType="char" valueRef="Side.Buy"', "", "B", 1),
    ],
)
def test_constants_take_no_bytes_and_have_the_value_of_their_text(attributes, text, value, size):
    types = SIDE + f'<type name="t" presence="constant" {attributes}>{text}</type>'

    field = fields(message_of('<field name="f" id="1" type="t"/>', types))["f"]

    assert (field.constant, field.size, field.encoding.size) == (value, 0, size)


def test_a_constant_field_of_a_plain_type_takes_the_number_of_the_enum_value():
    types = '<enum name="Unit" encodingType="uint8"><validValue name="nano">9</validValue></enum>'

    field = fields(message_of('<field name="f" id="1" type="uint8" presence="constant" valueRef="Unit.nano"/>', types))[
        "f"
    ]

    assert field.constant == 9


def test_a_constant_type_has_no_bytes_whatever_the_field_says():
    types = '<type name="t" primitiveType="int8" presence="constant">5</type>'

    schema = message_of('<field name="f" id="1" type="t" presence="optional"/>', types)

    assert (fields(schema)["f"].presence, fields(schema)["f"].size) == (Presence.CONSTANT, 0)
    assert [warning.split(": ")[1] for warning in schema.warnings] == ["W09"]


def test_a_field_is_as_new_as_its_type():
    types = '<type name="t" primitiveType="int8" sinceVersion="2"/>'

    schema = message_of('<field name="f" id="1" type="t" sinceVersion="1"/>', types, version=3)

    assert fields(schema)["f"].since_version == 2


def test_a_group_without_a_version_is_as_new_as_the_oldest_of_its_members():
    schema = message_of(
        '<group name="g" id="1"><field name="a" id="2" type="int8" sinceVersion="3"/>'
        '<data name="b" id="3" type="blob" sinceVersion="2"/></group>'
        '<group name="h" id="4"><field name="a" id="5" type="int8" sinceVersion="3"/>'
        '<field name="b" id="6" type="int8"/></group>'
        '<group name="i" id="7" sinceVersion="1"><field name="a" id="8" type="int8" sinceVersion="3"/></group>',
        version=3,
    )

    assert [group.since_version for group in schema.messages["M"].groups] == [2, 0, 1]


def test_the_null_of_an_enum_is_its_own_else_that_of_its_type_else_that_of_the_primitive():
    schema = message_of(
        '<field name="a" id="1" type="own"/><field name="b" id="2" type="types"/><field name="c" id="3" type="plain"/>',
        '<type name="t" primitiveType="uint8" nullValue="77"/><enum name="own" encodingType="t" nullValue="78"/>'
        '<enum name="types" encodingType="t"/><enum name="plain" encodingType="uint8"/>',
    )

    nulls = [field.encoding.null for field in schema.messages["M"].fields if isinstance(field.encoding, Enum)]
    assert nulls == [78, 77, 255]


def test_offset_0_and_block_length_0_are_as_not_given():
    schema = schema_of(
        '<message name="M" id="1" blockLength="0"><field name="a" id="1" type="int32" offset="0"/>'
        '<field name="b" id="2" type="int8" offset="0"/></message>'
    )

    assert fields(schema)["b"].offset == 4
    assert schema.messages["M"].block_length == 5
    assert [warning.split(": ")[1] for warning in schema.warnings] == ["W14"]


def test_a_reference_takes_the_offset_of_its_definition_unless_it_has_one():
    types = (
        '<type name="t" primitiveType="int8" offset="4"/>'
        '<composite name="c"><ref name="a" type="t"/><ref name="b" type="t" offset="9"/></composite>'
    )

    composite = schema_of("", types).encodings["c"]

    assert isinstance(composite, Composite)
    assert [member.offset for member in composite.members] == [4, 9]


def test_a_constant_member_with_an_offset_moves_the_next_one():
    types = (
        '<composite name="c"><type name="a" primitiveType="int8" presence="constant" offset="4">1</type>'
        '<type name="b" primitiveType="int8"/></composite>'
    )

    composite = schema_of("", types).encodings["c"]

    assert isinstance(composite, Composite)
    assert (composite.members[1].offset, composite.size) == (4, 5)


def test_attributes_of_foreign_namespaces_are_kept_with_the_field():
    schema = message_of('<field name="f" id="1" type="int64" xmlns:v="urn:venue" v:exponent="scale"/>')

    assert fields(schema)["f"].extras == {"{urn:venue}exponent": "scale"}


def test_a_header_may_be_called_otherwise_and_have_more_and_other_members():
    header = (
        '<composite name="envelope"><type name="schemaId" primitiveType="uint8"/>'
        '<type name="templateId" primitiveType="uint8"/><type name="blockLength" primitiveType="uint16"/>'
        '<type name="sequence" primitiveType="uint32"/><type name="version" primitiveType="uint16"/></composite>'
    )
    text = (
        f'<messageSchema id="1" version="0" headerType="envelope"><types>{header}</types>'
        '<message name="M" id="1"/></messageSchema>'
    )

    schema = load_schema(text.encode())

    assert {name: role.offset for name, role in schema.header.roles.items()} == {
        "schemaId": 0,
        "templateId": 1,
        "blockLength": 2,
        "version": 8,
    }
    assert schema.header.size == 10


def test_the_member_of_data_that_is_not_the_length_carries_the_bytes():
    types = (
        '<composite name="old"><type name="length" primitiveType="uint16"/>'
        '<type name="data" primitiveType="char" offset="4" characterEncoding="UTF-8"/></composite>'
    )

    schema = message_of('<data name="d" id="1" type="old"/>', types)

    data = schema.messages["M"].data_field("d")
    assert (data.data_offset, data.charset, data.length.maximum) == (4, "UTF-8", 65534)
    assert [warning.split(": ")[1] for warning in schema.warnings] == ["W15"]


def test_names_may_repeat_between_fields_encodings_and_messages():
    schema = schema_of(
        '<message name="Same" id="1"><field name="Same" id="1" type="Same"/></message>',
        '<type name="Same" primitiveType="int16"/>',
    )

    assert schema.messages["Same"].field("Same").size == 2


def test_text_of_a_char_array_has_the_charset_of_its_type():
    types = '<type name="t" primitiveType="char" length="3" characterEncoding="ISO-8859-1"/>'

    encoding = fields(message_of('<field name="f" id="1" type="t"/>', types))["f"].encoding

    assert isinstance(encoding, Array)
    assert (encoding.charset, encoding.count, encoding.element.primitive) == ("ISO-8859-1", 3, Primitive.CHAR)
