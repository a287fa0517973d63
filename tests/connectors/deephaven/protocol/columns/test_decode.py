"""Column messages: every type at its limits, in every schema; what is refused, and why."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silverfold.conf.errors import InvalidValue, RemoteProtocolError, TruncatedMessage, UnknownTemplate
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.columns.decode import (
    check_column,
    decode_column,
    decode_removed,
    read_column,
)
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.handshake import Calibration
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.wire.sbe.schema.load import load_schema, with_byte_order
from silverfold.connectors.wire.sbe.schema.model import ByteOrder
from tests.support.deephaven.columns import CASES, encoded, readable, written
from tests.support.deephaven.vectors import VECTORS, builtin_roles, other_roles

XML = (Path(__file__).parents[5] / "connectors" / "deephaven" / "schema.xml").read_text()


def big_endian() -> Roles:
    return bind(with_byte_order(builtin_roles().schema, ">"))


def newer_roles() -> Roles:
    """The reconstruction in a version in which every block has grown."""
    extra = '<field name="later{0}" id="9{0}" type="int16" sinceVersion="2"/>'
    grown = (
        XML.replace('id="1" version="1"', 'id="1" version="2"')
        .replace(
            'type="SimpleBool"/>\n    <group name="ranges"', f'type="SimpleBool"/>{extra.format(1)}<group name="ranges"'
        )
        .replace(
            '<field name="endIndex" id="6" type="int64"/>',
            f'<field name="endIndex" id="6" type="int64"/>{extra.format(2)}',
        )
    )
    for text in ('id="8" type="int64"/></group>', 'id="10" type="int64"/></group>'):
        grown = grown.replace(text, text.replace("</group>", extra.format(3) + "</group>"))
    grown = grown.replace('<data name="value"', f'{extra.format(4)}<data name="value"')
    return bind(load_schema(grown.encode()))


SCHEMAS = {"builtin": builtin_roles, "big-endian": big_endian, "other": other_roles, "newer": newer_roles}


def column(template: str, data: str, *, ranges: str = "1000 0100 0000000000000000 0000000000000000") -> bytes:
    """A column message of the reconstruction with one added row, by hex of its data group."""
    return bytes.fromhex(f"0900 {template} 0100 0100 07000000 03000000 00 {ranges} {data}")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_values_of_every_type_come_back_as_they_were(schema: str, name: str) -> None:
    roles = SCHEMAS[schema]()

    (body,) = encoded(roles, name, written(name), modified=True)
    found = decode_column(roles, body)

    assert readable(found.values.to_pylist()) == CASES[name]
    assert found.row_keys.tolist() == list(range(len(CASES[name])))
    assert (found.subscription_id, found.column_id, found.modified) == (7, 3, True)
    assert found.type is TYPES[name]
    assert found.warnings == ()


@pytest.mark.parametrize("name", CASES)
def test_a_newer_sender_is_read_by_its_block_lengths(name: str) -> None:
    (body,) = encoded(newer_roles(), name, written(name))

    found = decode_column(builtin_roles(), body)

    assert readable(found.values.to_pylist()) == CASES[name]


@pytest.mark.parametrize("name", CASES)
def test_an_older_sender_is_read_without_what_it_lacks(name: str) -> None:
    (body,) = encoded(builtin_roles(), name, written(name))

    found = decode_column(newer_roles(), body)

    assert readable(found.values.to_pylist()) == CASES[name]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_column_without_rows_says_nothing(schema: str, name: str) -> None:
    roles = SCHEMAS[schema]()
    role = roles.column(TYPES[name])
    assert role is not None
    false = role.modified.false
    empty = roles.write(role, (7, 3, false))

    found = decode_column(roles, empty)

    assert (len(found.ranges), len(found.row_keys), found.values.to_pylist()) == (0, 0, [])
    assert found.values.type == found.type.arrow


@pytest.mark.parametrize(
    ("name", "sentinel"),
    [
        ("Byte", -128),
        ("Char", 0xFFFE),
        ("Short", -32768),
        ("Int", -(2**31)),
        ("Long", -(2**63)),
        ("DateTime", -(2**63)),
        ("Float", -3.4028234663852886e38),
        ("Double", -1.7976931348623157e308),
    ],
)
def test_the_sentinel_is_null_and_its_neighbour_is_not(name: str, sentinel: float) -> None:
    dtype = TYPES[name].dtype
    values = np.array([sentinel, sentinel], dtype)
    values[1] = np.nextafter(values[1], dtype.type(0)) if dtype.kind == "f" else values[1] + 1

    (body,) = encoded(builtin_roles(), name, values)
    found = decode_column(builtin_roles(), body).values

    assert found.is_null().to_pylist() == [True, False]


def test_what_a_null_string_or_array_holds_besides_is_skipped() -> None:
    text = column("6400", "0100 0100 01 02000000 c328")
    array = column("7400", "0100 0100 01 0400 0200 01000000 02000000")
    texts = column("6e00", "0100 0100 01 0100 0100 00 02000000 c328")

    found = [decode_column(builtin_roles(), body).values for body in (text, array, texts)]

    assert [values.to_pylist() for values in found] == [[None], [None], [None]]
    assert len(found[1].values) == 0


def test_arrays_whose_elements_have_blocks_of_different_lengths_are_read() -> None:
    ranges = "1000 0100 0000000000000000 0200000000000000"
    rows = "00 0400 0200 01000000 02000000 00 0600 0200 03000000eeee 04000000eeee 00 0400 0000"

    found = decode_column(builtin_roles(), column("7400", f"0100 0300 {rows}", ranges=ranges))

    assert found.values.to_pylist() == [[1, 2], [3, 4], []]


def test_rows_are_named_in_the_order_of_the_ranges() -> None:
    values = np.arange(15)

    (body,) = encoded(builtin_roles(), "Long", values, (11, 20), (26, 30))
    found = decode_column(builtin_roles(), body)

    assert found.row_keys.tolist() == [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 26, 27, 28, 29, 30]
    assert found.ranges.tolist() == [[11, 20], [26, 30]]


@pytest.mark.parametrize("ranges", [((5, 6), (1, 2)), ((1, 3), (3, 3))])
def test_ranges_that_do_not_ascend_or_overlap_are_told_and_read(ranges: tuple[tuple[int, int], ...]) -> None:
    (body,) = encoded(builtin_roles(), "Int", [1, 2, 3, 4], *ranges)

    found = decode_column(builtin_roles(), body)

    assert found.warnings == ("range-overlap",)
    assert len(found.row_keys) == 4


@pytest.mark.parametrize(
    ("ranges", "total"),
    [
        ("1000 0100 0000000000000000 ffffffffffffff7f", 2**63),
        ("1000 0100 0000000000000080 ffffffffffffff7f", 2**64),
        ("1000 0200 0000000000000000 0000000000000000 0000000000000000 00e40b5402000000", 10_000_000_002),
        ("1000 0200 0000000000000080 ffffffffffffff7f 0000000000000080 ffffffffffffff7f", 2**65),
        ("1000 0000", 0),
    ],
)
def test_ranges_of_another_number_of_rows_are_refused_before_they_are_expanded(ranges: str, total: int) -> None:
    with pytest.raises(InvalidValue, match=f"ranges hold {total} rows, there are 1 values") as caught:
        decode_column(builtin_roles(), column("6600", "0100 0100 05", ranges=ranges))

    assert caught.value.reason == "range-count"


def test_the_last_row_key_there_is_can_be_named() -> None:
    body = column("6600", "0100 0100 05", ranges="1000 0100 ffffffffffffff7f ffffffffffffff7f")

    assert decode_column(builtin_roles(), body).row_keys.tolist() == [2**63 - 1]


def test_a_removed_range_of_a_trillion_rows_stays_a_range() -> None:
    body = bytes.fromhex("0400 0900 0100 0100 07000000 1000 0100 0000000000000000 ffffffffffffff7f")

    removed = decode_removed(builtin_roles(), body)

    assert removed.ranges.tolist() == [[0, 2**63 - 1]]


def test_a_row_key_beyond_64_bits_signed_is_refused() -> None:
    body = bytes.fromhex("01fd 1267 0003 0008 0000 0000000000000007 0000 0000 0000")
    body += bytes.fromhex("0001 0000 0014 ffffffffffffffff 0000000000000000 00000000")

    with pytest.raises(InvalidValue) as caught:
        decode_removed(other_roles(), body)

    assert caught.value.reason == "row-key"


@pytest.mark.parametrize(
    ("body", "error", "reason"),
    [
        (column("6500", "0100 0100 02"), InvalidValue, "boolean"),
        (column("6700", "0200 0100 00d8"), InvalidValue, "charset"),
        (column("6700", "0200 0100 ffdf"), InvalidValue, "charset"),
        (column("6d00", "0500 0100 00 00000000 00000000"), InvalidValue, "empty-magnitude"),
        (column("6400", "0000 0100 00000000"), InvalidValue, "absent"),
        (column("6a00", "0300 0100 000000"), InvalidValue, "absent"),
        (column("6400", "0100 0100 00 03000000 eda080"), InvalidValue, "charset"),
        (column("6400", "0100 0100 00 01000000"), TruncatedMessage, "truncated"),
        (column("7400", "0100 0100 00 0400 0300 01000000"), InvalidValue, "count-range"),
        (column("7400", "0100 0100 00 04"), TruncatedMessage, "truncated"),
        (column("6e00", "0100 0100 00 0100 0100 00 05000000 61"), TruncatedMessage, "truncated"),
        (column("6e00", "0100 0100 00 0100 0100 02 01000000 61"), InvalidValue, "simple-bool"),
        (column("6e00", "0100 0100 00 0000 ffff"), TruncatedMessage, "truncated"),
        (column("6600", "0100 0100 05").replace(b"\x03\0\0\0\0", b"\x03\0\0\0\2"), InvalidValue, "simple-bool"),
        (column("0700", ""), UnknownTemplate, "unknown-template"),
        (bytes.fromhex("0600 6600 0100 0100 07000000 0300 0000 0000 0100 0000"), InvalidValue, "absent"),
        (bytes.fromhex("0900 6600 0100 0100 07000000 03000000 00"), TruncatedMessage, "truncated"),
    ],
)
def test_bytes_that_are_no_column_have_a_named_error(body: bytes, error: type[Exception], reason: str) -> None:
    with pytest.raises(error) as caught:
        decode_column(builtin_roles(), body)

    assert getattr(caught.value, "reason", None) == reason


@pytest.mark.parametrize("body", [VECTORS["begin-table-update"].body, VECTORS["int-column"].body])
def test_removed_rows_are_read_from_their_own_message_only(body: bytes) -> None:
    with pytest.raises(UnknownTemplate):
        decode_removed(builtin_roles(), body)


def test_a_bad_text_among_many_is_found() -> None:
    texts = ["fine"] * 500
    (body,) = encoded(builtin_roles(), "String", texts)
    broken = body[:-4] + b"\xc3(fi"

    with pytest.raises(InvalidValue, match="value is not utf-8") as caught:
        decode_column(builtin_roles(), broken)

    assert caught.value.offset == len(body) - 4


@pytest.mark.parametrize("rows", [1, 500])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_bad_text_is_replaced_where_it_may_be(rows: int, order: ByteOrder) -> None:
    roles = load_roles(text="replace")
    server = Calibration(
        byte_order=order,
        prefix_counts=PrefixCounts.MESSAGE,
        prefix=0,
        message_buffer_size=1,
        schema_id=roles.schema.id,
        version=0,
    )
    adapted = server.adapt(roles)
    (body,) = encoded(adapted, "String", ["fine"] * rows)
    assert decode_column(adapted, body[:-4] + b"\xc3(fi").values.to_pylist() == ["fine"] * (rows - 1) + ["\ufffd(fi"]


def test_half_of_a_surrogate_pair_is_replaced_where_it_may_be() -> None:
    char, array = column("6700", "0200 0100 00d8"), column("7100", "0100 0100 00 0200 0300 ffdf 4100 feff")
    values = [decode_column(load_roles(text="replace"), body).values.to_pylist() for body in (char, array)]
    assert values == [["\ufffd"], [["\ufffd", "A", None]]]


def test_many_texts_are_the_same_as_few() -> None:
    texts = [None if row % 7 == 0 else "é" * (row % 5) for row in range(1000)]

    (body,) = encoded(builtin_roles(), "String", texts)

    assert decode_column(builtin_roles(), body).values.to_pylist() == texts


def test_texts_in_another_charset_are_read_by_it() -> None:
    latin = bind(load_schema(XML.replace('characterEncoding="UTF-8"', 'characterEncoding="ISO-8859-1"').encode()))

    (body,) = encoded(latin, "String", ["é", None])

    assert b"\xe9" in body
    assert decode_column(latin, body).values.to_pylist() == ["é", None]


@pytest.mark.parametrize(
    ("magnitude", "warned"), [("0200000085ff", True), ("02000000cfc7", False), ("0200000000ff", False)]
)
def test_magnitudes_that_look_little_endian_are_told(magnitude: str, warned: bool) -> None:
    wasteful = magnitude.replace("85ff", "0012") if warned else magnitude

    found = decode_column(builtin_roles(), column("6d00", f"0500 0100 00 00000000 {wasteful}"))

    assert found.warnings == (("decimal-byte-order",) if warned else ())


def test_a_decimal_of_thousands_of_digits_is_read_exactly() -> None:
    magnitude = (10**5000).to_bytes(2077, "big")
    octets = b"\0" + struct.pack("<iI", 3, len(magnitude)) + magnitude
    body = column("6d00", "0500 0100") + octets

    assert decode_column(builtin_roles(), body).values.to_pylist() == ["1" + "0" * 4997 + ".000"]


def test_a_scale_at_the_end_of_its_range_makes_no_long_text() -> None:
    body = column("6d00", "0500 0100 00 00000080 01000000 01")

    assert decode_column(builtin_roles(), body).values.to_pylist() == ["1E+2147483648"]


def test_a_number_that_the_type_of_the_column_cannot_hold_is_refused() -> None:
    (body,) = encoded(other_roles(), "Int", [5])
    wider = body[:-12] + b"\0\0" + (2**31).to_bytes(8, "big") + b"\0\0"

    with pytest.raises(InvalidValue) as caught:
        decode_column(other_roles(), wider)

    assert caught.value.reason == "value-range"


def test_a_schema_of_narrower_values_refuses_to_write_wide_ones() -> None:
    narrow = XML.replace('id="8" type="int64"', 'id="8" type="int32"')
    roles = bind(load_schema(narrow.encode()))

    with pytest.raises(InvalidValue) as caught:
        encoded(roles, "Long", [2**40])

    assert caught.value.reason == "value-range"


def test_floats_may_be_wider_or_narrower_in_the_schema() -> None:
    wide = bind(load_schema(XML.replace('id="8" type="float"', 'id="8" type="double"').encode()))
    narrow = bind(load_schema(XML.replace('id="8" type="double"', 'id="8" type="float"').encode()))

    (floats,) = encoded(wide, "Float", [None, float("nan"), 0.5, float("inf")])
    (doubles,) = encoded(narrow, "Double", [float("nan"), 0.5, float("-inf")])

    assert readable(decode_column(wide, floats).values.to_pylist()) == [None, "NaN", 0.5, float("inf")]
    assert readable(decode_column(narrow, doubles).values.to_pylist()) == ["NaN", 0.5, float("-inf")]


def test_a_double_that_no_float_can_hold_is_refused_both_ways() -> None:
    wide = bind(load_schema(XML.replace('id="8" type="float"', 'id="8" type="double"').encode()))
    narrow = bind(load_schema(XML.replace('id="8" type="double"', 'id="8" type="float"').encode()))
    (body,) = encoded(wide, "Float", [0.5])

    with pytest.raises(InvalidValue, match=r"Float cannot hold 1e\+300"):
        decode_column(wide, body[:-8] + struct.pack("<d", 1e300))
    with pytest.raises(InvalidValue, match=r"value cannot hold 1e\+300"):
        encoded(narrow, "Double", [1e300])


def test_a_column_is_checked_against_the_response() -> None:
    (body,) = encoded(builtin_roles(), "Int", [1])
    found = decode_column(builtin_roles(), body)
    right = ColumnInfo(3, 106, "Size", TYPES["Int"])

    assert check_column(found, {3: right}) is right
    with pytest.raises(RemoteProtocolError, match="subscription 7 has no column id 3"):
        check_column(found, {4: right})
    with pytest.raises(RemoteProtocolError, match="column Size was announced as Long and came as Int"):
        check_column(found, {3: replace_type(right, "Long")})


def replace_type(info: ColumnInfo, name: str) -> ColumnInfo:
    return info._replace(type=TYPES[name])


def test_a_column_can_be_taken_apart_without_arrow() -> None:
    (body,) = encoded(builtin_roles(), "Char", ["a", None])

    raw: Any = read_column(builtin_roles(), body).values

    assert raw.values.tolist() == [97, 0xFFFE]


def test_a_message_of_another_schema_is_refused() -> None:
    (body,) = encoded(bind(replace(builtin_roles().schema, id=9)), "Int", [1])

    with pytest.raises(InvalidValue, match="schema id 9, expected 1"):
        decode_column(builtin_roles(), body)
