"""Values that were decoded although the schema does not expect them."""

from __future__ import annotations

import pytest

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.value_checks import review_values
from tests.support.sbe.basics import frame, message_of, schema_of

TYPES = (
    '<type name="limited" primitiveType="int16" minValue="0" maxValue="9"/>'
    '<type name="few" primitiveType="uint8" length="2"/>'
    '<enum name="side" encodingType="uint8"><validValue name="Buy">1</validValue></enum>'
    '<set name="flags" encodingType="uint8"><choice name="a">0</choice></set>'
    '<composite name="price"><type name="mantissa" primitiveType="int8"/>'
    '<type name="exponent" primitiveType="int8"/></composite>'
    '<composite name="outer"><ref name="inner" type="price"/><type name="last" primitiveType="int8"/></composite>'
    '<type name="numbers" primitiveType="int8" length="2"/>'
    '<type name="code" primitiveType="char" length="2"/>'
    '<type name="accented" primitiveType="char" length="2" characterEncoding="ISO-8859-1"/>'
    '<composite name="month"><type name="year" primitiveType="uint16"/><type name="month" primitiveType="uint8"/>'
    '<type name="day" primitiveType="uint8"/></composite>'
    '<enum name="unit" encodingType="uint8"><validValue name="second">0</validValue></enum>'
    '<composite name="clock" semanticType="UTCTimeOnly"><type name="time" primitiveType="uint32"/>'
    '<ref name="unit" type="unit"/></composite>'
    '<composite name="zoned"><type name="time" primitiveType="uint16"/><type name="unit" primitiveType="uint8"/>'
    '<type name="timezoneHour" primitiveType="int8"/><type name="timezoneMinute" primitiveType="uint8"/></composite>'
    '<enum name="old" encodingType="uint8"><validValue name="Gone" deprecated="0">1</validValue>'
    '<validValue name="Kept">2</validValue></enum>'
    '<set name="bits" encodingType="uint8"><choice name="gone" deprecated="0">0</choice>'
    '<choice name="kept">1</choice></set>'
)


@pytest.mark.parametrize(
    ("field", "raw", "findings"),
    [
        ('type="int16"', "0080", [("null-in-required", "M.f")]),
        ('type="int16" presence="optional"', "0080", []),
        ('type="int16"', "0180", []),
        ('type="limited"', "0a00", [("out-of-range", "M.f")]),
        ('type="limited"', "0900", []),
        ('type="few"', "ff01", []),
        ('type="few"', "ffff", [("null-in-required", "M.f")]),
        ('type="few" presence="optional"', "ffff", []),
        ('type="numbers"', "8001", [("null-in-required", "M.f")]),
        ('type="numbers"', "8101", []),
        ('type="side"', "01", []),
        ('type="side"', "02", [("unknown-value", "M.f")]),
        ('type="side"', "ff", [("null-in-required", "M.f")]),
        ('type="side" presence="optional"', "ff", []),
        ('type="flags"', "05", [("unknown-bits", "M.f")]),
        ('type="flags"', "01", []),
        ('type="price"', "8080", [("null-in-required", "M.f.mantissa"), ("null-in-required", "M.f.exponent")]),
        ('type="price" presence="optional"', "8001", []),
        ('type="price" presence="optional"', "8080", []),
        ('type="price" presence="optional"', "0180", [("null-in-required", "M.f.exponent")]),
        ('type="outer" presence="optional"', "808080", []),
        ('type="outer" presence="optional"', "010180", [("null-in-required", "M.f.last")]),
        ('type="code"', "4107", [("out-of-range", "M.f")]),
        ('type="code"', "4100", []),
        ('type="code"', "0000", []),
        ('type="accented"', "e907", []),
        ('type="month"', "de07 06 ff", []),
        ('type="month"', "de07 0d ff", [("month-year", "M.f")]),
        ('type="month"', "de07 00 ff", [("month-year", "M.f")]),
        ('type="month"', "ffff 06 ff", [("month-year", "M.f"), ("null-in-required", "M.f.year")]),
        ('type="month"', "de07 ff ff", [("month-year", "M.f"), ("null-in-required", "M.f.month")]),
        ('type="month" presence="optional"', "ffff ff ff", []),
        ('type="clock"', "7f510100 00", []),
        ('type="clock"', "80510100 00", [("time-of-day", "M.f")]),
        ('type="zoned" semanticType="UTCTimeOnly"', "0000 07 00 00", [("time-of-day", "M.f")]),
        ('type="clock"', "80510100 09", [("unknown-value", "M.f.unit")]),
        ('type="uint32" semanticType="utctimeonly" timeUnit="second"', "7f510100", []),
        ('type="uint32" semanticType="utctimeonly" timeUnit="second"', "80510100", [("time-of-day", "M.f")]),
        ('type="uint32" semanticType="UTCTimestamp" timeUnit="second"', "80510100", []),
        ('type="zoned"', "0000 00 f4 3b", []),
        ('type="zoned"', "0000 00 0e 00", []),
        ('type="zoned"', "0000 00 f3 00", [("time-zone", "M.f")]),
        ('type="zoned"', "0000 00 0f 00", [("time-zone", "M.f")]),
        ('type="zoned"', "0000 00 00 3c", [("time-zone", "M.f")]),
        ('type="old"', "01", [("deprecated", "M.f")]),
        ('type="old"', "02", []),
        ('type="bits"', "03", [("deprecated", "M.f")]),
        ('type="bits"', "02", []),
        ('type="char"', "07", [("out-of-range", "M.f")]),
        ('type="char"', "00", [("null-in-required", "M.f")]),
        ('type="float"', "0000c07f", []),
        ('type="int8" deprecated="0"', "01", [("deprecated", "M.f")]),
    ],
)
def test_what_the_schema_does_not_expect_is_found(field, raw, findings):
    schema = message_of(f'<field name="f" id="1" {field}/>', TYPES)

    found = review_values(decode(schema, frame(raw, block_length=len(bytes.fromhex(raw)))))

    assert [(finding.reason, finding.element) for finding in found] == findings


