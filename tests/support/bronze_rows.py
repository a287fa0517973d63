"""Builds bronze's small columns from text: one line per frame, ``epoch stream kind boundary``, ``-`` for no stream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

BEGAN = datetime(2024, 5, 1, tzinfo=UTC)

SMALL_COLUMNS = pa.schema(
    [
        ("frame_seq", pa.int64()),
        ("epoch", pa.int32()),
        ("received_at", pa.timestamp("us", "UTC")),
        ("stream", pa.string()),
        ("kind", pa.string()),
        ("boundary", pa.string()),
    ]
)


class Row(NamedTuple):
    """One frame, without its body."""

    position: int
    epoch: int
    stream: str | None
    kind: str
    boundary: str


def rows(*lines: str, start: int = 0) -> list[Row]:
    """Parse frames at consecutive positions from ``start``."""
    return [_row(start + offset, line) for offset, line in enumerate(lines)]


def small_columns(frames: Sequence[Row]) -> pa.Table:
    """Return the frames as bronze columns; each is received ``position`` seconds after `BEGAN`."""
    return pa.Table.from_pylist(
        [
            {
                "frame_seq": frame.position,
                "epoch": frame.epoch,
                "received_at": BEGAN + timedelta(seconds=frame.position),
                "stream": frame.stream,
                "kind": frame.kind,
                "boundary": frame.boundary,
            }
            for frame in frames
        ],
        schema=SMALL_COLUMNS,
    )


def bronze(*lines: str, start: int = 0) -> pa.Table:
    """Return frames given as lines, as bronze columns."""
    return small_columns(rows(*lines, start=start))


def _row(position: int, line: str) -> Row:
    epoch, stream, kind, boundary = line.split()
    return Row(position, int(epoch), None if stream == "-" else stream, kind, boundary)
