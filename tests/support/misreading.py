"""A faulty decoder: fails on some frames that the real decoder reads. Removing it is the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from silverfold.conf.model import Table
from silverfold.connectors.base import Cut, CutStatistics, Decoder
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.frames import ControlFrame
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.landing.bronze import STREAM_COLUMNS
from silverfold.pipelines.landing.bronze_table import SCHEMA
from tests.support.deephaven.vectors import VECTORS

UNREADABLE = VECTORS["unknown-template"].body


@dataclass(frozen=True)
class Misreading:
    """A decoder that fails on some frames.

    Args:
        decoder: Decodes the other frames.
        bad: Returns whether the frame at a position fails; frames without rows never fail.
    """

    decoder: Decoder
    bad: Callable[[int], bool]

    def context(self, control: Iterable[ControlFrame]) -> Any:
        return self.decoder.context(control)

    def row_type(self, context: Any, cut: Cut, table: Table) -> StructType:
        return self.decoder.row_type(context, cut, table)

    def has_counters(self, context: Any, cut: Cut, table: Table) -> bool:
        return self.decoder.has_counters(context, cut, table)

    def statistics(self, frames: ArrowRows, *cut: Any) -> CutStatistics:
        return self.decoder.statistics(self._misread(frames), *cut)

    def changes(self, frames: ArrowRows, *cut: Any) -> ArrowRows:
        return self.decoder.changes(self._misread(frames), *cut)

    def versions(self, frames: ArrowRows, *cut: Any) -> ArrowRows:
        return self.decoder.versions(self._misread(frames), *cut)

    def removed_ranges(self, frames: ArrowRows, *cut: Any) -> ArrowRows:
        return self.decoder.removed_ranges(self._misread(frames), *cut)

    def _misread(self, frames: ArrowRows) -> ArrowRows:
        kind = pa.schema([SCHEMA.field(name) for name in STREAM_COLUMNS])
        return frames.run(_Spoil(self.bad, kind), kind, *STREAM_COLUMNS)


@dataclass(frozen=True)
class _Spoil:
    bad: Callable[[int], bool]
    kind: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            bad = pa.array([self.bad(position) for position in batch["frame_seq"].to_pylist()], pa.bool_())
            spoilt = pc.and_(bad, pc.equal(batch["boundary"], "inside"))
            body = pc.if_else(spoilt, pa.scalar(UNREADABLE, pa.binary()), batch["body"])
            yield pa.RecordBatch.from_arrays([*batch.columns[:-1], body], schema=self.kind)


def misreading(feed_build: FeedBuild, bad: Callable[[int], bool]) -> FeedBuild:
    """Give every table of the build a faulty decoder."""
    feed_build.tables = {
        name: replace(silver, decoder=Misreading(silver.decoder, bad)) for name, silver in feed_build.tables.items()
    }
    return feed_build
