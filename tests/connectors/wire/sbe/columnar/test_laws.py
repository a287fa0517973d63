"""The law of columns: every message is there, or among the errors, as the decoder of single messages has it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from connectors.wire.sbe.columnar.options import ColumnOptions
from connectors.wire.sbe.encode import encode
from connectors.wire.sbe.schema import load_schema
from tests.support.sbe_columns import assert_columns_as_single
from tests.support.sbe_messages import messages
from tests.support.sbe_schemas import schemas
from tests.support.sbe_sources import SOURCES, Damage, damaged, damages
from tests.support.tries import half

options = st.builds(
    ColumnOptions,
    text=st.sampled_from(["strict", "replace", "bytes"]),
    sets=st.sampled_from(["names", "integer"]),
    strict=st.booleans(),
    max_empty_entries=st.sampled_from([0, 2, 300]),
)


@pytest.mark.parametrize("source", SOURCES)
@half
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
