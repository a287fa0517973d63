"""What no rule forbids, one step from what each forbids; and the files a schema may include."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.conf.errors import SchemaError
from silverfold.connectors.wire.sbe.schema.document import MAX_INCLUDES
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.basics import HEADER, message_of

PRIMITIVES = ["char", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float", "double"]
FIELD = '<field name="f" id="1" type="{}"/>'
GROUP = '<group name="g" id="1" dimensionType="dims"><field name="f" id="2" type="int8"/></group>'
DIMENSIONS = (
    '<composite name="dims"><type name="blockLength" primitiveType="uint16"/>'
    '<type name="numInGroup" primitiveType="{}" {}/></composite>'
)
RAW = (
    '<composite name="raw"><type name="length" primitiveType="{}" {}/>'
    '<type name="varData" primitiveType="uint8" length="0"/></composite>'
)
SIDE = '<enum name="Side" encodingType="uint8"><validValue name="Buy">1</validValue></enum>'
NAMED = '<type name="t" primitiveType="uint8"/>'
PRICE = '<type name="t" primitiveType="int8" semanticType="Price"/>'
NESTED = '<field name="a" id="1" type="int8"/><group name="g" id="2"><field name="a" id="1" type="int8"/></group>'
INCLUDE = '<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{}"/>'


def constant(attributes: str, text: str) -> str:
    return f'<type name="t" presence="constant" {attributes}>{text}</type>'


def listing(attributes: str, value: str) -> str:
    return f'<enum name="e" {attributes}><validValue name="a">{value}</validValue></enum>'


@pytest.mark.parametrize(
    ("rule", "parts", "types"),
    [
        *(("E06", FIELD.format("t"), f'<type name="t" primitiveType="{name}"/>') for name in PRIMITIVES),
        *(("E07 a primitive by its name", FIELD.format(name), "") for name in PRIMITIVES),
        (
            "E08 a diamond is no circle",
            FIELD.format("top"),
            '<composite name="top"><ref name="a" type="left"/><ref name="b" type="right"/></composite>'
            '<composite name="left"><ref name="c" type="end"/></composite>'
            '<composite name="right"><ref name="c" type="end"/></composite>'
            '<composite name="end"><type name="x" primitiveType="int8"/></composite>',
        ),
        ("E09 length", FIELD.format("t"), constant('primitiveType="char" length="3"', "abc")),
        ("E09 value", FIELD.format("t"), constant('primitiveType="uint8"', "255")),
        ("E10", '<field name="f" id="1" type="Side" presence="constant" valueRef="Side.Buy"/>', SIDE),
        ("E11", FIELD.format("t"), '<type name="t" primitiveType="int8" minValue="-128" maxValue="127"/>'),
        ("E11 text", FIELD.format("t"), constant('primitiveType="char" characterEncoding="UTF-8"', "é")),
        ("E11 white space", FIELD.format("t"), constant('primitiveType="int8"', "\n 5\t")),
        (
            "E12 offset at the end of the last member",
            FIELD.format("c"),
            '<composite name="c"><type name="a" primitiveType="int32"/>'
            '<type name="b" primitiveType="int8" offset="4"/></composite>',
        ),
        *(
            ("E13", FIELD.format("e"), f'<enum name="e" encodingType="{name}"/>')
            for name in PRIMITIVES
            if name not in {"float", "double"}
        ),
        ("E14 highest", FIELD.format("e"), listing('encodingType="uint8"', "254")),
        ("E14 null of its own", FIELD.format("e"), listing('encodingType="int8" nullValue="7"', "6")),
        ("E14 char", FIELD.format("e"), listing('encodingType="char" nullValue="N"', "N")),
        ("E15", FIELD.format("s"), '<set name="s" encodingType="uint64"><choice name="a">63</choice></set>'),
        ("E15 named", FIELD.format("s"), '<set name="s" encodingType="t"><choice name="a">7</choice></set>' + NAMED),
        ("E16", '<field name="a" id="1" type="int32"/><field name="b" id="2" type="int8" offset="4"/>', ""),
        ("E17", '<group name="g" id="1" blockLength="4"><field name="a" id="2" type="int32"/></group>', ""),
        ("E20", NESTED, ""),
        ("E21 limits", GROUP, DIMENSIONS.format("uint8", 'minValue="4" maxValue="4"')),
        ("E21 highest", GROUP, DIMENSIONS.format("uint8", 'maxValue="254"')),
        ("E22", '<data name="d" id="1" type="raw"/>', RAW.format("uint32", 'maxValue="2147483647"')),
        ("E23", '<field name="f" id="1" type="int8" sinceVersion="2" deprecated="2"/>', ""),
        ("E24", '<field name="f" id="1" type="t" semanticType="PRICE"/>', PRICE),
        ("E27", FIELD.format("t"), '<type name="t" primitiveType="uint8" length="1"/>'),
    ],
)
def test_what_no_rule_forbids_is_accepted_without_a_word(rule, parts, types):
    assert message_of(parts, types, version=2).warnings == ()


def test_what_is_given_once_for_field_and_type_means_the_field():
    types = '<type name="t" primitiveType="int64" semanticType="Price"/>'
    schema = message_of(
        '<field name="a" id="1" type="t"/><field name="b" id="2" type="int8" semanticType="Qty"/>', types
    )

    assert [field.semantic_type for field in schema.messages["M"].fields] == ["Price", "Qty"]


@pytest.mark.parametrize("attributes", ['id="0" version="0"', 'id="65535" version="65535" byteOrder="bigEndian"'])
def test_ids_and_versions_may_be_as_high_as_their_header_holds(attributes):
    text = f'<messageSchema {attributes}><types>{HEADER}</types><message name="M" id="65535"/></messageSchema>'

    assert load_schema(text.encode()).warnings == ()


def test_a_schema_of_one_folder_may_be_in_many_files_but_not_in_any_number(tmp_path: Path):
    for number in range(MAX_INCLUDES + 1):
        (tmp_path / f"{number}.xml").write_text(f'<types><type name="t{number}" primitiveType="int8"/></types>')
    includes = [INCLUDE.format(f"{number}.xml") for number in range(MAX_INCLUDES + 1)]
    many, too_many = tmp_path / "many.xml", tmp_path / "too-many.xml"
    text = f'<messageSchema id="1" version="0">{{}}<types>{HEADER}</types></messageSchema>'
    many.write_text(text.format("".join(includes[:-1])))
    too_many.write_text(text.format("".join(includes)))

    assert f"t{MAX_INCLUDES - 1}" in load_schema(many).encodings
    with pytest.raises(SchemaError, match="more than 256 files"):
        load_schema(too_many)


def test_files_that_include_each_other_twice_are_not_followed_without_end(tmp_path: Path):
    for number in range(40):
        twice = INCLUDE.format(f"{number + 1}.xml") * 2
        (tmp_path / f"{number}.xml").write_text(f"<types>{twice}</types>")
    (tmp_path / "40.xml").write_text("<types/>")
    (tmp_path / "main.xml").write_text(f'<messageSchema id="1" version="0">{INCLUDE.format("0.xml")}</messageSchema>')

    with pytest.raises(SchemaError, match="more than 256 files") as caught:
        load_schema(tmp_path / "main.xml")

    assert caught.value.code == "E01"


def test_a_document_type_that_declares_nothing_is_passed_by():
    """B3's published schemas have one."""
    text = f'<!DOCTYPE xml>\n<messageSchema id="1" version="0"><types>{HEADER}</types></messageSchema>'

    assert load_schema(text.encode()).id == 1
