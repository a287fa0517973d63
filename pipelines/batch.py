"""Frames that wait for one commit, and their columns: built at once, column by column, when the commit is due."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from connectors.base import Boundary, Frame, Kind
from pipelines.bronze_table import SCHEMA

FRAME_BYTES: Final = 200
"""Memory of a frame beside its body, in bytes, about: so that empty frames count too."""


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
    """The frames from position ``first`` on, in order.

    They are kept as columns of plain objects: a million of tuples would keep the garbage collector busy.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.size = 0
        """Memory the frames take, in bytes, about."""
        self._bodies: list[bytes] = []
        self._kinds: list[Kind] = []
        self._boundaries: list[Boundary] = []
        self._streams: list[str | None] = []
        self._source_positions: list[str | None] = []
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return len(self._bodies)

    def add(self, frames: Sequence[Frame], epoch: int, received_at: int) -> int:
        """Take frames that arrived together, in microseconds since 1970, and return the memory they take."""
        bodies, kinds, boundaries, streams, source_positions = zip(*frames, strict=True)
        self._bodies += bodies
        self._kinds += kinds
        self._boundaries += boundaries
        self._streams += streams
        self._source_positions += source_positions
        self._runs.append(_Run(len(bodies), epoch, received_at))
        size = sum(map(len, bodies)) + FRAME_BYTES * len(bodies)
        self.size += size
        return size

    def prepare(self) -> Prepared:
        """Return the frames as one commit."""
        counts, epochs, stamps = (np.array(column, np.int64) for column in zip(*self._runs, strict=True))
        epoch = np.repeat(epochs.astype(np.int32), counts)
        columns = [
            pa.array(np.arange(self.first, self.first + len(self), dtype=np.int64)),
            pa.array(epoch),
            pa.array(np.repeat(stamps, counts)).cast(SCHEMA.field("received_at").type),
            pa.array(self._streams, pa.string()),
            pa.array(self._kinds, pa.string()),
            pa.array(self._boundaries, pa.string()),
            pa.array(self._source_positions, pa.string()),
            pa.array(self._bodies, pa.binary()),
        ]
        marks = tuple(self._mark(at, int(epoch[at])) for at in _places(self._kinds, Kind.MARK))
        table = pa.Table.from_arrays(columns, schema=SCHEMA)
        return Prepared(self.first, self.size, table, marks, self._reached())

    def _reached(self) -> dict[str, str]:
        if self._source_positions.count(None) == len(self):
            return {}
        pairs = zip(self._streams, self._source_positions, strict=True)
        return {stream: position for stream, position in pairs if stream is not None and position is not None}

    def _mark(self, at: int, epoch: int) -> LandedMark:
        details = json.loads(self._bodies[at])
        name = details.pop("mark")
        own = {key: value for key, value in details.items() if key not in {"body", "event"}}
        return LandedMark(name, {**own, "frame_seq": self.first + at, "epoch": epoch, "stream": self._streams[at]})


def _places(kinds: Sequence[Kind], wanted: Kind) -> Iterator[int]:
    at = -1
    for _ in range(kinds.count(wanted)):
        at = kinds.index(wanted, at + 1)
        yield at
