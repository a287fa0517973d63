"""Values at the edge: nulls, NaN, whole ranges, text, unknown enum values and bits."""

from __future__ import annotations

import math

import pytest

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.columnar.decode import decode_columns
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from tests.support.sbe.basics import assert_reads_and_writes, frame, message_of


def test_nulls_of_ones_own_are_null_and_the_default_ones_are_not():
    types = (
        '<type name="i" primitiveType="int16" presence="optional" nullValue="-1"/>'
        '<type name="f" primitiveType="float" presence="optional" nullValue="-3.4028235e38"/>'
        '<type name="g" primitiveType="float" presence="optional"/>'
    )
    schema = message_of(
        '<field name="i" id="1" type="i"/><field name="f" id="2" type="f"/><field name="g" id="3" type="g"/>', types
    )

    assert decode(schema, frame("ffff ffff7fff 0000c07f", block_length=10)).values == {"i": None, "f": None, "g": None}
    values = decode(schema, frame("0080 0000c07f ffff7fff", block_length=10)).values
    assert (values["i"], values["g"]) == (-32768, -3.4028234663852886e38)
    assert math.isnan(values["f"])


def test_a_required_float_keeps_nan_and_infinities():
    schema = message_of('<field name="a" id="1" type="double"/><field name="b" id="2" type="float"/>')

    values = decode(schema, frame("000000000000f87f 000080ff", block_length=12)).values

    assert math.isnan(values["a"])
    assert values["b"] == -math.inf
    assert encode(schema, "M", values) == frame("000000000000f87f 000080ff", block_length=12)


def test_whole_numbers_are_exact_to_the_last_bit():
    schema = message_of(
        '<field name="u" id="1" type="uint64"/><field name="n" id="2" type="uint64" presence="optional"/>'
        '<field name="i" id="3" type="int64"/>'
    )

    values = {"u": 18446744073709551614, "n": None, "i": -9223372036854775808}
    body = frame("feffffffffffffff ffffffffffffffff 0000000000000080", block_length=24)
    assert_reads_and_writes(schema, body, values, tolerant=True)


@pytest.mark.parametrize(
    ("raw", "value"),
    [("58 4c 4f 4e", "XLON"), ("58 00 4f 4e", "X"), ("00 00 00 00", ""), ("41 42 00 00", "AB")],
    ids=["full", "bytes behind NUL", "empty", "padded"],
)
def test_a_char_array_ends_at_its_first_nul_or_its_length(raw, value):
    schema = message_of('<field name="t" id="1" type="t"/>', '<type name="t" primitiveType="char" length="4"/>')

    assert decode(schema, frame(raw, block_length=4)).values == {"t": value}


def test_text_that_is_not_valid_is_an_error_or_bytes_or_repaired_as_one_asks():
    schema = message_of(
        '<field name="a" id="1" type="t"/><data name="d" id="2" type="text"/>',
        '<type name="t" primitiveType="char" length="2"/>',
    )
    body = frame("e9 00 0200 c328", block_length=2)

    with pytest.raises(InvalidValue, match="US-ASCII") as caught:
        decode(schema, body)
    assert (caught.value.reason, caught.value.element, caught.value.offset) == ("charset", "M.a", 8)
    assert decode(schema, body, text="bytes").values == {"a": b"\xe9", "d": b"\xc3("}
    assert decode(schema, body, text="replace").values == {"a": "\ufffd", "d": "\ufffd("}
    assert encode(schema, "M", {"a": b"\xe9", "d": b"\xc3("}) == body


@pytest.mark.parametrize(
    ("charset", "raw", "value"),
    [
        ("ISO-8859-1", "e9", "é"),
        ("windows-1252", "80", "€"),
        ("UTF-16", "00e9", "é"),
        ("ASCII", "41", "A"),
        ("utf-8", "c3a9", "é"),
    ],
)
def test_charsets_go_by_the_names_of_java(charset, raw, value):
    types = (
        '<composite name="d"><type name="length" primitiveType="uint8"/>'
        f'<type name="varData" primitiveType="uint8" length="0" characterEncoding="{charset}"/></composite>'
    )
    schema = message_of('<data name="d" id="1" type="d"/>', types)

    assert_reads_and_writes(schema, frame(f"{len(raw) // 2:02x} {raw}", block_length=0), {"d": value})


