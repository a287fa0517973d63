"""Decode a cut, and check that its changes fit its silver table as it is before the cut.

A silver table has up to three companion tables: its history (`transforms.history`), its tombstones
(`transforms.tombstones`) and its side table (`pipelines.verifying.compared_rows`). The silver table's own commit comes
last, carries the position, and makes the others count.

The table kind (`connectors.base.TableKind`) decides which columns it has in addition to the source's:

===========  ==========================================================================================================
``state``    ``_position`` and, for positional sources, the positional key
``changes``  ``_op``, ``_position``, the positional key, ``_last_row_key`` and ``_present``; append-only
``rows``     ``_position`` and ``_ordinal``, the row's number inside its frame; append-only
===========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import Overtaken, RebuildNeeded, SnapshotNeeded
from silverfold.conf.names import caseless
from silverfold.conf.unix_time import timestamp_micros
from silverfold.connectors.base import Cut, CutStatistics, TableKind
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.pipelines.applying.cut_job import CutJob
from silverfold.pipelines.applying.silver import OpenedTables, SilverTable, check_built
from silverfold.pipelines.holding.quarantine_log import SKIPPED
from silverfold.pipelines.landing.dropped import dropped_of
from silverfold.pipelines.places import REASONS
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.companions import NO_VERSIONS, CompanionVersions, lost_cuts
from silverfold.pipelines.storage.cuts import built_as_another, to_record
from silverfold.pipelines.storage.row_settings import RowSettings, differing, without_undecided
from silverfold.pipelines.store import count_rows, mean_row_bytes
from silverfold.transforms.changes import FEW_BYTES, at_hand, cached, complete, struct_type, typed_as
from silverfold.transforms.evolve import Drift, check_names, drift, with_columns
from silverfold.transforms.expectations import check_rules
from silverfold.transforms.fold import check_key
from silverfold.transforms.merge import OP, POSITION, PRESENT, Recorded

LAST_KEY = "_last_row_key"
"""In a changelog: the last key of a removed range, whose first key is the positional key."""

ORDINAL = "_ordinal"
"""In an append table: the row's number inside its frame, from 0."""

_FEW = 10_000
"""Largest number of changes and side-table rows in a small cut.

In addition, the changes in memory, as many rows of the table in files, and the side table's rows in files must together
fit in `FEW_BYTES`.
"""

_OF_ANOTHER_NAME: Final = (
    "if the source did, its updates have landed so: let a feed of another name take what comes from now on"
)


