"""One silver table, cut by cut: take statistics, apply the cut, and read back what its commit did.

The table's own Delta log holds the position (``txnAppId = apply/<feed>/<table>``); there is no separate checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import Overtaken, PositionNotRecorded, UndecodableFrame
from silverfold.conf.model import Table
from silverfold.connectors.base import Connector, Cut, CutStatistics, Decoder, Feed
from silverfold.connectors.common.arrow_rows import ArrowRows, InProcess, InSpark
from silverfold.pipelines.applying.commit_note import CommitNote
from silverfold.pipelines.applying.cuts import CutRow, from_commit, from_record, recorded_in
from silverfold.pipelines.applying.settle import settle
from silverfold.pipelines.applying.target import Target
from silverfold.pipelines.applying.write import apply_cut
from silverfold.pipelines.landing.bronze import CARRYING, files_between, inside, read_cut
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.lease import sole_writer
from silverfold.transforms.spark_errors import named_errors

_FRAME = "frame_seq LONG, epoch INT, stream STRING, kind STRING, boundary STRING, body BINARY"
"""Columns of bronze needed for decoding. delta-rs finds the files in the log, without a Spark job."""

_SMALL_CUT = 10_000
"""Largest number of updates for which adaptive execution costs more than it gains."""

_RECENT_COMMITS = 8
"""Number of commits to search for our own: only maintenance commits can be newer."""


@dataclass
class SilverTable:
    """One silver table of a feed.

    Args:
        spark: As `Target.start`.
    """

    spark: Callable[[], SparkSession]
    feed: Feed
    connector: Connector
    name: str
    places: Places
    target: Target = field(init=False)

    def __post_init__(self) -> None:
        decoder = self.connector.decoder(self.feed)
        self.target = Target(self.spark, self.feed, self.connector, decoder, self.name, self.places)

    @property
    def table(self) -> Table:
        """The table's settings."""
        return self.target.table

    @property
    def session(self) -> SparkSession:
        """The table's own session."""
        return self.target.session

    @property
    def decoder(self) -> Decoder:
        """The feed's decoder."""
        return self.target.decoder

    @property
    def place(self) -> Place:
        """Location of the table."""
        return self.target.place

    @property
    def app_id(self) -> str:
        """Application id under which the commits carry the position."""
        return self.target.app_id

    def position(self) -> int:
        """Return the position the table has reached, read from its log; -1 for none."""
        return self.target.position()

    def frames(self, cut: Cut) -> ArrowRows:
        """Return the frames of a cut to be decoded; few frames are read in this process, without Spark.

        Raises:
            ApplyError, StoreUnavailable: They cannot be read now.
        """
        bronze = self.places.bronze(self.feed.name)
        few, session = read_cut(bronze, cut, cut.left_out), self.session  # columns need a running session
        if few is not None:
            return InProcess(session, few)
        with named_errors(self.name):
            files = files_between(bronze, cut.spans[0][0], cut.spans[-1][1])
            frames = session.read.schema(_FRAME).parquet(*files)
            wanted = F.col("kind").isin(*CARRYING) & (F.col("stream") == cut.stream)
            left_out = F.col("frame_seq").isin(*cut.left_out)
            return InSpark(frames.where(inside(F.col("frame_seq"), cut.spans) & wanted & ~left_out))

    def needs_statistics(self, context: Any, cut: Cut) -> bool:
        """Return whether the cut needs statistics before it is applied.

        A replacing cut does not, nor does one folded by the engine, which counts as it folds. Both do if the decoder
        may find counters to report.
        """
        counted_on_the_way = cut.replaces or not self.connector.folds
        return not counted_on_the_way or self.decoder.has_counters(context, cut, self.table)

    def statistics(self, frames: ArrowRows, context: Any, cut: Cut) -> CutStatistics:
        """Compute statistics of the cut before anything is written. Runs one Spark job at most.

        Raises:
            ApplyError: The cut cannot be read. Subclasses give the reason.
        """
        with named_errors(self.name):
            return self.decoder.statistics(frames, context, cut, self.table)

    def analyze(self, frames: ArrowRows, context: Any, cut: Cut) -> CutStatistics:
        """Return the same for a cut that can be decoded. Raises UndecodableFrame, naming the first bad frame."""
        found = self.statistics(frames, context, cut)
        if found.bad_position is not None:
            raise UndecodableFrame(
                table=self.name,
                position=found.bad_position,
                cause_class=found.bad_class or "",
                reason=found.bad_reason or "",
            )
        return found

    def apply(
        self,
        frames: ArrowRows,
        context: Any,
        cut: Cut,
        statistics: CutStatistics,
        *,
        later: Sequence[T.StructField] = (),
    ) -> CutRow | None:
        """Apply a cut in one commit. Safe to repeat.

        Args:
            statistics: `connectors.base.NO_STATISTICS` if none are needed.
            later: Columns that the source gains after the cut; until then they are NULL to the table's rules.

        Returns:
            The applied cut; None if another builder had already come this far.

        Raises:
            ApplyError: The cut cannot be applied; the table is unchanged. Subclasses give the reason. For a cut without
                statistics it may be an undecodable frame, which `analyze` then names.
        """
        self.session.conf.set("spark.sql.adaptive.enabled", str(len(cut.begins) > _SMALL_CUT).lower())
        with sole_writer(self.places, self.feed.name, self.name), named_errors(self.name):
            began = apply_cut(self.target, frames, context, cut, statistics, later=later)
        return self._read_back(cut, began)

    def settle(self) -> None:
        """Undo companion writes without a silver commit, as `pipelines.applying.settle` does."""
        with sole_writer(self.places, self.feed.name, self.name), named_errors(self.name):
            settle(self.target)

    def _read_back(self, cut: Cut, began: int | None) -> CutRow | None:
        opened = open_table(self.place)
        found, generation = from_record(recorded_in(opened, self.app_id))
        if found < cut.last and began is not None and generation != began:
            raise Overtaken(
                "another rebuild, or build under other rules, wrote it meanwhile; try again", table=self.name
            )
        if opened is None or found < cut.last:
            raise PositionNotRecorded(f"the log says {found} after a commit for {cut.last}", table=self.name)
        return _cut_row(opened, cut.last, self.target.token) if found == cut.last else None


def _cut_row(opened: DeltaTable, position: int, token: str) -> CutRow | None:
    """Return the result of our commit that reached the position; None if it is another builder's, or too old."""
    for commit in opened.history(_RECENT_COMMITS):
        note = CommitNote.from_json(commit.get("userMetadata"))
        if note is not None and note.last_position == position:
            return from_commit(commit) if note.by == token else None
    return None
