"""What one cut of one silver table has to work with: the table, those beside it, and how they are before the cut.

Beside a silver table up to three others are written: its history (`transforms.history`), its tombstones
(`transforms.tombstones`) and the rows kept aside (`pipelines.kept_aside`). The silver table's own commit comes last,
carries the position, and is what makes the others count.

What a table keeps (`connectors.base.TableKind`) says which columns of ours it has beside the source's:

===========  ==========================================================================================================
``state``    ``_position`` and, for positional sources, the positional key
``changes``  ``_op``, ``_position``, the positional key, ``_last_row_key`` and ``_present``; only ever added to
``rows``     ``_position`` and ``_ordinal``, the row's number inside its frame; only ever added to
===========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from conf.errors import Overtaken, RebuildNeeded, SnapshotNeeded
from conf.names import folded
from connectors.arrow_rows import ArrowRows
from connectors.base import Cut, CutStatistics, TableKind
from pipelines.applying.settle import settle
from pipelines.applying.target import Opened, Target, check_built
from pipelines.beside import EMPTIED, NO_VERSIONS, Counting
from pipelines.bronze import Landing, landing_at
from pipelines.commit_note import CommitNote
from pipelines.cuts import from_record, position_in, recorded_in, to_record
from pipelines.quarantine_log import SKIPPED
from pipelines.reached import moment
from pipelines.row_settings import RowSettings, decided, differing
from pipelines.store import count_rows, is_emptied, mean_row_bytes
from transforms.changes import FEW_BYTES, at_hand, cached, complete, struct_type, typed_as
from transforms.evolve import Drift, check_names, drift, with_columns
from transforms.expectations import check_rules
from transforms.fold import check_key
from transforms.merge import OP, POSITION, PRESENT, Recorded
from transforms.side_table import REASONS

LAST_KEY = "_last_row_key"
"""In a log of changes: the last key of a removed range, whose first key is the positional key."""

ORDINAL = "_ordinal"
"""Of rows that are only ever added: the row's number inside its frame, from 0."""

_FEW = 10_000
"""Changes, and rows aside, up to which a cut is small: if the changes in memory, and as many rows of the table and of
those aside in files, take no more than `FEW_BYTES`."""


@dataclass(frozen=True)
class CutJob:
    """One cut on its way into one silver table.

    Args:
        frames: The cut's landed frames.
        context: The decoder's.
        changes: What the decoder makes of them: change rows, every column of the contract, typed as the table is.
        statistics: What was found out of the frames; `connectors.base.NO_STATISTICS` where nothing was.
        before: Position the table has reached before the cut; -1 for none.
        columns: The table's columns once the cut is applied.
        drift: How they change; None where there is no table yet.
        current: The table before the cut, with these columns; None when there is none, or it is only added to. Lazy.
        aside: The rows kept aside before the cut, with these columns; None when there are none. Lazy.
        opened: The tables before the cut.
        settings: What says which rows the table has: its stream, its keys, and `conf.model.Table.row_settings`.
        known: What the newest cut says; None where no cut counts.
        landing: What bronze says of the cut's last frame.
        is_small: So few rows take part that this process can hold them, whatever the size of the table.
        later: Columns that the source has behind the cut, and the table not yet: NULL to its rules.
        cache: Holds in Spark's cache what is looked at more than once; closed when the cut is done.
    """

    target: Target
    frames: ArrowRows
    context: Any
    cut: Cut
    changes: DataFrame
    statistics: CutStatistics
    before: int
    columns: T.StructType
    drift: Drift | None
    current: DataFrame | None
    aside: DataFrame | None
    opened: Opened
    settings: RowSettings
    known: CommitNote | None
    landing: Landing | None
    is_small: bool
    later: Sequence[T.StructField]
    cache: ExitStack

    @cached_property
    def key(self) -> T.StructType:
        """The columns by which the source names a row."""
        return struct_type(self.changes, "key")

    @cached_property
    def source(self) -> T.StructType:
        """The source's columns, typed as the table is."""
        return struct_type(self.changes, "row")

    @cached_property
    def row(self) -> T.StructType:
        """The table's columns without ``_position``: the source's own key first, where its rows do not carry it."""
        return T.StructType([field for field in self.columns if field.name != POSITION])

    @property
    def rekeyed(self) -> bool:
        """The table has other keys than those by which the source names a row."""
        own = {folded(name) for name in self.key.names} - {folded(name) for name in self.source.names}
        return bool(self.target.table.keys and own)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that name a row of the silver table."""
        return self.target.table.keys or tuple(self.key.names)

    @property
    def completes(self) -> bool:
        """Rows are read whole, completed and judged before they are written: the table's settings want it."""
        return bool(self.target.rules) or self.aside is not None or self.rekeyed

    @property
    def renames(self) -> bool:
        """The rows before the cut are named by other keys than those after it."""
        then = None if self.known is None else self.known.settings
        return then is not None and "keys" in differing(then, self.settings)

    @property
    def buried(self) -> DataFrame | None:
        """The remembered deletes before the cut; None where there are none. Lazy."""
        opened = self.opened.tombstones.counts
        return None if opened is None else self.target.read(self.target.tombstones, opened)

    @property
    def generation(self) -> int:
        """How often the table was rebuilt, or came under other rules or settings, before the cut."""
        return from_record(recorded_in(self.opened.table, self.target.app_id))[1]

    @property
    def is_under_others(self) -> bool:
        """The newest cut was applied under other rules or settings: of the same frames it made other rows.

        So another build may still apply cuts under those. None of them may follow on this one, nor this one on a later
        one of them: it counts as a generation of its own, and is written only where the table has not moved.
        """
        known = self.known
        if known is None:
            return False
        other = known.settings is not None and differing(known.settings, self.settings)
        return bool(other) or known.rules != self.target.rules_digest

    @property
    def nothing_before(self) -> bool:
        """No row of before the cut counts."""
        return self.cut.replaces or self.before < 0

    def cached(self, rows: DataFrame) -> DataFrame:
        """Return the rows, computed once however often they are used while the cut is being applied.

        Those of a small cut are computed at once: a later step then plans with rows, not with how they came about.
        """
        return at_hand(rows) if self.is_small else self.cache.enter_context(cached(rows))

    def recorded(
        self,
        app_id: str,
        notes: Mapping[str, int],
        *,
        beside: Counting = NO_VERSIONS,
        behind: int | None = None,
    ) -> Recorded:
        """Return what a commit of the cut carries, for the one whose position ``app_id`` names.

        Args:
            notes: Counts worth telling, by name.
            beside: Versions of the tables beside this one that count from then on.
            behind: Of a table beside this one: the position that its log records already, a later one where a cut was
                taken back.
        """
        cut = self.cut
        note = CommitNote(
            feed=self.target.feed.name,
            table=self.target.name,
            epoch=cut.epoch,
            first_position=cut.spans[0][0],
            last_position=cut.last,
            replaced=cut.replaces,
            updates=len(cut.begins),
            landed_at=None if self.landing is None else moment(self.landing.received),
            source_position=None if self.landing is None else self.landing.source_position,
            notes=notes,
            settings=decided(self.settings),
            rules=self.target.rules_digest,
            **beside._asdict(),
            frames={str(position): SKIPPED for position in cut.left_out},
            by=self.target.token,
        )
        generation = self.generation + self.is_under_others
        number = to_record(cut.last, generation) if behind is None else max(cut.last, behind + 1)
        return Recorded(app_id, number, note.to_json())


