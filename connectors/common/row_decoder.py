"""Common base of decoders that do not fold and whose rows change one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from silverfold.conf.errors import NullKey, of_decoder
from silverfold.connectors.base import MOST_BAD, Cut, CutStatistics, Decoder, TableT, Undecodable
from silverfold.connectors.common.arrow_rows import ArrowRows, Step
from silverfold.connectors.common.change_rows import error_rows
from silverfold.transforms.changes import complete, struct_type


def statistics_of_changes(changes: DataFrame) -> CutStatistics:
    """Return the number of changes, and the frames with a row that has an ``error`` or a NULL in its key.

    Folding finds the rest. Runs one Spark job, which decodes every frame and collects one row; another if there are
    such frames.
    """
    rows = complete(changes)
    error = _row_error(rows)
    row = rows.agg(F.count_if(F.col("error").isNull()).alias("changes"), F.count(error).alias("bad")).first()
    assert row is not None
    bad = _bad_frames(rows, error) if row.bad else ()
    return CutStatistics(bad=bad, changes=row.changes, bounds={}, wide_ranges=0, counters={})


def _bad_frames(rows: DataFrame, error: Column) -> list[Undecodable]:
    bad = rows.select("frame_seq", error.alias("error")).where("error IS NOT NULL")
    first = bad.groupBy("frame_seq").agg(F.min("error").alias("error")).orderBy("frame_seq").limit(MOST_BAD)
    return [Undecodable(row.frame_seq, row.error.error_class, row.error.reason) for row in first.collect()]


def _row_error(changes: DataFrame) -> Column:
    """Return the row's error, or a null-key error if the decoder did not report one."""
    key = struct_type(changes, "key")
    nulls = [F.col("key").isNull(), *(F.col("key").getField(name).isNull() for name in key.names)]
    null_key = F.struct(F.lit(NullKey.error_class).alias("error_class"), F.lit("a key is NULL").alias("reason"))
    return F.coalesce(F.col("error"), F.when(reduce(or_, nulls), null_key))


@dataclass(frozen=True)
class EachFrame:
    """A step that decodes independent frames. A frame on which it fails becomes an error row.

    A failure is a bug, so rare: then each frame of the batch is decoded alone. Picklable, like the step.

    Args:
        step: Maps frames, with a ``frame_seq`` column, to change rows.
        type: Schema of the change rows.
    """

    step: Step
    type: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows for batches of frames."""
        for batch in batches:
            yield from self._changes(batch)

    def _changes(self, frames: pa.RecordBatch) -> list[pa.RecordBatch]:
        try:
            return list(self.step(iter([frames])))
        except Exception as error:
            if frames.num_rows > 1:
                return [changes for at in range(frames.num_rows) for changes in self._changes(frames.slice(at, 1))]
            if isinstance(error, MemoryError):  # no fault of the frame
                raise
            return [error_rows(self.type, frames["frame_seq"], [of_decoder(error)])]


class FrameReader(Protocol):
    """Decodes the frames of one table in one cut. Picklable."""

    @property
    def type(self) -> pa.Schema:
        """Schema of the change rows."""

    def read(self, positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of frames, in no order; for what cannot be decoded, rows with ``error``."""


@dataclass(frozen=True)
class _Read:
    reader: FrameReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.reader.read(batch.column("frame_seq").to_pylist(), batch.column("body").to_pylist())


def decode_frames(frames: ArrowRows, reader: FrameReader) -> ArrowRows:
    """Return the change rows that a reader makes of frames; see `EachFrame`. Lazy in Spark."""
    return frames.run(EachFrame(_Read(reader), reader.type), reader.type, "frame_seq", "body")


class UnfoldedDecoder(Decoder[TableT]):
    """Base of decoders that do not fold. Each frame with changes is one update, or belongs to a snapshot."""

    def statistics(self, frames: ArrowRows, context: Any, cut: Cut, table: TableT) -> CutStatistics:
        """Decode every frame; see `statistics_of_changes`."""
        return statistics_of_changes(self.changes(frames, context, cut, table).dataframe())
