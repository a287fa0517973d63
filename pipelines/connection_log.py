"""Reads what a feed's receiver said of its connection and of its streams: marks of the newest epoch.

An epoch begins with a mark ``opened`` and ends with a mark ``closed`` (`pipelines.receiving`). One that has not ended
is the receiver's present one, or its last before it died without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from connectors.base import Kind
from pipelines.batch import WARNING
from pipelines.places import Place
from pipelines.store import naming_the_store, open_table

CLOSED = "closed"

_TOLD = ("error_class", "code", "reason", "text")
"""Details by which a mark says why."""


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

    @property
    def warning(self) -> str | None:
        """What it warns of; None unless it is a warning."""
        if self.details.get("level") != WARNING:
            return None
        told = [str(value) for name, value in self.details.items() if name in _TOLD and value is not None]
        return ": ".join([self.name, *told])


@dataclass(frozen=True)
class EpochMarks:
    """What the marks of an epoch say.

    Args:
        of_feed: The first and the newest of those that are about the feed and no single stream; None for none.
        of_streams: The newest of each stream.
    """

    of_feed: tuple[Mark, Mark] | None
    of_streams: Mapping[str, Mark]


def epoch_marks(bronze: Place, epoch: int) -> EpochMarks:
    """Return the marks of an epoch that say how it stands; none when there are none. Reads only their bodies.

    Raises StoreUnavailable.
    """
    table = open_table(bronze)
    if table is None:
        return EpochMarks(None, {})
    with naming_the_store(bronze):
        frames = table.to_pyarrow_dataset()
        of_epoch = (ds.field("kind") == Kind.MARK.value) & (ds.field("epoch") == epoch)
        found = frames.to_table(columns=["frame_seq", "stream"], filter=of_epoch)
        ends = found.group_by("stream").aggregate([("frame_seq", "min"), ("frame_seq", "max")]).to_pylist()
        wanted = [line[f"frame_seq_{end}"] for line in ends for end in ("min", "max")]
        rows = frames.to_table(
            columns=["frame_seq", "epoch", "received_at", "body"], filter=of_epoch & ds.field("frame_seq").isin(wanted)
        )
    marks = {mark.position: mark for mark in (_mark(**row) for row in pa.Table.to_pylist(rows))}
    both = {line["stream"]: (marks[line["frame_seq_min"]], marks[line["frame_seq_max"]]) for line in ends}
    return EpochMarks(both.pop(None, None), {stream: newest for stream, (_, newest) in both.items()})


def _mark(frame_seq: int, epoch: int, received_at: datetime, body: bytes) -> Mark:
    try:
        told = json.loads(body)
    except ValueError:
        told = {}
    details = told if isinstance(told, dict) else {}
    return Mark(frame_seq, epoch, received_at, str(details.pop("mark", "")), details)
