"""The law of columns: every message is there, or among the errors, as the decoder of single messages has it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from connectors.wire.sbe.columnar.options import ColumnOptions
from tests.support.sbe_columns import assert_columns_as_single
from tests.support.sbe_sources import SOURCES, Damage, damaged, damages

options = st.builds(
    ColumnOptions,
    text=st.sampled_from(["strict", "replace", "bytes"]),
    sets=st.sampled_from(["names", "integer"]),
    strict=st.booleans(),
    max_empty_entries=st.sampled_from([0, 2, 300]),
)


@pytest.mark.parametrize("source", SOURCES)
@given(damage=st.lists(damages, max_size=12), chosen=options, copies=st.sampled_from([0, 1, 5]))
def test_columns_hold_what_single_messages_hold(source: str, damage: list[Damage], chosen: ColumnOptions, copies: int):
    schema, bodies = SOURCES[source]
    messages = [damaged(bodies, one) for one in damage]

    assert_columns_as_single(schema, bodies * copies + messages + bodies, chosen)


@given(messages=st.lists(st.binary(max_size=60), max_size=40), chosen=options)
def test_any_bytes_are_rows_or_errors(messages: list[bytes], chosen: ColumnOptions):
    schema, bodies = SOURCES["counted versions"]

    assert_columns_as_single(schema, [bodies[5][:12] + message for message in messages], chosen)
