"""Find complete updates in bronze's small columns, batch by batch, without reading a body.

Complete updates, within one stream and one epoch; frames of other streams may lie between:

- from a ``begin`` to the next ``end``, or a single ``whole`` frame;
- a ``whole`` data frame inside an open snapshot is an update of its own, and the snapshot stays open;
- any other ``begin`` or ``whole`` inside an open update voids the open one, and an ``end`` without ``begin`` ends
  nothing: our receivers land neither, so this strictness loses nothing;
- an update is a snapshot unless its first frame is of kind ``data``. First and last frame may be marks, where a
  snapshot's window is wider than its rows. One that begins with a mark was requested at that point (``asked``).

The result does not depend on where batches end. numpy processes all frames of a batch at once: one structured array per
batch, one element per frame (`FRAME`) or update (`UPDATE`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.connectors.frames import Boundary, Kind

Frames: TypeAlias = npt.NDArray[np.void]
Updates: TypeAlias = npt.NDArray[np.void]
Bools: TypeAlias = npt.NDArray[np.bool_]
Indexes: TypeAlias = npt.NDArray[np.intp]

FRAME = np.dtype(
    [
        ("position", "i8"),
        ("epoch", "i4"),
        ("received", "i8"),  # µs since 1970 UTC
        ("stream", "i4"),  # index into the requested streams; -1 for any other
        ("kind", "i1"),
        ("boundary", "i1"),
        ("number", "i8"),  # counts the frames of its stream: adjacent frames have consecutive numbers
    ]
)
UPDATE = np.dtype(
    [
        ("begin", "i8"),  # position of the first frame
        ("end", "i8"),  # position of the last frame
        ("epoch", "i4"),
        ("first", "i8"),  # number of the first frame
        ("last", "i8"),  # number of the last frame
        ("snapshot", "?"),
        ("asked", "?"),  # a snapshot that includes everything landed before it began
        ("received", "i8"),  # when the last frame was received, in µs since 1970 UTC
    ]
)

_KINDS, _BOUNDARIES = tuple(Kind), tuple(Boundary)
_DATA, _SNAPSHOT, _MARK = (_KINDS.index(kind) for kind in (Kind.DATA, Kind.SNAPSHOT, Kind.MARK))
_BEGIN, _END, _WHOLE, _NONE = (
    _BOUNDARIES.index(boundary) for boundary in (Boundary.BEGIN, Boundary.END, Boundary.WHOLE, Boundary.NONE)
)


def read_frames(batch: pa.RecordBatch | pa.Table, streams: Sequence[str]) -> Frames:
    """Return a batch of bronze's small columns as an array. Strings may be plain or dictionary-encoded."""
    frames = np.zeros(batch.num_rows, FRAME)
    frames["position"] = _numbers(batch.column("frame_seq"))
    frames["epoch"] = _numbers(batch.column("epoch"))
    frames["received"] = _numbers(batch.column("received_at"))
    frames["stream"] = _codes(batch.column("stream"), streams)
    frames["kind"] = _codes(batch.column("kind"), _KINDS)
    frames["boundary"] = _codes(batch.column("boundary"), _BOUNDARIES)
    return frames


def by_stream(frames: Frames) -> Mapping[int, Frames]:
    """Split frames by stream, each part in order, without the frames that belong to no update."""
    kind, boundary = frames["kind"], frames["boundary"]
    mine = frames[(frames["stream"] >= 0) & ((boundary != _NONE) | (kind == _DATA) | (kind == _SNAPSHOT))]
    if not len(mine):
        return {}
    if (mine["stream"] != mine["stream"][0]).any():
        mine = mine[np.argsort(mine["stream"], kind="stable")]
    starts = np.flatnonzero(np.diff(mine["stream"], prepend=-1))
    parts = np.split(mine, starts[1:])
    return {int(part["stream"][0]): part for part in parts}


