"""Resolves changes that move a row to another key, over a whole cut: chains, swaps and cycles included.

A move takes the row at ``old_key`` to ``key``; the columns nobody sent go with it. Where a row comes to a key that is
taken, the row that stood there is *displaced*: the next move or delete of the same frame at that key means it. So 14→15
with 15→14 in one frame swaps two rows, 1→2, 2→3, 3→1 turns three round, and 1→2, 2→3 with nobody at 2 takes one row to
3. A displaced row that its frame says no more of is overwritten.

A row's way through a cut depends on what stood where, step by step. Only that is followed in order, in one Python
worker that sees the keys of the changes concerned and nothing else of them (`RowTracker`); it gives each change the
number of the row it is of. Values stay with the executors: changes are folded by that number, and completed from the
rows as they stood. Changes on keys that no move touches are folded as ever.
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

from transforms.changes import DELETE, INSERT, SNAPSHOT, UPDATE, as_struct, cached, complete, struct_type
from transforms.consistency import OF_NOTHING, OP_HISTORY, is_judged, said_already
from transforms.fold import fold
from transforms.sql import quoted

Key: TypeAlias = tuple[Any, ...]

_IDENTITY = ("frame_seq", "ordinal")

_AT_FRAME_END, _AT_LAST = -1, -2
"""Stand for ``ordinal`` in what is found out of keys rather than of changes."""


class Step(NamedTuple):
    """One change, as far as rows' ways are concerned."""

    frame_seq: int
    op: str
    key: Key
    old_key: Key | None
    stood: bool
    """A row stood at ``key`` before the cut."""
    old_stood: bool
    """A row stood at ``old_key`` before the cut."""
    judged: bool = False
    """It is to be told if no row explains the change."""


class Place(NamedTuple):
    """What a key comes to."""

    key: Key
    number: int | None
    """Number of the row that stands there now; None when a row that stood there is gone."""
    root: Key | None
    """Where that row stood before the cut; None for a row that began in it."""
    frame_seq: int
    """Position of the last change that took a row from there or brought one, or that no row explains."""
    said: str = ""
    """A letter for each change at the key that no row explains (`transforms.consistency`)."""


@dataclass
class RowTracker:
    """Follows rows from key to key, change by change in order.

    Args:
        upsert: An update of a row that is not there begins one.
        notes_moments: Note what each key a frame spoke of came to at that frame's end.
    """

    upsert: bool = False
    notes_moments: bool = False
    moments: list[Place] = field(default_factory=list)
    """What was noted; to be taken by the caller."""
    _at: dict[Key, int] = field(default_factory=dict)
    _displaced: dict[Key, int] = field(default_factory=dict)
    _roots: list[Key | None] = field(default_factory=list)
    _stood: dict[Key, bool] = field(default_factory=dict)
    _touched: dict[Key, int] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)
    _unexplained: dict[Key, str] = field(default_factory=dict)
    _frame: int = -1
    _spoken_of: dict[Key, None] = field(default_factory=dict)

    def follow(self, step: Step) -> int | None:
        """Return the number of the row the change is of; None when it is of none."""
        if step.frame_seq != self._frame:
            self.end_frame()
            self._frame = step.frame_seq
        self._spoken_of |= {step.key: None} if step.old_key is None else {step.key: None, step.old_key: None}
        self._meet(step.key, step.stood)
        if step.old_key is not None:
            self._meet(step.old_key, step.old_stood)
        if step.op == INSERT and step.key in self._at:
            self._tell(step, step.key)
        number = self._row_of(step)
        if number is None:
            self._tell(step, step.key if step.old_key is None else step.old_key)
        if number is not None:
            self._changed.add(number)
        return number

    def end_frame(self) -> None:
        """Note that no more changes of the last frame follow."""
        for key in self._spoken_of if self.notes_moments else ():
            number = self._at.get(key)
            self.moments.append(Place(key, number, self.root(number), self._frame))
        self._spoken_of.clear()
        self._displaced.clear()

    def places(self) -> Iterator[Place]:
        """Yield what has become of every key whose row changed, came or went, or of whose row more was expected."""
        for key, stood in self._stood.items():
            number, said = self._at.get(key), self._unexplained.get(key, "")
            if number in self._changed:
                yield Place(key, number, self._roots[number], self._touched.get(key, -1), said)
            elif number is None and (stood or said):
                yield Place(key, None, None, self._touched.get(key, -1), said)

    def root(self, number: int | None) -> Key | None:
        """Return where a row stood before the cut; None for one that began in it."""
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
        standing = self._at.get(step.key)
        if standing is not None:
            self._displaced[step.key] = standing
        self._touch(step.key, self._touched[old_key])
        return self._put(step, self._begin(None) if number is None else number)

    def _put(self, step: Step, number: int) -> int:
        self._at[step.key] = number
        self._touch(step.key, step.frame_seq)
        return number

    def _touch(self, key: Key, frame_seq: int) -> None:
        """Note where a key was spoken of. What overlays a snapshot takes effect behind rows that landed after it."""
        self._touched[key] = max(frame_seq, self._touched.get(key, -1))

    def _take(self, key: Key, frame_seq: int) -> int | None:
        self._touch(key, frame_seq)
        if key in self._displaced:
            return self._displaced.pop(key)
        return self._at.pop(key, None)

    def _begin(self, root: Key | None) -> int:
        self._roots.append(root)
        return len(self._roots) - 1

    def _tell(self, step: Step, key: Key) -> None:
        if step.judged:
            self._unexplained[key] = self._unexplained.get(key, "") + OF_NOTHING[step.op]
            self._touch(key, step.frame_seq)

    def _meet(self, key: Key, stood: bool) -> None:
        """Let a row stand at a key heard of for the first time, if one did before the cut."""
        if key not in self._stood:
            self._stood[key] = stood
            if stood:
                self._at[key] = self._begin(key)


