"""Laws that hold for all values and all bytes."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given

from silverfold.conf.errors import SchemaError, WireError
from silverfold.connectors.wire.sbe.codec.decode import Decoded, decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.values import SetValue
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import frame, message_of

GOLDEN = Path(__file__).parents[3] / "golden" / "sbe"
LITTLE = load_schema(GOLDEN / "sample.xml")
BIG = load_schema(GOLDEN / "sample-big-endian.xml")
DEEPHAVEN = load_schema(Path(__file__).parents[4] / "connectors" / "deephaven" / "schema.xml")
XML = (GOLDEN / "sample.xml").read_bytes()
CHOICES = {0: "firm", 3: "hidden"}

int64 = st.integers(-(2**63) + 1, 2**63 - 1)
prices = st.fixed_dictionaries({"mantissa": int64, "exponent": st.just(-2)})
no_price = st.just({"mantissa": None, "exponent": -2})
marks = st.lists(st.fixed_dictionaries({"mark": st.integers(0, 254)}), max_size=4)
legs = st.fixed_dictionaries(
    {
        "legId": st.integers(0, 65534),
        "ratio": st.floats(width=32, allow_nan=False),
        "marks": marks,
        "blob": st.binary(max_size=254),
    }
)
quotes = st.fixed_dictionaries(
    {
        "seq": st.integers(0, 2**32 - 2),
        "code": st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=6),
        "side": st.sampled_from(["Buy", "Sell"]),
        "level": st.sampled_from(["Low", "High", None]),
        "flags": st.builds(SetValue, st.integers(0, 255), st.just(CHOICES)),
        "triple": st.lists(st.integers(-32767, 32767), min_size=3, max_size=3),
        "opt": st.none() | st.integers(0, 254).filter(lambda number: number != 99),
        "venue": st.just("XLON"),
        "fixedSide": st.just("Sell"),
        "price": prices,
        "stop": prices | no_price,
        "at": st.fixed_dictionaries({"time": st.integers(0, 2**64 - 2), "unit": st.just(9)}),
        "qty": st.fixed_dictionaries(
            {
                "mantissa": st.integers(-(2**31) + 1, 2**31 - 1),
                "exponent": st.integers(-127, 127),
                "side": st.sampled_from(["Buy", "Sell"]),
            }
        ),
        "legs": st.lists(legs, max_size=3),
        "text": st.text(max_size=40).filter(lambda text: text.isprintable()),
        "extra": st.binary(max_size=254),
    }
)


@given(values=quotes, schema=st.sampled_from([LITTLE, BIG]))
def test_what_is_encoded_is_decoded_to_the_same_values(values: dict[str, Any], schema: Schema):
    body = encode(schema, "Quote", values)

    decoded = decode(schema, body)

    assert decoded.values == values
    assert (decoded.consumed, decoded.warnings) == (len(body), ())
    assert encode(schema, "Quote", decoded.values) == body


@given(values=quotes, data=st.data())
def test_every_prefix_of_a_message_is_refused(values: dict[str, Any], data: st.DataObject):
    body = encode(LITTLE, "Quote", values)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]

    outcome = attempt(LITTLE, cut)

    assert isinstance(outcome, WireError)
    assert outcome.offset is not None
    assert outcome.offset <= len(cut)


headers = st.builds(
    lambda block, template, version: b"".join(number.to_bytes(2, "little") for number in (block, template, 7, version)),
    st.integers(0, 80) | st.just(65535),
    st.sampled_from([11, 11, 11, 12]),
    st.integers(0, 5) | st.just(65535),
)


@given(header=headers | st.binary(max_size=9), rest=st.binary(max_size=300))
@example(header=bytes.fromhex("00000b0007000300"), rest=b"\x00\x00\xff\xff" * 50)
def test_any_bytes_give_values_or_a_wire_error(header: bytes, rest: bytes):
    outcome = attempt(LITTLE, header + rest)

    if isinstance(outcome, WireError):
        assert outcome.reason
    else:
        assert outcome.consumed <= len(header + rest)


@given(template=st.integers(1, 10) | st.integers(100, 121), rest=st.binary(max_size=200))
def test_any_bytes_behind_a_deephaven_header_give_values_or_a_wire_error(template: int, rest: bytes):
    header = b"".join(number.to_bytes(2, "little") for number in (9, template, 1, 1))

    outcome = attempt(DEEPHAVEN, header + rest)

    assert isinstance(outcome, Decoded) or outcome.reason


@given(position=st.integers(0, len(XML) - 1), replacement=st.binary(min_size=0, max_size=4))
def test_a_damaged_schema_is_read_or_refused_with_a_schema_error(position: int, replacement: bytes):
    with suppress(SchemaError):
        load_schema(XML[:position] + replacement + XML[position + 1 :])


def test_memory_follows_the_bytes_not_what_they_announce():
    types = (
        '<composite name="huge"><type name="blockLength" primitiveType="uint16"/>'
        '<type name="numInGroup" primitiveType="uint32" maxValue="2147483647"/></composite>'
    )
    schema = message_of(
        '<group name="g" id="1" dimensionType="huge"><group name="h" id="2"/>'
        '<data name="d" id="3" type="text"/></group>',
        types,
    )
    many = frame("0000 ffffff7f" + "0000 ffff 0000" * 1_000, block_length=0)
    attempt(schema, many)  # compiles the plans
    tracemalloc.start()

    outcome = attempt(schema, many)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(outcome, WireError)
    assert outcome.reason == "count-range"
    assert peak < 10_000_000


def attempt(schema: Schema, body: bytes) -> Decoded | WireError:
    """Return what becomes of any bytes; anything but values or a WireError is raised."""
    try:
        return decode(schema, body)
    except WireError as error:
        return error
