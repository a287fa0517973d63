"""Resolves changes that move a row to another key, across a cut: chains, swaps and cycles included.

A move takes the row at ``old_key`` to ``key``, with its unsent columns. If the new key is occupied, the row there is
*displaced*: the next move or delete at that key in the same frame refers to the displaced row. So 14→15 with 15→14 in
one frame swaps two rows, 1→2, 2→3, 3→1 rotates three, and 1→2, 2→3 with no row at 2 takes one row to 3. A displaced row
without a further change in its frame is overwritten.

A row's path through a cut depends on which keys were occupied, step by step. One Python worker follows these steps in
order; it sees only the keys of the changes concerned (`RowTracker`), and gives each change the number of its row.
Values stay on the executors: changes are folded by row number, and completed from the rows before the cut. Changes on
keys that no move touches are folded as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE, as_struct, cached, complete, struct_type
from silverfold.transforms.consistency import OF_NOTHING, OP_HISTORY, is_judged, parse_counts
from silverfold.transforms.fold import fold
from silverfold.transforms.sql import quoted

Key: TypeAlias = tuple[Any, ...]

_IDENTITY = ("frame_seq", "ordinal")

_AT_FRAME_END, _AT_LAST = -1, -2
"""Sentinel ordinals for key-level results: at a frame's end, and after the last change."""


class Step(NamedTuple):
    """The part of a change that determines where rows move."""

    frame_seq: int
    op: str
    key: Key
    old_key: Key | None
    existed: bool
    """A row existed at ``key`` before the cut."""
    old_existed: bool
    """A row existed at ``old_key`` before the cut."""
    judged: bool = False
    """The change is to be counted if it is inconsistent."""


class KeyState(NamedTuple):
    """The final state of a key."""

    key: Key
    number: int | None
    """Number of the row now at the key; None if its row is gone."""
    root: Key | None
    """Key of that row before the cut; None for a row that began in the cut."""
    frame_seq: int
    """Position of the last change that took a row from the key or brought one to it, or that is inconsistent."""
    op_codes: str = ""
    """One code for each inconsistent change at the key (`transforms.consistency`)."""


@dataclass
class RowTracker:
    """Tracks rows from key to key, change by change in order.

    Args:
        upsert: An update of a row that does not exist begins one.
        record_moments: Record the state of each key in a frame at that frame's end.
    """

    upsert: bool = False
    record_moments: bool = False
    moments: list[KeyState] = field(default_factory=list)
    """Recorded states; the caller takes them and clears the list."""
    _at: dict[Key, int] = field(default_factory=dict)
    _displaced: dict[Key, int] = field(default_factory=dict)
    _roots: list[Key | None] = field(default_factory=list)
    _existed: dict[Key, bool] = field(default_factory=dict)
    _touched: dict[Key, int] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)
    _unexplained: dict[Key, str] = field(default_factory=dict)
    _frame: int = -1
    _frame_keys: dict[Key, None] = field(default_factory=dict)

    def track(self, step: Step) -> int | None:
        """Return the number of the row that the change refers to; None if there is none."""
        if step.frame_seq != self._frame:
            self.end_frame()
            self._frame = step.frame_seq
        self._frame_keys |= {step.key: None} if step.old_key is None else {step.key: None, step.old_key: None}
        self._add_key(step.key, step.existed)
        if step.old_key is not None:
            self._add_key(step.old_key, step.old_existed)
        if step.op == INSERT and step.key in self._at:
            self._record_inconsistent(step, step.key)
        number = self._row_of(step)
        if number is None:
            self._record_inconsistent(step, step.key if step.old_key is None else step.old_key)
        if number is not None:
            self._changed.add(number)
        return number

    def end_frame(self) -> None:
        """End the current frame, and record the states of its keys if requested."""
        for key in self._frame_keys if self.record_moments else ():
            number = self._at.get(key)
            self.moments.append(KeyState(key, number, self.root(number), self._frame))
        self._frame_keys.clear()
        self._displaced.clear()

    def key_states(self) -> Iterator[KeyState]:
        """Yield the final state of every key whose row changed, came or went, or that has inconsistent changes."""
        for key, existed in self._existed.items():
            number, op_codes = self._at.get(key), self._unexplained.get(key, "")
            if number in self._changed:
                yield KeyState(key, number, self._roots[number], self._touched.get(key, -1), op_codes)
            elif number is None and (existed or op_codes):
                yield KeyState(key, None, None, self._touched.get(key, -1), op_codes)

    def root(self, number: int | None) -> Key | None:
        """Return a row's key before the cut; None for a row that began in the cut."""
        return None if number is None else self._roots[number]

    def _row_of(self, step: Step) -> int | None:
        if step.op in (INSERT, SNAPSHOT):
            return self._put(step, self._begin(None))
        if step.op == DELETE:
            return self._take(step.key, step.frame_seq)
        if step.old_key is not None:
            return self._move(step, step.old_key)
        number = self._at.get(step.key)
        return self._put(step, self._begin(None)) if number is None and self.upsert else number

    def _move(self, step: Step, old_key: Key) -> int | None:
        number = self._take(old_key, step.frame_seq)
        if number is None and not self.upsert:
            return None
        displaced = self._at.get(step.key)
        if displaced is not None:
            self._displaced[step.key] = displaced
        self._touch(step.key, self._touched[old_key])
        return self._put(step, self._begin(None) if number is None else number)

    def _put(self, step: Step, number: int) -> int:
        self._at[step.key] = number
        self._touch(step.key, step.frame_seq)
        return number

    def _touch(self, key: Key, frame_seq: int) -> None:
        """Record a change's position for its key: the largest, as an overlay applies after rows that landed later."""
        self._touched[key] = max(frame_seq, self._touched.get(key, -1))

    def _take(self, key: Key, frame_seq: int) -> int | None:
        self._touch(key, frame_seq)
        if key in self._displaced:
            return self._displaced.pop(key)
        return self._at.pop(key, None)

    def _begin(self, root: Key | None) -> int:
        self._roots.append(root)
        return len(self._roots) - 1

    def _record_inconsistent(self, step: Step, key: Key) -> None:
        if step.judged:
            self._unexplained[key] = self._unexplained.get(key, "") + OF_NOTHING[step.op]
            self._touch(key, step.frame_seq)

    def _add_key(self, key: Key, existed: bool) -> None:
        """On a key's first occurrence, create its row if one existed there before the cut."""
        if key not in self._existed:
            self._existed[key] = existed
            if existed:
                self._at[key] = self._begin(key)