@dataclass(frozen=True)
class DecodedCut(CutJob):
    """A job, its changes, and the tables they are to be applied to, all with the columns of afterwards.

    Args:
        changes: The decoded change rows, with every column of the contract, typed as the table is.
        settings: Settings that decide which rows the table has: stream, keys, and `conf.model.Table.row_settings`.
        is_small: The cut's rows fit into this process, whatever the size of the table.
        opened: The tables before the cut.
        known: Commit note of the newest cut; None if no cut counts.
        columns: The table's columns once the cut is applied.
        drift: The change of columns; None if there is no table yet.
        current: The table before the cut, with these columns; None if it does not exist or is append-only. Lazy.
        side_rows: The side table before the cut, with these columns; None if empty. Lazy.
        cache: Holds rows in Spark's cache that are used more than once; closed when the cut is done.
    """

    changes: DataFrame
    settings: RowSettings
    is_small: bool
    opened: OpenedTables
    known: CommitNote | None
    columns: T.StructType
    drift: Drift | None
    current: DataFrame | None
    side_rows: DataFrame | None
    cache: ExitStack

    @cached_property
    def key(self) -> T.StructType:
        """The columns that identify a row at the source."""
        return struct_type(self.changes, "key")

    @cached_property
    def source(self) -> T.StructType:
        """The source's columns, typed as the table is."""
        return struct_type(self.changes, "row")

    @cached_property
    def row(self) -> T.StructType:
        """The table's columns without ``_position``; the source's own key comes first if its rows do not carry it."""
        return T.StructType([field for field in self.columns if field.name != POSITION])

    @property
    def rekeyed(self) -> bool:
        """Whether the table's keys differ from those of the source."""
        own = {caseless(name) for name in self.key.names} - {caseless(name) for name in self.source.names}
        return bool(self.silver.conf.keys and own)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row of the silver table."""
        return self.silver.conf.keys or tuple(self.key.names)

    @property
    def completes(self) -> bool:
        """Whether rows are read in full, completed and checked before the write, as the table's settings require."""
        return bool(self.silver.rules) or self.side_rows is not None or self.rekeyed

    @property
    def renames(self) -> bool:
        """Whether the existing rows have other keys than the rows of this cut."""
        then = None if self.known is None else self.known.settings
        return then is not None and "keys" in differing(then, self.settings)

    @property
    def overwrites(self) -> bool:
        """Whether columns or keys change in a way that takes an overwrite of the table."""
        return self.renames or (self.drift is not None and bool(self.drift.widened))

    @property
    def tombstones(self) -> DataFrame | None:
        """The tombstones before the cut; None without any. Lazy."""
        opened = self.opened.tombstones.committed
        return None if opened is None else self.silver.read(self.silver.tombstones, opened)

    @property
    def tombstone_horizon(self) -> str | None:
        """The condition on tombstones before the cut that are no longer needed; None without any."""
        with self.silver.decoding():
            return self.silver.decoder.tombstone_horizon(self.context, self.cut, self.silver.conf)

    @property
    def has_other_settings(self) -> bool:
        """Whether the newest cut was applied under other rules or settings, and made other rows of the same frames.

        Another build may still be applying cuts under those. Its cuts must not follow this one, nor this one a later
        one of them. The cut therefore gets a generation of its own, and is written only if the table has not changed.
        """
        known = self.known
        if known is None:
            return False
        other = known.settings is not None and differing(known.settings, self.settings)
        return bool(other) or known.rules != self.silver.rules_digest

    @property
    def nothing_before(self) -> bool:
        """No row from before the cut counts."""
        return self.cut.replaces or self.cut.after < 0

    def cached(self, rows: DataFrame) -> DataFrame:
        """Return the rows, computed only once while the cut is applied.

        Rows of a small cut are computed at once, so later steps plan with literal rows instead of their lineage.
        """
        return at_hand(rows) if self.is_small else self.cache.enter_context(cached(rows))

    def versions(self) -> DataFrame:
        """Return change rows with separate updates, the input of the history. Lazy."""
        with self.silver.decoding():
            return self.silver.decoder.versions(self.frames, self.context, self.cut, self.silver.conf).dataframe()

    def removed_ranges(self, frames: ArrowRows) -> DataFrame:
        """Return the ranges of rows that some of the cut's frames remove. Lazy."""
        with self.silver.decoding():
            return self.silver.decoder.removed_ranges(frames, self.context, self.cut, self.silver.conf).dataframe()

    def recorded(
        self,
        app_id: str,
        notes: Mapping[str, int],
        *,
        versions: CompanionVersions = NO_VERSIONS,
        partial: bool = False,
        behind: int | None = None,
    ) -> Recorded:
        """Return the record that a commit of the cut carries, under the position of ``app_id``.

        Args:
            notes: Counts to report, by name.
            versions: Versions of the companion tables that count from then on.
            partial: See `CommitNote`.
            behind: For a companion table: the position its log already records, which is later if a cut was undone.
        """
        cut = self.cut
        note = CommitNote(
            feed=self.silver.feed.name,
            table=self.silver.name,
            epoch=cut.epoch,
            first_position=cut.spans[0][0],
            last_position=cut.last,
            replaced=cut.replaces,
            updates=len(cut.begins),
            landed_at=None if self.landing is None else timestamp_micros(self.landing.received),
            source_position=None if self.landing is None else self.landing.source_position,
            notes=notes,
            settings=without_undecided(self.settings),
            rules=self.silver.rules_digest,
            **versions._asdict(),
            frames={str(position): SKIPPED for position in cut.left_out},
            partial=partial,
            by=self.silver.token,
        )
        generation = self.opened.generation + self.has_other_settings
        number = to_record(cut.last, generation) if behind is None else max(cut.last, behind + 1)
        return Recorded(app_id, number, note.to_json())