def prepare(
    target: Target,
    frames: ArrowRows,
    context: Any,
    cut: Cut,
    statistics: CutStatistics,
    *,
    later: Sequence[T.StructField],
    cache: ExitStack,
) -> CutJob | None:
    """Look at the table before the cut, and at those beside it. What does not count there is taken back first.

    Args:
        later: Columns that the source has behind the cut.

    Returns:
        None where another process has brought the table as far: its columns may be those of later updates.

    Raises:
        Overtaken: The table is not where the cut begins, or bronze has not what was planned with.
        SchemaDrift, UnusableKey, UnusableExpectation: The source's columns do not fit the table, its keys, its rules.
        SnapshotNeeded: A new column of a partial source, without a snapshot.
        RebuildNeeded: The table was built under other settings, or what is beside it is not what it was built with.
    """
    opened = settle(target)
    before = position_in(opened.table, target.app_id)
    if before >= cut.last:
        return None
    anew = cut.replaces and not target.table.keeps_history
    if opened.table is not None and not anew and is_emptied(target.place, opened.table.version()):
        raise RebuildNeeded(EMPTIED, feed=target.feed.name, table=target.name)
    landing = _as_planned(target, cut, before)
    source = target.decoder.row_type(context, cut, target.table)
    check_names(source, reserved=_reserved(target), keys=target.table.keys, table=target.name)
    decoded = target.decoder.changes(frames, context, cut, target.table)
    told = decoded.dataframe()
    changes = complete(told) if _folding_finds_errors(target) else without_errors(told)
    check_key(struct_type(changes, "key"), table=target.name)
    known = opened.note if before >= 0 else None
    settings = target.settings(struct_type(changes, "key").names)
    if known is not None:
        check_built(target, cut, known, settings, opened)
    current = None if opened.table is None else target.read(target.place, opened.table)
    wanted = _COLUMNS[target.table_kind](target, struct_type(changes, "key"), source)
    change = None if current is None else drift(current.schema, wanted, table=target.name, remedy=_remedy(target))
    if change is not None and change.added and before >= 0 and _guesses(target, cut):
        raise SnapshotNeeded(column=change.added[0].name, table=target.name)
    columns = wanted if change is None else change.columns
    is_state = target.table_kind is TableKind.STATE
    is_small = _is_small(opened, decoded, statistics)
    aside = _rows_aside(target, opened.side.counts, columns)
    job = CutJob(
        target=target,
        frames=frames,
        context=context,
        cut=cut,
        changes=typed_as(changes, columns) if is_state else changes,
        statistics=statistics,
        before=before,
        columns=columns,
        drift=change,
        current=with_columns(current, columns) if is_state and current is not None else None,
        aside=at_hand(aside) if is_small and aside is not None else aside,
        opened=opened,
        settings=settings,
        known=known,
        landing=landing,
        is_small=is_small,
        later=_lacked(columns, later),
        cache=cache,
    )
    check_rules(target.session, T.StructType([*job.row, *job.later]), target.rules, table=target.name)
    return job


