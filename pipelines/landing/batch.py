"""Frames pending for one commit, and their columns: built at once, column by column, when the commit is due."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.pipelines.landing.bronze_table import SCHEMA

FRAME_BYTES: Final = 200
"""Approximate memory per frame in addition to its body, in bytes, so that empty frames count too."""


WARNING: Final = "warning"
"""Value of a mark's detail ``level`` for a warning."""

_LAST = {Boundary.END, Boundary.WHOLE}
_OF_RUNS = pa.schema([field for field in SCHEMA if field.name not in {"frame_seq", "body"}])
_LOGGED_AS: Final = {"epoch": "source_epoch"}
"""Names of a mark's own details in the log, beside those of its frame."""
_body, _all_but_body = itemgetter(0), itemgetter(1, 2, 3, 4)


class Run(NamedTuple):
    """Consecutive frames that differ only in their bodies."""

    frames: int
    epoch: int
    received_at: int
    kind: Kind
    boundary: Boundary
    stream: str | None
    source_position: str | None


class Added(NamedTuple):
    """What `Batch.add` took."""

    size: int
    """Approximate memory of the frames, in bytes."""
    ended: bool
    """They include the end of an update."""
    runs: Sequence[Run]


class LandedMark(NamedTuple):
    """A mark as it is logged."""

    name: str
    details: dict[str, Any]
    """Its own details except a retained body, and ``frame_seq``, ``epoch`` and ``stream``.

    Its own ``epoch``, the source's, is ``source_epoch``.
    """
    warns: bool


class PreparedCommit(NamedTuple):
    """One commit, ready to be written."""

    first: int
    """Position of its first frame."""
    size: int
    """Approximate memory of its frames, in bytes."""
    table: pa.Table
    marks: tuple[LandedMark, ...]
    source_positions: Mapping[str, str]
    """Per stream, the last source position in it."""


class Batch:
    """The frames from position ``first`` on, in order.

    They are stored as bodies and runs: most frames of a large number differ from the previous one only in the body.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.size = 0
        """Approximate memory of the frames, in bytes."""
        self._bodies: list[bytes] = []
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return len(self._bodies)

    def add(self, frames: Sequence[Frame], epoch: int, received_at: int) -> Added:
        """Add frames that arrived together at ``received_at``, in microseconds since 1970."""
        bodies = list(map(_body, frames))
        runs = [Run(len(list(group)), epoch, received_at, *what) for what, group in groupby(map(_all_but_body, frames))]
        self._bodies += bodies
        self._runs += runs
        size = sum(map(len, bodies)) + FRAME_BYTES * len(bodies)
        self.size += size
        return Added(size, any(run.boundary in _LAST for run in runs), runs)

    def prepare(self) -> PreparedCommit:
        """Return the frames as one commit."""
        counts, epochs, stamps, kinds, boundaries, streams, source_positions = zip(*self._runs, strict=True)
        runs = pa.Table.from_arrays(
            [
                pa.array(epochs, pa.int32()),
                pa.array(stamps, SCHEMA.field("received_at").type),
                pa.array(streams, pa.string()),
                pa.array(kinds, pa.string()),
                pa.array(boundaries, pa.string()),
                pa.array(source_positions, pa.string()),
            ],
            schema=_OF_RUNS,
        )
        positions = pa.array(np.arange(self.first, self.first + len(self), dtype=np.int64))
        columns = runs.take(pa.array(np.repeat(np.arange(len(counts)), counts))).columns
        table = pa.Table.from_arrays([positions, *columns, pa.array(self._bodies, pa.binary())], schema=SCHEMA)
        reached = {
            run.stream: run.source_position
            for run in self._runs
            if run.stream is not None and run.source_position is not None
        }
        return PreparedCommit(self.first, self.size, table, tuple(self._marks()), reached)

    def _marks(self) -> Iterator[LandedMark]:
        at = 0
        for run in self._runs:
            if run.kind is Kind.MARK:
                yield from (self._mark(place, run) for place in range(at, at + run.frames))
            at += run.frames

    def _mark(self, at: int, run: Run) -> LandedMark:
        details = json.loads(self._bodies[at])
        name, warns = details.pop("mark"), details.pop("level", None) == WARNING
        own = {_LOGGED_AS.get(key, key): value for key, value in details.items() if key not in {"body", "event"}}
        return LandedMark(name, {**own, "frame_seq": self.first + at, "epoch": run.epoch, "stream": run.stream}, warns)
