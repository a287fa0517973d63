"""A cut to be applied: its frames, read from bronze, and what its decoder counts of them before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import UndecodableFrame
from silverfold.connectors.base import NO_STATISTICS, Cut, CutStatistics
from silverfold.connectors.common.arrow_rows import ArrowRows, InProcess, InSpark
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.landing.bronze import CARRYING, Landing, files_between, inside, landing_in, read_cut
from silverfold.pipelines.store import open_table
from silverfold.transforms.spark_errors import named_errors

_FRAME = "frame_seq LONG, epoch INT, stream STRING, kind STRING, boundary STRING, body BINARY"
"""Columns of bronze needed for decoding. delta-rs finds the files in the log, without a Spark job."""

_SKIPPED_FRAMES = "skipped_frames"
"""Note of a cut: the number of frames left out of it."""


@dataclass(frozen=True)
class CutJob:
    """One cut to be applied to one silver table.

    Args:
        frames: The cut's landed frames.
        landing: Bronze's record of the cut's last frame, read with the frames; None if there is none.
        context: The decoder's context.
        statistics: Statistics of the frames; `connectors.base.NO_STATISTICS`, and skipped frames, if none were taken.
        is_checked: The statistics were taken: every frame can be decoded.
        later: Columns that the source gains after the cut; until then they are NULL to the table's rules.
    """

    silver: SilverTable
    cut: Cut
    frames: ArrowRows
    landing: Landing | None
    context: Any
    statistics: CutStatistics
    is_checked: bool
    later: Sequence[T.StructField]


def read_job(
    silver: SilverTable, cut: Cut, context: Any, *, later: Sequence[T.StructField], check: bool = False
) -> CutJob:
    """Read the frames of a cut, and take their statistics if the cut needs them before it is applied.

    Args:
        check: Look at every frame in any case: a bad one is likely.

    Raises:
        UndecodableFrame: Statistics were taken; names the first bad frame.
        ApplyError, StoreUnavailable: The frames cannot be read now.
    """
    bronze = open_table(silver.places.bronze(silver.feed.name))
    frames = read_frames(silver, bronze, cut)
    is_needed = needs_statistics(silver, context, cut)
    found = statistics_of(silver, frames, context, cut) if is_needed or check else NO_STATISTICS
    counted = found if is_needed else NO_STATISTICS  # else the fold counts the same again
    skipped = {_SKIPPED_FRAMES: len(cut.left_out)} if cut.left_out else {}
    return CutJob(
        silver=silver,
        cut=cut,
        frames=frames,
        landing=None if bronze is None else landing_in(bronze, cut.last),
        context=context,
        statistics=counted._replace(counters={**counted.counters, **skipped}),
        is_checked=is_needed or check,
        later=later,
    )


def read_frames(silver: SilverTable, bronze: DeltaTable | None, cut: Cut) -> ArrowRows:
    """Return the frames of a cut to be decoded; few frames are read in this process, without Spark.

    Args:
        bronze: The open bronze table; None if it does not exist.

    Raises:
        ApplyError, StoreUnavailable: They cannot be read now.
    """
    few, session = read_cut(bronze, cut), silver.session  # columns need a running session
    if few is not None:
        return InProcess(session, few)
    with named_errors(silver.name):
        files = files_between(silver.places.bronze(silver.feed.name), bronze, cut.spans[0][0], cut.spans[-1][1])
        frames = session.read.schema(_FRAME).parquet(*files)
        wanted = F.col("kind").isin(*CARRYING) & (F.col("stream") == cut.stream)
        left_out = F.col("frame_seq").isin(*cut.left_out)
        return InSpark(frames.where(inside(F.col("frame_seq"), cut.spans) & wanted & ~left_out))


def needs_statistics(silver: SilverTable, context: Any, cut: Cut) -> bool:
    """Return whether a cut needs statistics before it is applied.

    A replacing cut does not, nor does one folded by the engine, which counts as it folds. Both do if the decoder may
    find counters to report.
    """
    counted_on_the_way = cut.replaces or not silver.connector.folds
    with silver.decoding():
        return not counted_on_the_way or silver.decoder.has_counters(context, cut, silver.conf)


def statistics_of(silver: SilverTable, frames: ArrowRows, context: Any, cut: Cut) -> CutStatistics:
    """Return statistics of a cut that can be decoded. Runs one Spark job at most.

    Raises:
        UndecodableFrame: Names the first bad frame, and as ``others`` those after it.
        ApplyError: The cut cannot be read. Subclasses give the reason.
    """
    with named_errors(silver.name), silver.decoding():
        found = silver.decoder.statistics(frames, context, cut, silver.conf)
    if found.bad:
        first, *others = [
            UndecodableFrame(table=silver.name, position=at, cause_class=cause, reason=reason)
            for at, cause, reason in found.bad
        ]
        first.others = tuple(others)
        raise first
    return found
