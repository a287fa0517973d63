"""Common base of decoders that do not fold and whose rows change one at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from conf.errors import of_decoder
from conf.model import Table
from connectors.common.arrow_rows import ArrowRows, Step
from connectors.base import Cut, CutStatistics
from connectors.common.cut_statistics import statistics_of_changes


@dataclass(frozen=True)
class EachFrame:
    """A step that decodes independent frames. A frame on which it fails becomes an error row.

    Picklable, like the step.

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
            return [self._error_batch(frames["frame_seq"][0].as_py(), error)]

    def _error_batch(self, position: int, error: Exception) -> pa.RecordBatch:
        error_class, reason = of_decoder(error)
        details = {"error_class": error_class, "reason": reason}
        return pa.RecordBatch.from_pylist([{"frame_seq": position, "error": details}], self.type)


class UnfoldedDecoder(ABC):
    """Partial `connectors.base.Decoder`. Each frame with changes is one update, or belongs to a snapshot."""

    @abstractmethod
    def changes(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """See `connectors.base.Decoder.changes`."""

    def statistics(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> CutStatistics:
        """Decode every frame once. Runs one Spark job; collects one row."""
        return statistics_of_changes(self.changes(frames, context, cut, table).dataframe())

    def has_counters(self, context: Any, cut: Cut, table: Table) -> bool:
        """Return False: there are no counters."""
        return False

    def versions(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """Return the same as `changes`: updates are already separate."""
        return self.changes(frames, context, cut, table)

    def removed_ranges(self, frames: ArrowRows, context: Any, cut: Cut, table: Table) -> ArrowRows:
        """Raise AssertionError: rows are removed one by one, so the statistics never report a range."""
        raise AssertionError("no range of rows is removed")

    def tombstone_horizon(self, context: Any, cut: Cut, table: Table) -> str | None:
        """Return None: frames land in source order, so no tombstone is needed."""
        return None