def test_the_same_finding_in_many_entries_is_told_once():
    schema = message_of('<group name="g" id="1"><field name="f" id="2" type="side"/></group>', TYPES)

    found = review_values(decode(schema, frame("0100 0300 07 08 01", block_length=0)))

    assert [(finding.reason, finding.element) for finding in found] == [("unknown-value", "M.g.f")]


@pytest.mark.parametrize("text", ["bytes", "replace"])
def test_bytes_that_are_no_text_are_found(text):
    schema = message_of('<field name="f" id="1" type="code"/><field name="g" id="2" type="code"/>', TYPES)

    found = review_values(decode(schema, frame("41e9 4142", block_length=4), text=text))

    assert [(finding.reason, finding.element) for finding in found] == [("charset", "M.f")]


def test_deprecated_messages_groups_and_data_are_found_where_they_are_in_use():
    schema = schema_of(
        '<message name="M" id="1" deprecated="0"><group name="g" id="1" deprecated="0"/>'
        '<group name="h" id="2"><data name="e" id="3" type="blob" deprecated="0"/></group>'
        '<data name="d" id="4" type="blob" deprecated="0"/></message>'
    )
    used = decode(schema, frame("0000 0200 0000 0200 0105 0105 0107", block_length=0))
    unused = decode(schema, frame("0000 0000 0000 0100 00 00", block_length=0))

    assert [(finding.reason, finding.element) for finding in review_values(used)] == [
        ("deprecated", "M"),
        ("deprecated", "M.d"),
        ("deprecated", "M.g"),
        ("deprecated", "M.h.e"),
    ]
    assert [(finding.reason, finding.element) for finding in review_values(unused)] == [("deprecated", "M")]


AGING = (
    '<type name="Old" primitiveType="uint8" deprecated="2"/>'
    '<enum name="Side" encodingType="uint8" deprecated="2"><validValue name="Buy">1</validValue></enum>'
    '<enum name="Kind" encodingType="uint8"><validValue name="Gone" deprecated="3">1</validValue></enum>'
    '<set name="Bits" encodingType="uint8" deprecated="3"><choice name="a">0</choice></set>'
    '<composite name="Pair"><ref name="a" type="Old"/><type name="b" primitiveType="uint8" deprecated="3"/></composite>'
    '<composite name="Note" deprecated="2"><type name="length" primitiveType="uint8"/>'
    '<type name="varData" primitiveType="uint8" length="0"/></composite>'
)


@pytest.mark.parametrize(
    ("version", "found"),
    [
        (0, {}),
        (1, {"M.own": 1}),
        (2, {"M.own": 1, "M.later": 2, "M.side": 2, "M.pair.a": 2, "M.note": 2}),
        (
            3,
            {
                "M.own": 1,
                "M.later": 2,
                "M.side": 2,
                "M.pair.a": 2,
                "M.note": 2,
                "M.pair.b": 3,
                "M.bits": 3,
                "M.kind": 3,
            },
        ),
    ],
)
def test_an_element_is_deprecated_with_its_type_from_the_earlier_version_on(version, found):
    schema = message_of(
        '<field name="own" id="1" type="Old" deprecated="1"/><field name="later" id="2" type="Old" deprecated="3"/>'
        '<field name="side" id="3" type="Side"/><field name="pair" id="4" type="Pair"/>'
        '<field name="bits" id="5" type="Bits"/><field name="kind" id="6" type="Kind"/>'
        '<data name="note" id="7" type="Note"/>',
        AGING,
        version=3,
    )
    decoded = decode(schema, frame("01010101010101 0141", block_length=7, version=version))

    assert {finding.element: int(finding.detail[-1]) for finding in review_values(decoded)} == found