def resolve(
    changes: DataFrame,
    current: DataFrame | None,
    caches: ExitStack,
    *,
    upsert: bool = False,
    replaces: bool = False,
    op_code: Column | None = None,
) -> DataFrame:
    """Fold change rows that may move keys, in landing order: like `transforms.fold.fold`, with every move resolved.

    Lazy; several shuffles. Only the shuffles by key carry rows of keys that no move touches.

    Args:
        changes: Change rows, with distinct ``ordinal`` within a frame.
        current: The silver table before the cut, with the columns of ``row`` and ``key``; None for one without rows.
        caches: Holds the tracking result in Spark's cache; close it once the result is used.
        upsert: An update of a row that does not exist begins one.
        replaces: As for `fold`; ``current`` is then ignored.
        op_code: As for `fold`.

    Returns:
        Change rows, at most one per key. The row of a key that a move touches is complete: an insert or a delete.
    """
    found = track_moves(changes, current, caches, upsert=upsert, replaces=replaces, op_code=op_code)
    others = fold(found.others, upsert=upsert, replaces=replaces, op_code=op_code)
    numbered = found.numbered.drop("old_key", "root").withColumn("key", F.struct("number"))
    net = _rows_at_keys(found.key_states, fold(numbered, replaces=replaces), None if replaces else current)
    return others.unionByName(net if op_code is not None else net.drop(OP_HISTORY))


class TrackedChanges(NamedTuple):
    """Change rows, split by whether a move touches their key."""

    others: DataFrame
    """Changes that no move touches."""
    numbered: DataFrame
    """The rest, with their row's ``number`` and ``root``, its key before the cut (NULL: begun in the cut)."""
    key_states: DataFrame
    """Final states of the keys that a move touches: the columns of `KeyState`."""
    moments: DataFrame
    """If recorded: the state of each frame's keys at the frame's end; ``number`` is NULL if there is no row."""


def track_moves(
    changes: DataFrame,
    current: DataFrame | None,
    caches: ExitStack,
    *,
    upsert: bool = False,
    replaces: bool = False,
    op_code: Column | None = None,
    record_moments: bool = False,
) -> TrackedChanges:
    """Assign each change to its row. Lazy. Arguments as for `resolve` and `RowTracker`."""
    listed = complete(changes).withColumn("ordinal", F.coalesce("ordinal", F.lit(0)))
    moved = listed.where(F.col("old_key").isNotNull())
    touched = moved.select(F.explode(F.array("key", "old_key")).alias("key")).distinct()
    concerned = listed.join(touched, "key", "left_semi")
    existence = _key_existence(touched, None if replaces else current)
    judged = F.lit(False) if op_code is None else is_judged(op_code)
    run = _Run(upsert, record_moments)
    steps = concerned.withColumn("is_counted", judged)
    found = caches.enter_context(cached(_run(run, steps, existence, replaces=replaces)))
    of_changes = found.where("ordinal >= 0").select(*_IDENTITY, "number", "root")
    return TrackedChanges(
        others=listed.join(touched, "key", "left_anti"),
        numbered=concerned.join(of_changes, list(_IDENTITY)),
        key_states=found.where(F.col("ordinal") == _AT_LAST).drop("ordinal"),
        moments=found.where(F.col("ordinal") == _AT_FRAME_END).drop("ordinal"),
    )


def _key_existence(touched: DataFrame, current: DataFrame | None) -> DataFrame:
    """Return each touched key, and whether a row existed there before the cut."""
    if current is None:
        return touched.withColumn("existed", F.lit(False))
    keys = current.select(as_struct(struct_type(touched, "key")).alias("key"), F.lit(True).alias("found"))
    return touched.join(keys, "key", "left").select("key", F.col("found").isNotNull().alias("existed"))


