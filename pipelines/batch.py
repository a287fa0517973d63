"""Frames that wait for one commit, and their columns: built at once, column by column, when the commit is due."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from connectors.base import Frame, Kind
from pipelines.bronze_table import SCHEMA

FRAME_BYTES: Final = 200
"""Memory of a frame beside its body, in bytes, about: so that empty frames count too."""

_body = itemgetter(Frame._fields.index("body"))


class _Run(NamedTuple):
    """Frames that were landed together."""

    frames: int
    epoch: int
    received_at: int


class LandedMark(NamedTuple):
    """A mark as it is logged."""

    name: str
    details: dict[str, Any]
    """Its own details but for a kept body, and ``frame_seq``, ``epoch`` and ``stream``."""


class Prepared(NamedTuple):
    """One commit, ready to be written."""

    first: int
    """Position of its first frame."""
    size: int
    """Memory its frames took, in bytes, about."""
    table: pa.Table
    marks: tuple[LandedMark, ...]
    source_positions: Mapping[str, str]
    """Per stream, the last source position in it."""


class Batch:
    """The frames from position ``first`` on, in order."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.frames: list[Frame] = []
        self.size = 0
        """Memory they take, in bytes, about."""
        self._runs: list[_Run] = []

    def add(self, frames: Sequence[Frame], epoch: int, received_at: int) -> int:
        """Take frames that arrived together, in microseconds since 1970, and return the memory they take."""
        size = sum(map(len, map(_body, frames))) + FRAME_BYTES * len(frames)
        self.frames += frames
        self.size += size
        self._runs.append(_Run(len(frames), epoch, received_at))
        return size

    def prepare(self) -> Prepared:
        """Return the frames as one commit."""
        bodies, kinds, boundaries, streams, source_positions = zip(*self.frames, strict=True)
        counts, epochs, stamps = (np.array(column, np.int64) for column in zip(*self._runs, strict=True))
        epoch = np.repeat(epochs.astype(np.int32), counts)
        columns = [
            pa.array(np.arange(self.first, self.first + len(bodies), dtype=np.int64)),
            pa.array(epoch),
            pa.array(np.repeat(stamps, counts)).cast(SCHEMA.field("received_at").type),
            pa.array(streams, pa.string()),
            pa.array(kinds, pa.string()),
            pa.array(boundaries, pa.string()),
            pa.array(source_positions, pa.string()),
            pa.array(bodies, pa.binary()),
        ]
        marks = tuple(self._mark(at, int(epoch[at])) for at in _places(kinds, Kind.MARK))
        reached: dict[str, str] = {}
        if source_positions.count(None) < len(source_positions):
            pairs = zip(streams, source_positions, strict=True)
            reached = {stream: position for stream, position in pairs if stream is not None and position is not None}
        return Prepared(self.first, self.size, pa.Table.from_arrays(columns, schema=SCHEMA), marks, reached)

    def _mark(self, at: int, epoch: int) -> LandedMark:
        frame = self.frames[at]
        details = json.loads(frame.body)
        name = details.pop("mark")
        own = {key: value for key, value in details.items() if key not in {"body", "event"}}
        return LandedMark(name, {**own, "frame_seq": self.first + at, "epoch": epoch, "stream": frame.stream})


def _places(kinds: Sequence[Kind], wanted: Kind) -> Iterator[int]:
    at = -1
    for _ in range(kinds.count(wanted)):
        at = kinds.index(wanted, at + 1)
        yield at
