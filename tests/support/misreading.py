"""A decoder with a fault: it cannot read some frames, which the true decoder can. Taking it away is the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from conf.model import Table
from connectors.base import ControlFrame, Cut, Decoder, Survey
from pipelines.build import FeedBuild
from tests.support.deephaven_vectors import VECTORS

UNREADABLE = VECTORS["unknown-template"].body


@dataclass(frozen=True)
class Misreading:
    """A decoder that takes some frames for something else.

    Args:
        decoder: Reads the others.
        bad: From positions, which frames it cannot read; frames that carry no rows are never among them.
    """

    decoder: Decoder
    bad: Callable[[Column], Column]

    def context(self, control: Iterable[ControlFrame]) -> Any:
        return self.decoder.context(control)

    def row_type(self, context: Any, cut: Cut, table: Table) -> StructType:
        return self.decoder.row_type(context, cut, table)

    def tells_notes(self, context: Any, cut: Cut, table: Table) -> bool:
        return self.decoder.tells_notes(context, cut, table)

    def survey(self, frames: DataFrame, *cut: Any) -> Survey:
        return self.decoder.survey(self._misread(frames), *cut)

    def changes(self, frames: DataFrame, *cut: Any) -> DataFrame:
        return self.decoder.changes(self._misread(frames), *cut)

    def versions(self, frames: DataFrame, *cut: Any) -> DataFrame:
        return self.decoder.versions(self._misread(frames), *cut)

    def removed_ranges(self, frames: DataFrame, *cut: Any) -> DataFrame:
        return self.decoder.removed_ranges(self._misread(frames), *cut)

    def _misread(self, frames: DataFrame) -> DataFrame:
        bad = self.bad(F.col("frame_seq")) & (F.col("boundary") == "inside")
        return frames.withColumn("body", F.when(bad, F.lit(UNREADABLE)).otherwise(F.col("body")))


def misreading(feed_build: FeedBuild, bad: Callable[[Column], Column]) -> FeedBuild:
    """Give every table of the build a decoder with a fault."""
    for silver in feed_build.tables.values():
        silver.target = replace(silver.target, decoder=Misreading(silver.decoder, bad))
    return feed_build
