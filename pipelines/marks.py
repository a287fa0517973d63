"""Reads what a feed's receiver said of its connection: the marks at the two ends of the newest epoch.

An epoch begins with a mark ``opened`` and ends with a mark ``closed`` (`pipelines.receiving`). One that has not ended
is the receiver's present one, or its last before it died without a word.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from connectors.base import Kind
from pipelines.places import Place
from pipelines.store import naming_the_store, open_table

CLOSED = "closed"


@dataclass(frozen=True)
class Mark:
    """A frame the receiver wrote itself."""

    position: int
    epoch: int
    received_at: datetime
    name: str
    """What happened; empty when the body does not say."""
    details: dict[str, Any]
    """Whatever else the body says."""


def connection_marks(bronze: Place, epoch: int) -> tuple[Mark, Mark] | None:
    """Return the first and the newest mark of an epoch that are about the feed and no single stream.

    None when there is none. Reads the bodies of these two frames alone. Raises StoreUnavailable.
    """
    table = open_table(bronze)
    if table is None:
        return None
    position = ds.field("frame_seq")
    with naming_the_store(bronze):
        frames = table.to_pyarrow_dataset()
        of_feed = (ds.field("kind") == Kind.MARK.value) & (ds.field("epoch") == epoch) & ds.field("stream").is_null()
        found = sorted(frames.to_table(columns=["frame_seq"], filter=of_feed)["frame_seq"].to_pylist())
        if not found:
            return None
        ends = (position == found[0]) | (position == found[-1])
        rows = frames.to_table(columns=["frame_seq", "epoch", "received_at", "body"], filter=ends)
    marks = [_mark(**row) for row in pa.Table.to_pylist(rows.sort_by("frame_seq"))]
    return marks[0], marks[-1]


def _mark(frame_seq: int, epoch: int, received_at: datetime, body: bytes) -> Mark:
    try:
        told = json.loads(body)
    except ValueError:
        told = {}
    details = told if isinstance(told, dict) else {}
    return Mark(frame_seq, epoch, received_at, str(details.pop("mark", "")), details)
