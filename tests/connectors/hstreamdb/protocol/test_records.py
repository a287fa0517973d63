"""Records of users to payloads and back; what a double cannot hold is refused."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.protocol.messages.batches import Flag, HStreamRecord
from silverfold.connectors.hstreamdb.protocol.records import (
    HRecord,
    RawRecord,
    RecordId,
    decode_record,
    encode_record,
    to_record,
)

LEAVES = st.none() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES.filter(lambda value: not isinstance(value, float) or math.isfinite(value)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(fields=st.dictionaries(st.text(), VALUES), key=st.text())
def test_an_object_comes_back_as_it_was(fields: dict[str, Any], key: str) -> None:
    record = HRecord(fields, {"trace": "t-1"})
    assert decode_record(HStreamRecord.FromString(encode_record(record, key).SerializeToString())) == (key, record)


def test_integers_come_back_as_integers() -> None:
    _, record = decode_record(encode_record(HRecord({"a": 1, "b": 1.5, "c": -0.0, "d": 2.0**53})))
    assert isinstance(record, HRecord)
    types = {name: type(value) for name, value in record.fields.items()}
    assert types == {"a": int, "b": float, "c": float, "d": float}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**53, "integer_not_exact"),
        (-(2**53), "integer_not_exact"),
        (10**400, "integer_not_exact"),
        (math.nan, "not_finite"),
        (math.inf, "not_finite"),
        (b"bytes", "wrong_type"),
        ({1: "a"}, "wrong_type"),
        ("\ud800", "bad_text"),
        ({"\ud800": 1}, "bad_text"),
    ],
)
def test_what_a_struct_cannot_hold_is_refused_with_its_place(value: Any, reason: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        encode_record(HRecord({"row": [0, value]}))
    assert (refused.value.reason, refused.value.element) == (reason, "row[1]")


def nested(depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(depth - 1):
        fields = {"inner": fields}
    return fields


def test_the_deepest_object_is_read_and_a_deeper_one_refused() -> None:
    assert decode_record(encode_record(HRecord(nested(30))))[1] == HRecord(nested(30))
    with pytest.raises(InvalidValue, match="too_deep"):
        encode_record(HRecord(nested(31)))


def test_a_key_or_an_attribute_that_is_no_text_is_refused() -> None:
    for record, key in ((RawRecord(b""), "\ud800"), (RawRecord(b"", {"a": 1}), "")):  # type: ignore[dict-item]  # the test
        with pytest.raises(InvalidValue, match="wrong_type"):
            encode_record(record, key)


@pytest.mark.parametrize("given", ["text", None, 5, [1], bytearray(b"x"), RawRecord("text")])  # type: ignore[arg-type]  # the test
def test_what_is_neither_an_object_nor_bytes_is_refused(given: Any) -> None:
    with pytest.raises(InvalidValue, match=r"wrong_type.*bytes"):
        encode_record(to_record(given))


@pytest.mark.parametrize("key", [b"k", b"\xff", 5, None])
def test_a_key_is_a_text(key: Any) -> None:
    with pytest.raises(InvalidValue, match="a key is a text"):
        encode_record(RawRecord(b""), key)


def test_a_record_without_key_has_the_empty_key_and_a_header() -> None:
    assert encode_record(RawRecord(b"x")).header.flag == Flag.RAW
    assert encode_record(HRecord({})).SerializeToString() == b"\x0a\x00"


def test_objects_and_bytes_become_records() -> None:
    assert to_record({"a": 1}) == HRecord({"a": 1})
    assert to_record(b"a") == RawRecord(b"a")
    assert to_record(RawRecord(b"a")) == RawRecord(b"a")


def test_an_id_is_ordered_and_shown_as_the_system_does() -> None:
    assert str(RecordId(7, 9, 1)) == "7-9-1"
    assert RecordId(7, 9, 1) < RecordId(7, 10, 0) < RecordId(8, 1, 0)
    assert RecordId.of(RecordId(7, 9, 1).to_message()) == RecordId(7, 9, 1)
