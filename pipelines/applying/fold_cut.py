"""Folds the changes of a cut: one net change per key, the rows at those keys, and what nothing explains.

Where the order of the source is not the landing order, changes that come late lose, deletes are remembered, and an
update whose row is not there waits for it among the rows kept aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from conf.errors import ApplyError, DuplicateKey, StoreUnavailable, Unexplained
from pipelines.applying.cut_job import CutJob
from pipelines.applying.fold_statistics import FoldStatistics, counted, statistics_of
from pipelines.silver_rows import SilverRows
from pipelines.store import skipping_bounds
from transforms.changes import DELETE, UPDATE, as_struct, complete, from_arrow
from transforms.consistency import OP_HISTORY, UPDATES_WITHOUT_ROW, op_code, unexplained
from transforms.existing_rows import FEW, by_key, existing, newer, within
from transforms.fold import fold
from transforms.key_moves import resolve
from transforms.merge import POSITION, PRESENT
from transforms.side_table import REASONS, UNEXPLAINED


@dataclass(frozen=True)
class Folded:
    """A folded cut.

    Args:
        folds: Net changes, at most one per key: ``key``, ``op``, ``position``, ``row``, ``present``, as in change rows.
        before: The rows at the keys of a cut that `CutJob.completes`, as `transforms.complete_rows.completed` wants
            them; None for any other cut.
        changes: All changes, those that waited for their row among them: what histories are made of.
        waiting: Net changes that wait for their row; None where none do.
        moves: Changes move rows to other keys.
        partial: Net changes may be partial updates.
        bounds: Smallest and largest value of key columns by which files of the table are skipped, both inclusive.
        few: There are at most about `FEW` keys.
        notes: Counts worth telling, by name.
    """

    folds: DataFrame
    before: DataFrame | None
    changes: DataFrame
    waiting: DataFrame | None = None
    moves: bool = False
    partial: bool = True
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    few: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)


def fold_cut(job: CutJob) -> Folded:
    """Fold the changes of a cut into a table's state. Runs Spark jobs; writes nothing.

    Raises:
        DuplicateKey: Two rows of the source's snapshot have the same key.
        Unexplained: A change is of nothing, or begins a row that is there, and the settings do not let that pass.
        ApplyError: A frame cannot be decoded, or a key is NULL.
    """
    return _folded_by_decoder(job) if job.target.connector.folds else _Folding(job).folded()


def _folded_by_decoder(job: CutJob) -> Folded:
    net = _net(job.changes)
    bounds = _useful(job, job.statistics.bounds)
    few = job.statistics.changes <= FEW
    looks = job.completes and not job.cut.replaces
    if looks:
        net = job.cached(net)
    if job.statistics.wide_ranges and not job.nothing_before:
        net = _with_ranges(job, net)
    before = _rows_before(job, net, bounds=bounds, few=few) if looks else None
    return Folded(net, before, job.changes, bounds=bounds, few=few, notes=job.statistics.counters)


class _Folding:
    """The folding of one cut by the engine."""

    def __init__(self, job: CutJob) -> None:
        self._job, self._target, self._cut = job, job.target, job.cut
        self._by_sequence = job.target.connector.source_ordered
        self._waiting = _waiting_changes(job)

    def folded(self) -> Folded:
        job = self._job
        changes = job.changes if self._waiting is None else job.changes.unionByName(self._waiting)
        if self._by_sequence or self._target.table.keeps_history:
            changes = job.cached(changes)
        in_time, before = self._in_time(changes)
        net = job.cached(self._fold(in_time))
        found = self._statistics(net)
        bounds, few = _useful(job, found.bounds), found.changes <= FEW
        if found.moves:
            changes = job.cached(changes)
            before = _rows_before(job, _named(changes), bounds=bounds, few=few, whole=True)
            net = job.cached(self._resolved(changes, before))
        elif before is None:
            before = _rows_before(job, net, bounds=bounds, few=few)
        marked = _marked(net, before)
        notes = self._explained(marked, found)
        may_wait = self._by_sequence and not self._target.upsert
        waits = may_wait and (UPDATES_WITHOUT_ROW in notes or self._waiting is not None)
        lonely = marked.where(~F.col("stood") & (F.col("op") == UPDATE))
        position = "sequence" if self._by_sequence else "frame_seq"
        return Folded(
            folds=_net(net, position),
            before=before if job.completes else None,
            changes=changes,
            waiting=_net(lonely, position) if waits else None,
            moves=found.moves > 0,
            partial=found.partial > 0 or found.moves > 0,
            bounds=bounds,
            few=few,
            notes={**job.statistics.counters, **notes},
        )

    def _in_time(self, changes: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Leave out changes that come late: folded with later ones, what they carry would pass for new.

        Returns the rows at all their keys too, as they were looked up.
        """
        job = self._job
        if not self._by_sequence or job.nothing_before:
            return changes, None
        before = _rows_before(job, changes, bounds={}, few=job.is_small)
        return newer(changes, before, None if job.buried is None else by_key(job.buried, job.key)), before

    def _fold(self, changes: DataFrame) -> DataFrame:
        """Fold by the cheaper way where no update can be partial."""
        return fold(
            changes,
            by_sequence=self._by_sequence,
            upsert=self._target.upsert,
            whole=not self._target.connector.has_partial_updates and self._waiting is None,
            replaces=self._cut.replaces,
            op_code=self._letters(),
            counts=True,
        )

    def _resolved(self, changes: DataFrame, before: DataFrame) -> DataFrame:
        """Fold a cut some of whose changes move rows to other keys."""
        job = self._job
        if self._by_sequence:
            raise ApplyError(
                "a source whose order is its sequence cannot move rows to other keys", table=self._target.name
            )
        current = None if job.nothing_before else before.select("row.*")
        return resolve(
            changes,
            current,
            job.cache,
            upsert=self._target.upsert,
            replaces=self._cut.replaces,
            op_code=self._letters(),
        )

    def _letters(self) -> Column:
        counted_before = self._cut.after  # what waited since an earlier cut was counted then
        return op_code(snapshot_end=counted_before if self._cut.snapshot_end is None else self._cut.snapshot_end)

    def _statistics(self, net: DataFrame) -> FoldStatistics:
        found = statistics_of(net, onto_nothing=self._job.nothing_before)
        if found.unreadable:
            raise ApplyError("a frame cannot be decoded", table=self._target.name)
        if found.doubled:
            reason = (
                f"{found.doubled} keys are those of several rows of the snapshot: set keys that tell all rows apart"
            )
            raise DuplicateKey(reason, table=self._target.name, since=self._cut.snapshot_end)
        return found

    def _explained(self, marked: DataFrame, found: FoldStatistics) -> Mapping[str, int]:
        """Return how many changes nothing explains, by name; or refuse them."""
        counts = found.onto_nothing
        if not self._job.nothing_before or found.moves:
            each = unexplained(F.col(OP_HISTORY), F.col("stood"))
            counts = counted(marked, {name: F.sum(count) for name, count in each.items()})
        if counts and self._target.table.on_unexplained == "error":
            listed = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items())
            raise Unexplained(listed, table=self._target.name, since=self._unexplained_since(marked))
        return counts

    def _unexplained_since(self, marked: DataFrame) -> int | None:
        """Return the last change of the first key of which a change is not explained. Runs a Spark job."""
        if self._by_sequence:
            return None
        each = unexplained(F.col(OP_HISTORY), F.col("stood")).values()
        first = F.min(F.when(reduce(add, each) > 0, F.col("frame_seq")))
        return counted(marked, {"since": first}).get("since")


