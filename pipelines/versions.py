"""Keeps the history of a table whose decoder folds the updates of a cut: asks it for each of them.

For connectors whose decoder does not fold see `pipelines.folding`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.cuts import history_id
from pipelines.work import Work, decoded
from transforms.changes import cached, typed_as
from transforms.history import Moments, keep_history


def keep_versions(work: Work, columns: StructType) -> None:
    """Write what every update of the cut makes of its rows. Runs Spark jobs; safe to repeat.

    Args:
        columns: The table's, which may be wider than the source's are now.

    Raises:
        ApplyError: Spark or Delta refused, or a frame cannot be decoded. The history stands as it was.
    """
    target = work.target
    told = decoded(target.decoder.versions(work.frames, work.context, work.cut, target.table))
    keep_history(
        work.kept.enter_context(cached(typed_as(told, columns))),
        target.history.url,
        recorded=work.recorded(history_id(target.feed.name, target.name)),
        moments=Moments(settled=work.cut.settled),
        upsert=target.upsert,
        ranges=_removed_ranges(work),
    )


def _removed_ranges(work: Work) -> DataFrame | None:
    """Return the wide ranges removed after the snapshot; a cut that replaces may not have been surveyed for any."""
    cut, target = work.cut, work.target
    if not (work.survey.wide_ranges or cut.replaces):
        return None
    later = work.frames if cut.settled is None else work.frames.where(F.col("frame_seq") > cut.settled)
    return target.decoder.removed_ranges(later, work.context, cut, target.table)
