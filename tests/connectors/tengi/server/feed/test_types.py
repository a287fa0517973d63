"""Values of each type of column, as they travel, and the DDL that names the types."""

from __future__ import annotations

from decimal import Decimal

import pytest

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol.values import Byte, Float, Int, Packet, Short
from silverfold.connectors.tengi.server.feed.types import parse_type


@pytest.mark.parametrize(
    ("text", "value", "wire"),
    [
        ("tinyint", -1, Byte(-1)),
        ("smallint", 300, Short(300)),
        ("int", 7, Int(7)),
        ("bigint", 1 << 40, 1 << 40),
        ("float", 0.5, Float(0.5)),
        ("double", 0.1, 0.1),
        ("boolean", True, Byte(1)),
        ("boolean", False, Byte(0)),
        ("string", "Ünï", "Ünï"),
        ("binary", b"\0\xff", b"\0\xff"),
        ("decimal(6,2)", Decimal("-12.5"), "-12.50"),
        ("decimal(38,0)", Decimal("9" * 38), "9" * 38),
        ("decimal(38,38)", Decimal("1E-38"), "0." + "0" * 37 + "1"),
        ("date", -1, Int(-1)),
        ("timestamp", 1_700_000_000_000_000, 1_700_000_000_000_000),
        ("timestamp_ntz", -1, -1),
        ("array<int>", [1, None, 3], Packet("list", {"n": Int(3), "0": Int(1), "2": Int(3)})),
        ("array<string>", [], Packet("list", {"n": Int(0)})),
        ("struct<a:int,`b c`:string>", {"a": 1, "b c": None}, Packet("struct", {"a": Int(1)})),
        ("map<string,bigint>", {"x": 1}, Packet("map", {"x": 1})),
        (
            "array<struct<m:map<string,array<date>>>>",
            [{"m": {"k": [1]}}],
            Packet(
                "list",
                {
                    "n": Int(1),
                    "0": Packet("struct", {"m": Packet("map", {"k": Packet("list", {"n": Int(1), "0": Int(1)})})}),
                },
            ),
        ),
    ],
)
def test_a_value_travels_as_its_type_prescribes(text: str, value: object, wire: object) -> None:
    found = parse_type(text).to_wire(value)
    assert (found, type(found)) == (wire, type(wire))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tinyint", 128),
        ("date", 1 << 31),
        ("decimal(4,2)", Decimal(100)),
        ("decimal(4,2)", Decimal("0.001")),
        ("decimal(4,2)", Decimal("NaN")),
        ("map<string,int>", {"a": None}),
    ],
)
def test_a_value_that_does_not_fit_is_refused(text: str, value: object) -> None:
    with pytest.raises(InvalidValue):
        parse_type(text).to_wire(value)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("DECIMAL", "decimal(10,0)"),
        (" decimal( 12 , 2 ) ", "decimal(12,2)"),
        ("Array< Map<string, int> >", "array<map<string,int>>"),
        ("struct<`a``b`:int,c:string>", "struct<`a``b`:int,c:string>"),
    ],
)
def test_ddl_is_read_whatever_its_spaces_and_case(text: str, normal: str) -> None:
    assert parse_type(text).text == normal
    assert parse_type(normal).text == normal


@pytest.mark.parametrize(
    "text",
    ["", "integer!", "decimal(39,0)", "decimal(4,5)", "array<int", "map<int,int>", "struct<>", "int int", "list"],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is no type of a column"):
        parse_type(text)