def decode_cut(job: CutJob, opened: OpenedTables, cache: ExitStack) -> DecodedCut:
    """Decode a cut. Its changes are lazy; nothing is written.

    Args:
        opened: The tables before the cut, whose end the silver table has not reached.
        cache: See `DecodedCut`.

    Raises:
        Overtaken: The table is not at the cut's beginning, or bronze differs from what was planned with.
        SchemaDrift, UnusableKey, UnusableExpectation: The source's columns do not fit the table, its keys, its rules.
        SnapshotNeeded: A partial source has a new column, and the cut has no snapshot.
        RebuildNeeded: The table was built under other settings, or a companion table does not match it.
    """
    silver, is_state = job.silver, job.silver.table_kind is TableKind.STATE
    _check_beginning(job, opened)
    rows, source = _decode_frames(job)
    changes = complete(rows.dataframe()) if _folding_finds_errors(silver) else without_errors(rows.dataframe())
    key = struct_type(changes, "key")
    check_key(key, table=silver.name)
    _check_own(silver, opened)
    known, settings = opened.note if opened.position >= 0 else None, silver.row_settings(key.names)
    wanted = _COLUMNS[silver.table_kind](silver, key, source)
    if known is not None:
        check_built(silver, job.cut, known, settings, opened, columns=wanted.names)
    current = None if opened.table is None else silver.read(silver.place, opened.table)
    change = None if current is None else _check_drift(job, opened, current.schema, wanted)
    columns = wanted if change is None else change.columns
    is_small = _is_small(opened, rows, job.statistics)
    side_rows = _read_side_rows(silver, opened.side.committed, columns)
    decoded = DecodedCut(
        **{**vars(job), "later": _missing_columns(columns, job.later)},
        changes=typed_as(changes, columns) if is_state else changes,
        settings=settings,
        is_small=is_small,
        opened=opened,
        known=known,
        columns=columns,
        drift=change,
        current=with_columns(current, columns) if is_state and current is not None else None,
        side_rows=at_hand(side_rows) if is_small and side_rows is not None else side_rows,
        cache=cache,
    )
    offered = T.StructType([*decoded.row, *decoded.later])
    check_rules(silver.session, offered, silver.rules, table=silver.name)
    return decoded


def _check_beginning(job: CutJob, opened: OpenedTables) -> None:
    """Raise RebuildNeeded if the table may lack rows, Overtaken if table or bronze differ from the plan."""
    silver, cut = job.silver, job.cut
    anew = cut.replaces and not silver.conf.keeps_history
    if opened.table is not None and not anew:
        lost = lost_cuts(silver.place, opened.table)
        if lost is not None:
            raise RebuildNeeded(lost, feed=silver.feed.name, table=silver.name)
    if opened.position != cut.after:
        # the cut lacks updates that the table needs: a row may have moved since, or be gone
        reason = f"another process brought the table to position {opened.position}, or back there; try again"
        raise Overtaken(reason, table=silver.name)
    if cut.received is not None and (job.landing is None or job.landing.received != cut.received):
        raise Overtaken(f"bronze has another frame at position {cut.last} than was planned with", table=silver.name)


def _decode_frames(job: CutJob) -> tuple[ArrowRows, T.StructType]:
    """Return the change rows of a cut, and the source's columns at its end, whose names the table can have."""
    silver, cut = job.silver, job.cut
    with silver.decoding():
        source = silver.decoder.row_type(job.context, cut, silver.conf)
    reserved = silver.connector.reserved_names(silver.conf)
    check_names(source, reserved=reserved, keys=silver.conf.keys, table=silver.name)
    with silver.decoding():
        return silver.decoder.changes(job.frames, job.context, cut, silver.conf), source


def _check_drift(job: CutJob, opened: OpenedTables, current: T.StructType, wanted: T.StructType) -> Drift:
    """Return the change of the table's columns. Raises SchemaDrift or SnapshotNeeded if it cannot take the new ones."""
    silver = job.silver
    change = drift(current, wanted, table=silver.name, remedy=_remedy(silver))
    if change.added and opened.position >= 0 and _lacks_values(silver, job.cut):
        raise SnapshotNeeded(column=change.added[0].name, table=silver.name)
    return change