class UpdateFinder:
    """Finds the complete updates of one stream. Retains only the open update's first frame and a counter."""

    def __init__(self) -> None:
        self._frames = 0
        self._open = np.empty(0, FRAME)

    @property
    def open(self) -> tuple[int, int] | None:
        """Position and epoch of the first frame of the open update; None without one.

        Does not consider whether that epoch is still current.
        """
        if not len(self._open):
            return None
        return int(self._open["position"][0]), int(self._open["epoch"][0])

    def forget_open(self) -> None:
        """Drop the open update: its end will not be fed."""
        self._open = self._open[:0]

    def add_frames(self, frames: Frames) -> Updates:
        """Add the stream's next frames (`by_stream`); return the updates they complete, ordered by ``end``."""
        frames["number"] = np.arange(self._frames, self._frames + len(frames))
        self._frames += len(frames)
        is_event = np.isin(frames["boundary"], (_BEGIN, _END, _WHOLE))
        events = np.concatenate([self._open, frames[is_event]])
        if not len(events):
            return np.empty(0, UPDATE)
        chain = np.flatnonzero(~_inside_snapshot(events))
        newest = events[chain[-1:]]
        self._open = newest[newest["boundary"] == _BEGIN]
        return _completed_updates(events, chain)


def _inside_snapshot(events: Frames) -> Bools:
    """Return a mask of the ``whole`` data frames that leave an open snapshot open."""
    single = (events["boundary"] == _WHOLE) & (events["kind"] == _DATA)
    nearest = np.maximum.accumulate(np.where(single, -1, np.arange(len(events))))
    before = events[nearest]
    opens_snapshot = (before["boundary"] == _BEGIN) & (before["kind"] != _DATA) & (before["epoch"] == events["epoch"])
    inside: Bools = single & (nearest >= 0) & opens_snapshot
    return inside


def _completed_updates(events: Frames, chain: Indexes) -> Updates:
    """Return the updates that end among the events.

    Args:
        chain: Indexes of the events that begin, end or void one another.
    """
    links = events[chain]
    follows = (links["boundary"][1:] == _END) & (links["boundary"][:-1] == _BEGIN)
    ends = 1 + np.flatnonzero(follows & (links["epoch"][1:] == links["epoch"][:-1]))
    opener = np.arange(len(events))
    opener[chain[ends]] = chain[ends - 1]
    done = events["boundary"] == _WHOLE
    done[chain[ends]] = True
    return _pair_updates(opened=events[opener[done]], ended=events[done])


def _pair_updates(opened: Frames, ended: Frames) -> Updates:
    updates = np.empty(len(ended), UPDATE)
    updates["begin"], updates["first"] = opened["position"], opened["number"]
    updates["end"], updates["last"] = ended["position"], ended["number"]
    updates["epoch"], updates["received"] = ended["epoch"], ended["received"]
    updates["snapshot"], updates["asked"] = opened["kind"] != _DATA, opened["kind"] == _MARK
    return updates


def spans_of(updates: Updates) -> tuple[tuple[int, int], ...]:
    """Return spans of positions. Updates, ordered by ``begin``, are joined if no frame of the stream lies between."""
    reach = np.maximum.accumulate(updates["last"])
    ends = np.maximum.accumulate(updates["end"])
    starts = np.flatnonzero(np.append(True, updates["first"][1:] > reach[:-1] + 1))
    stops = np.append(starts[1:], len(updates)) - 1
    return tuple(zip(updates["begin"][starts].tolist(), ends[stops].tolist(), strict=True))


def _numbers(column: Any) -> Any:
    return _combined(column).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _codes(column: Any, names: Sequence[str]) -> Any:
    """Return each value's index in ``names``; -1 for null and for any other value."""
    values = _combined(column)
    known = pa.array([str(name) for name in names], pa.string())
    if not pa.types.is_dictionary(values.type):
        return _indexes(values, known)
    of_entry = np.append(_indexes(values.dictionary, known), -1)  # the last entry is for nulls
    entries = values.indices.cast(pa.int32()).fill_null(len(of_entry) - 1)
    return of_entry[entries.to_numpy(zero_copy_only=False)]


def _indexes(values: Any, known: Any) -> Any:
    return pc.index_in(values.cast(pa.string()), value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)


def _combined(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
