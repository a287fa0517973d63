"""The law of columns: every message is there, or among the errors, as the decoder of single messages has it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.basics import HEADER, frame, message_of
from tests.support.sbe.columns import assert_columns_as_single
from tests.support.sbe.messages import messages
from tests.support.sbe.schemas import schemas
from tests.support.sbe.sources import COUNTS, SOURCES, Damage, damaged, damages
from tests.support.tries import a_third, half

options = st.builds(
    ColumnOptions,
    text=st.sampled_from(["strict", "replace", "bytes"]),
    sets=st.sampled_from(["names", "integer"]),
    strict=st.booleans(),
    max_empty_entries=st.sampled_from([0, 2, 300]),
)


GREW = (1, [(65, 2)], 40, b"")
"""Damage of an older message: its block ends where a composite did before that grew."""


@pytest.mark.parametrize("source", SOURCES)
@half
@example(damage=[GREW], chosen=ColumnOptions(max_empty_entries=0), copies=0)
@given(damage=st.lists(damages, max_size=12), chosen=options, copies=st.sampled_from([0, 1, 5]))
def test_columns_hold_what_single_messages_hold(source: str, damage: list[Damage], chosen: ColumnOptions, copies: int):
    schema, bodies = SOURCES[source]
    wrong = [damaged(bodies, one) for one in damage]

    assert_columns_as_single(schema, bodies * copies + wrong + bodies, chosen)


@given(bodies=st.lists(st.binary(max_size=60), max_size=40), chosen=options)
def test_any_bytes_are_rows_or_errors(bodies: list[bytes], chosen: ColumnOptions):
    schema, known = SOURCES["counted versions"]

    assert_columns_as_single(schema, [known[5][:12] + body for body in bodies], chosen)


@half
@given(xml=schemas(), chosen=options, tolerant=st.booleans(), copies=st.sampled_from([1, 9]), data=st.data())
def test_columns_of_any_schema_hold_what_single_messages_hold(
    xml: bytes, chosen: ColumnOptions, tolerant: bool, copies: int, data: st.DataObject
):
    schema = load_schema(xml)
    drawn = data.draw(st.lists(messages(schema, tolerant=tolerant), min_size=1, max_size=3))
    bodies = [encode(schema, name, values, tolerant=tolerant) for name, values in drawn]
    wrong = data.draw(st.lists(damages, max_size=8))

    assert_columns_as_single(schema, bodies * copies + [damaged(bodies, one) for one in wrong], chosen)


DENSE = message_of(
    '<field name="n" id="1" type="uint8"/><group name="g" id="2"><field name="a" id="3" type="uint16"/>'
    '<group name="i" id="4"><field name="b" id="5" type="uint8"/></group>'
    '<group name="e" id="6" sinceVersion="1"><field name="c" id="7" type="uint8"/></group>'
    '<data name="d" id="8" type="text"/></group><data name="t" id="9" type="text"/>',
    version=1,
)
entry = st.fixed_dictionaries(
    {
        "a": st.integers(0, 300),
        "i": st.lists(st.fixed_dictionaries({"b": st.integers(0, 254)}), max_size=3),
        "d": st.text("ab", max_size=4),
    }
)


@a_third
@given(
    some=st.lists(entry, min_size=1, max_size=6),
    counts=st.lists(st.integers(62, 70), min_size=1, max_size=2),
    damage=st.lists(damages, max_size=6),
    chosen=options,
)
def test_many_messages_of_many_small_entries_are_read_like_others(
    some: list[dict[str, Any]], counts: list[int], damage: list[Damage], chosen: ColumnOptions
):
    bodies = [
        encode(DENSE, "M", {"n": 1, "g": (some * count)[:count], "t": "end"}, version=count % 2) for count in counts
    ]
    wrong = [damaged(bodies, one) for one in damage]

    assert_columns_as_single(DENSE, wrong + bodies * 25, chosen)


@pytest.mark.parametrize(("empty", "errors"), [("03", 0), ("04", 1)])
def test_nested_entries_of_no_bytes_are_counted_in_many_small_ones(empty: str, errors: int):
    small = f"0700 0000 {empty}00 0000"
    few, many = (
        frame(f"01 0200 {count} {small * int(count[:2], 16)} 0000", block_length=1) for count in ("0200", "5a00")
    )

    columns = assert_columns_as_single(DENSE, [few] * 60 + [many], ColumnOptions(max_empty_entries=300))

    assert columns.errors.num_rows == errors


@pytest.mark.parametrize(("count", "reason"), [(1_000, "truncated"), (30_000, "count-range")])
def test_a_message_that_says_it_has_more_small_entries_than_it_has_is_an_error(count: int, reason: str):
    body = encode(DENSE, "M", {"n": 1, "g": [{"a": 1, "i": []}] * 900, "t": ""}, version=0)
    lying = body[:11] + count.to_bytes(2, "little") + body[13:]

    columns = assert_columns_as_single(DENSE, [lying, body])

    assert columns.errors["reason"].to_pylist() == [reason]


@pytest.mark.parametrize(
    ("place", "octets", "reason"),
    [(-2, b"\xff\0", "truncated"), (-4, b"\xff\0", "count-range"), (-2, b"\2\0", "truncated")],
)
def test_the_last_of_many_small_entries_may_not_reach_into_the_next_message(place: int, octets: bytes, reason: str):
    schema = message_of(
        '<group name="g" id="1"><field name="a" id="2" type="uint16"/>'
        '<group name="i" id="3"><field name="b" id="4" type="uint8"/></group>'
        '<data name="d" id="5" type="text"/></group>'
    )
    body = encode(schema, "M", {"g": [{"a": 1, "i": [], "d": ""}] * 900})
    lying = bytearray(body)
    lying[place : place + 2 or None] = octets

    columns = assert_columns_as_single(schema, [bytes(lying), body])

    assert columns.errors["reason"].to_pylist() == [reason]


@pytest.mark.parametrize("counts", ["01 00", "02 00", "00 00", "01 01"])
@pytest.mark.parametrize("messages", [1, 30])
def test_entries_whose_groups_have_parts_unknown_to_the_schema_are_read_like_others(counts: str, messages: int):
    schema = message_of(
        '<group name="g" id="1" dimensionType="counted"><group name="h" id="2" dimensionType="counted">'
        '<group name="i" id="3" dimensionType="counted"><field name="a" id="4" type="uint8"/></group></group></group>',
        '<composite name="counted"><type name="blockLength" primitiveType="uint8"/>'
        '<type name="numInGroup" primitiveType="uint8"/><type name="numGroups" primitiveType="uint8"/>'
        '<type name="numVarDataFields" primitiveType="uint8"/></composite>',
    )
    usual, other = (f"00 01 {nested} 01 02 00 00 07 08" for nested in ("01 00", counts))
    body = frame(f"00 05 01 00 {usual * 4} {other}", block_length=0)

    assert_columns_as_single(schema, [body] * messages)


@pytest.mark.parametrize(
    "parts", ["", '<data name="d" id="9" type="blob" sinceVersion="1"/>', '<data name="d" id="9" type="blob"/>']
)
@pytest.mark.parametrize("counts", ["0100 0000", "0100 0100", "0000 0200", "0000 0100", "0000 0000"])
def test_groups_that_cannot_be_skipped_are_the_end_of_a_message_only_if_no_known_data_follow(parts: str, counts: str):
    counted = HEADER.replace("</composite>", COUNTS + "</composite>", 1)
    schema = message_of(parts, header=counted, version=1)
    header = "0000 0100 0100 0000"

    assert_columns_as_single(schema, [bytes.fromhex(f"{header} {counts} 0100 0100 07 0108")] * 2)