def _net(changes: DataFrame, position: str = "frame_seq") -> DataFrame:
    return changes.select("key", "op", F.col(position).alias("position"), "row", "present")


def _waiting_changes(job: CutJob) -> DataFrame | None:
    """Return the updates that wait for their row as the changes they were, but those whose row cannot come any more."""
    if job.aside is None:
        return None
    waiting = job.aside.where(F.array_contains(REASONS, UNEXPLAINED))
    horizon = job.target.decoder.tombstone_horizon(job.context, job.cut, job.target.table)
    living = waiting if horizon is None else waiting.alias("t").where(f"NOT ({horizon})")
    return complete(
        living.select(
            F.lit(job.before).cast("long").alias("frame_seq"),
            F.lit(0).alias("ordinal"),
            F.lit(UPDATE).alias("op"),
            as_struct(job.key).alias("key"),
            as_struct(job.source).alias("row"),
            F.col(PRESENT).alias("present"),
            F.col(POSITION).cast("string").alias("sequence"),
        )
    )


def _rows_before(
    job: CutJob, keys: DataFrame, *, bounds: Mapping[str, tuple[int, int]], few: bool, whole: bool | None = None
) -> DataFrame:
    """Return the rows at some keys before the cut: ``key``, ``position``, ``row`` if whole, ``outside``. Lazy, cached.

    Where the cut completes rows, those aside are looked at too, all of them: a row is in the table, or aside.
    """
    row = job.row if (job.completes if whole is None else whole) else None
    if job.nothing_before:
        return _no_rows(job, row)
    assert job.opened.table is not None, "a table that has reached a position is there"
    there = SilverRows(job.target.place, job.opened.table)
    if row is None and few and there.can_be_searched(job.key.names):
        with suppress(StoreUnavailable, pa.ArrowException):  # what is wrong is told as by any other cut: by Spark
            return _found(job, there, keys, bounds)
    failing = _failing(job)
    wanted = keys.select("key")
    if failing is not None:
        failing = by_key(failing, job.key, row)
        failing = failing if job.is_small else job.cached(failing)
        wanted, bounds = wanted.unionByName(failing.select("key")), {}
    assert job.current is not None, "a table that is there can be read"
    table = by_key(job.current.where(within(bounds)), job.key, row)
    inside = job.cached(existing(table, wanted, few=few).withColumn("outside", F.lit(False)))
    if failing is None:
        return inside
    return inside.unionByName(failing.withColumn("outside", F.lit(True)))