def _check_own(silver: SilverTable, opened: OpenedTables) -> None:
    """Raise RebuildNeeded if the table at the place is another one."""
    other = built_as_another(opened.note, silver.feed.name, silver.name)
    if opened.table is not None and opened.note is None and opened.position < 0 and count_rows(opened.table) != 0:
        other = "it has rows that no build wrote"
    if other is not None:
        raise RebuildNeeded(other, feed=silver.feed.name, table=silver.name, undo="move it away")


def _missing_columns(columns: T.StructType, later: Sequence[T.StructField]) -> list[T.StructField]:
    have = {caseless(field.name) for field in columns}
    return [field for field in later if caseless(field.name) not in have]


def without_errors(changes: DataFrame) -> DataFrame:
    """Return the change rows with every column of the contract; a row with ``error`` fails the job. Lazy.

    The failure is in ``op``, on which every later step depends. A filter would not do: Spark may put others before it.
    """
    failed = F.raise_error(F.lit("a frame cannot be decoded")).cast("string")
    listed = complete(changes)
    return listed.withColumn("op", F.when(F.col("error").isNotNull(), failed).otherwise(F.col("op")))


def _is_small(opened: OpenedTables, changes: ArrowRows, statistics: CutStatistics) -> bool:
    """Return whether the cut has few rows and few bytes. Wide ranges have an unknown number of rows."""
    if changes.count is None or changes.size is None or statistics.wide_ranges:
        return False
    side_count = 0 if opened.side.committed is None else count_rows(opened.side.committed)
    if side_count is None or changes.count + side_count > _FEW:
        return False
    tables = [(changes.count + side_count, opened.table), (side_count, opened.side.committed)]
    return changes.size + sum(n * mean_row_bytes(table) for n, table in tables if table is not None) <= FEW_BYTES


def _folding_finds_errors(silver: SilverTable) -> bool:
    return not silver.connector.folds and silver.table_kind is TableKind.STATE


def _remedy(silver: SilverTable) -> str:
    """Return advice for columns that the table cannot take."""
    rebuild = f"`silverfold rebuild {silver.feed.name} {silver.name}`"
    if silver.upsert and dropped_of(silver.places.bronze(silver.feed.name), silver.feed.name, silver.name).floor:
        anew = "only a table with the same columns can be made anew, from its base"
        setting = "if a setting did it, put that back"
        return f": bronze has not all that it was made of, so {anew}: {setting}; {_OF_ANOTHER_NAME}"
    if silver.upsert:
        return f": if a setting did it, {rebuild} makes a new table; {_OF_ANOTHER_NAME}"
    begun = " and lets its history begin there" if silver.conf.keeps_history else ""
    return f": {rebuild} makes a new table of the newest snapshot{begun}; a setting that did it can be put back"


def _lacks_values(silver: SilverTable, cut: Cut) -> bool:
    """Return whether existing rows would get an unknown value in a new column."""
    return silver.connector.has_partial_updates and not silver.upsert and not cut.replaces


def _read_side_rows(silver: SilverTable, opened: DeltaTable | None, columns: T.StructType) -> DataFrame | None:
    if opened is None or count_rows(opened) == 0:
        return None
    return with_columns(silver.read(silver.side_table, opened), columns, PRESENT, REASONS)


def _columns_of_state(silver: SilverTable, key: T.StructType, row: T.StructType) -> T.StructType:
    position = T.StructField(POSITION, T.StringType() if silver.connector.source_ordered else T.LongType())
    own = [T.StructField(name, T.LongType()) for name in key.names if name not in row.names]
    return T.StructType([*own, *row, position])


def _columns_of_log(silver: SilverTable, key: T.StructType, row: T.StructType) -> T.StructType:
    names = [OP, POSITION, *(name for name in key.names if name not in row.names), LAST_KEY]
    kinds = [T.StringType(), *(T.LongType() for _ in names[1:])]
    log = [T.StructField(name, kind) for name, kind in zip(names, kinds, strict=True)]
    return T.StructType([*log, T.StructField(PRESENT, T.ArrayType(T.StringType())), *row])


def _columns_of_rows(silver: SilverTable, key: T.StructType, row: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(POSITION, T.LongType()), T.StructField(ORDINAL, T.IntegerType()), *row])


_COLUMNS = {
    TableKind.STATE: _columns_of_state,
    TableKind.CHANGELOG: _columns_of_log,
    TableKind.APPEND: _columns_of_rows,
}
