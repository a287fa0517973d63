"""Changes by columns: the result of the readers that read many records at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.connectors.common.change_rows import Bools, ChangeRows, names_sent
from silverfold.connectors.hstreamdb.decoder.landed_records import LandedRecords
from silverfold.connectors.hstreamdb.decoder.struct_members import Ints


class ColumnChanges(NamedTuple):
    """One change per record: a delete, a whole row, or an update of the columns sent."""

    good: Bools
    """Mask of the records that were read. Values of the others are undefined."""
    deleted: Bools
    cells: Sequence[pa.Array]
    sent: Sequence[Bools]
    """For each column, a mask of the records that have it."""


class RecordPositions:
    """Positions and ids of the records of some frames, which are numbered from 0, frame after frame."""

    def __init__(self, frames: Sequence[LandedRecords]) -> None:
        counts = [len(frame.records) for frame in frames]
        self._frame = np.repeat(np.arange(len(frames)), counts)
        self._position = np.repeat([frame.position for frame in frames], counts)
        self._ordinal = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        self._index = np.concatenate([frame.indexes for frame in frames])
        self._prefix = pa.array([f"{frame.shard_id:020d}-{frame.batch_id:020d}" for frame in frames])

    def __len__(self) -> int:
        return len(self._frame)

    def positions(self, records: Ints) -> pa.Array:
        """Return ``frame_seq`` of some records."""
        return pa.array(self._position[records], pa.int64())

    def ordinals(self, records: Ints) -> pa.Array:
        """Return ``ordinal`` of some records: their index in the frame."""
        return pa.array(self._ordinal[records])

    def sequences(self, records: Ints) -> pa.Array:
        """Return ``sequence`` of some records: text that sorts as their ids do."""
        index = pc.utf8_lpad(pa.array(self._index[records]).cast(pa.string()), 10, "0")
        return pc.binary_join_element_wise(self._prefix.take(pa.array(self._frame[records])), index, "-")


def column_batch(rows: ChangeRows, located: RecordPositions, records: Ints, found: ColumnChanges) -> pa.RecordBatch:
    """Return the change rows of those records that were read."""
    partial = ~found.deleted & found.good & ~np.all(found.sent, axis=0)
    batch = rows.batch(
        located.positions(records),
        pc.if_else(pa.array(found.deleted), "delete", "update"),
        found.cells,
        ordinals=located.ordinals(records),
        present=names_sent(rows.row.names, found.sent, partial),
        sequences=located.sequences(records),
    )
    return batch if found.good.all() else batch.filter(pa.array(found.good))
