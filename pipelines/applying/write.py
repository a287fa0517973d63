"""The writes of a checked cut: its companion tables, and the silver table, whose commit makes all of them count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import ApplyError, Overtaken, RebuildNeeded, SchemaDrift
from silverfold.connectors.base import TableKind
from silverfold.pipelines.applying.check import CheckedCut
from silverfold.pipelines.applying.decode import LAST_KEY, ORDINAL, DecodedCut, without_errors
from silverfold.pipelines.applying.fold_cut import FoldedCut
from silverfold.pipelines.storage.companions import CompanionVersions, Part
from silverfold.pipelines.storage.cuts import history_id, position_in, tombstones_id
from silverfold.pipelines.storage.swap import Live, failed_by_move, merged_version, replace_companion, unless_moved
from silverfold.pipelines.store import is_small
from silverfold.transforms.changes import DELETE, INSERT, complete, typed_as
from silverfold.transforms.evolve import follow
from silverfold.transforms.history import Moments, write_history
from silverfold.transforms.merge import (
    AT_HAND,
    OP,
    POSITION,
    WHOLE_FILES,
    append,
    begun,
    merge,
    net_rows,
    overwrite,
    replace,
)
from silverfold.transforms.sql import quoted
from silverfold.transforms.tombstones import write_tombstones

Write: TypeAlias = Callable[[], int | None]
"""Writes a companion table; returns its version that counts once the silver table's commit names it."""


def companion_writes(decoded: DecodedCut, folded: FoldedCut, checked: CheckedCut) -> Mapping[Part, Write]:
    """Return the writes of a cut besides its table, in order. Each returns the version that counts from then on.

    None counts until the silver table's commit names it: a partial write after a crash is repeated in full.
    """
    writes: dict[Part, Write] = {}
    if decoded.silver.conf.keeps_history:
        writes["history"] = partial(_write_history, decoded, folded, checked)
    if decoded.silver.connector.source_ordered:
        writes["tombstones"] = partial(_write_tombstones, decoded, folded, checked)
    return writes | {"aside": partial(_write_side_table, decoded, checked.side_rows)}


def follow_source(decoded: DecodedCut) -> list[str]:
    """Apply schema changes that need commits of their own; return the columns that come with the cut's rows.

    New columns are not added before the rows: a cut that ends earlier lacks them. That happens after a crash, or with a
    builder that has seen fewer frames.
    """
    if decoded.drift is None:
        return []
    follow(decoded.silver.session, decoded.silver.place.url, decoded.drift._replace(added=()))
    return [field.name for field in decoded.drift.added]


def table_write(
    decoded: DecodedCut, folded: FoldedCut, checked: CheckedCut, versions: CompanionVersions, new: Sequence[str]
) -> Callable[[], None]:
    """Return the write of a state table, in one commit.

    Other builds may have applied part of the cut meanwhile. The result is the same, because `transforms.merge` writes a
    row only at a higher position. Two cases need a guard: no table to merge into, and builds under other settings.

    Args:
        versions: Versions of the companion tables that count with this commit.
        new: Columns that come with the rows.
    """
    silver, cut, rows = decoded.silver, decoded.cut, checked.rows
    recorded = decoded.recorded(silver.app_id, checked.counters, versions=versions, partial=folded.had_partial)
    if decoded.current is None:
        first = _select_columns(rows if cut.replaces else begun(rows, upsert=silver.upsert), decoded.columns)
        return partial(append, _unless_moved(decoded, first), silver.place.url, recorded=recorded)
    options = _merge_options(decoded)
    if decoded.has_other_settings:
        rows, options = _unless_moved(decoded, rows), {}
    if cut.replaces and decoded.renames:
        return partial(overwrite, _select_columns(rows, decoded.columns), silver.place.url, recorded=recorded)
    if cut.replaces:
        return partial(replace, rows, silver.sql_name, keys=decoded.keys, recorded=recorded, new=new, options=options)
    return partial(
        merge,
        rows,
        silver.sql_name,
        keys=decoded.keys,
        recorded=recorded,
        new=new,
        upsert=silver.upsert,
        bounds={} if decoded.rekeyed else folded.bounds,
        options={**options, **(WHOLE_FILES if is_small(decoded.opened.table) else {})},
    )


def log_write(decoded: DecodedCut) -> Callable[[], None]:
    """Return the write of a changelog or append table, in one commit."""
    silver = decoded.silver
    rows = _log_rows(decoded) if silver.table_kind is TableKind.CHANGELOG else _rows_to_append(decoded)
    guarded = _select_columns(_unless_moved(decoded, rows), decoded.columns)
    recorded = decoded.recorded(silver.app_id, decoded.statistics.counters)
    return partial(append, guarded, silver.place.url, recorded=recorded)


def _unless_moved(decoded: DecodedCut, rows: DataFrame) -> DataFrame:
    """Return the rows for a write that fails if the table changes first (`overtaken_if_moved`)."""
    silver = decoded.silver
    return unless_moved(rows, Live(silver.place, silver.app_id, decoded.opened.recorded))


@contextmanager
def overtaken_if_moved(table: str) -> Iterator[None]:
    """Raise Overtaken for a write inside the block that failed because its table has changed."""
    try:
        yield
    except ApplyError as error:
        if failed_by_move(error):
            raise Overtaken("another process wrote the table first; try again", table=table) from error
        raise


