"""Writes one silver table: decodes a cut, folds it, and commits it with its position.

The table's own Delta log holds the position (``txnAppId = apply/<feed>/<table>``): there is no checkpoint beside it.
A table is either the source's *state* (its columns, ``_position`` and, for positional sources, the positional key) or
a *log* of changes (``_op``, ``_position``, the positional key, ``_last_row_key`` and ``_present``, then the columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from conf.errors import PositionNotRecorded
from conf.model import Table
from connectors.base import Connector, Cut, Decoder, Feed, Survey
from pipelines.cuts import CommitNote, CutRow, app_id, from_commit
from pipelines.places import Place, Places
from pipelines.store import open_table
from transforms.changes import DELETE, INSERT, SNAPSHOT, cached, complete, struct_type
from transforms.evolve import add_columns, check_names
from transforms.faults import named_errors
from transforms.fold import check_key, fold
from transforms.history import Moments, keep_history
from transforms.merge import OP, POSITION, PRESENT, VACATED, Recorded, append, create_empty, merge, net_rows, replace
from transforms.moves import resolve
from transforms.rekey import by_keys, unique_rows
from transforms.sql import path_table, quoted
from transforms.tombstones import bury, not_buried
from transforms.tombstones import read as read_tombstones

LAST_KEY = "_last_row_key"
"""In a log: the last key of a removed range, whose first key is the positional key."""

_RESERVED = (OP, POSITION, PRESENT, VACATED, LAST_KEY, "_row_key")

_WITH_HISTORY = 2
"""``stored_as_scd_type`` of a table that keeps every version of its rows beside those that stand."""

_SMALL_CUT = 10_000
"""Updates up to which adaptive execution costs more than it gives."""

_RECENT_COMMITS = 8
"""How far back to look for our own commit: only maintenance commits besides us."""


@dataclass
class SilverTable:
    """One silver table of a feed, and the session that writes it.

    The commit's settings belong to a session, so every table has one of its own.
    """

    spark: SparkSession
    feed: Feed
    connector: Connector
    name: str
    places: Places
    session: SparkSession = field(init=False)
    decoder: Decoder = field(init=False)

    def __post_init__(self) -> None:
        self.session = self.spark.newSession()
        self.decoder = self.connector.decoder(self.feed)

    @property
    def table(self) -> Table:
        """The table's settings."""
        return self.feed.tables[self.name]

    @property
    def place(self) -> Place:
        """Where the table is."""
        return self.places.silver(self.feed.name, self.name)

    @property
    def app_id(self) -> str:
        """Whose position the commits carry."""
        return app_id(self.feed.name, self.name)

    def position(self) -> int:
        """Return the position the table has reached, read from its log; -1 for none."""
        opened = open_table(self.place)
        found = None if opened is None else opened.transaction_version(self.app_id)
        return -1 if found is None else found

    def needs_survey(self, context: Any, cut: Cut) -> bool:
        """Tell whether the cut must be surveyed before it is applied; one that replaces may do without."""
        decided = cut.replaces and self.connector.net  # else what is found decides how to fold
        return not decided or self.decoder.tells_notes(context, cut, self.table)

    def survey(self, frames: DataFrame, context: Any, cut: Cut) -> Survey:
        """Look through the cut before anything is written. Runs one Spark job.

        Raises:
            ApplyError: The cut cannot be read. Subclasses say why.
        """
        with named_errors(self.name):
            return self.decoder.survey(frames, context, cut, self.table)

    def apply(self, frames: DataFrame, context: Any, cut: Cut, survey: Survey) -> CutRow | None:
        """Apply a cut in one commit. Safe to repeat.

        Args:
            survey: `connectors.base.NOT_SURVEYED` where none is needed.

        Returns:
            What the commit did; None when another applier had already gone this far.

        Raises:
            ApplyError: The cut cannot be applied; the table stands as it was. Subclasses say why. Of a cut that was not
                surveyed it may be a frame that cannot be decoded: its survey names it.
        """
        self.session.conf.set("spark.sql.adaptive.enabled", str(len(cut.begins) > _SMALL_CUT).lower())
        row = self.decoder.row_type(context, cut, self.table)
        changes = complete(self.decoder.changes(frames, context, cut, self.table)).where(_decoded())
        with named_errors(self.name), ExitStack() as kept:
            if not self.connector.net:
                changes = kept.enter_context(cached(changes))  # folding looks at them more than once
            self._write(changes, row, frames, kept, context=context, cut=cut, survey=survey)
        return self._read_back(cut)

    def _write(
        self,
        changes: DataFrame,
        row: StructType,
        frames: DataFrame,
        kept: ExitStack,
        *,
        context: Any,
        cut: Cut,
        survey: Survey,
    ) -> None:
        recorded = Recorded(self.app_id, cut.last, self._note(cut, survey).to_json())
        check_names(row, reserved=_RESERVED, table=self.name)
        check_key(struct_type(changes, "key"), table=self.name)
        wanted = self._schema(changes, row)
        exists = open_table(self.place) is not None
        if exists:
            add_columns(self.session, self._target, self._current().schema, wanted, table=self.name)
        if self.connector.keeps_log(self.table):
            ranges = self.decoder.removed_ranges(frames, context, cut, self.table)
            append(_columns(_log_rows(changes, ranges), wanted), self.place.url, recorded=recorded)
            return
        if self.table.stored_as_scd_type == _WITH_HISTORY:
            versions = self._versions(frames, kept, context, cut) if self.connector.net else changes
            self._keep_history(versions, self._removed_from_history(frames, context, cut, survey), cut, survey)
        net = self._net(changes, kept, cut, survey)
        identity = _identity(changes)
        if cut.replaces:
            keys = self.table.keys or _keys(changes)
            whole = net.where(F.col(OP).isin(INSERT, SNAPSHOT))
            rows = unique_rows(whole, keys=keys) if self.table.keys else whole
            if self.position() < 0:
                append(_columns(rows, wanted), self.place.url, recorded=recorded)
            else:
                replace(rows, self._target, keys=keys, recorded=recorded)
            return
        if not exists:
            create_empty(self.session, wanted, self._target)
        if survey.wide_ranges:
            ranges = self.decoder.removed_ranges(frames, context, cut, self.table)
            net = _with_ranges(net, self._current(), ranges, *identity)
        if self.connector.sequenced:
            net = self._newer(net, self.decoder.settled(context, cut, self.table), cut, keys=_keys(changes))
        self._patch(net, identity, recorded, survey, keys=self.table.keys or _keys(changes))

    def _net(self, changes: DataFrame, kept: ExitStack, cut: Cut, survey: Survey) -> DataFrame:
        """Return the net rows. What was counted before tells how little there is to do."""
        if self.connector.net:
            return net_rows(changes)
        if survey.moves:
            stood = None if cut.replaces or open_table(self.place) is None else self._current()
            return net_rows(resolve(changes, stood, kept, upsert=self._upsert, replaces=cut.replaces))
        sequenced = self.connector.sequenced
        whole = not survey.partial
        net = fold(changes, by_sequence=sequenced, upsert=self._upsert, whole=whole, replaces=cut.replaces)
        return net_rows(net, position="sequence" if sequenced else "frame_seq")

    @property
    def _upsert(self) -> bool:
        return not self.connector.has_snapshots(self.table)

    def _newer(self, net: DataFrame, settled: str | None, cut: Cut, *, keys: Sequence[str]) -> DataFrame:
        """Remember the deletes, then return what is newer than any delete of its key."""
        place = self.places.tombstones(self.feed.name, self.name).url
        recorded = Recorded(f"tombstones/{self.feed.name}/{self.name}", cut.last)
        bury(net, place, keys=keys, recorded=recorded, settled=settled)
        return not_buried(net, place, keys=keys)

    def _versions(self, frames: DataFrame, kept: ExitStack, context: Any, cut: Cut) -> DataFrame:
        """Return change rows of every update, where the changes are folded."""
        told = complete(self.decoder.versions(frames, context, cut, self.table)).where(_decoded())
        return kept.enter_context(cached(told))

    def _removed_from_history(self, frames: DataFrame, context: Any, cut: Cut, survey: Survey) -> DataFrame | None:
        """Return the wide removed ranges; a cut that replaces may not have been surveyed, and knows none before."""
        if not self.connector.net or not (survey.wide_ranges or cut.replaces):
            return None
        later = frames if cut.settled is None else frames.where(F.col("frame_seq") > cut.settled)
        return self.decoder.removed_ranges(later, context, cut, self.table)

    def _keep_history(self, changes: DataFrame, ranges: DataFrame | None, cut: Cut, survey: Survey) -> None:
        place = self.places.history(self.feed.name, self.name)
        keep_history(
            changes,
            place.url,
            recorded=Recorded(f"history/{self.feed.name}/{self.name}", cut.last, self._note(cut, survey).to_json()),
            moments=Moments(self.connector.sequenced, cut.settled),
            upsert=self._upsert,
            moves=survey.moves > 0,
            ranges=ranges,
            tombstones=self._tombstones(),
        )

    def _tombstones(self) -> DataFrame | None:
        place = self.places.tombstones(self.feed.name, self.name)
        return None if open_table(place) is None else read_tombstones(self.session, place.url)

    def _patch(
        self, net: DataFrame, identity: Sequence[str], recorded: Recorded, survey: Survey, *, keys: Sequence[str]
    ) -> None:
        if self.table.keys and identity:
            (row_key,) = identity
            moved = by_keys(net, self._current(), keys=keys, identity=row_key, upsert=self._upsert)
            merge(moved, self._target, keys=keys, recorded=recorded, identity=row_key)
            return
        bounded = identity and not survey.wide_ranges and survey.first_key is not None and survey.last_key is not None
        key_range = (survey.first_key, survey.last_key) if bounded else None
        merge(net, self._target, keys=keys, recorded=recorded, upsert=self._upsert, key_range=key_range)  # type: ignore[arg-type]  # bounded says both are there

    @property
    def _target(self) -> str:
        return path_table(self.place.url)

    def _current(self) -> DataFrame:
        return self.session.read.format("delta").load(self.place.url)

    def _schema(self, changes: DataFrame, row: StructType) -> StructType:
        position = StructField(POSITION, StringType() if self.connector.sequenced else LongType())
        identity = [StructField(name, LongType()) for name in _identity(changes)]
        if not self.connector.keeps_log(self.table):
            return StructType([*identity, *row, position])
        log = [StructField(OP, StringType()), position, *identity, StructField(LAST_KEY, LongType())]
        return StructType([*log, StructField(PRESENT, ArrayType(StringType())), *row])

    def _note(self, cut: Cut, survey: Survey) -> CommitNote:
        return CommitNote(
            feed=self.feed.name,
            table=self.name,
            epoch=cut.epoch,
            first_position=cut.spans[0][0],
            last_position=cut.last,
            replaced=cut.replaces,
            updates=len(cut.begins),
            notes=survey.notes,
        )

    def _read_back(self, cut: Cut) -> CutRow | None:
        opened = open_table(self.place)
        found = None if opened is None else opened.transaction_version(self.app_id)
        if opened is None or found is None or found < cut.last:
            raise PositionNotRecorded(f"the log says {found} after a commit for {cut.last}", table=self.name)
        return _cut_row(opened, cut.last) if found == cut.last else None


