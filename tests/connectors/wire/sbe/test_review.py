"""Values that were decoded although the schema does not expect them."""

from __future__ import annotations

import pytest

from connectors.wire.sbe.decode import decode
from connectors.wire.sbe.review import review_values
from tests.support.sbe import frame, message_of

TYPES = (
    '<type name="limited" primitiveType="int16" minValue="0" maxValue="9"/>'
    '<type name="few" primitiveType="uint8" length="2"/>'
    '<enum name="side" encodingType="uint8"><validValue name="Buy">1</validValue></enum>'
    '<set name="flags" encodingType="uint8"><choice name="a">0</choice></set>'
    '<composite name="price"><type name="mantissa" primitiveType="int8"/>'
    '<type name="exponent" primitiveType="int8"/></composite>'
)


@pytest.mark.parametrize(
    ("field", "raw", "findings"),
    [
        ('type="int16"', "0080", [("null-in-required", "M.f")]),
        ('type="int16" presence="optional"', "0080", []),
        ('type="int16"', "0180", []),
        ('type="limited"', "0a00", [("out-of-range", "M.f")]),
        ('type="limited"', "0900", []),
        ('type="few"', "ff01", [("null-in-required", "M.f")]),
        ('type="side"', "01", []),
        ('type="side"', "02", [("unknown-value", "M.f")]),
        ('type="side"', "ff", [("null-in-required", "M.f")]),
        ('type="side" presence="optional"', "ff", []),
        ('type="flags"', "05", [("unknown-bits", "M.f")]),
        ('type="flags"', "01", []),
        ('type="price"', "8080", [("null-in-required", "M.f.mantissa"), ("null-in-required", "M.f.exponent")]),
        ('type="price" presence="optional"', "8001", []),
        ('type="char"', "07", [("out-of-range", "M.f")]),
        ('type="char"', "00", [("null-in-required", "M.f")]),
        ('type="float"', "0000c07f", []),
        ('type="int8" deprecated="0"', "01", [("deprecated", "M.f")]),
    ],
)
def test_what_the_schema_does_not_expect_is_found(field, raw, findings):
    schema = message_of(f'<field name="f" id="1" {field}/>', TYPES)
    values = decode(schema, frame(raw, block_length=len(raw) // 2)).values

    found = review_values(schema.messages["M"], values)

    assert [(finding.reason, finding.element) for finding in found] == findings


def test_the_same_finding_in_many_entries_is_told_once():
    schema = message_of('<group name="g" id="1"><field name="f" id="2" type="side"/></group>', TYPES)
    values = decode(schema, frame("0100 0300 07 08 01", block_length=0)).values

    found = review_values(schema.messages["M"], values)

    assert [(finding.reason, finding.element) for finding in found] == [("unknown-value", "M.g.f")]
