"""Fold the changes of a cut: one net change per key, the existing rows at those keys, and unexplained changes.

For source-ordered sources, late changes lose, deletes are remembered, and an update without an existing row is pending
in the side table until its row arrives. Where updates are partial, a late change cannot be placed, since a row
has one position for all its columns: the side table marks its key, until a whole row of the key comes.
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

from silverfold.conf.errors import ApplyError, DuplicateKey, StoreUnavailable, Unexplained
from silverfold.conf.model import LATE_PARTIAL, UNEXPLAINED
from silverfold.pipelines.applying.decode import DecodedCut
from silverfold.pipelines.applying.fold_statistics import FoldStatistics, counted, statistics_of
from silverfold.pipelines.places import REASONS
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.store import skipping_bounds
from silverfold.transforms.changes import DELETE, UPDATE, as_struct, complete, from_arrow
from silverfold.transforms.complete_rows import is_incomplete
from silverfold.transforms.consistency import OP_HISTORY, UPDATES_WITHOUT_ROW, op_code, unexplained
from silverfold.transforms.existing_rows import FEW, by_key, existing, mark_late, within
from silverfold.transforms.fold import fold
from silverfold.transforms.key_moves import resolve
from silverfold.transforms.merge import POSITION, PRESENT


@dataclass(frozen=True)
class FoldedCut:
    """A folded cut.

    Args:
        net: Net changes, at most one per key: ``key``, ``op``, ``position``, ``row``, ``present``, as in change rows.
        before: Existing rows at the keys of a cut with `DecodedCut.completes`, in the form
            `transforms.complete_rows.completed` takes; None for any other cut.
        changes: All changes, including formerly pending ones: the input for the history.
        pending: Net changes that are pending until their row arrives; None without any.
        degraded: ``key`` and ``position`` of the last late change of rows that partial updates may have completed;
            None without any.
        moves: Some changes move rows to other keys.
        partial: Net changes may be partial updates.
        had_partial: Rows of the table may be made of partial updates, of this cut or of one before; only known for a
            source-ordered source.
        bounds: Smallest and largest value of key columns, both inclusive, for skipping files of the table.
        few: There are at most about `FEW` keys.
        counters: Counts to report, by name.
    """

    net: DataFrame
    before: DataFrame | None
    changes: DataFrame
    pending: DataFrame | None = None
    degraded: DataFrame | None = None
    moves: bool = False
    partial: bool = True
    had_partial: bool = False
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    few: bool = False
    counters: Mapping[str, int] = field(default_factory=dict)


def fold_cut(decoded: DecodedCut) -> FoldedCut:
    """Fold the changes of a cut into a table's state. Runs Spark jobs; writes nothing.

    Raises:
        DuplicateKey: Two rows of the source's snapshot have the same key.
        Unexplained: A change has no row to act on, or inserts an existing row, and the settings do not allow it.
        ApplyError: A frame cannot be decoded, or a key is NULL.
    """
    return _fold_by_decoder(decoded) if decoded.silver.connector.folds else _Folding(decoded).run()


def _fold_by_decoder(decoded: DecodedCut) -> FoldedCut:
    net = _net(decoded.changes)
    bounds = _skipping_bounds(decoded, decoded.statistics.bounds)
    few = decoded.statistics.changes <= FEW
    needs_rows = decoded.completes and not decoded.cut.replaces
    if needs_rows:
        net = decoded.cached(net)
    if decoded.statistics.wide_ranges and not decoded.nothing_before:
        net = _with_ranges(decoded, net)
    before = _rows_before(decoded, net, bounds=bounds, few=few) if needs_rows else None
    return FoldedCut(net, before, decoded.changes, bounds=bounds, few=few, counters=decoded.statistics.counters)


@dataclass(frozen=True)
class _SplitChanges:
    """The changes of a cut without the late ones.

    Args:
        before: Existing rows at the keys of all changes; None if they were not looked up.
        missing: Late changes that rows made of partial updates may lack; None without any.
        had_partial: As in `FoldedCut`.
    """

    in_time: DataFrame
    before: DataFrame | None = None
    missing: DataFrame | None = None
    had_partial: bool = False
    counters: Mapping[str, int] = field(default_factory=dict)


class _Folding:
    """Folds one cut in the engine, for decoders that do not fold."""

    def __init__(self, decoded: DecodedCut) -> None:
        self._decoded, self._silver, self._cut = decoded, decoded.silver, decoded.cut
        self._by_sequence = decoded.silver.connector.source_ordered
        self._pending = _pending_changes(decoded)

    def run(self) -> FoldedCut:
        decoded = self._decoded
        changes = decoded.changes if self._pending is None else decoded.changes.unionByName(self._pending)
        if self._by_sequence or self._silver.conf.keeps_history:
            changes = decoded.cached(changes)
        split = self._split_late(changes)
        net, before = decoded.cached(self._fold(split.in_time)), split.before
        found = self._statistics(net)
        bounds, few = _skipping_bounds(decoded, found.bounds), found.changes <= FEW
        if found.moves:
            changes = decoded.cached(changes)
            before = _rows_before(decoded, _keys_named(changes), bounds=bounds, few=few, whole=True)
            net = decoded.cached(self._resolve_moves(changes, before))
        elif before is None:
            before = _rows_before(decoded, net, bounds=bounds, few=few)
        marked = _mark_existing(net, before)
        counters = self._count_unexplained(marked, found)
        may_be_pending = self._by_sequence and not self._silver.upsert
        has_pending = may_be_pending and (UPDATES_WITHOUT_ROW in counters or self._pending is not None)
        updates_without_row = marked.where(~F.col("existed") & (F.col("op") == UPDATE))
        position = "sequence" if self._by_sequence else "frame_seq"
        return FoldedCut(
            net=_net(net, position),
            before=before if decoded.completes else None,
            changes=changes,
            pending=_net(updates_without_row, position) if has_pending else None,
            degraded=_degraded_keys(decoded, split.missing, net),
            moves=found.moves > 0,
            partial=found.partial > 0 or found.moves > 0,
            had_partial=split.had_partial,
            bounds=bounds,
            few=few,
            counters={**decoded.statistics.counters, **counters, **split.counters},
        )

    def _split_late(self, changes: DataFrame) -> _SplitChanges:
        """Drop late changes: folded with later ones, their values would pass for new.

        A second copy of a change that a row has counts as missing in it, unless it is the last of the row. A delete has
        no values to miss, but versions of a history before it have.
        """
        decoded, may_be_partial = self._decoded, self._silver.connector.has_partial_updates
        if not self._by_sequence:
            return _SplitChanges(changes)
        had_partial = decoded.known is not None and decoded.known.partial
        partial = {"partial": F.count_if(_is_partial())} if may_be_partial else {}
        if decoded.nothing_before:
            return _SplitChanges(changes, had_partial=had_partial or bool(counted(changes, partial)))
        before = _rows_before(decoded, changes, bounds={}, few=decoded.is_small)
        deleted = None if decoded.tombstones is None else by_key(decoded.tombstones, decoded.key)
        marked = mark_late(changes, before, deleted)
        after = F.greatest("applied", "deleted") if self._silver.conf.keeps_history else F.col("applied")
        missing = F.col("late") & (F.col("sequence") < after)
        counters: Mapping[str, int] = {}
        if may_be_partial:
            marked = decoded.cached(marked)
            found = counted(marked, {**partial, LATE_PARTIAL: F.count_if(missing)})
            had_partial = had_partial or "partial" in found
            counters = {LATE_PARTIAL: found[LATE_PARTIAL]} if had_partial and LATE_PARTIAL in found else {}
        in_time = marked.where(~F.col("late")).drop("late", "applied", "deleted")
        return _SplitChanges(in_time, before, marked.where(missing) if counters else None, had_partial, counters)

    def _fold(self, changes: DataFrame) -> DataFrame:
        """Fold, by the cheaper method where no update can be partial."""
        return fold(
            changes,
            by_sequence=self._by_sequence,
            upsert=self._silver.upsert,
            whole=not self._silver.connector.has_partial_updates and self._pending is None,
            replaces=self._cut.replaces,
            op_code=self._op_code(),
            counts=True,
        )

    def _resolve_moves(self, changes: DataFrame, before: DataFrame) -> DataFrame:
        """Fold a cut in which some changes move rows to other keys."""
        decoded = self._decoded
        if self._by_sequence:
            raise ApplyError(
                "a source whose order is its sequence cannot move rows to other keys", table=self._silver.name
            )
        current = None if decoded.nothing_before else before.select("row.*")
        return resolve(
            changes,
            current,
            decoded.cache,
            upsert=self._silver.upsert,
            replaces=self._cut.replaces,
            op_code=self._op_code(),
        )

    def _op_code(self) -> Column:
        counted_before = self._cut.after  # changes pending since an earlier cut were counted in that cut
        return op_code(snapshot_end=counted_before if self._cut.snapshot_end is None else self._cut.snapshot_end)

    def _statistics(self, net: DataFrame) -> FoldStatistics:
        found = statistics_of(net, onto_nothing=self._decoded.nothing_before)
        if found.unreadable:
            raise ApplyError("a frame cannot be decoded", table=self._silver.name)
        if found.doubled:
            reason = (
                f"{found.doubled} keys are those of several rows of the snapshot: set keys that tell all rows apart"
            )
            raise DuplicateKey(reason, table=self._silver.name, since=self._cut.snapshot_end)
        return found

    def _count_unexplained(self, marked: DataFrame, found: FoldStatistics) -> Mapping[str, int]:
        """Return the number of unexplained changes by name, or raise Unexplained."""
        counts = found.onto_nothing
        if not self._decoded.nothing_before or found.moves:
            each = unexplained(F.col(OP_HISTORY), F.col("existed"))
            counts = counted(marked, {name: F.sum(count) for name, count in each.items()})
        if counts and self._silver.conf.on_unexplained == "error":
            listed = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items())
            raise Unexplained(listed, table=self._silver.name, since=self._unexplained_since(marked))
        return counts

    def _unexplained_since(self, marked: DataFrame) -> int | None:
        """Return the smallest position of the last change of a key with an unexplained change. Runs a Spark job."""
        if self._by_sequence:
            return None
        each = unexplained(F.col(OP_HISTORY), F.col("existed")).values()
        first = F.min(F.when(reduce(add, each) > 0, F.col("frame_seq")))
        return counted(marked, {"since": first}).get("since")


def _net(changes: DataFrame, position: str = "frame_seq") -> DataFrame:
    return changes.select("key", "op", F.col(position).alias("position"), "row", "present")


def _is_partial() -> Column:
    return (F.col("op") == UPDATE) & F.col("present").isNotNull()


def _degraded_keys(decoded: DecodedCut, late: DataFrame | None, net: DataFrame) -> DataFrame | None:
    """Return the keys whose rows may lack values of late changes; None without any.

    A whole row or a delete that is newer than the change ends it, and so does a snapshot. Versions in a history that
    began before stay wrong all the same, so there only a rebuild ends it.
    """
    known = None if decoded.side_rows is None else by_key(_side_rows_by(decoded.side_rows, LATE_PARTIAL), decoded.key)
    if late is not None:
        late = late.select("key", F.col("sequence").alias("position"))
        known = late if known is None else known.unionByName(late)
    if known is None or decoded.cut.replaces:
        return None
    degraded = known.groupBy("key").agg(F.max("position").alias("position"))
    if decoded.silver.conf.keeps_history:
        return degraded
    whole = net.where(~_is_partial()).select("key", F.col("sequence").alias("renewed"))
    degraded = degraded.join(whole, "key", "left")
    return degraded.where(F.col("renewed").isNull() | (F.col("renewed") < F.col("position"))).drop("renewed")


def _side_rows_by(side_rows: DataFrame, reason: str) -> DataFrame:
    return side_rows.where(F.array_contains(REASONS, reason))


def _pending_changes(decoded: DecodedCut) -> DataFrame | None:
    """Return the pending updates as change rows, without those whose row can no longer arrive."""
    if decoded.side_rows is None:
        return None
    pending = _side_rows_by(decoded.side_rows, UNEXPLAINED)
    horizon = decoded.tombstone_horizon
    remaining = pending if horizon is None else pending.alias("t").where(f"NOT ({horizon})")
    return complete(
        remaining.select(
            F.lit(decoded.cut.after).cast("long").alias("frame_seq"),
            F.lit(0).alias("ordinal"),
            F.lit(UPDATE).alias("op"),
            as_struct(decoded.key).alias("key"),
            as_struct(decoded.source).alias("row"),
            F.col(PRESENT).alias("present"),
            F.col(POSITION).cast("string").alias("sequence"),
        )
    )


def _rows_before(
    decoded: DecodedCut, keys: DataFrame, *, bounds: Mapping[str, tuple[int, int]], few: bool, whole: bool | None = None
) -> DataFrame:
    """Return existing rows at the given keys: ``key``, ``position``, ``outside``, and ``row`` if whole. Lazy, cached.

    A row is either in the table or in the side table. If the cut completes rows, all rows of the side table are
    included, with ``outside`` true.
    """
    row = decoded.row if (decoded.completes if whole is None else whole) else None
    if decoded.nothing_before:
        return _no_rows(decoded, row)
    assert decoded.opened.table is not None, "a table that has reached a position is there"
    there = SilverRows(decoded.silver.place, decoded.opened.table)
    if row is None and few and there.can_be_searched(decoded.key.names):
        with suppress(StoreUnavailable, pa.ArrowException):  # Spark reports the problem, as for any other cut
            return _search_silver(decoded, there, keys, bounds)
    failing = _failing_rows(decoded)
    wanted = keys.select("key")
    if failing is not None:
        failing = by_key(failing, decoded.key, row)
        failing = failing if decoded.is_small else decoded.cached(failing)
        wanted, bounds = wanted.unionByName(failing.select("key")), {}
    assert decoded.current is not None, "a table that is there can be read"
    table = by_key(decoded.current.where(within(bounds)), decoded.key, row)
    inside = decoded.cached(existing(table, wanted, few=few).withColumn("outside", F.lit(False)))
    if failing is None:
        return inside
    return inside.unionByName(failing.withColumn("outside", F.lit(True)))


def _search_silver(
    decoded: DecodedCut, there: SilverRows, keys: DataFrame, bounds: Mapping[str, tuple[int, int]]
) -> DataFrame:
    """Return the rows at a few keys, without ``row`` and without a Spark scan of the table."""
    found = there.at(keys.select("key.*").toArrow(), [POSITION], bounds=bounds)
    rows = pa.table({"key": found.select(decoded.key.names).to_struct_array(), "position": found[POSITION]})
    kind = T.StructType().add("key", decoded.key).add("position", decoded.columns[POSITION].dataType)
    return from_arrow(decoded.silver.session, rows, kind).withColumn("outside", F.lit(False))


def _no_rows(decoded: DecodedCut, row: T.StructType | None) -> DataFrame:
    position = T.StringType() if decoded.silver.connector.source_ordered else T.LongType()
    kind = T.StructType().add("key", decoded.key).add("position", position)
    kind = kind if row is None else kind.add("row", row)
    return decoded.silver.session.createDataFrame([], kind.add("outside", T.BooleanType()))


def _keys_named(changes: DataFrame) -> DataFrame:
    """Return the keys that the changes name, old and new."""
    left = changes.where(F.col("old_key").isNotNull()).select(F.col("old_key").alias("key"))
    return changes.select("key").unionByName(left)


def _failing_rows(decoded: DecodedCut) -> DataFrame | None:
    """Return the complete rows of the side table: they exist at the source but fail the table's rules. Lazy."""
    return None if decoded.side_rows is None else decoded.side_rows.where(~is_incomplete(REASONS))


