"""Messages become columns: which rows, in which order, with which values and types."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.columnar.decode import ERROR, arrow_schema, column_reader, decode_columns
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import frame, message_of

GOLDEN = Path(__file__).parents[4] / "golden" / "sbe"
SAMPLE = load_schema(GOLDEN / "sample.xml")
CASES = json.loads((GOLDEN / "messages.json").read_text(encoding="utf-8"))
QUOTE = bytes.fromhex(CASES[0]["hex"])
ROW = {
    "seq": 1001,
    "code": "AB12",
    "side": "Sell",
    "level": None,
    "flags": ["firm", "hidden"],
    "triple": [1, -2, 300],
    "opt": None,
    "venue": "XLON",
    "fixedSide": "Sell",
    "price": {"mantissa": 12345, "exponent": -2},
    "stop": {"mantissa": None, "exponent": -2},
    "at": {"time": 1728051442944000000, "unit": 9},
    "qty": {"mantissa": 700, "exponent": -1, "side": "Buy"},
    "legs": [
        {"legId": 7, "ratio": 0.5, "marks": [{"mark": 10}, {"mark": 11}], "blob": b"\xca\xfe"},
        {"legId": 8, "ratio": -1.0, "marks": [], "blob": b""},
    ],
    "text": "é!",
    "extra": b"",
}
MANY = 40
"""Enough messages to be walked together, not one by one."""


@pytest.mark.parametrize("copies", [1, MANY])
@pytest.mark.parametrize("file", ["sample.xml", "sample-big-endian.xml"])
def test_a_message_with_every_feature_is_one_row(file: str, copies: int):
    (body,) = (bytes.fromhex(case["hex"]) for case in CASES if case["schema"] == file)

    columns = decode_columns(load_schema(GOLDEN / file), [body] * copies)

    assert columns.rows["Quote"].table.to_pylist() == [ROW] * copies
    assert columns.rows["Quote"].origin.tolist() == list(range(copies))
    assert columns.errors.num_rows == 0


def test_rows_of_several_templates_tell_which_message_they_came_from():
    schema = load_schema(GOLDEN / "standard.xml")
    bodies = [bytes.fromhex(case["hex"]) for case in CASES if case["schema"] == "standard.xml"]

    columns = decode_columns(schema, [bodies[1], bodies[0], b"", bodies[2], bodies[1]])

    assert {name: rows.origin.tolist() for name, rows in columns.rows.items()} == {
        "NewOrderSingle": [1],
        "ExecutionReport": [0, 4],
        "BusinessMessageReject": [3],
    }
    report = columns.rows["ExecutionReport"].table.to_pylist()[1]
    assert [(fill["FillPx"]["mantissa"], fill["FillQty"]["mantissa"]) for fill in report["FillsGrp"]] == [
        (99610, 2),
        (99620, 4),
    ]


def test_a_message_that_cannot_be_read_costs_no_other():
    bodies = [QUOTE, QUOTE[:30], QUOTE[:-3], b"", QUOTE, b"\0\0\xff\0\7\0\3\0", b"\0\0\x0b\0\x08\0\3\0"]

    columns = decode_columns(SAMPLE, bodies * MANY)

    assert columns.rows["Quote"].table.num_rows == 2 * MANY
    assert columns.errors.schema == ERROR
    assert columns.errors.slice(0, 5).drop_columns(["message"]).to_pylist() == [
        error(1, "TRUNCATED_MESSAGE", "truncated", "Quote", 8),
        error(2, "TRUNCATED_MESSAGE", "truncated", "Quote.text", 110),
        error(3, "TRUNCATED_MESSAGE", "short-frame", "", 0),
        error(5, "UNKNOWN_TEMPLATE", "unknown-template", "", 0),
        error(6, "INVALID_VALUE", "schema-id", "", 0),
    ]
    assert columns.errors["message"][4].as_py() == "schema-id at byte 0: schema id 8, expected 7"


def error(index: int, error_class: str, reason: str, element: str, offset: int) -> dict[str, object]:
    return {"index": index, "error_class": error_class, "reason": reason, "element": element, "offset": offset}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_binary_arrays_are_read_where_they_lie_from_any_slice_and_null_is_no_message(kind: pa.DataType):
    array = pa.array([b"left out", QUOTE, None, QUOTE, b"left out"], kind).slice(1, 3)

    columns = decode_columns(SAMPLE, array)

    assert columns.rows["Quote"].origin.tolist() == [0, 2]
    assert columns.rows["Quote"].table.to_pylist() == [ROW, ROW]
    assert columns.errors["reason"].to_pylist() == ["short-frame"]


def test_no_messages_are_no_tables():
    columns = decode_columns(SAMPLE, [])

    assert (columns.rows, columns.errors.num_rows) == ({}, 0)


def test_other_templates_are_passed_by_when_some_are_asked_for():
    schema = load_schema(GOLDEN / "standard.xml")
    bodies = [bytes.fromhex(case["hex"]) for case in CASES if case["schema"] == "standard.xml"]

    columns = decode_columns(schema, [*bodies, bodies[0][:-1], bodies[1][:-1]], only={"ExecutionReport"})

    assert list(columns.rows) == ["ExecutionReport"]
    assert columns.errors["index"].to_pylist() == [4]


def test_the_columns_of_a_template_are_known_before_any_message():
    assert arrow_schema(SAMPLE, "Quote") == decode_columns(SAMPLE, [QUOTE]).rows["Quote"].table.schema
    assert [str(arrow_schema(SAMPLE, "Quote").field(name).type) for name in ("seq", "opt", "at", "flags", "extra")] == [
        "uint32",
        "uint8",
        "struct<time: uint64, unit: uint8>",
        "list<item: string>",
        "binary",
    ]


def test_spark_gets_types_that_it_has():
    options = ColumnOptions(types="spark")
    legs = pa.struct([("legId", pa.int32()), ("ratio", pa.float32()), ("marks", marks()), ("blob", pa.binary())])

    rows = decode_columns(SAMPLE, [QUOTE], options=options).rows["Quote"].table

    assert rows.schema == arrow_schema(SAMPLE, "Quote", options)
    assert [rows.schema.field(name).type for name in ("seq", "opt", "at", "legs")] == [
        pa.int64(),
        pa.int16(),
        pa.struct([("time", pa.decimal128(20, 0)), ("unit", pa.int16())]),
        pa.list_(legs),
    ]
    expected = ROW | {"at": {"time": Decimal(1728051442944000000), "unit": 9}}
    assert rows.to_pylist() == [expected]


def marks() -> pa.DataType:
    return pa.list_(pa.struct([("mark", pa.int16())]))


def test_the_whole_range_of_uint64_is_a_decimal_in_spark():
    schema = message_of('<field name="n" id="1" type="uint64"/>')
    bodies = [frame(number.to_bytes(8, "little").hex(), block_length=8) for number in (0, 2**63, 2**64 - 1)]

    rows = decode_columns(schema, bodies, options=ColumnOptions(types="spark")).rows["M"].table

    assert rows["n"].to_pylist() == [Decimal(0), Decimal(9223372036854775808), Decimal(18446744073709551615)]


def test_decimals_are_one_number_where_they_are_asked_for():
    rows = decode_columns(SAMPLE, [QUOTE], options=ColumnOptions(decimals=True)).rows["Quote"].table

    assert rows.schema.field("price").type == pa.decimal128(19, 2)
    assert (rows["price"][0].as_py(), rows["stop"][0].as_py()) == (Decimal("123.45"), None)
    assert rows["qty"][0].as_py() == {"mantissa": 700, "exponent": -1, "side": "Buy"}


def test_negative_mantissas_and_wide_scales_are_exact():
    types = "".join(
        f'<composite name="d{scale}"><type name="mantissa" primitiveType="{kind}"/>'
        f'<type name="exponent" primitiveType="int8" presence="constant">-{scale}</type></composite>'
        for scale, kind in ((9, "int64"), (30, "int32"))
    )
    schema = message_of('<field name="a" id="1" type="d9"/><field name="b" id="2" type="d30"/>', types)

    rows = decode_columns(schema, [frame("ff" * 12, block_length=12)], options=ColumnOptions(decimals=True)).rows["M"]

    assert rows.table.to_pylist() == [{"a": Decimal("-1E-9"), "b": Decimal("-1E-30")}]


STAMP = (
    '<composite {}><type name="time" primitiveType="uint64" presence="optional"/>'
    '<type name="unit" primitiveType="uint8" presence="constant">9</type></composite>'
)
TIMES = (
    '<field name="a" id="1" type="{}"/>'
    '<field name="b" id="2" type="uint64" semanticType="UTCTimestamp" timeUnit="millisecond"/>'
    '<field name="c" id="3" type="int64" timeUnit="millisecond"/>'
)


@pytest.mark.parametrize(
    ("types", "name", "attribute"),
    [("arrow", "UTCTimestamp", ""), ("spark", "UTCTimestamp", ""), ("arrow", "at", ' semanticType="UTCTimestamp"')],
)
def test_times_of_a_known_unit_are_timestamps_where_they_are_asked_for(types: str, name: str, attribute: str):
    schema = message_of(TIMES.format(name), STAMP.format(f'name="{name}"{attribute}'))
    moment = 1_728_051_442_944_123_000
    numbers = [(moment, moment // 10**6, 5), (2**64 - 1, 0, 5), (0, 2**63, 5)]
    bodies = [frame("".join(n.to_bytes(8, "little").hex() for n in row), block_length=24) for row in numbers]

    options = ColumnOptions(types=types, timestamps=True)  # type: ignore[arg-type]  # one of the two
    columns = decode_columns(schema, bodies, options=options)
    rows = columns.rows["M"].table

    units = ("us", "us") if types == "spark" else ("ns", "ms")
    assert [rows.schema.field(name).type for name in "ab"] == [pa.timestamp(unit, "UTC") for unit in units]
    rows = rows.cast(pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.timestamp("us", "UTC")), ("c", pa.int64())]))
    assert rows.to_pylist() == [
        {
            "a": datetime(2024, 10, 4, 14, 17, 22, 944123, tzinfo=UTC),
            "b": datetime(2024, 10, 4, 14, 17, 22, 944000, tzinfo=UTC),
            "c": 5,
        },
        {"a": None, "b": datetime(1970, 1, 1, tzinfo=UTC), "c": 5},
    ]
    assert [tuple(error.values())[:4] for error in columns.errors.to_pylist()] == [
        (2, "INVALID_VALUE", "time-range", "M.b")
    ]


def nanoseconds(*times: int) -> tuple[Schema, list[bytes]]:
    schema = message_of('<field name="at" id="1" type="uint64" semanticType="UTCTimestamp"/>')
    return schema, [frame(time.to_bytes(8, "little").hex(), block_length=8) for time in times]


def test_nanoseconds_beyond_2262_are_times_of_spark():
    schema, bodies = nanoseconds(2**63 - 1, 2**63, 2**64 - 2)

    found = decode_columns(schema, bodies, options=ColumnOptions(types="spark", timestamps=True))

    assert found.rows["M"].table["at"].cast(pa.int64()).to_pylist() == [
        9_223_372_036_854_775,
        9_223_372_036_854_775,
        18_446_744_073_709_551,
    ]
    assert found.errors.num_rows == 0


def test_nanoseconds_beyond_64_bits_are_errors_where_they_stay_nanoseconds():
    schema, bodies = nanoseconds(2**63 - 1, 2**63)

    found = decode_columns(schema, bodies, options=ColumnOptions(timestamps=True))

    assert found.rows["M"].table["at"].cast(pa.int64()).to_pylist() == [2**63 - 1]
    assert [(error["index"], error["reason"]) for error in found.errors.to_pylist()] == [(1, "time-range")]


@pytest.mark.parametrize("unit", ["second", "millisecond", "microsecond", "nanosecond"])
@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "uint32", "int64", "uint64"])
def test_the_ends_of_every_integer_are_times_or_errors(unit: str, kind: str):
    size, signed = int(kind.lstrip("uint")) // 8, kind.startswith("i")
    schema = message_of(f'<field name="at" id="1" type="{kind}" semanticType="UTCTimestamp" timeUnit="{unit}"/>')
    highest = 2 ** (8 * size - signed) - 1
    numbers = [highest, -highest - 1 if signed else 0, 1]
    bodies = [frame(n.to_bytes(size, "little", signed=signed).hex(), block_length=size) for n in numbers]

    found = decode_columns(schema, bodies, options=ColumnOptions(types="spark", timestamps=True))

    per_second = {"second": 1, "millisecond": 10**3, "microsecond": 10**6, "nanosecond": 10**9}[unit]
    times = {index: number * 10**6 // per_second for index, number in enumerate(numbers)}
    held = {index: time for index, time in times.items() if -62_135_596_800 * 10**6 <= time < 253_402_300_800 * 10**6}
    origin, table = found.rows["M"]
    assert dict(zip(origin.tolist(), table["at"].cast(pa.int64()).to_pylist(), strict=True)) == held
    assert found.errors["index"].to_pylist() == sorted(times.keys() - held.keys())


def test_an_enum_value_without_a_name_is_its_raw_form_as_text():
    types = (
        '<enum name="E" encodingType="char"><validValue name="Yes">Y</validValue></enum>'
        '<enum name="F" encodingType="int16"><validValue name="Low">-1</validValue></enum>'
        '<enum name="G" encodingType="uint8"><validValue name="One">1</validValue></enum>'
    )
    fields = "".join(f'<field name="{name.lower()}" id="{id_}" type="{name}"/>' for id_, name in enumerate("EFG"))
    bodies = [frame(text, block_length=4) for text in ("59 ffff 01", "4e feff 07", "00 0080 ff", "e9 0700 00")]

    rows = decode_columns(message_of(fields, types), bodies).rows["M"].table

    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("Yes", "Low", "One"),
        ("N", "-2", "7"),
        (None, None, None),
        ("é", "7", "0"),
    ]


def test_sets_are_sorted_names_or_their_integer():
    types = (
        '<set name="S" encodingType="uint64"><choice name="z">0</choice><choice name="a">63</choice></set>'
        '<set name="T" encodingType="uint8"><choice name="only">1</choice></set>'
    )
    schema = message_of('<field name="s" id="1" type="S"/><field name="t" id="2" type="T"/>', types)
    bodies = [frame(text, block_length=9) for text in ("0100000000000080 02", "0200000000000000 fd")]

    names = decode_columns(schema, bodies).rows["M"].table
    numbers = decode_columns(schema, bodies, options=ColumnOptions(sets="integer")).rows["M"].table

    assert names.to_pylist() == [{"s": ["a", "z"], "t": ["only"]}, {"s": [], "t": []}]
    assert numbers.to_pylist() == [{"s": 2**63 + 1, "t": 2}, {"s": 2, "t": 0xFD}]


TEXTS = '<field name="c" id="1" type="code"/><data name="d" id="2" type="text"/>'
CODE = '<type name="code" primitiveType="char" length="3"/>'
WRONG = ["41ff43 0100 62", "414243 0200 62ff", "410043 0100 62"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("strict", [("A", "b")]),
        ("replace", [("A\ufffdC", "b"), ("ABC", "b\ufffd"), ("A", "b")]),
        ("bytes", [(b"A\xffC", b"b"), (b"ABC", b"b\xff"), (b"A", b"b")]),
    ],
)
def test_what_is_not_text_is_an_error_or_replaced_or_bytes(text: str, expected: list[tuple[object, object]]):
    bodies = [frame(body, block_length=3) for body in WRONG]

    options = ColumnOptions(text=text)  # type: ignore[arg-type]  # one of the three
    columns = decode_columns(message_of(TEXTS, CODE), bodies, options=options)

    assert [tuple(row.values()) for row in columns.rows["M"].table.to_pylist()] == expected
    errors = columns.errors.select(["index", "reason", "element", "offset"]).to_pylist()
    reported = [(0, "charset", "M.c", 8), (1, "charset", "M.d", 13)]
    assert [tuple(row.values()) for row in errors] == (reported if text == "strict" else [])


def test_a_message_without_parts_is_a_row_without_columns():
    columns = decode_columns(message_of(""), [frame("", block_length=0)] * 3)

    assert columns.rows["M"].origin.tolist() == [0, 1, 2]
    assert columns.rows["M"].table.num_columns == 0


def test_entries_of_no_bytes_that_are_many_in_all_messages_come_in_parts():
    schema = message_of('<group name="g" id="1"><field name="a" id="2" type="uint64"/></group>')
    bodies = [frame("0000 ffff", block_length=0)] * 70

    parts = list(column_reader(schema).parts(bodies))

    assert [len(part.rows["M"][0]) for part in parts] != [70]
    assert sum(len(part.rows["M"][0]) for part in parts) == 70
    assert max(part.rows["M"][1].nbytes for part in parts) < 50_000_000
    assert {len(row.values) for row in parts[0].rows["M"][1]["g"]} == {65535}


def test_what_is_encoded_is_decoded_from_columns_in_its_order():
    schema = message_of('<field name="n" id="1" type="uint32"/><data name="d" id="2" type="text"/>')
    bodies = [encode(schema, "M", {"n": number, "d": "x" * (number % 7)}) for number in range(17_000)]

    rows = decode_columns(schema, bodies).rows["M"]

    assert rows.table["n"].to_pylist() == list(range(17_000))
    assert rows.table["d"].to_pylist()[:9] == ["", "x", "xx", "xxx", "xxxx", "xxxxx", "xxxxxx", "", "x"]
    assert rows.table["d"].num_chunks > 1


def test_entries_that_few_messages_have_stay_with_their_message():
    schema = message_of(
        '<group name="g" id="1"><group name="n" id="2"><field name="z" id="3" type="uint8"/>'
        '<data name="d" id="4" type="blob"/></group></group>'
    )
    empty = {"g": [{"n": []}, {"n": []}]}
    values = [
        {"g": [{"n": [{"z": i, "d": b"1"}]}, {"n": [{"z": i, "d": b""}, {"z": 9, "d": b"22"}]}, {"n": []}]}
        for i in range(3)
    ]
    messages = [values[0], *[empty] * MANY, values[1], *[empty] * MANY, values[2]]

    rows = decode_columns(schema, [encode(schema, "M", message) for message in messages]).rows["M"].table

    assert rows.to_pylist() == messages
