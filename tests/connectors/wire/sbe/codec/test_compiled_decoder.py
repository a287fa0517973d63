"""Messages that are just as the schema has them are read by one function, and no differently."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import WireError
from silverfold.connectors.wire.sbe.codec.decode import Decoded, MessageReader
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import frame, message_of
from tests.support.sbe.sources import SOURCES, Damage, damaged, damages
from tests.support.tries import half


def outcome(reader: MessageReader, body: bytes) -> Decoded | str:
    try:
        return reader.read(body)
    except WireError as error:
        return repr((error, error.offset, error.reason, error.element))


@pytest.mark.parametrize("source", SOURCES)
@half
@given(damage=damages, strict=st.booleans())
def test_a_reader_that_has_seen_messages_reads_as_one_that_has_not(source: str, damage: Damage, strict: bool):
    schema, bodies = SOURCES[source]
    body = damaged(bodies, damage)
    seasoned = MessageReader(schema, strict=strict)
    for known in bodies:
        seasoned.read(known)

    assert repr(outcome(seasoned, body)) == repr(outcome(MessageReader(schema, strict=strict), body))


def read_twice(schema: Schema, body: bytes) -> list[Decoded]:
    reader = MessageReader(schema)
    return [reader.read(body), reader.read(body)]


def test_groups_deeper_than_one_function_can_loop_are_read_all_the_same():
    opening = "".join(f'<group name="g{depth}" id="{depth}">' for depth in range(15))
    schema = message_of(f'{opening}<field name="x" id="1" type="uint8"/>{"</group>" * 15}')
    values: Any = {"x": 5}
    for depth in reversed(range(15)):
        values = {f"g{depth}": [values]}

    first, second = read_twice(schema, encode(schema, "M", values))

    assert first.values == second.values == values


def test_entries_longer_than_any_offset_are_an_error_at_the_second_message_too():
    schema = message_of(
        '<group name="g" id="1" dimensionType="wide"><data name="d" id="2" type="text"/></group>',
        '<composite name="wide"><type name="blockLength" primitiveType="uint64"/>'
        '<type name="numInGroup" primitiveType="uint8"/></composite>',
    )
    reader = MessageReader(schema)
    reader.read(frame("0000000000000000 01 0000", block_length=0))

    with pytest.raises(WireError, match="count-range"):
        reader.read(frame("ffffffffffffffff 01 0000", block_length=0))


def test_entries_of_no_bytes_are_still_bounded_at_the_second_message():
    schema = message_of('<group name="g" id="1"><field name="x" id="2" type="uint8"/></group>')
    reader = MessageReader(schema, max_empty_entries=2)
    reader.read(frame("0100 0100 07", block_length=0))

    with pytest.raises(WireError):
        reader.read(frame("0000 0300", block_length=0))


def test_headers_of_all_kinds_do_not_fill_the_memory():
    schema = message_of('<field name="x" id="1" type="uint8"/>')
    reader = MessageReader(schema)

    for version in range(2_000):
        assert reader.read(frame("07", block_length=1, version=version)).values == {"x": 7}

    assert len(reader._compiled) < 300
