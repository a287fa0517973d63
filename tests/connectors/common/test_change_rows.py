"""Change rows in Arrow, as every connector's decoder builds them."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.change_rows import APPENDED_KEY, ChangeRows, error_rows, key_type, names_sent

ROW = pa.struct([("id", pa.int64()), ("a", pa.string())])
ROWS = ChangeRows(ROW, key_type(ROW, ["id"]))


def batch(ids: list[int], ops: list[str | None], old: list[int | None] | None = None) -> pa.RecordBatch:
    return ROWS.batch(
        pa.array(range(5, 5 + len(ids)), pa.int64()),
        pa.array(ops, pa.string()),
        [pa.array(ids, pa.int64()), pa.array(["x"] * len(ids))],
        old_keys=None if old is None else [pa.array(old, pa.int64())],
    )


def test_a_delete_has_its_key_and_no_row():
    assert batch([1, 2], ["insert", "delete"]).select(["op", "key", "row"]).to_pylist() == [
        {"op": "insert", "key": {"id": 1}, "row": {"id": 1, "a": "x"}},
        {"op": "delete", "key": {"id": 2}, "row": None},
    ]


def test_an_old_key_is_only_where_the_key_differs():
    moved = batch([1, 2, 3], ["update"] * 3, old=[1, 9, None])
    assert moved.column("old_key").to_pylist() == [None, {"id": 9}, None]


def test_columns_that_are_not_given_are_null_and_omitted_ones_are_not_there():
    appended = ChangeRows(ROW, key_type(ROW, ()), omitted=frozenset({"old_key", "present"}))
    rows = pickle.loads(pickle.dumps(appended)).batch(
        pa.array([7], pa.int64()),
        pa.array(["insert"]),
        [pa.array([1], pa.int64()), pa.nulls(1, pa.string())],
        ordinals=pa.array([3], pa.int32()),
    )
    assert appended.key == APPENDED_KEY
    assert rows.to_pylist() == [
        {
            "frame_seq": 7,
            "ordinal": 3,
            "op": "insert",
            "key": {"_position": 7, "_ordinal": 3},
            "row": {"id": 1, "a": None},
            "error": None,
        }
    ]
    assert batch([1], ["insert"]).select(["ordinal", "old_key", "present", "error"]).to_pylist() == [
        {"ordinal": None, "old_key": None, "present": None, "error": None}
    ]


def test_a_frame_with_an_error_gives_the_error_and_none_of_its_changes():
    good, bad = ROWS.whole_frames(batch([1, 2], ["insert"] * 2), {5: InvalidValue("no", reason="r")})
    assert good.column("frame_seq").to_pylist() == [6]
    assert bad.select(["frame_seq", "op", "error"]).to_pylist() == [
        {"frame_seq": 5, "op": None, "error": {"error_class": "INVALID_VALUE", "reason": "r: no"}}
    ]


def test_an_error_may_be_given_as_class_and_reason():
    rows = error_rows(ROWS.type, pa.array([8], pa.int64()), [("DECODER_FAILED", "a bug")])
    assert rows.schema == ROWS.type
    assert rows.select(["frame_seq", "error"]).to_pylist() == [
        {"frame_seq": 8, "error": {"error_class": "DECODER_FAILED", "reason": "a bug"}}
    ]


@pytest.mark.parametrize("width", [1, 9])
def test_partial_rows_list_the_columns_sent_in_order(width):
    names = [f"c{at}" for at in range(width)]
    sent = [np.array([at == width - 1, False, True]) for at in range(width)]
    lists = names_sent(names, sent, np.array([True, True, False]))
    assert lists.to_pylist() == [[names[-1]], [], None]
    assert names_sent(names, sent, np.zeros(3, np.bool_)).to_pylist() == [None] * 3
