"""Groups and data as offsets: what the walk finds, and what it refuses to believe."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.wire.sbe.codec.header import read_header
from silverfold.connectors.wire.sbe.codec.walk import Dimensions, read_data, read_dimensions
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.basics import frame, message_of

GOLDEN = Path(__file__).parents[4] / "golden" / "sbe"
TYPES = (
    '<type name="code" primitiveType="char" length="3"/><type name="pair" primitiveType="uint16" length="2"/>'
    '<enum name="side" encodingType="char"><validValue name="Buy">B</validValue></enum>'
    '<set name="flags" encodingType="uint32"><choice name="a">0</choice></set>'
    '<composite name="price"><type name="mantissa" primitiveType="int32"/>'
    '<type name="exponent" primitiveType="int8" presence="constant">-2</type>'
    '<type name="unit" primitiveType="uint8" offset="5"/></composite>'
)
SCHEMA = message_of(
    '<field name="id" id="1" type="uint8"/>'
    '<group name="g" id="2"><field name="n" id="3" type="int64"/><field name="code" id="4" type="code"/>'
    '<field name="side" id="5" type="side"/><field name="flags" id="6" type="flags"/>'
    '<field name="pair" id="7" type="pair"/><field name="price" id="8" type="price"/></group>'
    '<data name="d" id="9" type="blob"/>',
    TYPES,
)
GROUP = SCHEMA.messages["M"].group("g")
ENTRIES = (
    "0100000000000000 414200 42 05000000 0100 0200 0a000000 ff 07"
    "ffffffffffffffff 434445 53 00000080 0300 0400 0b000000 ff 08"
)
BODY = frame("09" + "1a00 0200" + ENTRIES + "02 beef", block_length=1)


def test_the_entries_of_a_group_are_found():
    assert read_dimensions(SCHEMA, GROUP, BODY, 9) == Dimensions(block_length=26, entries=2, start=13)


def test_counts_of_nested_parts_are_found_where_the_dimensions_have_them():
    schema = load_schema(GOLDEN / "values.xml")
    group = schema.messages["Counted"].group("entries")

    dimensions = read_dimensions(schema, group, bytes.fromhex("3700030001000200") + bytes(165), 0)

    assert dimensions == Dimensions(block_length=55, entries=3, start=8, groups=1, data=2)


@pytest.mark.parametrize(
    ("dimensions", "error", "reason"),
    [
        ("1a00 00", TruncatedMessage, "truncated"),
        ("1a00 0200" + "00" * 51, InvalidValue, "count-range"),
        ("ffff ffff", InvalidValue, "count-range"),
    ],
)
def test_dimensions_that_cannot_be_true_are_refused(dimensions, error, reason):
    with pytest.raises(error) as caught:
        read_dimensions(SCHEMA, GROUP, bytes.fromhex(dimensions), 0)

    assert (caught.value.reason, caught.value.element, caught.value.offset) == (reason, "g", 0)


def test_entries_without_bytes_are_believed_up_to_a_limit():
    schema = message_of(
        '<group name="g" id="1" dimensionType="wide"/>',
        '<composite name="wide"><type name="blockLength" primitiveType="uint16"/>'
        '<type name="numInGroup" primitiveType="uint32" maxValue="2147483647"/></composite>',
    )
    group = schema.messages["M"].group("g")

    assert read_dimensions(schema, group, bytes.fromhex("0000 00000100"), 0).entries == 65_536
    with pytest.raises(InvalidValue, match="65537"):
        read_dimensions(schema, group, bytes.fromhex("0000 01000100"), 0)


def test_data_is_found_by_its_length():
    data = SCHEMA.messages["M"].data_field("d")

    assert read_data(SCHEMA, data, BODY, len(BODY) - 3) == (len(BODY) - 2, len(BODY))


@pytest.mark.parametrize(
    ("body", "error", "reason"),
    [("", TruncatedMessage, "truncated"), ("02 00", TruncatedMessage, "truncated"), ("ff", InvalidValue, "length-max")],
)
def test_data_that_cannot_be_there_is_refused(body, error, reason):
    with pytest.raises(error) as caught:
        read_data(SCHEMA, SCHEMA.messages["M"].data_field("d"), bytes.fromhex(body), 0)

    assert (caught.value.reason, caught.value.element) == (reason, "d")


def test_data_may_begin_behind_a_gap():
    schema = message_of(
        '<data name="d" id="1" type="gap"/>',
        '<composite name="gap"><type name="length" primitiveType="uint8" offset="1"/>'
        '<type name="varData" primitiveType="uint8" length="0" offset="4"/></composite>',
    )
    data = schema.messages["M"].data_field("d")

    assert read_data(schema, data, bytes.fromhex("00 02 0000 beef"), 0) == (4, 6)
    with pytest.raises(TruncatedMessage):
        read_data(schema, data, bytes.fromhex("00 00"), 0)


def test_a_header_is_read_without_judging_it():
    assert read_header(SCHEMA, bytes.fromhex("0100 0200 0300 0400"))[:5] == (1, 2, 3, 4, 8)
    with pytest.raises(TruncatedMessage) as caught:
        read_header(SCHEMA, bytes(7))
    assert (caught.value.reason, caught.value.offset) == ("short-frame", 7)