def _merge_options(decoded: DecodedCut) -> Mapping[str, str]:
    return AT_HAND if decoded.is_small else {}


def _write_history(decoded: DecodedCut, folded: FoldedCut, checked: CheckedCut) -> int:
    """Write the row versions of every update of the cut; return the resulting version of the history."""
    silver, by_decoder = decoded.silver, decoded.silver.connector.folds
    app, opened = history_id(silver.feed.name, silver.name), decoded.opened.history.committed
    changes = _versions(decoded) if by_decoder else folded.changes
    recorded = decoded.recorded(app, checked.counters, behind=position_in(decoded.opened.history.newest, app))
    try:
        write_history(
            changes,
            silver.history.url,
            before=None if opened is None else silver.read(silver.history, opened),
            recorded=recorded,
            moments=Moments(silver.connector.source_ordered, decoded.cut.snapshot_end),
            upsert=silver.upsert,
            moves=folded.moves,
            ranges=_ranges_of_versions(decoded) if by_decoder else None,
            tombstones=decoded.tombstones,
            few=decoded.is_small,
            options={**_merge_options(decoded), **(WHOLE_FILES if is_small(opened) else {})},
        )
    except SchemaDrift as error:  # history was disabled for a while, and the table's schema changed meanwhile
        reason = f"its history does not fit the table: {str(error).removeprefix(f'{app}: ')}"
        raise RebuildNeeded(reason, feed=silver.feed.name, table=silver.name) from error
    return merged_version(silver.history, recorded.metadata, before=decoded.opened.history.newest, table=silver.name)


def _versions(decoded: DecodedCut) -> DataFrame:
    return decoded.cached(typed_as(without_errors(decoded.versions()), decoded.columns))


def _ranges_of_versions(decoded: DecodedCut) -> DataFrame | None:
    """Return wide ranges removed after the snapshot. A replacing cut may lack statistics that would find them."""
    cut = decoded.cut
    if not (decoded.statistics.wide_ranges or cut.replaces):
        return None
    later = decoded.frames if cut.snapshot_end is None else decoded.frames.after("frame_seq", cut.snapshot_end)
    return decoded.removed_ranges(later)


def _write_tombstones(decoded: DecodedCut, folded: FoldedCut, checked: CheckedCut) -> int:
    """Record the deletes; return the resulting version of the tombstones.

    A history needs every delete of a key: a late change may fall between two.
    """
    silver, every = decoded.silver, decoded.silver.conf.keeps_history
    app = tombstones_id(silver.feed.name, silver.name)
    recorded = decoded.recorded(app, checked.counters, behind=position_in(decoded.opened.tombstones.newest, app))
    deletes = complete(folded.changes).where(F.col("op") == DELETE)
    write_tombstones(
        net_rows(deletes, position="sequence") if every else net_rows(folded.net, position="position"),
        silver.tombstones.url,
        keys=decoded.keys,
        recorded=recorded,
        tombstone_horizon=decoded.tombstone_horizon,
        every=every,
    )
    return merged_version(
        silver.tombstones, recorded.metadata, before=decoded.opened.tombstones.newest, table=silver.name
    )


def _write_side_table(decoded: DecodedCut, rows: DataFrame | None) -> int | None:
    """Write the side table unless it is unchanged; return its version, if any."""
    silver, opened = decoded.silver, decoded.opened
    if rows is None:
        if opened.side.is_committed:
            return None
        rows = silver.session.read.format("delta").load(silver.side_table.url).limit(0)
    elif opened.side.committed is not None and opened.side.is_committed and _is_unchanged(decoded, rows):
        return opened.side.committed.version()
    return replace_companion(rows, silver.side_table, uuid4().hex, table=silver.name)


def _is_unchanged(decoded: DecodedCut, rows: DataFrame) -> bool:
    return decoded.is_small and decoded.side_rows is not None and _have_equal_rows(decoded.side_rows, rows)


def _have_equal_rows(some: DataFrame, others: DataFrame) -> bool:
    """Return whether two small sets of rows are equal."""
    columns = [F.col(quoted(name)) for name in some.columns]
    one, other = (sorted(map(repr, rows.select(columns).toArrow().to_pylist())) for rows in (some, others))
    return one == other


def _rows_to_append(decoded: DecodedCut) -> DataFrame:
    """Return the rows to append. All columns depend on ``op``, which raises if a frame cannot be decoded."""
    position = F.when(F.col("op") == INSERT, F.col("frame_seq"))
    return decoded.changes.select(position.alias(POSITION), F.col("ordinal").alias(ORDINAL), "row.*")


def _log_rows(decoded: DecodedCut) -> DataFrame:
    net = net_rows(decoded.changes).withColumn(LAST_KEY, F.lit(None).cast("long"))
    (row_key,) = (name for name in decoded.key.names if name not in decoded.source.names)
    removed = decoded.removed_ranges(decoded.frames).select(
        F.lit(DELETE).alias(OP),
        F.col("frame_seq").alias(POSITION),
        F.col("first_key").alias(row_key),
        F.col("last_key").alias(LAST_KEY),
    )
    return net.unionByName(removed, allowMissingColumns=True)


def _select_columns(rows: DataFrame, columns: T.StructType) -> DataFrame:
    return rows.select([F.col(quoted(field.name)).cast(field.dataType).alias(field.name) for field in columns])