def _as_planned(target: Target, cut: Cut, before: int) -> Landing | None:
    """Return what bronze says of a cut's last frame. Raises Overtaken where table or bronze are not as planned with."""
    if before != cut.after:  # other updates than it lacks: a row may have moved since, or be gone
        reason = f"another process brought the table to position {before}, or back there; try again"
        raise Overtaken(reason, table=target.name)
    landing = landing_at(target.places.bronze(target.feed.name), cut.last)
    if cut.received is not None and (landing is None or landing.received != cut.received):
        raise Overtaken(f"bronze has another frame at position {cut.last} than was planned with", table=target.name)
    return landing


def _lacked(columns: T.StructType, later: Sequence[T.StructField]) -> list[T.StructField]:
    have = {folded(field.name) for field in columns}
    return [field for field in later if folded(field.name) not in have]


def without_errors(changes: DataFrame) -> DataFrame:
    """Return the change rows, every column of the contract, or fail: one that tells of a bad frame is no change. Lazy.

    The failure is in ``op``, on which all depends, not in a filter, before which Spark may put others.
    """
    failed = F.raise_error(F.lit("a frame cannot be decoded")).cast("string")
    listed = complete(changes)
    return listed.withColumn("op", F.when(F.col("error").isNotNull(), failed).otherwise(F.col("op")))


def _is_small(opened: Opened, changes: ArrowRows, statistics: CutStatistics) -> bool:
    """Tell whether few rows take part, and none too large ones. How many are in wide ranges is not known."""
    if changes.count is None or changes.size is None or statistics.wide_ranges:
        return False
    aside = 0 if opened.side.counts is None else count_rows(opened.side.counts)
    if aside is None or changes.count + aside > _FEW:
        return False
    tables = [(changes.count + aside, opened.table), (aside, opened.side.counts)]
    return changes.size + sum(n * mean_row_bytes(table) for n, table in tables if table is not None) <= FEW_BYTES


def _reserved(target: Target) -> tuple[str, ...]:
    aside = (REASONS,) if target.connector.source_ordered else ()
    return (*target.table.reserved_names, *aside, *((ORDINAL,) if target.table_kind is TableKind.APPEND else ()))


def _folding_finds_errors(target: Target) -> bool:
    return not target.connector.folds and target.table_kind is TableKind.STATE


def _remedy(target: Target) -> str:
    """Say what can be done about columns that the table cannot have."""
    rebuild = f"`silverfold rebuild {target.feed.name} {target.name}`"
    if target.upsert:
        return (
            f": if a setting did it, {rebuild} makes a new table; if the source did, its updates have landed so: let a "
            "feed of another name take what comes from now on"
        )
    begun = " and lets its history begin there" if target.table.keeps_history else ""
    return f": {rebuild} makes a new table of the newest snapshot{begun}; a setting that did it can be put back"


def _guesses(target: Target, cut: Cut) -> bool:
    """Tell whether the value of a new column is not known of the rows there are."""
    return target.connector.has_partial_updates and not target.upsert and not cut.replaces


def _rows_aside(target: Target, opened: DeltaTable | None, columns: T.StructType) -> DataFrame | None:
    if opened is None or count_rows(opened) == 0:
        return None
    return with_columns(target.read(target.aside, opened), columns, PRESENT, REASONS)


def _columns_of_state(target: Target, key: T.StructType, row: T.StructType) -> T.StructType:
    position = T.StructField(POSITION, T.StringType() if target.connector.source_ordered else T.LongType())
    own = [T.StructField(name, T.LongType()) for name in key.names if name not in row.names]
    return T.StructType([*own, *row, position])


def _columns_of_log(target: Target, key: T.StructType, row: T.StructType) -> T.StructType:
    names = [OP, POSITION, *(name for name in key.names if name not in row.names), LAST_KEY]
    kinds = [T.StringType(), *(T.LongType() for _ in names[1:])]
    log = [T.StructField(name, kind) for name, kind in zip(names, kinds, strict=True)]
    return T.StructType([*log, T.StructField(PRESENT, T.ArrayType(T.StringType())), *row])


def _columns_of_rows(target: Target, key: T.StructType, row: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(POSITION, T.LongType()), T.StructField(ORDINAL, T.IntegerType()), *row])


_COLUMNS = {
    TableKind.STATE: _columns_of_state,
    TableKind.CHANGELOG: _columns_of_log,
    TableKind.APPEND: _columns_of_rows,
}
