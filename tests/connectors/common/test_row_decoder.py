"""A decoder that fails at one frame names it, and decodes the others."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from silverfold.connectors.common.row_decoder import EachFrame

FRAMES = pa.schema([("frame_seq", pa.int64()), ("body", pa.binary())])
CHANGES = pa.schema(
    [
        ("frame_seq", pa.int64()),
        ("op", pa.string()),
        ("error", pa.struct([("error_class", pa.string()), ("reason", pa.string())])),
    ]
)


def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for frame in batch.to_pylist():
            if frame["body"] == b"deep":
                raise RecursionError(frame["body"])
            if frame["body"] == b"large":
                raise MemoryError
            change = {"frame_seq": frame["frame_seq"], "op": frame["body"].decode(), "error": None}
            yield pa.RecordBatch.from_pylist([change], CHANGES)


def frames(*bodies: bytes, first: int = 0) -> pa.RecordBatch:
    rows = [{"frame_seq": first + at, "body": body} for at, body in enumerate(bodies)]
    return pa.RecordBatch.from_pylist(rows, FRAMES)


def test_a_frame_at_which_a_decoder_fails_is_named_and_the_others_are_decoded_once():
    step = pickle.loads(pickle.dumps(EachFrame(read, CHANGES)))

    found = pa.Table.from_batches(
        step(iter([frames(b"insert", b"deep", b"delete"), frames(b"update", first=3)])), CHANGES
    ).to_pylist()

    fault = {"error_class": "DECODER_FAILED", "reason": "RecursionError in the decoder"}
    assert found == [
        {"frame_seq": 0, "op": "insert", "error": None},
        {"frame_seq": 1, "op": None, "error": fault},
        {"frame_seq": 2, "op": "delete", "error": None},
        {"frame_seq": 3, "op": "update", "error": None},
    ]


def test_a_lack_of_memory_is_no_fault_of_a_frame():
    with pytest.raises(MemoryError):
        list(EachFrame(read, CHANGES)(iter([frames(b"insert", b"large")])))