def _cut_row(opened: DeltaTable, position: int) -> CutRow | None:
    """Return what the commit that reached the position did, unless it is too long ago."""
    commits = (from_commit(commit) for commit in opened.history(_RECENT_COMMITS))
    return next((row for row in commits if row is not None and row.last_position == position), None)


def _decoded() -> Column:
    """Return TRUE, or fail: a row that tells of a frame that cannot be decoded is no change."""
    failed = F.raise_error(F.lit("a frame cannot be decoded")).cast("boolean")
    return F.when(F.col("error").isNotNull(), failed).otherwise(F.lit(True))


def _identity(changes: DataFrame) -> list[str]:
    """Return the key columns the source's rows do not carry themselves: a positional key."""
    row = struct_type(changes, "row")
    return [name for name in struct_type(changes, "key").names if name not in row.names]


def _keys(changes: DataFrame) -> tuple[str, ...]:
    """Return the columns by which the source names a row."""
    return tuple(struct_type(changes, "key").names)


def _log_rows(changes: DataFrame, ranges: DataFrame) -> DataFrame:
    net = net_rows(changes).withColumn(LAST_KEY, F.lit(None).cast("long"))
    (row_key,) = _identity(changes)
    removed = ranges.select(
        F.lit(DELETE).alias(OP),
        F.col("frame_seq").alias(POSITION),
        F.col("first_key").alias(row_key),
        F.col("last_key").alias(LAST_KEY),
    )
    return net.unionByName(removed, allowMissingColumns=True)


def _columns(rows: DataFrame, wanted: StructType) -> DataFrame:
    return rows.select([quoted(name) for name in wanted.names])


def _with_ranges(net: DataFrame, current: DataFrame, ranges: DataFrame, row_key: str) -> DataFrame:
    """Add a delete for every row of silver in a removed range that the net rows do not speak of."""
    inside = F.col(row_key).between(F.col("first_key"), F.col("last_key"))
    removed = (
        current.select(row_key)
        .join(F.broadcast(ranges), inside)
        .groupBy(row_key)
        .agg(F.max("frame_seq").alias(POSITION))
        .withColumn(OP, F.lit(DELETE))
    )
    return net.unionByName(removed.join(net.select(row_key), row_key, "left_anti"), allowMissingColumns=True)
