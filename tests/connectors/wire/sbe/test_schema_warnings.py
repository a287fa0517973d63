"""What works in a schema but should not be: each warning where it is due, and not one step before."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import SchemaError
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import HEADER, message_of, schema_of

PARTS = '<field name="f" id="1" type="int8"/>'
SIDE = '<enum name="Side" encodingType="char"><validValue name="Buy">B</validValue>{}</enum>'
FLAGS = '<set name="flags" encodingType="uint8"><choice name="a">0</choice>{}</set>'
GROUP = '<group name="{0}" id="{1}" sinceVersion="{2}"><field name="f" id="9" type="int8" sinceVersion="{2}"/></group>'
DATA = '<data name="{0}" id="{1}" type="blob" sinceVersion="{2}"/>'
DIMENSIONS = (
    '<composite name="dims"><type name="blockLength" primitiveType="{}"/>'
    '<type name="numInGroup" primitiveType="{}" {}/></composite>'
)
USES_DIMENSIONS = '<group name="g" id="1" dimensionType="dims"><field name="f" id="2" type="int8"/></group>'
BYTES = (
    '<composite name="raw"><type name="length" primitiveType="{}" maxValue="9"/>'
    '<type name="{}" primitiveType="uint8" {}/></composite>'
)
USES_BYTES = '<data name="d" id="1" type="raw"/>'


def codes(schema: Schema) -> list[str]:
    return [warning.split(": ")[1] for warning in schema.warnings]


@pytest.mark.parametrize(
    ("code", "parts", "types"),
    [
        ("W01", PARTS, '<type name="t" primitiveType="int8"/><type name="t" primitiveType="int8"/>'),
        ("W02", '<field name="a b" id="1" type="int8"/>', ""),
        ("W02", f'<field name="{"f" * 65}" id="1" type="int8"/>', ""),
        ("W02", '<field name="1st" id="1" type="int8"/>', ""),
        ("W03", PARTS, '<type name="t" primitiveType="int8" nullValue="1"/>'),
        ("W04", USES_DIMENSIONS, DIMENSIONS.format("uint16", "uint32", 'maxValue="9"')),
        ("W04", USES_DIMENSIONS, DIMENSIONS.format("uint32", "uint16", "")),
        ("W04", USES_BYTES, BYTES.format("uint64", "varData", 'length="0"')),
        ("W05", USES_DIMENSIONS, DIMENSIONS.format("uint16", "int8", 'minValue="0"')),
        ("W06", PARTS, SIDE.format('<validValue name="Bid">B</validValue>')),
        ("W06", PARTS, SIDE.format('<validValue name="Buy">C</validValue>')),
        ("W06", PARTS, FLAGS.format('<choice name="b">0</choice>')),
        ("W06", PARTS, FLAGS.format('<choice name="a">1</choice>')),
        ("W08", '<field name="a" id="1" type="int8" sinceVersion="1"/><field name="b" id="2" type="int8"/>', ""),
        ("W08", GROUP.format("g", 1, 2) + GROUP.format("h", 2, 1), ""),
        ("W08", DATA.format("d", 1, 2) + DATA.format("e", 2, 1), ""),
        ("W09", '<field name="f" id="1" type="t" presence="required"/>', '<type name="t" primitiveType="int8" {}/>'),
        ("W10", '<group name="g" id="1"><data name="d" id="2" type="blob"/></group>', ""),
        ("W11", '<field name="f" id="1" type="int8" sinceVersion="2" deprecated="1"/>', ""),
        ("W13", '<field name="f" id="1" type="int8" colour="red"/>', ""),
        ("W13", '<record name="f"/>', ""),
        ("W13", '<field name="f" id="1" type="int8" s:presence="optional"/>', ""),
        ("W14", '<field name="a" id="1" type="int8"/><field name="b" id="2" type="int8" offset="0"/>', ""),
        ("W15", USES_BYTES, BYTES.format("uint8", "varData", "")),
        ("W15", USES_BYTES, BYTES.format("uint8", "bytes", 'length="0"')),
        ("W16", PARTS, '<type name="t" primitiveType="int8" presence="optional" nullValue="0"/>'),
        ("W16", PARTS, '<enum name="e" encodingType="uint8" presence="optional" nullValue="7"/>'),
        ("W16", '<field name="f" id="1" type="e" presence="optional"/>', '<enum name="e" encodingType="t0"/>'),
        ("W16", '<field name="f" id="1" type="t1" presence="optional"/>', ""),
        ("W16", '<field name="f" id="1" type="t2" presence="optional"/>', ""),
        ("W17", PARTS, '<type name="t" primitiveType="char" length="4" characterEncoding="klingon"/>'),
    ],
)
def test_what_is_odd_but_works_is_warned_about(code, parts, types):
    limits = (
        '<type name="t0" primitiveType="uint8" maxValue="255"/><type name="t1" primitiveType="uint8" maxValue="255"/>'
        '<type name="t2" primitiveType="uint8" length="2" maxValue="255"/>'
    )

    schema = message_of(parts, limits + types.replace("{}", 'presence="optional"'), version=2)

    assert codes(schema) == [code]


@pytest.mark.parametrize(
    ("near", "parts", "types"),
    [
        ("W02", f'<field name="_{"f" * 63}" id="1" type="int8"/>', ""),
        ("W03", PARTS, '<type name="t" primitiveType="int8" presence="optional" nullValue="-128"/>'),
        ("W04", USES_DIMENSIONS, DIMENSIONS.format("uint8", "uint8", "")),
        ("W04", USES_BYTES, BYTES.format("uint32", "varData", 'length="0"')),
        ("W06", PARTS, SIDE.format('<validValue name="Sell">S</validValue>')),
        ("W06", PARTS, FLAGS.format('<choice name="b">1</choice>')),
        ("W08", '<field name="a" id="1" type="int8"/><field name="b" id="2" type="int8" sinceVersion="1"/>', ""),
        ("W08", GROUP.format("g", 1, 2) + DATA.format("d", 2, 1), ""),
        ("W08 constants", '<field name="a" id="1" type="k" sinceVersion="1"/><field name="b" id="2" type="int8"/>', ""),
        ("W09", '<field name="f" id="1" type="t" presence="optional"/>', '<type name="t" primitiveType="int8"/>'),
        ("W11", '<field name="f" id="1" type="int8" sinceVersion="2" deprecated="2"/>', ""),
        ("W13 attribute", '<field name="f" id="1" type="int8" x:presence="optional" xmlns:x="urn:x"/>', ""),
        ("W13 of another namespace", '<field name="f" id="1" type="int8"/><x:note xmlns:x="urn:x" any="1"/>', ""),
        ("W14", '<field name="a" id="1" type="int8" offset="0"/>', ""),
        ("W15", USES_BYTES, BYTES.format("uint8", "varData", 'length="0"')),
        ("W16", PARTS, '<type name="t" primitiveType="int8" presence="optional" minValue="1" nullValue="0"/>'),
    ],
)
def test_what_is_as_it_should_be_is_not_warned_about(near, parts, types):
    constant = '<type name="k" primitiveType="int8" presence="constant">1</type>'

    assert codes(message_of(parts, constant + types, version=2)) == []


def test_a_schema_without_a_version_or_messages_is_warned_about():
    schema = load_schema(f'<messageSchema id="1"><types>{HEADER}</types></messageSchema>'.encode(), file="a.xml")

    assert schema.version == 0
    assert [warning.split(": ")[:2] for warning in schema.warnings] == [["a.xml:1", "W12"], ["a.xml:1", "W07"]]


@pytest.mark.parametrize("member", ["blockLength", "templateId", "schemaId", "version"])
def test_a_header_that_is_not_of_uint16_is_warned_about(member):
    header = HEADER.replace(f'"{member}" primitiveType="uint16"', f'"{member}" primitiveType="uint8"', 1)

    assert codes(message_of(PARTS, header=header)) == ["W04"]


@pytest.mark.parametrize(("always", "expected"), [(1, []), (2, ["W18"])])
def test_a_header_of_another_schema_is_warned_about(always, expected):
    constant = f'"schemaId" primitiveType="uint16" presence="constant">{always}</type>'
    header = HEADER.replace('"schemaId" primitiveType="uint16"/>', constant, 1)

    assert codes(message_of(PARTS, header=header)) == expected


@pytest.mark.parametrize("count", ["numGroups", "numVarDataFields"])
def test_a_count_of_parts_without_the_other_is_warned_about_and_not_obeyed(count):
    lone = f'<type name="{count}" primitiveType="uint16"/></composite>'
    header = HEADER.replace("</composite>", lone, 2)
    parts = f'<group name="g" id="1">{PARTS}</group><data name="d" id="2" type="blob"/>'
    schema = message_of(f'<field name="a" id="9" type="int8"/>{parts}', header=header)

    assert codes(schema) == ["W19", "W19"]
    assert schema.header.roles.keys() == {"blockLength", "templateId", "schemaId", "version"}
    body = bytes.fromhex("0100 0100 0100 0000 0000  05  0100 0100 0000 07  01 ff")
    assert decode(schema, body).values == {"a": 5, "g": [{"f": 7}], "d": b"\xff"}
    assert decode(schema, body).warnings == ()


def test_a_name_that_is_defined_twice_is_an_error_if_one_is_strict():
    types = '<type name="t" primitiveType="int8"/>'
    text = (
        f'<messageSchema id="1" version="0"><types>{HEADER}{types}\n{types}</types>'
        f'<message name="M" id="1">{PARTS}</message></messageSchema>'
    )

    assert codes(load_schema(text.encode())) == ["W01"]
    with pytest.raises(SchemaError) as caught:
        load_schema(text.encode(), strict=True)
    assert [(error.code, error.line) for error in caught.value.errors] == [("W01", 21)]


def test_warnings_stand_beside_errors():
    with pytest.raises(SchemaError) as caught:
        schema_of("", '<type name="a b" primitiveType="int8"/><type name="t" primitiveType="int7"/>')

    assert [error.code for error in caught.value.errors] == ["E06"]
    assert [warning.split(": ")[1] for warning in caught.value.warnings] == ["W02"]
