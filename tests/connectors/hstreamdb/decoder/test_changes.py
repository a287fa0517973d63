"""Many records at once: what is read by columns, what is left to be read one by one, and what had landed before."""

from __future__ import annotations

import json
from struct import pack
from typing import Any

import numpy as np
import pytest

from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.hstreamdb.decoder.floors import Floors, read_floors
from silverfold.connectors.hstreamdb.decoder.landed_records import LandedRecords, landed_records
from silverfold.connectors.hstreamdb.decoder.layouts import RecordReader
from silverfold.connectors.hstreamdb.decoder.struct_columns import StructColumns
from silverfold.connectors.hstreamdb.decoder.text_columns import TextColumns
from silverfold.connectors.hstreamdb.protocol.frames import parse_frame
from silverfold.connectors.hstreamdb.protocol.messages.batches import Flag
from tests.support.hstreamdb.landed import changes_of, entry, frame_of, objects, table_of

TABLE = table_of({"keys": ["id"], "columns": {"id": "bigint", "name": "string"}})


def wrapped(number: int, **more: Any) -> dict[str, Any]:
    return {"key": {"id": number}, "value": {"id": number, "name": f"n{number}", **more}}


def part(*records: Any) -> list[LandedRecords]:
    return [landed_records(5, parse_frame(frame_of(objects(*records))), limit=1 << 20)]


def good(*records: Any, layout: str = "auto") -> list[bool]:
    """Return which HRecords are read by columns."""
    table = table_of({"keys": ["id"], "columns": {"id": "bigint", "name": "string"}, "layout": layout})
    found = StructColumns(RecordReader(table)).read(part(*records))
    return [False] * len(records) if found is None else found.good.tolist()


def test_hrecords_of_two_layouts_are_read_by_columns_beside_one_another() -> None:
    deleted = {"key": {"id": 3}, "value": None}
    row = {"id": 4, "name": "ü" * 200}
    assert good(wrapped(1), deleted, row, wrapped(2, other="x")) == [True] * 4


@pytest.mark.parametrize(
    "record",
    [
        {"op": "INSERT", "key": {"id": 1}, "row": {"id": 1}},
        {"op": "c", "before": None, "after": {"id": 1}},
        {"schema": {}, "payload": wrapped(1)},
        wrapped(1, name=5),
        wrapped(1, id=2),
        wrapped(1, id=1.5),
        wrapped(1, other=[1]),
        wrapped(1, name="__debezium_unavailable_value"),
        {"key": {}, "value": {"id": 1}},
        {"name": "no key"},
    ],
)
def test_an_hrecord_of_another_form_or_with_an_error_is_read_alone(record: dict[str, Any]) -> None:
    assert good(wrapped(7), record, wrapped(8)) == [True, False, True]


def test_attributes_and_raw_records_leave_the_others_to_be_read_by_columns() -> None:
    raw = json.dumps(wrapped(2)).encode()
    found = StructColumns(RecordReader(TABLE)).read(part(wrapped(1), raw, wrapped(3)))
    assert found is not None
    assert found.good.tolist() == [True, False, True]


def test_a_text_that_is_not_utf8_leaves_all_to_protobuf_which_refuses_only_its_record() -> None:
    payload = bytes.fromhex("0a0c0a046e616d6512041a02") + b"\xff\xff"
    entries = [*objects({"id": 1, "name": "a"}), entry(payload, Flag.JSON), *objects({"id": 2, "name": "b"})]
    changes, errors = changes_of(TABLE, {5: frame_of(entries)})
    assert [each["key"]["id"] for each in changes] == [1, 2]
    assert [each["error"]["reason"].partition(":")[0] for each in errors] == ["bad_struct"]


@pytest.mark.filterwarnings("error")
def test_a_signalling_nan_is_refused_without_a_warning() -> None:
    (whole,) = objects({"id": 1.5})
    changes, errors = changes_of(TABLE, {5: frame_of([whole.replace(pack("<d", 1.5), b"\1\0\0\0\0\0\xf0\x7f")])})
    assert (changes, len(errors)) == ([], 1)


def test_a_number_with_an_exponent_beyond_all_decimals_is_named_as_that() -> None:
    _, (error,) = changes_of(TABLE, {5: frame_of(objects(b'{"id": 1e99999999999999999999, "name": "a"}'))})
    assert "a number beyond all decimals does not fit bigint" in error["error"]["reason"]


