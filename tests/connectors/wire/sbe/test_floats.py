"""Floats of four bytes: what a schema's text says of them counts as their bytes can hold it."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.value_checks import review_values
from tests.support.sbe.basics import frame, message_of

LIMITED = message_of(
    '<field name="f" id="1" type="small"/>',
    '<type name="small" primitiveType="float" minValue="-0.1" maxValue="0.1"/>',
)
NULLABLE = message_of(
    '<field name="f" id="1" type="opt"/>',
    '<type name="opt" primitiveType="float" presence="optional" nullValue="0.001"/>',
)
TENTH = frame("cdcccc3d", block_length=4)
NEGATIVE_TENTH = frame("cdccccbd", block_length=4)


@pytest.mark.parametrize("body", [TENTH, NEGATIVE_TENTH])
def test_a_float_at_its_limit_is_written_as_it_was_read(body: bytes):
    assert encode(LIMITED, "M", decode(LIMITED, body).values) == body


def test_a_float_at_its_limit_can_be_written_as_the_schema_says_it():
    assert encode(LIMITED, "M", {"f": 0.1}) == TENTH


def test_a_float_at_its_limit_is_not_out_of_range():
    assert review_values(decode(LIMITED, TENTH)) == ()


def test_the_next_float_beyond_a_limit_is_out_of_range():
    beyond = frame("cecccc3d", block_length=4)

    with pytest.raises(InvalidValue, match="range"):
        encode(LIMITED, "M", decode(LIMITED, beyond).values)

    found = review_values(decode(LIMITED, beyond))
    assert [finding.reason for finding in found] == ["out-of-range"]


def test_a_float_that_would_be_read_back_as_null_is_refused():
    assert decode(NULLABLE, frame("6f12833a", block_length=4)).values == {"f": None}

    with pytest.raises(InvalidValue) as caught:
        encode(NULLABLE, "M", {"f": 0.001})

    assert caught.value.reason == "range"