def resolve(
    changes: DataFrame,
    current: DataFrame | None,
    kept: ExitStack,
    *,
    upsert: bool = False,
    replaces: bool = False,
    op_code: Column | None = None,
) -> DataFrame:
    """Fold change rows some of which move keys: as `transforms.fold.fold`, in landing order, with every move resolved.

    Lazy; several shuffles, of which only those by key carry rows of keys that no move touches.

    Args:
        changes: Change rows. ``ordinal`` tells those of one frame apart.
        current: The silver table before the cut, with the columns of ``row`` and ``key``; None for one without rows.
        kept: Holds what was found out of the rows' ways in Spark's cache; to be closed once the result is used.
        upsert: An update of a row that is not there begins one.
        replaces: As for `fold`; ``current`` is not looked at then.
        op_code: As for `fold`.

    Returns:
        Change rows, at most one per key. A row on a key that a move touches is whole: an insert or a delete.
    """
    found = follow(changes, current, kept, upsert=upsert, replaces=replaces, op_code=op_code)
    others = fold(found.others, upsert=upsert, replaces=replaces, op_code=op_code)
    numbered = found.numbered.drop("old_key", "root").withColumn("key", F.struct("number"))
    net = _at_places(found.places, fold(numbered, replaces=replaces), None if replaces else current)
    return others.unionByName(net if op_code is not None else net.drop(OP_HISTORY))


class Followed(NamedTuple):
    """Change rows, told apart by whether a move touches their key."""

    others: DataFrame
    """Those that no move touches."""
    numbered: DataFrame
    """The rest, with ``number`` and ``root``: which row they are of, and its key before the cut (NULL: begun in it)."""
    places: DataFrame
    """What has become of the keys that a move touches: the columns of `Place`."""
    moments: DataFrame
    """If noted: the same at the end of each frame, for the keys it speaks of; ``number`` NULL where no row stands."""


def follow(
    changes: DataFrame,
    current: DataFrame | None,
    kept: ExitStack,
    *,
    upsert: bool = False,
    replaces: bool = False,
    op_code: Column | None = None,
    notes_moments: bool = False,
) -> Followed:
    """Find out which row each change is of. Lazy. Arguments as of `resolve` and `RowTracker`."""
    listed = complete(changes).withColumn("ordinal", F.coalesce("ordinal", F.lit(0)))
    moved = listed.where(F.col("old_key").isNotNull())
    touched = moved.select(F.explode(F.array("key", "old_key")).alias("key")).distinct()
    concerned = listed.join(touched, "key", "left_semi")
    stood = _stood(touched, None if replaces else current)
    judged = F.lit(False) if op_code is None else is_judged(op_code)
    run = _Run(upsert, notes_moments)
    found = kept.enter_context(cached(_run(run, concerned.withColumn("judged", judged), stood, replaces=replaces)))
    of_changes = found.where("ordinal >= 0").select(*_IDENTITY, "number", "root")
    return Followed(
        others=listed.join(touched, "key", "left_anti"),
        numbered=concerned.join(of_changes, list(_IDENTITY)),
        places=found.where(F.col("ordinal") == _AT_LAST).drop("ordinal"),
        moments=found.where(F.col("ordinal") == _AT_FRAME_END).drop("ordinal"),
    )


def _stood(touched: DataFrame, current: DataFrame | None) -> DataFrame:
    """Return each touched key, and whether a row stood there before the cut."""
    if current is None:
        return touched.withColumn("stood", F.lit(False))
    keys = current.select(as_struct(struct_type(touched, "key")).alias("key"), F.lit(True).alias("found"))
    return touched.join(keys, "key", "left").select("key", F.col("found").isNotNull().alias("stood"))


