"""What may be written, what is refused, and how the error names it. Layouts are tested where they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.values import SetValue
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.basics import frame, message_of, schema_of

SAMPLE = load_schema(Path(__file__).parents[4] / "golden" / "sbe" / "sample.xml")
QUOTE: dict[str, Any] = {
    "seq": 1,
    "code": "AB",
    "side": "Buy",
    "flags": [],
    "triple": [1, 2, 3],
    "price": {"mantissa": 5},
    "at": {"time": 9},
    "qty": {"mantissa": 1, "exponent": 0, "side": "Sell"},
}


@pytest.mark.parametrize(
    ("change", "reason", "element"),
    [
        ({"seq": -1}, "range", "Quote.seq"),
        ({"seq": 4294967295}, "range", "Quote.seq"),
        ({"seq": 4294967296}, "range", "Quote.seq"),
        ({"seq": "1"}, "type", "Quote.seq"),
        ({"seq": True}, "type", "Quote.seq"),
        ({"seq": 1.0}, "type", "Quote.seq"),
        ({"seq": None}, "null-in-required", "Quote.seq"),
        ({"opt": 99}, "range", "Quote.opt"),
        ({"opt": 255}, "range", "Quote.opt"),
        ({"code": "ABCDEFG"}, "length-max", "Quote.code"),
        ({"code": "é"}, "charset", "Quote.code"),
        ({"code": "A\0B"}, "range", "Quote.code"),
        ({"code": 5}, "type", "Quote.code"),
        ({"side": "Hold"}, "unknown-value", "Quote.side"),
        ({"side": "X"}, "unknown-value", "Quote.side"),
        ({"side": None}, "null-in-required", "Quote.side"),
        ({"level": 3}, "unknown-value", "Quote.level"),
        ({"level": 256}, "range", "Quote.level"),
        ({"level": 1.5}, "type", "Quote.level"),
        ({"flags": ["firm", "loud"]}, "unknown-value", "Quote.flags"),
        ({"flags": 2}, "unknown-value", "Quote.flags"),
        ({"flags": "firm"}, "type", "Quote.flags"),
        ({"flags": None}, "null-in-required", "Quote.flags"),
        ({"triple": [1, 2]}, "range", "Quote.triple"),
        ({"triple": [1, 2, 40000]}, "range", "Quote.triple"),
        ({"triple": 7}, "type", "Quote.triple"),
        ({"venue": "XPAR"}, "constant", "Quote"),
        ({"fixedSide": "Buy"}, "constant", "Quote"),
        ({"price": None}, "null-in-required", "Quote.price"),
        ({"price": {"mantissa": 1, "exponent": 3}}, "constant", "Quote.price"),
        ({"price": {"mantissa": 1, "scale": 3}}, "unknown-name", "Quote.price"),
        ({"price": 1.5}, "type", "Quote.price"),
        ({"qty": {"mantissa": 1, "exponent": 0}}, "missing", "Quote.qty.side"),
        ({"colour": "red"}, "unknown-name", "Quote"),
        ({"legs": [{"legId": 1, "ratio": 1e39}]}, "range", "Quote.legs[0].ratio"),
        ({"legs": [{"legId": 1, "ratio": 10**400}]}, "range", "Quote.legs[0].ratio"),
        ({"legs": [{"legId": 1, "ratio": "x"}]}, "type", "Quote.legs[0].ratio"),
        ({"legs": [{"legId": 1, "ratio": 1, "marks": [{"mark": 1}, {}]}]}, "missing", "Quote.legs[0].marks[1].mark"),
        ({"legs": [{"legId": 1, "ratio": 1, "marks": [{"mark": 0}] * 255}]}, "count-range", "Quote.legs[0].marks"),
        ({"legs": [{"legId": 1, "ratio": 1, "blob": b"1" * 255}]}, "length-max", "Quote.legs[0].blob"),
        ({"legs": [{"legId": 1, "ratio": 1, "blob": "text"}]}, "type", "Quote.legs[0].blob"),
        ({"legs": {"legId": 1}}, "type", "Quote.legs"),
        ({"legs": [7]}, "type", "Quote.legs[0]"),
        ({"text": 7}, "type", "Quote.text"),
        ({"text": "\ud800"}, "charset", "Quote.text"),
        ({"text": "x" * 65535}, "length-max", "Quote.text"),
    ],
)
def test_a_value_that_cannot_be_read_back_is_refused_and_named(change, reason, element):
    with pytest.raises(InvalidValue) as caught:
        encode(SAMPLE, "Quote", QUOTE | change)

    assert (caught.value.reason, caught.value.element, caught.value.offset) == (reason, element, None)


def test_missing_optional_values_are_null_and_missing_groups_and_data_are_empty():
    body = encode(SAMPLE, "Quote", QUOTE)

    assert body[8 + 15] == 255
    assert body[8 + 23] == 99
    assert body[8 + 32 : 8 + 40] == bytes.fromhex("0000000000000080")
    assert body[8 + 64 :] == bytes.fromhex("06000000 0000 00")


@pytest.mark.parametrize(
    ("change", "offset", "raw"),
    [
        ({"side": "X"}, 14, b"X"),
        ({"side": None}, 14, b"\x00"),
        ({"level": 77}, 15, b"\x4d"),
        ({"flags": 0x82}, 16, b"\x82"),
        ({"seq": 4294967295}, 0, b"\xff\xff\xff\xff"),
        ({"opt": 99}, 23, b"\x63"),
        ({"triple": [-32768, 0, 1]}, 17, b"\x00\x80\x00\x00\x01\x00"),
        ({"price": {"mantissa": -(2**63)}}, 24, bytes.fromhex("0000000000000080")),
    ],
)
def test_what_readers_accept_can_be_written_on_request(change, offset, raw):
    with pytest.raises(InvalidValue):
        encode(SAMPLE, "Quote", QUOTE | change)

    body = encode(SAMPLE, "Quote", QUOTE | change, tolerant=True)

    assert body[8 + offset : 8 + offset + len(raw)] == raw


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("int32", "00000080", -(2**31)),
        ("char", "00", ""),
        ("text", "000000", ""),
        ("list", "ffffffff", [65535, 65535]),
        ("set", "ff", 255),
        ("price", "00000080", {"mantissa": -(2**31)}),
        ("side", "ff", None),
    ],
)
def test_null_in_a_required_field_is_written_on_request_as_it_is_read_and_none_for_enums_only(kind, raw, value):
    schema = message_of(
        f'<field name="f" id="1" type="{kind}"/>',
        '<type name="text" primitiveType="char" length="3"/><type name="list" primitiveType="uint16" length="2"/>'
        '<set name="set" encodingType="uint8"><choice name="a">0</choice></set>'
        '<enum name="side" encodingType="uint8"><validValue name="Buy">1</validValue></enum>'
        '<composite name="price"><type name="mantissa" primitiveType="int32"/></composite>',
    )
    body = frame(raw, block_length=len(raw) // 2)

    assert encode(schema, "M", {"f": value}, tolerant=True) == body
    assert encode(schema, "M", decode(schema, body).values, tolerant=True) == body
    if value is not None:
        with pytest.raises(InvalidValue, match="null-in-required"):
            encode(schema, "M", {"f": None}, tolerant=True)


@pytest.mark.parametrize("value", [SetValue(0x89, {}), ["firm", "hidden"], {"hidden", "firm"}, 9])
def test_a_set_is_written_from_its_value_its_names_or_its_integer(value):
    body = encode(SAMPLE, "Quote", QUOTE | {"flags": value})

    assert body[8 + 16] & 0x7F == 9


def test_enums_are_written_from_a_listed_raw_value_too():
    body = encode(SAMPLE, "Quote", QUOTE | {"side": "B", "level": 2})

    assert (body[8 + 14], body[8 + 15]) == (ord("B"), 2)


def test_numbers_of_numpy_are_numbers():
    body = encode(SAMPLE, "Quote", QUOTE | {"seq": np.uint32(7), "triple": np.array([1, 2, 3], "int16")})

    assert body[8:12] == b"\x07\x00\x00\x00"


def test_an_array_of_uint8_may_be_given_as_bytes_and_uses_every_value():
    schema = message_of('<field name="id" id="1" type="id"/>', '<type name="id" primitiveType="uint8" length="4"/>')

    assert encode(schema, "M", {"id": b"\x00\xff\x7f\x80"}) == frame("00ff7f80", block_length=4)


def test_limits_of_a_type_hold_for_floats_only_where_they_are_declared():
    schema = message_of(
        '<field name="a" id="1" type="t"/><field name="b" id="2" type="float"/>',
        '<type name="t" primitiveType="float" minValue="0" maxValue="1"/>',
    )

    assert encode(schema, "M", {"a": 1, "b": float("inf")}) == frame("0000803f 0000807f", block_length=8)
    for value in (1.5, float("nan"), float("inf")):
        with pytest.raises(InvalidValue, match="is not from 0"):
            encode(schema, "M", {"a": value, "b": 0})


def test_text_that_would_be_read_as_null_is_refused():
    schema = message_of(
        '<field name="t" id="1" type="t"/>', '<type name="t" primitiveType="char" length="2" presence="optional"/>'
    )

    with pytest.raises(InvalidValue, match="null is written as None"):
        encode(schema, "M", {"t": ""})


@pytest.mark.parametrize("value", ["", "\x07", "é", "ab"])
def test_a_single_char_is_one_printable_character(value):
    with pytest.raises(InvalidValue):
        encode(message_of('<field name="c" id="1" type="char"/>'), "M", {"c": value})


def test_a_single_char_is_written_as_itself():
    assert encode(message_of('<field name="c" id="1" type="char"/>'), "M", {"c": "A"}) == frame("41", block_length=1)


def test_an_unknown_message_is_a_key_error():
    with pytest.raises(KeyError):
        encode(SAMPLE, "Order", {})


def test_a_message_is_not_written_as_a_version_older_than_itself():
    schema = schema_of('<message name="M" id="1" sinceVersion="2"/>', version=3)

    with pytest.raises(InvalidValue, match="2 to 3"):
        encode(schema, "M", {}, version=1)


def test_gaps_left_by_newer_fields_are_zero_in_an_older_version():
    schema = message_of(
        '<field name="a" id="1" type="uint8"/><field name="b" id="2" type="uint16" sinceVersion="2"/>'
        '<field name="c" id="3" type="uint8"/>',
        version=2,
    )

    assert encode(schema, "M", {"a": 1, "b": 2, "c": 3}, version=1) == frame("01 0000 03", block_length=4, version=1)


def test_a_declared_block_length_is_kept_in_an_older_version_that_lacks_nothing():
    schema = schema_of(
        '<message name="M" id="1" blockLength="4"><field name="a" id="1" type="uint8"/></message>', version=2
    )

    assert encode(schema, "M", {"a": 1}, version=1) == frame("01 000000", block_length=4, version=1)


RETIRING = message_of(
    '<field name="a" id="1" type="int8" deprecated="1"/><field name="o" id="2" type="int8" presence="optional" '
    'deprecated="2"/><field name="side" id="3" type="side"/><field name="bits" id="4" type="bits"/>'
    '<group name="g" id="5" deprecated="1"><field name="f" id="6" type="int8"/></group>'
    '<data name="d" id="7" type="blob" deprecated="1"/>',
    '<enum name="side" encodingType="uint8"><validValue name="Buy">1</validValue>'
    '<validValue name="Short" deprecated="1">2</validValue></enum>'
    '<set name="bits" encodingType="uint8"><choice name="old" deprecated="1">0</choice></set>',
    version=2,
)
LASTING: dict[str, Any] = {"a": 1, "side": "Buy", "bits": []}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, []),
        ({"g": []}, []),
        ({"d": b""}, []),
        ({"side": "Short"}, ["M.side.Short"]),
        ({"bits": ["old"]}, ["M.bits.old"]),
        ({"o": 1}, ["M.o"]),
        ({"g": [{"f": 1}, {"f": 2}]}, ["M.g"]),
        ({"d": b"x", "side": "Short"}, ["M.d", "M.side.Short"]),
    ],
)
def test_what_is_deprecated_and_not_needed_is_told_or_refused_on_request(change, named):
    values = {**LASTING, **change}
    octets = encode(RETIRING, "M", values)
    if not named:
        assert encode(RETIRING, "M", values, deprecated="refuse") == octets
        return
    with pytest.raises(InvalidValue, match="deprecated") as caught:
        encode(RETIRING, "M", values, deprecated="refuse")
    assert (caught.value.reason, caught.value.element) == ("deprecated", named[0])
    with pytest.warns(UserWarning, match=f"^{', '.join(named)}: deprecated$"):
        assert encode(RETIRING, "M", values, deprecated="warn") == octets


def test_a_mistyped_way_with_what_is_deprecated_is_refused():
    with pytest.raises(ValueError, match="deprecated is 'Refuse', not allow, warn or refuse"):
        encode(RETIRING, "M", LASTING, deprecated="Refuse")  # type: ignore[arg-type]  # as a program without types


def test_what_was_not_deprecated_yet_in_an_older_version_is_written_in_it():
    octets = encode(RETIRING, "M", {**LASTING, "o": 1, "side": "Short"}, version=0)

    assert encode(RETIRING, "M", {**LASTING, "o": 1, "side": "Short"}, version=0, deprecated="refuse") == octets


def test_a_composite_of_constants_takes_no_byte_and_may_be_missing() -> None:
    constant = '<composite name="C"><type name="k" primitiveType="uint8" presence="constant">9</type></composite>'
    schema = message_of('<field name="a" id="1" type="uint8"/><field name="c" id="2" type="C"/>', constant)
    assert encode(schema, "M", {"a": 1}) == encode(schema, "M", {"a": 1, "c": {}})
    assert decode(schema, encode(schema, "M", {"a": 1})).values == {"a": 1, "c": {"k": 9}}
