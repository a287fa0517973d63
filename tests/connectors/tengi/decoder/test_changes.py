"""Landed packets become change rows; the reference reader finds the same rows, by other code."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import InvalidValue, SchemaDrift
from silverfold.connectors.base import Cut
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.tengi.connector import CONNECTOR
from silverfold.connectors.tengi.decoder.columns import Column
from silverfold.connectors.tengi.decoder.decoder import read_schemas
from silverfold.connectors.tengi.options import TengiTable
from silverfold.connectors.tengi.protocol import Byte, Char, Float, Identifier, Int, Packet, Short
from silverfold.connectors.tengi.protocol.feed.columns import parse_type
from silverfold.connectors.tengi.reference.values import read_value
from tests.support.tengi.landed import (
    change,
    entry,
    feed_of,
    frame_of,
    nested,
    numbered,
    readers,
    schema,
    snapshot,
    update,
)

NULL = Byte(1)
ONE = entry(row={"id": 1, "name": "one", "price": 1.5})
TWO = entry(row={"id": 2, "name": "two"}, nulls={"price": NULL})


def rows_of(*packets: Packet, **settings: Any) -> list[dict[str, Any]]:
    """Return the rows, which both readers must find."""
    both = readers(*packets, **settings)
    found, errors = both.by_decoder()
    assert errors == []
    assert both.by_reference() == found
    return sorted(map(dict, found.values()), key=lambda row: row["id"])


def refused_by_both(*packets: Packet, **settings: Any) -> str:
    both = readers(*packets, **settings)
    _, (error, *others) = both.by_decoder()
    assert others == []
    with pytest.raises(InvalidValue):
        both.by_reference()
    return str(error["reason"])


@pytest.mark.parametrize("flag", [1, 2, 0xFF, None])
def test_a_snapshot_in_parts_and_changes_behind_it(flag: int | None) -> None:
    packets = [
        schema(),
        snapshot(1, [ONE], last=False),
        snapshot(1, [TWO], part=1),
        change(2, "UPDATE", key={"id": 1}, row={"price": 2.0}),
        change(3, "UPDATE", key={"id": 2}, row={"name": "zwei"}, nulls={"price": NULL}),
        change(4, "INSERT", key={"id": 3}, row={"id": 3, "name": "", "price": 0.0}),
        change(5, "DELETE", key={"id": 3}),
    ]
    expected = [{"id": 1, "name": "one", "price": 2.0}, {"id": 2, "name": "zwei", "price": None}]
    assert rows_of(*packets, flag=flag) == expected


def test_an_update_removes_then_modifies_then_adds_and_a_key_may_move() -> None:
    several = update(
        2,
        removed=[entry(key={"id": 2})],
        modified=[entry(key={"id": 1}, row={"id": 2, "name": "moved"})],
        added=[entry(row={"id": 1, "name": "new", "price": 0.5})],
    )
    expected = [{"id": 1, "name": "new", "price": 0.5}, {"id": 2, "name": "moved", "price": 1.5}]
    assert rows_of(schema(), snapshot(1, [ONE, TWO]), several) == expected


def test_an_empty_table_is_a_part_without_rows() -> None:
    assert rows_of(schema(), snapshot(0, []), change(1, "INSERT", key={"id": 1}, **_parts(ONE))) == [
        {"id": 1, "name": "one", "price": 1.5}
    ]


def _parts(found: Packet) -> dict[str, Any]:
    return {name: part.values for name, part in found.values.items()}


def test_declared_columns_take_the_place_of_the_sources() -> None:
    settings = {"columns": {"id": "int", "price": "double"}, "keys": ("id",)}
    assert rows_of(schema(), snapshot(1, [ONE, TWO]), **settings) == [{"id": 1, "price": 1.5}, {"id": 2, "price": None}]


def test_columns_keep_their_place_and_new_ones_follow_by_name() -> None:
    wider = {"a": "int", "id": "bigint", "name": "string"}
    control = [
        ControlFrame(at, 1, "orders", frame_of(packet))
        for at, packet in enumerate([schema(), schema(wider, version=2), schema(wider, version=2)])
    ]
    context = read_schemas(control)
    assert [at for at, _ in context.by_stream["orders"]] == [0, 1]
    cut = Cut("orders", 1, -1, 9, ((0, 9),), (0,), (9,), True)
    assert list(context.of(cut, TengiTable()).newest.columns) == ["id", "name", "a"]


def test_a_row_of_an_older_version_lacks_newer_columns() -> None:
    wider = {"id": "bigint", "name": "string", "price": "double", "note": "string"}
    packets = [
        schema(),
        schema(wider, version=2),
        snapshot(1, [ONE]),
        change(2, "UPDATE", key={"id": 1}, row={"name": "o"}),
    ]
    assert rows_of(*packets) == [{"id": 1, "name": "o", "price": 1.5, "note": None}]


def test_a_version_with_types_that_silver_has_not_gives_the_names_of_its_rows_all_the_same() -> None:
    refused = schema({"id": "bigint", "name": "varchar(9)", "price": "double"})
    assert rows_of(refused, schema(version=2), snapshot(1, [ONE])) == [{"id": 1, "name": "one", "price": 1.5}]


@pytest.mark.parametrize("number", [Byte, Short, Int, int])
def test_numbers_of_packets_have_any_type_of_whole_numbers(number: type[int]) -> None:
    numbers = {name: number(1) for name in ("version", "seq", "part", "last")}
    packets = [schema(), snapshot(1, [ONE], last=False), snapshot(1, [TWO], part=1), change(2, "DELETE", key={"id": 1})]
    for packet in packets:
        packet.values |= {name: numbers[name] for name in packet.values if packet.get_value(name) == 1}
    assert rows_of(*packets) == [{"id": 2, "name": "two", "price": None}]


def test_an_update_may_have_nulls_only() -> None:
    packets = [schema(), snapshot(1, [ONE]), change(2, "UPDATE", key={"id": 1}, nulls={"name": NULL})]
    assert rows_of(*packets) == [{"id": 1, "name": None, "price": 1.5}]


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (change(2, "INSERT", key={"id": 3}, row={"id": 3}), "absent_column"),
        (change(2, "UPDATE", key={}, row={"name": "x"}), "absent_key"),
        (change(2, "DELETE", key={"name": "x"}), "absent_key"),
        (change(2, "UPDATE", key={"id": 1}, row={"name": "x"}, nulls={"name": NULL}), "null_and_value"),
        (change(2, "UPDATE", key={"id": 1}, row={}, nulls={"id": NULL}), "null_key"),
        (change(2, "UPDATE", key={"id": 1}, row={"name": 7}), "wrong_type"),
        (change(2, "UPDATE", key={"id": 1}, row={"name": "\ud800"}), "lone_surrogate"),
        (change(2, "UPDATE", key={"id": "x"}, row={"id": 4}), "wrong_type"),
        (change(2, "UPSERT", key={"id": 1}, row={}), "unknown_op"),
        (change(2, "UPDATE", version=9, key={"id": 1}, row={}), "unknown_version"),
        (change(2, "UPDATE", key={"id": 1}, row={}).set_value("version", 1.0), "wrong_type in version"),
        (change(2, "UPDATE", key={"id": 1}, row={}).set_value("version", 1 << 31), "wrong_type in version"),
        (update(2, removed=[entry(row={"id": 1})]), "wrong_type"),
        (Packet("update", {**update(2).values, "added": nested(**{"1": ONE})}), "absent_entry"),
        (Packet("rename", change(2, "DELETE", key={"id": 1}).values), "unknown_packet"),
    ],
)
def test_what_does_not_fit_is_an_error_row(packet: Packet, reason: str) -> None:
    assert reason in refused_by_both(schema(), snapshot(1, [ONE]), packet)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("tinyint", 127, 127),
        ("smallint", Byte(-1), -1),
        ("int", Short(300), 300),
        ("bigint", Int(-5), -5),
        ("float", Float(0.1), float(Float(0.1))),
        ("double", Float(0.5), 0.5),
        ("double", -0.25, -0.25),
        ("boolean", Byte(1), True),
        ("string", "ä\U0001f600", "ä\U0001f600"),
        ("binary", b"\0\xff", b"\0\xff"),
        ("decimal(10,2)", "-12.5", Decimal("-12.50")),
        ("decimal(3,3)", "0.125", Decimal("0.125")),
        ("date", Int(-1), date(1969, 12, 31)),
        ("timestamp", 1_500_000, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        ("timestamp_ntz", 1, datetime(1970, 1, 1, 0, 0, 0, 1)),
        ("array<int>", nested(n=Int(3), **{"0": Int(1), "2": Byte(3)}), [1, None, 3]),
        ("map<string,double>", nested(a=1.5), [("a", 1.5)]),
        (
            "struct<a:int,b:array<date>>",
            nested(b=nested(n=Int(1), **{"0": Int(0)})),
            {"a": None, "b": [date(1970, 1, 1)]},
        ),
    ],
)
def test_each_type_has_its_values(kind: str, value: Any, expected: Any) -> None:
    array, errors = Column("c", parse_type(kind)).array([value, None])
    assert errors == {}
    assert array.to_pylist() == [expected, None]
    assert read_value(parse_type(kind), value) == expected


VALUES = st.deferred(
    lambda: st.one_of(
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.integers(-200, 200).map(Short),
        st.integers(-2, 2).map(Byte),
        st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
        st.floats(),
        st.floats(width=32).map(Float),
        st.text(max_size=5),
        st.sampled_from(["1.50", "-0", "00012", "1e3", "+1", "1.", "9" * 39, "\udfff"]),
        st.binary(max_size=3),
        st.just(Char("x")),
        st.just(Identifier(bytes(16))),
        st.dictionaries(st.sampled_from(["0", "1", "n", "a"]), VALUES, max_size=3).map(lambda each: Packet("", each)),
    )
)
KINDS = st.recursive(
    st.sampled_from(["tinyint", "int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp"])
    | st.sampled_from(["decimal(5,2)", "decimal(38,0)", "timestamp_ntz"]),
    lambda inner: st.one_of(
        inner.map(lambda each: f"array<{each}>"),
        inner.map(lambda each: f"map<string,{each}>"),
        inner.map(lambda each: f"struct<a:{each},n:int>"),
    ),
    max_leaves=3,
)


@given(kind=KINDS, values=st.lists(VALUES, min_size=1, max_size=4))
def test_whatever_a_value_is_both_readers_take_it_alike(kind: str, values: list[Any]) -> None:
    parsed = parse_type(kind)
    array, errors = Column("c", parsed).array(values)
    for at, (value, found) in enumerate(zip(values, array.to_pylist(), strict=True)):
        try:
            expected = read_value(parsed, value)
        except InvalidValue:
            assert at in errors
        else:
            assert at not in errors
            assert repr(found) == repr(expected)


@pytest.mark.parametrize("settings", [{}, {"columns": {"id": "int", "name": "string", "price": "double"}}])
def test_rows_of_a_table_without_keys_are_numbered(settings: Any) -> None:
    packets = [
        schema(keys=()),
        snapshot(3, [ONE, TWO], last=False),
        snapshot(3, [ONE], part=1),
        change(4, "INSERT", key={}, row={"id": 3, "name": "three", "price": 3.0}),
        update(5, added=[ONE, ONE]),
        change(6, "INSERT", key={}, row={"id": 4, "name": "four", "price": 4.0}).set_value(
            "part", "no key of a change"
        ),
        update(7, added=[ONE]).set_value("part", Int(1)),
    ]
    both = readers(*packets, **settings)
    found, errors = both.by_decoder()
    assert errors == []
    assert both.by_reference() == found
    assert sorted(found) == [(3, 0), (3, 1), (3, 1 << 32), (4, 0), (5, 0), (5, 1), (6, 0), (7, 0)]


@pytest.mark.parametrize(
    "packet",
    [
        change(2, "DELETE", key={}),
        change(2, "UPDATE", key={"id": 1}, row={"price": 1.0}),
        update(2, added=[ONE], removed=[entry(key={"id": 1})]),
    ],
)
def test_a_table_without_keys_takes_nothing_but_inserts(packet: Packet) -> None:
    assert "a table without keys takes no" in refused_by_both(schema(keys=()), snapshot(1, [ONE]), packet)


@pytest.mark.parametrize(
    ("settings", "packets", "detail"),
    [
        ({}, [], "has not told its columns"),
        ({"keys": ("name",)}, [schema()], "other keys than the source: id"),
        ({}, [schema({"id": "int", "_Ordinal": "int"}, ())], "rows are numbered in _Ordinal"),
        ({"columns": {"no": "int"}}, [schema()], "no column id in the settings, though it is a key"),
        ({"keys": ("nope",)}, [schema(keys=())], "no column nope"),
        ({}, [schema({"id": "number"})], "number"),
        ({}, [schema({"id": "char(3)"})], "char.*say string"),
        ({}, [schema().set_value("version", 1.0)], "in version: float instead of a whole number"),
        ({}, [schema(keys=("no",))], "a key is no column"),
        ({}, [schema(keys=("id", "id"))], "or is one twice"),
        ({}, [Packet("schema", {"table": "orders", "version": Int(1), "keys": numbered([]), "columns": 1})], "Packets"),
    ],
)
def test_a_table_whose_columns_are_not_known_is_held(settings: Any, packets: list[Packet], detail: str) -> None:
    feed = feed_of(**settings)
    decoder = CONNECTOR.decoder(feed)
    context = decoder.context([ControlFrame(at, 1, "orders", frame_of(packet)) for at, packet in enumerate(packets)])
    with pytest.raises(SchemaDrift, match=detail):
        decoder.row_type(context, Cut("orders", 1, -1, 9, ((0, 9),), (0,), (9,), True), feed.tables["orders"])
