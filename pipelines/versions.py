"""Keeps the history of a table whose decoder folds the updates of a cut: asks it for each of them.

For connectors whose decoder does not fold see `pipelines.folding`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.work import Work, decoded
from transforms.changes import cached, complete
from transforms.history import Moments, keep_history


def keep_versions(work: Work) -> None:
    """Write what every update of the cut makes of its rows. Runs Spark jobs; safe to repeat.

    Raises:
        ApplyError: Spark or Delta refused, or a frame cannot be decoded. The history stands as it was.
    """
    target = work.target
    told = complete(target.decoder.versions(work.frames, work.context, work.cut, target.table)).where(decoded())
    keep_history(
        work.kept.enter_context(cached(told)),
        target.history.url,
        recorded=work.recorded(f"history/{target.feed.name}/{target.name}"),
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