@pytest.mark.parametrize(
    ("charset", "raw", "value"),
    [
        ("UTF-16", "feff00e9", "é"),
        ("UTF-16", "fffee900", "é"),
        ("UTF_16", "fffefffee900", "\ufeffé"),
        ("UTF-16", "feff", ""),
        ("UTF-16LE", "fffee900", "\ufeffé"),
        ("UTF-16BE", "feff00e9", "\ufeffé"),
        ("UTF-32", "000000e9", "é"),
        ("UTF-32", "fffe0000e9000000", "é"),
    ],
)
def test_a_byte_order_mark_is_obeyed_where_the_charset_leaves_the_order_open(charset, raw, value):
    octets = bytes.fromhex(raw)
    schema = message_of(
        '<field name="t" id="1" type="t"/><data name="d" id="2" type="d"/>',
        f'<type name="t" primitiveType="char" length="{len(octets)}" characterEncoding="{charset}"/>'
        '<composite name="d"><type name="length" primitiveType="uint8"/>'
        f'<type name="varData" primitiveType="uint8" length="0" characterEncoding="{charset}"/></composite>',
    )
    body = frame(f"{raw} {len(octets):02x} {raw}", block_length=len(octets))

    rows = decode_columns(schema, [body, body]).rows["M"].table.to_pylist()

    modes = ("strict", "strict", "replace", "bytes")
    assert [decode(schema, body, text=mode).values for mode in modes] == 4 * [{"t": value, "d": value}]
    assert rows == 2 * [{"t": value, "d": value}]


@pytest.mark.parametrize(
    ("charset", "raw", "value"),
    [
        ("UTF-16LE", "4100 0000 00d8 4100", "A"),  # a lone surrogate behind the NUL
        ("UTF-16BE", "0041 0100 0000 d800", "A\u0100"),
        ("UnicodeLittleUnmarked", "4100 4200 0000 00d8", "AB"),
        ("UTF_16LE", "0001 4200 0000 00d8", "\u0100B"),
        ("UTF-16", "fffe 4100 0000 00d8", "A"),
        ("UTF-32BE", "00000041 00000000", "A"),
        ("UTF-32LE", "00000000 ffffffff", ""),
        ("UTF-16LE", "4100 4200 4300 4400", "ABCD"),
    ],
)
def test_what_follows_the_first_nul_of_a_char_array_is_no_text_in_wide_charsets_either(charset, raw, value):
    types = f'<type name="t" primitiveType="char" length="8" characterEncoding="{charset}"/>'
    schema = message_of('<field name="t" id="1" type="t"/>', types)
    bodies = [frame(raw, block_length=8), frame("00" * 8, block_length=8)]

    read = {mode: [decode(schema, body, text=mode).values["t"] for body in bodies] for mode in ("strict", "replace")}
    columns = decode_columns(schema, bodies)
    octets = decode_columns(schema, bodies, options=ColumnOptions(text="bytes")).rows["M"].table["t"].to_pylist()

    assert read == {"strict": [value, ""], "replace": [value, ""]}
    assert (columns.rows["M"].table["t"].to_pylist(), columns.errors.num_rows) == ([value, ""], 0)
    assert [octets[0].decode(charset), octets[1]] == [value, b""]


def test_a_blank_can_be_the_null_value_of_a_character():
    types = '<type name="t" primitiveType="char" presence="optional" nullValue=" "/>'
    schema = message_of('<field name="t" id="1" type="t"/><field name="u" id="2" type="t"/>', types)

    assert decode(schema, frame("20 41", block_length=2)).values == {"t": None, "u": "A"}


@pytest.mark.parametrize("length", [1, 7])
def test_bytes_of_half_a_character_are_no_text(length):
    types = f'<type name="t" primitiveType="char" length="{length}" characterEncoding="UTF-16LE"/>'
    schema = message_of('<field name="t" id="1" type="t"/>', types)
    body = frame("41" * length, block_length=length)

    with pytest.raises(InvalidValue, match="UTF-16LE"):
        decode(schema, body)
    assert decode_columns(schema, [body]).errors["reason"].to_pylist() == ["charset"]