def _run(run: _Run, concerned: DataFrame, stood: DataFrame, *, replaces: bool) -> DataFrame:
    """Run the follower: a row for each change, and one for each place, of which ``ordinal`` tells the kind."""
    key = concerned.schema["key"].dataType
    steps = (
        concerned.select(*_IDENTITY, "op", "key", "old_key", "judged")
        .join(stood, "key")
        .join(stood.select(F.col("key").alias("old_key"), F.col("stood").alias("old_stood")), "old_key", "left")
    )
    first = [F.col("op") != SNAPSHOT] if replaces else []
    in_order = steps.repartition(1).sortWithinPartitions(*first, *_IDENTITY)
    found = T.StructType().add("frame_seq", T.LongType()).add("ordinal", T.IntegerType()).add("number", T.LongType())
    names = ["op", "key", "old_key", "stood", "old_stood", "judged"]
    kind = found.add("root", key).add("key", key).add(OP_HISTORY, T.StringType())
    return in_order.select(*_IDENTITY, *names).mapInArrow(run, kind)


@dataclass(frozen=True)
class _Run:
    """A follower over Arrow batches."""

    upsert: bool
    notes_moments: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        follower, key = RowTracker(upsert=self.upsert, notes_moments=self.notes_moments), None
        for batch in batches:
            key = batch.schema.field("key").type
            yield _found([_followed(follower, row) for row in batch.to_pylist()], key)
            yield _found(_told(_AT_FRAME_END, follower.moments), key)
            follower.moments.clear()
        if key is not None:
            follower.end_frame()
            yield _found(_told(_AT_FRAME_END, follower.moments), key)
            yield _found(_told(_AT_LAST, follower.places()), key)


def _told(kind: int, places: Iterable[Place]) -> list[_Found]:
    return [(at.frame_seq, kind, at.number, at.root, at.key, at.said) for at in places]


_Found: TypeAlias = tuple[int, int, int | None, Key | None, Key | None, str]


def _followed(follower: RowTracker, row: Mapping[str, Any]) -> _Found:
    old_key = None if row["old_key"] is None else tuple(row["old_key"].values())
    key = tuple(row["key"].values())
    stood = (row["stood"], bool(row["old_stood"]), row["judged"])
    number = follower.follow(Step(row["frame_seq"], row["op"], key, old_key, *stood))
    return row["frame_seq"], row["ordinal"], number, follower.root(number), key, ""


def _found(rows: Sequence[_Found], key: pa.DataType) -> pa.RecordBatch:
    frames, ordinals, numbers, roots, keys, said = zip(*rows, strict=True) if rows else [()] * 6
    columns = [pa.array(frames, pa.int64()), pa.array(ordinals, pa.int32()), pa.array(numbers, pa.int64())]
    spelt = [[None if k is None else dict(zip(key.names, k, strict=True)) for k in named] for named in (roots, keys)]
    return pa.RecordBatch.from_arrays(
        [*columns, *(pa.array(named, key) for named in spelt), pa.array(said, pa.string())],
        names=["frame_seq", "ordinal", "number", "root", "key", OP_HISTORY],
    )


def _at_places(places: DataFrame, net: DataFrame, current: DataFrame | None) -> DataFrame:
    """Put the folded rows where they stand now, completed from the rows they were before the cut."""
    at = places.withColumnRenamed("frame_seq", "touched_at")
    key, row = struct_type(at, "key"), struct_type(net, "row")
    folded = net.select("key.number", "frame_seq", "op", "row", "present", "source_time")
    if current is None:
        base = at.select("root", F.lit(None).cast(row).alias("base")).limit(0)
    else:
        base = current.select(as_struct(key).alias("root"), as_struct(row).alias("base"))
    joined = at.join(folded, "number", "left").join(base, "root", "left")
    kept = (F.col("op") == UPDATE) & F.coalesce(F.col("present").isNotNull(), F.lit(False))

    def cell(name: str) -> Column:
        if name in key.names:
            return F.col(f"key.{quoted(name)}")
        unsent = kept & ~F.array_contains("present", name)
        return F.when(unsent, F.col(f"base.{quoted(name)}")).otherwise(F.col(f"row.{quoted(name)}"))

    stands = F.col("number").isNotNull()
    return complete(
        joined.select(
            F.greatest("frame_seq", "touched_at").alias("frame_seq"),
            F.when(stands, F.lit(INSERT)).otherwise(F.lit(DELETE)).alias("op"),
            "key",
            F.when(stands, F.struct(*(cell(name).alias(name) for name in row.names))).alias("row"),
            "source_time",
            said_already(F.col(OP_HISTORY)).alias(OP_HISTORY),
        ),
        OP_HISTORY,
    )