def texts(*records: Any) -> bool:
    """Return whether raw records are read by columns."""
    payloads = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in records]
    return TextColumns(RecordReader(TABLE)).read(payloads) is not None


def test_raw_records_of_one_layout_are_read_by_columns() -> None:
    assert texts(wrapped(1), {"key": {"id": 3}, "value": None}, wrapped(2, other=[1, {"x": 1e99}]))
    assert texts({"id": 1, "name": "a"}, {"id": 2, "other": None})


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1, "name": "a"},
        {"op": "INSERT", "key": {"id": 1}, "row": {"id": 1}},
        wrapped(1, name=5),
        wrapped(1, id=2),
        wrapped(1, id=2**63),
        wrapped(1, name="x" * 5_000),
        {"key": {}, "value": {"id": 1}},
        b'{"key": {"id": 1}, "value": {"id": 1, "other": "\xff"}}',
        b"{",
    ],
)
def test_a_raw_record_that_differs_leaves_all_to_be_read_alone(record: Any) -> None:
    assert not texts(wrapped(7), record)


def test_places_and_sequences_are_those_of_the_ids() -> None:
    first = frame_of(objects(wrapped(1), wrapped(2)), shard=7, batch=9, indexes=[0, 4_000_000_000])
    second = frame_of(objects(json.dumps(wrapped(3)).encode(), {"name": "x"}), shard=8, batch=1, indexes=[2, 5])
    changes, errors = changes_of(TABLE, {11: first, 12: second})
    assert [(each["frame_seq"], each["ordinal"], each["sequence"]) for each in changes] == [
        (11, 0, "00000000000000000007-00000000000000000009-0000000000"),
        (11, 1, "00000000000000000007-00000000000000000009-4000000000"),
        (12, 0, "00000000000000000008-00000000000000000001-0000000002"),
    ]
    assert [each["frame_seq"] for each in errors] == [12]


def control(position: int, created: str, **offsets: int) -> ControlFrame:
    numbers = {name.removeprefix("s"): str(batch) for name, batch in offsets.items()}
    return ControlFrame(position, 1, None, json.dumps({"created": created, "offsets": numbers}).encode())


def test_floors_hold_for_what_lands_behind_them_and_only_rise() -> None:
    floors = read_floors([control(5, "a", s7=3), control(9, "a", s7=2, s8=1), control(12, "a", s7=8)])
    assert [floors.before(7, at) for at in (5, 6, 12, 13)] == [0, 3, 3, 8]
    assert [floors.before(8, at) for at in (9, 10)] == [0, 1]
    assert floors.before(9, 100) == 0


def test_floors_of_another_subscription_count_no_more() -> None:
    floors = read_floors([control(5, "a", s7=3, s8=4), control(9, "b"), control(12, "b", s7=1)])
    assert [floors.before(7, at) for at in (9, 10, 13)] == [3, 0, 1]
    assert floors.before(8, 13) == 0


def test_a_cut_takes_the_floors_it_needs_with_it() -> None:
    frames = [control(at, "a", s7=at) for at in range(1, 100)]
    floors, needed = read_floors(frames), read_floors(frames, 98)
    assert [floors.before(7, at) == needed.before(7, at) for at in (98, 99, 100)] == [True] * 3
    assert sum(map(len, needed.by_shard.values())) == 3


def test_what_landed_before_a_floor_is_skipped_without_being_read() -> None:
    floors = read_floors([control(5, "a", s7=3)])
    old, new = frame_of([b"no record"], batch=3), frame_of(objects(wrapped(1)), batch=4)
    changes, errors = changes_of(TABLE, {6: old, 7: new}, floors)
    assert [each["frame_seq"] for each in changes] == [7]
    assert errors == []
    assert changes_of(TABLE, {6: old}, Floors())[1]


def test_ten_thousand_records_come_in_parts_and_none_is_lost() -> None:
    frames = {at: frame_of(objects(*map(wrapped, range(at * 100, at * 100 + 100))), batch=at + 1) for at in range(100)}
    changes, errors = changes_of(TABLE, frames)
    assert errors == []
    assert np.array_equal([each["key"]["id"] for each in changes], np.arange(10_000))