def test_text_that_begins_with_a_mark_is_written_so_that_it_is_read_back():
    types = (
        '<composite name="d"><type name="length" primitiveType="uint8"/>'
        '<type name="varData" primitiveType="uint8" length="0" characterEncoding="UTF-16"/></composite>'
    )
    schema = message_of('<data name="d" id="1" type="d"/>', types)

    assert_reads_and_writes(schema, frame("06 feff feff 0041", block_length=0), {"d": "\ufeffA"})


def test_a_charset_nobody_knows_is_an_error_of_the_value():
    types = '<type name="t" primitiveType="char" length="2" characterEncoding="EBCDIC-7"/>'
    schema = message_of('<field name="t" id="1" type="t"/>', types)

    with pytest.raises(InvalidValue, match="charset EBCDIC-7 is not known"):
        decode(schema, frame("4142", block_length=2))
    assert decode(schema, frame("4142", block_length=2), text="replace").values == {"t": b"AB"}


@pytest.mark.parametrize(
    ("raw", "value"),
    [("ff", "Minus"), ("01", "Plus"), ("80", None), ("05", 5)],
    ids=["negative", "positive", "null", "?"],
)
def test_an_enum_of_int8_may_have_negative_values(raw, value):
    types = (
        '<enum name="e" encodingType="later"><validValue name="Minus">-1</validValue>'
        '<validValue name="Plus">1</validValue></enum><type name="later" primitiveType="int8"/>'
    )
    schema = message_of('<field name="e" id="1" type="e" presence="optional"/>', types)

    assert_reads_and_writes(schema, frame(raw, block_length=1), {"e": value}, tolerant=True)


@pytest.mark.parametrize(("raw", "value"), [("42", "Buy"), ("00", None), ("5a", "Z"), ("e9", "é")])
def test_an_enum_of_char_gives_unknown_values_as_a_character(raw, value):
    types = '<enum name="e" encodingType="char"><validValue name="Buy">B</validValue></enum>'
    schema = message_of('<field name="e" id="1" type="e"/>', types)

    assert_reads_and_writes(schema, frame(raw, block_length=1), {"e": value}, tolerant=True)


@pytest.mark.parametrize(("raw", "value"), [("31", "B"), ("42", 0x42), ("32", "S"), ("53", 0x53), ("5a", "Z")])
def test_a_character_that_is_the_name_of_another_value_is_given_as_a_number(raw, value):
    values = '<validValue name="B">1</validValue><validValue name="S">2</validValue>'
    schema = message_of('<field name="e" id="1" type="e"/>', f'<enum name="e" encodingType="char">{values}</enum>')

    assert_reads_and_writes(schema, frame(raw, block_length=1), {"e": value}, tolerant=True)


def test_an_enum_value_that_is_the_null_value_reads_as_null():
    text = '<enum name="e" encodingType="char"><validValue name="None">N</validValue></enum>'
    types = f'<type name="t" primitiveType="char" nullValue="N"/>{text.replace("char", "t")}'
    schema = message_of('<field name="e" id="1" type="e"/>', types)

    assert decode(schema, frame("4e", block_length=1)).values == {"e": None}


def test_a_set_keeps_its_highest_bit_and_those_without_a_name():
    types = '<set name="s" encodingType="uint64"><choice name="top">63</choice><choice name="bottom">0</choice></set>'
    schema = message_of('<field name="s" id="1" type="s"/>', types)
    body = frame("0300000000000080", block_length=8)

    flags = decode(schema, body).values["s"]

    assert flags.names == ["bottom", "top"]
    assert (flags.raw, flags.unknown) == (0x8000000000000003, 2)
    assert "top" in flags
    assert "middle" not in flags
    assert encode(schema, "M", {"s": flags}) == body


def test_optional_arrays_have_null_elements_and_are_null_when_all_are():
    types = (
        '<type name="a" primitiveType="uint8" length="3" presence="optional"/>'
        '<type name="t" primitiveType="char" length="2" presence="optional"/>'
        '<type name="c" primitiveType="char" presence="optional"/>'
    )
    schema = message_of(
        '<field name="a" id="1" type="a"/><field name="t" id="2" type="t"/><field name="c" id="3" type="c"/>', types
    )

    assert_reads_and_writes(schema, frame("01 ff 03 4142 43", block_length=6), {"a": [1, None, 3], "t": "AB", "c": "C"})
    assert_reads_and_writes(schema, frame("ffffff 0000 00", block_length=6), {"a": None, "t": None, "c": None})