def _found(job: CutJob, there: SilverRows, keys: DataFrame, bounds: Mapping[str, tuple[int, int]]) -> DataFrame:
    """Return the rows at a few keys, without ``row``. Spark need not look through the table for them."""
    found = there.at(keys.select("key.*").toArrow(), [POSITION], bounds=bounds)
    rows = pa.table({"key": found.select(job.key.names).to_struct_array(), "position": found[POSITION]})
    kind = T.StructType().add("key", job.key).add("position", job.columns[POSITION].dataType)
    return from_arrow(job.target.session, rows, kind).withColumn("outside", F.lit(False))


def _no_rows(job: CutJob, row: T.StructType | None) -> DataFrame:
    position = T.StringType() if job.target.connector.source_ordered else T.LongType()
    kind = T.StructType().add("key", job.key).add("position", position)
    kind = kind if row is None else kind.add("row", row)
    return job.target.session.createDataFrame([], kind.add("outside", T.BooleanType()))


def _named(changes: DataFrame) -> DataFrame:
    """Return the keys that changes name."""
    left = changes.where(F.col("old_key").isNotNull()).select(F.col("old_key").alias("key"))
    return changes.select("key").unionByName(left)


def _failing(job: CutJob) -> DataFrame | None:
    """Return the rows aside that are whole: they are at the source, but fail the table's rules. Lazy."""
    return None if job.aside is None else job.aside.where(~F.array_contains(REASONS, UNEXPLAINED))


def _marked(net: DataFrame, before: DataFrame) -> DataFrame:
    """Tell of each key by ``stood`` whether a row was there before the cut."""
    there = before.select("key", F.lit(True).alias("stood"))
    return net.join(there, "key", "left").withColumn("stood", F.coalesce("stood", F.lit(False)))


def _useful(job: CutJob, bounds: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    """Return the bounds by which a reader of the table would skip files; others only make it dearer."""
    return {} if job.nothing_before or job.aside is not None else skipping_bounds(job.opened.table, bounds)


def _with_ranges(job: CutJob, net: DataFrame) -> DataFrame:
    """Add a delete for every row in a removed range that the net changes do not name."""
    (name,) = job.key.names
    ranges = job.target.decoder.removed_ranges(job.frames, job.context, job.cut, job.target.table).dataframe()
    assert job.current is not None, "a cut that does not replace needs a table"
    there = [rows.select(as_struct(job.key).alias("key")) for rows in (job.current, _failing(job)) if rows is not None]
    keys = there[0] if len(there) == 1 else there[0].unionByName(there[1]).distinct()
    inside = F.col(f"key.{name}").between(F.col("first_key"), F.col("last_key"))
    removed = keys.join(F.broadcast(ranges), inside).groupBy("key").agg(F.max("frame_seq").alias("position"))
    others = removed.withColumn("op", F.lit(DELETE)).join(net.select("key"), "key", "left_anti")
    return job.cached(net.unionByName(others, allowMissingColumns=True))
