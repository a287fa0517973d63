"""Damaged messages: values or a WireError with its place, and memory in proportion to the bytes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import WireError
from silverfold.connectors.wire.sbe.codec.decode import Decoded, decode
from silverfold.connectors.wire.sbe.codec.value_checks import review_values
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.basics import message_of

SBE = Path(__file__).parents[3] / "golden" / "sbe"
ORDER = json.loads((SBE / "evolution" / "order.json").read_text("utf-8"))
CASES = [
    (load_schema(SBE / case["schema"]), bytes.fromhex(case["hex"]))
    for case in json.loads((SBE / "messages.json").read_text("utf-8"))
] + [(load_schema(SBE / "evolution" / "order-v3.xml"), bytes.fromhex(text)) for text in ORDER["messages"]]
NAMES = ["sample", "sample big", "order single", "report", "reject", "v0", "v1", "v2", "v3"]
BYTES_PER_BYTE = 600
"""Memory a byte of a message may take once it is values: the shortest entry of a group is a dict."""


@pytest.mark.parametrize(("schema", "body"), CASES, ids=NAMES)
def test_any_one_byte_may_be_wrong(schema: Schema, body: bytes):
    for place in range(len(body)):
        for wrong in (0, 1, 0x7F, 0x80, 0xFF, body[place] ^ 1):
            outcome = attempt(schema, body[:place] + bytes([wrong]) + body[place + 1 :])

            if isinstance(outcome, WireError):
                assert outcome.reason
                assert outcome.offset is not None
                assert 0 <= outcome.offset <= len(body)
            else:
                assert outcome.consumed <= len(body)


@given(case=st.sampled_from(CASES), edits=st.lists(st.tuples(st.integers(0, 130), st.binary(max_size=6)), max_size=5))
def test_any_bytes_may_be_cut_out_and_others_put_in(case: tuple[Schema, bytes], edits: list[tuple[int, bytes]]):
    schema, body = case
    for place, other in edits:
        body = body[:place] + other + body[place + len(other) // 2 :]

    outcome = attempt(schema, body)

    assert isinstance(outcome, WireError) or outcome.consumed <= len(body)


@given(case=st.sampled_from(CASES), rest=st.binary(max_size=400), version=st.integers(0, 5))
def test_what_random_bodies_hold_can_be_reviewed(case: tuple[Schema, bytes], rest: bytes, version: int):
    schema, body = case
    outcome = attempt(schema, body[:6] + version.to_bytes(2, "little") + rest)

    if isinstance(outcome, Decoded):
        assert all(finding.element.startswith(outcome.message.name) for finding in review_values(outcome))


@pytest.mark.parametrize(
    ("parts", "header", "unit"),
    [
        ('<group name="g" id="1"><field name="f" id="2" type="uint8"/></group>', "0100 401f", "01"),
        ('<group name="g" id="1"><data name="d" id="2" type="blob"/></group>', "0000 401f", "00"),
        ('<group name="g" id="1"><group name="h" id="2"/></group>', "0000 401f", "0000 0000"),
        ('<group name="g" id="1"><field name="f" id="2" type="uint64"/></group>', "0800 401f", "00" * 8),
    ],
    ids=["fields", "data", "groups", "wide fields"],
)
def test_memory_is_bounded_by_the_size_of_the_message(parts: str, header: str, unit: str):
    schema = message_of(parts)
    body = bytes.fromhex("0000 0100 0100 0000" + header) + bytes.fromhex(unit) * 8_000
    assert len(decode(schema, body).values["g"]) == 8_000  # compiles the plans
    tracemalloc.start()

    decoded = decode(schema, body)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BYTES_PER_BYTE * len(body)
    assert decoded.consumed == len(body)


def attempt(schema: Schema, body: bytes) -> Decoded | WireError:
    """Return what becomes of any bytes; anything but values or a WireError is raised."""
    try:
        return decode(schema, body)
    except WireError as error:
        return error
