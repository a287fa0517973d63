"""One cut's way into silver: decode → fold → check → write → read back (`pipelines.applying` names the modules).

The companion tables are written first. The silver table's commit comes last; it carries the position, names the
versions of the companion tables, and so makes all of them count.
"""

from __future__ import annotations

from contextlib import ExitStack

from deltalake import DeltaTable

from silverfold.conf.errors import Overtaken, PositionNotRecorded
from silverfold.connectors.base import TableKind
from silverfold.pipelines.applying.check import check_cut
from silverfold.pipelines.applying.cut_job import CutJob
from silverfold.pipelines.applying.decode import DecodedCut, decode_cut
from silverfold.pipelines.applying.fold_cut import fold_cut
from silverfold.pipelines.applying.roll_back import open_rolled_back
from silverfold.pipelines.applying.write import (
    companion_writes,
    follow_source,
    log_write,
    overtaken_if_moved,
    table_write,
)
from silverfold.pipelines.places import Place
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.companions import NO_VERSIONS
from silverfold.pipelines.storage.cuts import CutRow, from_commit, from_record, recorded_in
from silverfold.pipelines.storage.lease import sole_writer
from silverfold.pipelines.store import newest_commits, open_table
from silverfold.transforms.spark_errors import named_errors

_SMALL_CUT = 10_000
"""Largest number of updates for which adaptive execution costs more than it gains."""

_RECENT_COMMITS = 8
"""Number of commits to search for our own: only maintenance commits can be newer."""


def apply_cut(job: CutJob) -> CutRow | None:
    """Apply a cut to its table, in one commit of the table. Runs Spark jobs; safe to repeat.

    Returns:
        The applied cut; None if another builder had already come this far.

    Raises:
        ApplyError: The cut cannot be applied. The table and the companion rows that count are unchanged. Subclasses
            give the reason. It may be an undecodable frame unless `CutJob.is_checked`.
    """
    silver = job.silver
    silver.session.conf.set("spark.sql.adaptive.enabled", str(len(job.cut.begins) > _SMALL_CUT).lower())
    with sole_writer(silver.places, silver.feed.name, silver.name), named_errors(silver.name), ExitStack() as cache:
        silver.follow_settings()
        opened = open_rolled_back(silver)
        if opened.position >= job.cut.last:  # by another process: the columns may be those of later updates
            began = None
        else:
            began = opened.generation
            decoded = decode_cut(job, opened, cache)
            _write(decoded)
            silver.follow_settings(anew=decoded.overwrites)  # and those that the cut has made
    return read_back(job, began)


def _write(decoded: DecodedCut) -> None:
    """Fold and check a decoded cut, if its table has rows that change; then write it."""
    silver = decoded.silver
    if silver.table_kind is TableKind.STATE:
        folded = fold_cut(decoded)
        checked = check_cut(decoded, folded)
        versions = {part: write() for part, write in companion_writes(decoded, folded, checked).items()}
        new = follow_source(decoded)
        commit = table_write(decoded, folded, checked, NO_VERSIONS._replace(**versions), new)
    else:
        follow_source(decoded)
        commit = log_write(decoded)
    with overtaken_if_moved(silver.name):
        commit()


def read_back(job: CutJob, began: int | None) -> CutRow | None:
    """Return a cut from the table's log; None if another builder applied it, or others that reach further.

    Args:
        began: Generation of the table at the beginning of the cut; None if it had already come this far.

    Raises:
        Overtaken: A later generation was written meanwhile, and the cut was not.
        PositionNotRecorded: The log lacks the position after the cut's commit.
    """
    silver, last = job.silver, job.cut.last
    opened = open_table(silver.place)
    found, generation = from_record(recorded_in(opened, silver.app_id))
    if found < last and began is not None and generation != began:
        raise Overtaken("another rebuild, or build under other rules, wrote it meanwhile; try again", table=silver.name)
    if opened is None or found < last:
        raise PositionNotRecorded(f"the log says {found} after a commit for {last}", table=silver.name)
    return _cut_row(silver.place, opened, last, silver.token) if found == last else None


def _cut_row(place: Place, opened: DeltaTable, position: int, token: str) -> CutRow | None:
    """Return the result of our commit that reached the position; None if it is another builder's, or too old."""
    for commit in newest_commits(place, opened, _RECENT_COMMITS):
        note = CommitNote.from_json(commit.get("userMetadata"))
        if note is not None and note.last_position == position:
            return from_commit(commit) if note.by == token else None
    return None
