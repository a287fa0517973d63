"""Write a checked cut: companion tables first, then the silver table's commit, which makes all of them count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import ApplyError, Overtaken, RebuildNeeded, SchemaDrift
from silverfold.connectors.base import Cut, CutStatistics, TableKind
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.pipelines.applying.beside import Counting
from silverfold.pipelines.applying.check import Checked, check_cut
from silverfold.pipelines.applying.cut_job import LAST_KEY, ORDINAL, CutJob, prepare, without_errors
from silverfold.pipelines.applying.cuts import history_id, position_in, recorded_in, tombstones_id
from silverfold.pipelines.applying.fold_cut import Folded, fold_cut
from silverfold.pipelines.applying.target import Target
from silverfold.pipelines.store import is_small
from silverfold.pipelines.upkeep.swap import Live, failed_by_move, merged_version, replace_beside, unless_moved
from silverfold.transforms.changes import DELETE, INSERT, complete, typed_as
from silverfold.transforms.evolve import follow
from silverfold.transforms.history import Moments, keep_history
from silverfold.transforms.merge import (
    AT_HAND,
    OP,
    POSITION,
    WHOLE_FILES,
    Recorded,
    append,
    begun,
    merge,
    net_rows,
    overwrite,
    replace,
)
from silverfold.transforms.sql import quoted
from silverfold.transforms.tombstones import write_tombstones


def apply_cut(
    target: Target,
    frames: ArrowRows,
    context: Any,
    cut: Cut,
    statistics: CutStatistics,
    *,
    later: Sequence[T.StructField],
) -> int | None:
    """Apply one cut to one table, in one commit of the table. Runs Spark jobs; safe to repeat.

    Args:
        later: Columns that the source gains after this cut. Until then they are NULL to the table's rules.

    Returns:
        `CutJob.generation`. If the table's log records a later one by then, the cut was not applied. None if there was
        nothing to do.

    Raises:
        ApplyError: The cut cannot be applied. The table and the companion rows that count are unchanged. Subclasses
            give the reason.
    """
    with ExitStack() as cache:
        job = prepare(target, frames, context, cut, statistics, later=later, cache=cache)
        if job is None:
            return None
        if target.table_kind is TableKind.STATE:
            folded = fold_cut(job)
            _write(job, folded, check_cut(job, folded))
        else:
            _append_rows(job)
        return job.generation


def _append_rows(job: CutJob) -> None:
    """Append to a changelog or append table."""
    target = job.target
    rows = _log_rows(job) if target.table_kind is TableKind.CHANGELOG else _rows_to_append(job)
    _follow_source(job)
    with _unless_moved(job, rows) as guarded:
        recorded = job.recorded(target.app_id, job.statistics.counters)
        append(_select_columns(guarded, job.columns), target.place.url, recorded=recorded)


@contextmanager
def _unless_moved(job: CutJob, rows: DataFrame) -> Iterator[DataFrame]:
    """Yield the rows for a write that is valid only while the table is unchanged.

    Raises:
        Overtaken: It has changed.
    """
    target = job.target
    live = Live(target.place, target.app_id, recorded_in(job.opened.table, target.app_id))
    try:
        yield unless_moved(rows, live)
    except ApplyError as error:
        if failed_by_move(error):
            raise Overtaken("another process wrote the table first; try again", table=target.name) from error
        raise


def _write(job: CutJob, folded: Folded, checked: Checked) -> None:
    """Write all tables in order. A partial write after a crash counts for nothing and is repeated in full."""
    target = job.target
    beside = Counting(
        history=_write_history(job, folded, checked) if target.table.keeps_history else None,
        tombstones=_write_tombstones(job, folded, checked) if target.connector.source_ordered else None,
        aside=_write_aside(job, checked.side_rows),
    )
    _write_table(job, folded, checked, beside)


def _follow_source(job: CutJob) -> list[str]:
    """Apply schema changes that need commits of their own; return the columns that come with the cut's rows.

    New columns are not added before the rows: a cut that ends earlier lacks them. That happens after a crash, or with a
    builder that has seen fewer frames.
    """
    if job.drift is None:
        return []
    follow(job.target.session, job.target.place.url, job.drift._replace(added=()))
    return [field.name for field in job.drift.added]


def _write_table(job: CutJob, folded: Folded, checked: Checked, beside: Counting) -> None:
    """Write the silver table.

    Other builds may have applied part of the cut meanwhile. The result is the same, because `transforms.merge` writes a
    row only at a higher position. Two cases need a guard: no table to merge into, and builds under other settings.
    """
    target, rows, cut = job.target, checked.rows, job.cut
    recorded = job.recorded(target.app_id, checked.notes, beside=beside)
    new = _follow_source(job)
    if job.current is None:
        first = rows if cut.replaces else begun(rows, upsert=target.upsert)
        with _unless_moved(job, _select_columns(first, job.columns)) as guarded:
            append(guarded, target.place.url, recorded=recorded)
    elif job.has_other_settings:
        with _unless_moved(job, rows) as guarded:
            _change(job, guarded, recorded, new=new, bounds=folded.bounds, options={})
    else:
        _change(job, rows, recorded, new=new, bounds=folded.bounds, options=_merge_options(job))


def _change(
    job: CutJob,
    rows: DataFrame,
    recorded: Recorded,
    *,
    new: Sequence[str],
    bounds: Mapping[str, tuple[int, int]],
    options: Mapping[str, str],
) -> None:
    """Change an existing table."""
    target = job.target
    if job.cut.replaces and job.renames:
        overwrite(_select_columns(rows, job.columns), target.place.url, recorded=recorded)
    elif job.cut.replaces:
        replace(rows, target.sql_name, keys=job.keys, recorded=recorded, new=new, options=options)
    else:
        merge(
            rows,
            target.sql_name,
            keys=job.keys,
            recorded=recorded,
            new=new,
            upsert=target.upsert,
            bounds={} if job.rekeyed else bounds,
            options={**options, **(WHOLE_FILES if is_small(job.opened.table) else {})},
        )


def _merge_options(job: CutJob) -> Mapping[str, str]:
    return AT_HAND if job.is_small else {}


def _write_history(job: CutJob, folded: Folded, checked: Checked) -> int:
    """Write the row versions of every update of the cut; return the resulting version of the history."""
    target, by_decoder = job.target, job.target.connector.folds
    app, opened = history_id(target.feed.name, target.name), job.opened.history.counts
    changes = _versions(job) if by_decoder else folded.changes
    recorded = job.recorded(app, checked.notes, behind=position_in(job.opened.history.newest, app))
    try:
        keep_history(
            changes,
            target.history.url,
            before=None if opened is None else target.read(target.history, opened),
            recorded=recorded,
            moments=Moments(target.connector.source_ordered, job.cut.snapshot_end),
            upsert=target.upsert,
            moves=folded.moves,
            ranges=_ranges_of_versions(job) if by_decoder else None,
            tombstones=job.tombstones,
            few=job.is_small,
            options={**_merge_options(job), **(WHOLE_FILES if is_small(opened) else {})},
        )
    except SchemaDrift as error:  # history was disabled for a while, and the table's schema changed meanwhile
        reason = f"its history does not fit the table: {str(error).removeprefix(f'{app}: ')}"
        raise RebuildNeeded(reason, feed=target.feed.name, table=target.name) from error
    return merged_version(target.history, recorded.metadata, before=job.opened.history.newest, table=target.name)


def _versions(job: CutJob) -> DataFrame:
    versions = job.target.decoder.versions(job.frames, job.context, job.cut, job.target.table)
    rows = without_errors(versions.dataframe())
    return job.cached(typed_as(rows, job.columns))


def _ranges_of_versions(job: CutJob) -> DataFrame | None:
    """Return wide ranges removed after the snapshot. A replacing cut may lack statistics that would find them."""
    cut, target = job.cut, job.target
    if not (job.statistics.wide_ranges or cut.replaces):
        return None
    later = job.frames if cut.snapshot_end is None else job.frames.after("frame_seq", cut.snapshot_end)
    return target.decoder.removed_ranges(later, job.context, cut, target.table).dataframe()


def _write_tombstones(job: CutJob, folded: Folded, checked: Checked) -> int:
    """Record the deletes; return the resulting version of the tombstones.

    A history needs every delete of a key: a late change may fall between two.
    """
    target, every = job.target, job.target.table.keeps_history
    app = tombstones_id(target.feed.name, target.name)
    recorded = job.recorded(app, checked.notes, behind=position_in(job.opened.tombstones.newest, app))
    deletes = complete(folded.changes).where(F.col("op") == DELETE)
    write_tombstones(
        net_rows(deletes, position="sequence") if every else net_rows(folded.net, position="position"),
        target.tombstones.url,
        keys=job.keys,
        recorded=recorded,
        tombstone_horizon=target.decoder.tombstone_horizon(job.context, job.cut, target.table),
        every=every,
    )
    return merged_version(target.tombstones, recorded.metadata, before=job.opened.tombstones.newest, table=target.name)


def _write_aside(job: CutJob, rows: DataFrame | None) -> int | None:
    """Write the side table unless it is unchanged; return its version, if any."""
    target, opened = job.target, job.opened
    if rows is None:
        if opened.side.is_settled:
            return None
        rows = target.session.read.format("delta").load(target.side_table.url).limit(0)
    elif opened.side.counts is not None and opened.side.is_settled and _is_unchanged(job, rows):
        return opened.side.counts.version()
    return replace_beside(rows, target.side_table, uuid4().hex, table=target.name)


def _is_unchanged(job: CutJob, rows: DataFrame) -> bool:
    return job.is_small and job.side_rows is not None and _have_equal_rows(job.side_rows, rows)


def _have_equal_rows(some: DataFrame, others: DataFrame) -> bool:
    """Return whether two small sets of rows are equal."""
    columns = [F.col(quoted(name)) for name in some.columns]
    one, other = (sorted(map(repr, rows.select(columns).toArrow().to_pylist())) for rows in (some, others))
    return one == other


def _rows_to_append(job: CutJob) -> DataFrame:
    """Return the rows to append. All columns depend on ``op``, which raises if a frame cannot be decoded."""
    position = F.when(F.col("op") == INSERT, F.col("frame_seq"))
    return job.changes.select(position.alias(POSITION), F.col("ordinal").alias(ORDINAL), "row.*")


def _log_rows(job: CutJob) -> DataFrame:
    net = net_rows(job.changes).withColumn(LAST_KEY, F.lit(None).cast("long"))
    (row_key,) = (name for name in job.key.names if name not in job.source.names)
    ranges = job.target.decoder.removed_ranges(job.frames, job.context, job.cut, job.target.table)
    removed = ranges.dataframe().select(
        F.lit(DELETE).alias(OP),
        F.col("frame_seq").alias(POSITION),
        F.col("first_key").alias(row_key),
        F.col("last_key").alias(LAST_KEY),
    )
    return net.unionByName(removed, allowMissingColumns=True)


def _select_columns(rows: DataFrame, columns: T.StructType) -> DataFrame:
    return rows.select([F.col(quoted(field.name)).cast(field.dataType).alias(field.name) for field in columns])
