"""Values of every type go out and come back; what does not fit its type is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol import Byte, Decoder, Float, Int, Packet, Short
from silverfold.connectors.tengi.protocol.feed.columns import parse_type, read_row, read_value, write_row, write_value
from tests.support.tengi.vectors import written

MOMENT = datetime(2024, 2, 29, 12, 0, 0, 1)
VALUES: list[tuple[str, Any, Any]] = [
    ("tinyint", -128, Byte(-128)),
    ("smallint", 300, Short(300)),
    ("int", 1 << 20, Int(1 << 20)),
    ("bigint", -(1 << 63), -(1 << 63)),
    ("float", 1.5, Float(1.5)),
    ("double", 0.1, 0.1),
    ("boolean", True, Byte(1)),
    ("string", "Zürich", "Zürich"),
    ("binary", b"\0\xff", b"\0\xff"),
    ("decimal(5,2)", Decimal("-12.50"), "-12.50"),
    ("decimal(38,0)", Decimal(10**38 - 1), "9" * 38),
    ("date", date(1969, 12, 31), Int(-1)),
    ("timestamp", MOMENT.replace(tzinfo=UTC), 1_709_208_000_000_001),
    ("timestamp_ntz", MOMENT, 1_709_208_000_000_001),
    ("array<int>", [1, None], Packet("list", {"n": Int(2), "0": Int(1)})),
    ("struct<a:int,b:string>", {"a": None, "b": "x"}, Packet("struct", {"b": "x"})),
    ("map<string,array<date>>", {"k": []}, Packet("map", {"k": Packet("list", {"n": Int(0)})})),
]


@pytest.mark.parametrize(("text", "value", "sent"), VALUES, ids=[each[0] for each in VALUES])
def test_a_value_goes_out_and_comes_back(text: str, value: Any, sent: Any) -> None:
    kind = parse_type(text)
    assert str(kind) == text
    found = write_value(value, kind)
    assert (type(found), found) == (type(sent), sent)
    assert read_value(Decoder(written(found)).read_object(), kind) == value


@pytest.mark.parametrize("sent", [Byte(7), Short(7), Int(7), 7])
def test_any_whole_number_is_read_where_one_is_due(sent: int) -> None:
    assert {read_value(sent, parse_type(name)) for name in ("tinyint", "smallint", "int", "bigint")} == {7}


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("tinyint", 128),
        ("int", "1"),
        ("boolean", 1000),
        ("double", 1),
        ("string", b""),
        ("decimal(5,2)", "1e2"),
        ("decimal(5,2)", "1000.00"),
        ("decimal(5,2)", "0.001"),
        ("date", 1 << 30),
        ("timestamp", 1 << 62),
        ("array<int>", Packet("list", {"n": -1})),
        ("array<int>", Packet("list", {"n": (1 << 31) - 1})),
        ("struct<a:int>", Packet("struct", {"a": "x"})),
        ("map<string,int>", 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused(text: str, sent: Any) -> None:
    with pytest.raises(InvalidValue):
        read_value(sent, parse_type(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int", 1 << 31),
        ("bigint", 1 << 63),
        ("int", 1.5),
        ("date", "x"),
        ("timestamp", MOMENT),
        ("decimal(3,1)", "x"),
        ("decimal(3,1)", "1.25"),
        ("map<string,int>", {"a": None}),
        ("array<int>", 1),
    ],
)
def test_a_value_that_cannot_be_sent_is_refused(text: str, value: Any) -> None:
    with pytest.raises(InvalidValue):
        write_value(value, parse_type(text))


@pytest.mark.parametrize(
    "text",
    [
        *("", "void", "int int", "array<int", "map<int,int>", "decimal(39,0)", "decimal(3,4)", "struct<>", "a-b", "<"),
        *("struct<a:int,a:int>", "array<struct<a:int,b:int,A:string>>", "bigint not null", "'int'", "struct<'a' int>"),
        *(
            "struct<a int not>",
            "struct<a int comment>",
            "struct<a int comment x>",
            "struct<a int comment 'x' not null>",
        ),
    ],
)
def test_a_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="bad_type"):
        parse_type(text)


def test_types_are_read_as_spark_writes_them() -> None:
    assert str(parse_type("STRUCT<`a b`: BIGINT, c: DECIMAL>")) == "struct<`a b`:bigint,c:decimal(10,0)>"
    nested = r"""struct<a struct<not int NOT NULL> not null Comment 'it\'s > x', b array<DEC> COMMENT "'">"""
    assert str(parse_type(nested)) == "struct<a:struct<not:int>,b:array<decimal(10,0)>>"
    with pytest.raises(InvalidValue, match="bad_type"):
        parse_type("array<" * 30 + "int" + ">" * 30)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("numeric", "decimal(10,0)"),
        ("numeric(10,2)", "decimal(10,2)"),
        ("dec(5)", "decimal(5,0)"),
        ("TIMESTAMP_LTZ", "timestamp"),
        ("real", "float"),
        ("long", "bigint"),
    ],
)
def test_sparks_other_names_of_a_type_mean_the_same(text: str, name: str) -> None:
    assert str(parse_type(text)) == name


@pytest.mark.parametrize("text", ["varchar(10)", "char(3)", "array<CHARACTER(3)>"])
def test_a_text_of_bounded_length_is_refused_with_what_to_write_in_its_place(text: str) -> None:
    with pytest.raises(InvalidValue, match="bounds no text's length, so say string"):
        parse_type(text)


def test_a_row_has_the_columns_that_were_sent() -> None:
    columns = {name: parse_type("int") for name in "abc"}
    assert write_row({"a": 1, "b": None}, columns) == ({"a": Int(1)}, frozenset("b"))
    assert read_row({"a": Int(1), "x": 9}, frozenset("b"), columns) == {"a": 1, "b": None}
    with pytest.raises(InvalidValue) as refused:
        read_row({"a": "x"}, frozenset(), columns)
    assert refused.value.element == "a"


@given(st.text(max_size=30) | st.from_regex(r"(array|map|struct|int|decimal|[<>(),: 0-9a])*", fullmatch=True))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        kind = parse_type(text)
    except InvalidValue:
        return
    assert parse_type(str(kind)) == kind