def _run(run: _Run, concerned: DataFrame, existence: DataFrame, *, replaces: bool) -> DataFrame:
    """Run the tracker. Return one row per change and one per key state, distinguished by ``ordinal``."""
    key = concerned.schema["key"].dataType
    steps = (
        concerned.select(*_IDENTITY, "op", "key", "old_key", "is_counted")
        .join(existence, "key")
        .join(existence.select(F.col("key").alias("old_key"), F.col("existed").alias("old_existed")), "old_key", "left")
    )
    first = [F.col("op") != SNAPSHOT] if replaces else []
    in_order = steps.repartition(1).sortWithinPartitions(*first, *_IDENTITY)
    found = T.StructType().add("frame_seq", T.LongType()).add("ordinal", T.IntegerType()).add("number", T.LongType())
    names = ["op", "key", "old_key", "existed", "old_existed", "is_counted"]
    kind = found.add("root", key).add("key", key).add(OP_HISTORY, T.StringType())
    return in_order.select(*_IDENTITY, *names).mapInArrow(run, kind)


@dataclass(frozen=True)
class _Run:
    """Runs a `RowTracker` over Arrow batches."""

    upsert: bool
    record_moments: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tracker, key = RowTracker(upsert=self.upsert, record_moments=self.record_moments), None
        for batch in batches:
            key = batch.schema.field("key").type
            yield _to_batch([_track_row(tracker, row) for row in batch.to_pylist()], key)
            yield _to_batch(_state_rows(_AT_FRAME_END, tracker.moments), key)
            tracker.moments.clear()
        if key is not None:
            tracker.end_frame()
            yield _to_batch(_state_rows(_AT_FRAME_END, tracker.moments), key)
            yield _to_batch(_state_rows(_AT_LAST, tracker.key_states()), key)


def _state_rows(kind: int, key_states: Iterable[KeyState]) -> list[_ResultRow]:
    return [(at.frame_seq, kind, at.number, at.root, at.key, at.op_codes) for at in key_states]


_ResultRow: TypeAlias = tuple[int, int, int | None, Key | None, Key | None, str]


def _track_row(tracker: RowTracker, row: Mapping[str, Any]) -> _ResultRow:
    old_key = None if row["old_key"] is None else tuple(row["old_key"].values())
    key = tuple(row["key"].values())
    existed = (row["existed"], bool(row["old_existed"]), row["is_counted"])
    number = tracker.track(Step(row["frame_seq"], row["op"], key, old_key, *existed))
    return row["frame_seq"], row["ordinal"], number, tracker.root(number), key, ""


def _to_batch(rows: Sequence[_ResultRow], key: pa.DataType) -> pa.RecordBatch:
    frames, ordinals, numbers, roots, keys, op_codes = zip(*rows, strict=True) if rows else [()] * 6
    columns = [pa.array(frames, pa.int64()), pa.array(ordinals, pa.int32()), pa.array(numbers, pa.int64())]
    structs = [[None if k is None else dict(zip(key.names, k, strict=True)) for k in named] for named in (roots, keys)]
    return pa.RecordBatch.from_arrays(
        [*columns, *(pa.array(named, key) for named in structs), pa.array(op_codes, pa.string())],
        names=["frame_seq", "ordinal", "number", "root", "key", OP_HISTORY],
    )


def _rows_at_keys(key_states: DataFrame, net: DataFrame, current: DataFrame | None) -> DataFrame:
    """Assign the folded rows to their final keys, completed from their rows before the cut."""
    at = key_states.withColumnRenamed("frame_seq", "touched_at")
    key, row = struct_type(at, "key"), struct_type(net, "row")
    folded = net.select("key.number", "frame_seq", "op", "row", "present", "source_time")
    if current is None:
        base = at.select("root", F.lit(None).cast(row).alias("base")).limit(0)
    else:
        base = current.select(as_struct(key).alias("root"), as_struct(row).alias("base"))
    joined = at.join(folded, "number", "left").join(base, "root", "left")
    is_partial = (F.col("op") == UPDATE) & F.coalesce(F.col("present").isNotNull(), F.lit(False))

    def cell(name: str) -> Column:
        if name in key.names:
            return F.col(f"key.{quoted(name)}")
        unsent = is_partial & ~F.array_contains("present", name)
        return F.when(unsent, F.col(f"base.{quoted(name)}")).otherwise(F.col(f"row.{quoted(name)}"))

    exists = F.col("number").isNotNull()
    return complete(
        joined.select(
            F.greatest("frame_seq", "touched_at").alias("frame_seq"),
            F.when(exists, F.lit(INSERT)).otherwise(F.lit(DELETE)).alias("op"),
            "key",
            F.when(exists, F.struct(*(cell(name).alias(name) for name in row.names))).alias("row"),
            "source_time",
            parse_counts(F.col(OP_HISTORY)).alias(OP_HISTORY),
        ),
        OP_HISTORY,
    )