def _mark_existing(net: DataFrame, before: DataFrame) -> DataFrame:
    """Add ``existed`` to each key: whether a row existed before the cut."""
    there = before.select("key", F.lit(True).alias("existed"))
    return net.join(there, "key", "left").withColumn("existed", F.coalesce("existed", F.lit(False)))


def _skipping_bounds(decoded: DecodedCut, bounds: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    """Return only the bounds that let a reader skip files; others just add cost."""
    return (
        {} if decoded.nothing_before or decoded.side_rows is not None else skipping_bounds(decoded.opened.table, bounds)
    )


def _with_ranges(decoded: DecodedCut, net: DataFrame) -> DataFrame:
    """Add a delete for every row in a removed range that no net change names."""
    (name,) = decoded.key.names
    ranges = decoded.removed_ranges(decoded.frames)
    assert decoded.current is not None, "a cut that does not replace needs a table"
    there = [
        rows.select(as_struct(decoded.key).alias("key"))
        for rows in (decoded.current, _failing_rows(decoded))
        if rows is not None
    ]
    keys = there[0] if len(there) == 1 else there[0].unionByName(there[1]).distinct()
    inside = F.col(f"key.{name}").between(F.col("first_key"), F.col("last_key"))
    removed = keys.join(F.broadcast(ranges), inside).groupBy("key").agg(F.max("frame_seq").alias("position"))
    others = removed.withColumn("op", F.lit(DELETE)).join(net.select("key"), "key", "left_anti")
    return decoded.cached(net.unionByName(others, allowMissingColumns=True))
