"""Many changes per key become one, whatever their order: against a dictionary, and case by case.

A Spark job costs the same for one history as for hundreds, so a history is part of the key.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.conf.errors import UnusableKey
from silverfold.transforms.changes import change_type
from silverfold.transforms.consistency import op_code, unexplained
from silverfold.transforms.fold import check_key, fold
from silverfold.transforms.key_moves import resolve
from tests.support.change_model import Change, State, after, patched

COLUMNS = ("k", "a", "b")
KEY = T.StructType().add("history", T.IntegerType()).add("k", T.IntegerType())
ROW = T.StructType().add("k", T.IntegerType()).add("a", T.StringType()).add("b", T.LongType())
SILVER = T.StructType().add("history", T.IntegerType()).add("k", T.IntegerType()).add("a", T.StringType()).add(
    "b", T.LongType()
)  # fmt: skip

Histories = Sequence[tuple[State, Sequence[Change]]]
FRAMES_EACH = 1_000


def change_rows(spark: SparkSession, histories: Histories) -> DataFrame:
    rows: list[dict[str, Any]] = []
    for number, (_, changes) in enumerate(histories):
        ordinals: dict[int, int] = defaultdict(int)
        for change in changes:
            rows.append(change_row(number, change, ordinals[change.frame]))
            ordinals[change.frame] += 1
    random.Random(5).shuffle(rows)
    return spark.createDataFrame(rows, change_type(KEY, ROW))


def change_row(history: int, change: Change, ordinal: int) -> dict[str, Any]:
    old = None if change.old_key is None else {"history": history, "k": change.old_key}
    whole = set(change.sent) == set(COLUMNS)
    return {
        "frame_seq": history * FRAMES_EACH + change.frame,
        "ordinal": ordinal,
        "op": change.op,
        "key": {"history": history, "k": change.key},
        "old_key": old,
        "row": None if change.op == "delete" else {**dict.fromkeys(COLUMNS), **change.sent},
        "present": None if whole or change.op == "delete" else sorted(change.sent),
    }


def silver(spark: SparkSession, histories: Histories) -> DataFrame:
    rows = [{"history": n, **cells} for n, (state, _) in enumerate(histories) for cells in state.values()]
    return spark.createDataFrame(rows, SILVER)


def applied(histories: Histories, net: DataFrame, *, upsert: bool = False) -> list[State]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in net.collect():
        change = row.asDict(recursive=True)
        found[change["key"]["history"]].append({**change, "key": change["key"]["k"]})
    for number, nets in found.items():
        assert len({net["key"] for net in nets}) == len(nets), f"history {number}: two net rows of one key"
    return [patched(state, found[n], columns=COLUMNS, upsert=upsert) for n, (state, _) in enumerate(histories)]


def expected(histories: Histories, *, upsert: bool = False) -> list[State]:
    return [after(state, changes, columns=COLUMNS, upsert=upsert) for state, changes in histories]


def counted(spark: SparkSession, histories: Histories, net: DataFrame) -> list[dict[str, int]]:
    """Return what the net rows say that nothing explains, by history."""
    existing = silver(spark, histories).select(F.struct("history", "k").alias("key"), F.lit(True).alias("stands"))
    marked = net.join(existing, "key", "left").withColumn("stood", F.col("stands").isNotNull())
    counts = unexplained(F.col("said"), F.col("stood"))
    lines = marked.groupBy("key.history").agg(*(F.sum(count).alias(name) for name, count in counts.items())).collect()
    found = {line.history: {name: line[name] for name in counts if line[name]} for line in lines}
    return [found.get(number, {}) for number in range(len(histories))]


def to_be_counted(histories: Histories, *, upsert: bool) -> list[dict[str, int]]:
    counters: list[Counter[str]] = [Counter() for _ in histories]
    for (state, changes), counter in zip(histories, counters, strict=True):
        after(state, changes, columns=COLUMNS, upsert=upsert, unexplained=counter)
    return [{name: count for name, count in counter.items() if count} for counter in counters]


def assert_equal(histories: Histories, found: list[State], wanted: list[State]) -> None:
    for history, one, other in zip(histories, found, wanted, strict=True):
        assert one == other, history


def random_history(rng: random.Random, *, moves: bool, whole: bool = False) -> tuple[State, list[Change]]:
    keys = range(5)
    state: State = {k: {"k": k, "a": f"old{k}", "b": k} for k in keys if rng.random() < 0.5}
    frames = [frame for frame in range(rng.randint(1, 6)) for _ in range(rng.randint(1, 4))]
    return state, [random_change(rng, frame, keys, moves=moves, whole=whole) for frame in frames]


def random_change(rng: random.Random, frame: int, keys: range, *, moves: bool, whole: bool) -> Change:
    op = rng.choice(["insert", "update", "update", "delete", *(["move"] * 3 if moves else [])])
    key = rng.choice(keys)
    if op == "delete":
        return Change(frame, op, key)
    cells: dict[str, Any] = {"k": key, "a": rng.choice(["x", "y", None]), "b": rng.choice([1, 2, None])}
    sent = cells if whole or rng.random() < 0.3 else {n: v for n, v in cells.items() if n == "k" or rng.random() < 0.5}
    if op == "move":
        old_key = rng.choice([k for k in keys if k != key])
        return Change(frame, "update", key, sent, old_key)
    return Change(frame, op, key, sent)


def random_histories(count: int, *, moves: bool, whole: bool = False) -> Histories:
    rng = random.Random(count + moves)
    return [random_history(rng, moves=moves, whole=whole) for _ in range(count)]


@pytest.mark.parametrize("upsert", [False, True])
def test_partial_changes_come_to_what_they_do_one_after_another(spark: SparkSession, upsert: bool) -> None:
    histories = random_histories(400, moves=False)

    net = fold(change_rows(spark, histories), upsert=upsert, op_code=op_code())

    assert_equal(histories, applied(histories, net, upsert=upsert), expected(histories, upsert=upsert))
    assert counted(spark, histories, net) == to_be_counted(histories, upsert=upsert)


@pytest.mark.parametrize("upsert", [False, True])
def test_the_fast_path_of_whole_rows_gives_the_same(spark: SparkSession, upsert: bool) -> None:
    histories = random_histories(400, moves=False, whole=True)

    net = fold(change_rows(spark, histories), upsert=upsert, whole=True, op_code=op_code())

    assert_equal(histories, applied(histories, net, upsert=upsert), expected(histories, upsert=upsert))
    assert counted(spark, histories, net) == to_be_counted(histories, upsert=upsert)


@pytest.mark.parametrize("upsert", [False, True])
def test_moves_come_to_what_they_do_one_after_another(spark: SparkSession, upsert: bool) -> None:
    histories = random_histories(400, moves=True)

    with ExitStack() as stack:
        changes = change_rows(spark, histories)
        net = resolve(changes, silver(spark, histories), stack, upsert=upsert, op_code=op_code())

        assert_equal(histories, applied(histories, net, upsert=upsert), expected(histories, upsert=upsert))
        assert counted(spark, histories, net) == to_be_counted(histories, upsert=upsert)


OLD = {k: {"k": k, "a": f"row {k}", "b": k} for k in (14, 15, 16)}


def move(frame: int, old_key: int, key: int, **sent: Any) -> Change:
    return Change(frame, "update", key, {"k": key, **sent}, old_key)


MOVES: dict[str, tuple[Sequence[Change], dict[int, str]]] = {
    "single": ([move(0, 14, 20)], {20: "row 14", 15: "row 15", 16: "row 16"}),
    "chain in one frame": ([move(0, 14, 20), move(0, 20, 21)], {21: "row 14", 15: "row 15", 16: "row 16"}),
    "chain over frames": ([move(0, 14, 20), move(1, 20, 21)], {21: "row 14", 15: "row 15", 16: "row 16"}),
    "swap": ([move(0, 14, 15), move(0, 15, 14)], {15: "row 14", 14: "row 15", 16: "row 16"}),
    "swap through a third": (
        [move(0, 14, 99), move(1, 15, 14), move(2, 99, 15)],
        {15: "row 14", 14: "row 15", 16: "row 16"},
    ),
    "cycle of three": (
        [move(0, 14, 15), move(0, 15, 16), move(0, 16, 14)],
        {15: "row 14", 16: "row 15", 14: "row 16"},
    ),
    "onto a key deleted before": (
        [Change(0, "delete", 15), move(0, 14, 15)],
        {15: "row 14", 16: "row 16"},
    ),
    "onto a key deleted after in its frame": (
        [move(0, 14, 15), Change(0, "delete", 15)],
        {15: "row 14", 16: "row 16"},
    ),
    "onto a taken key": ([move(0, 14, 15)], {15: "row 14", 16: "row 16"}),
    "of a partial row": ([move(0, 14, 20, b=7)], {20: "row 14", 15: "row 15", 16: "row 16"}),
    "then delete": ([move(0, 14, 20), Change(1, "delete", 20)], {15: "row 15", 16: "row 16"}),
    "of a deleted row": ([Change(0, "delete", 14), move(1, 14, 20)], {15: "row 15", 16: "row 16"}),
    "then insert at the old key": (
        [move(0, 14, 20), Change(1, "insert", 14, {"k": 14, "a": "new", "b": 1})],
        {14: "new", 20: "row 14", 15: "row 15", 16: "row 16"},
    ),
    "delete then insert at the old key": (
        [Change(0, "delete", 14), Change(1, "insert", 14, {"k": 14, "a": "new"}), move(2, 15, 20)],
        {14: "new", 20: "row 15", 16: "row 16"},
    ),
    "there and back": (
        [move(0, 14, 20), move(1, 20, 14, a="back")],
        {14: "back", 15: "row 15", 16: "row 16"},
    ),
}


def test_a_moved_row_keeps_what_nobody_sent(spark: SparkSession) -> None:
    histories: Histories = [(OLD, changes) for changes, _ in MOVES.values()]

    with ExitStack() as stack:
        found = applied(histories, resolve(change_rows(spark, histories), silver(spark, histories), stack))

    named = {name: {k: cells["a"] for k, cells in state.items()} for name, state in zip(MOVES, found, strict=True)}
    assert named == {name: rows for name, (_, rows) in MOVES.items()}


def test_a_row_moved_with_some_columns_sent_has_them_and_the_others_as_they_stood(spark: SparkSession) -> None:
    histories: Histories = [(OLD, [move(3, 14, 20, b=None)])]

    with ExitStack() as stack:
        (found,) = applied(histories, resolve(change_rows(spark, histories), silver(spark, histories), stack))

    assert found[20] == {"k": 20, "a": "row 14", "b": None}


def test_a_snapshot_is_overlaid_by_changes_that_landed_before_its_rows(spark: SparkSession) -> None:
    changes = [
        Change(0, "update", 1, {"k": 1, "a": "newer"}),
        Change(1, "delete", 2),
        Change(2, "snapshot", 1, {"k": 1, "a": "older", "b": 1}),
        Change(2, "snapshot", 2, {"k": 2, "a": "gone", "b": 2}),
        Change(3, "update", 1, {"k": 1, "b": 9}),
    ]
    histories: Histories = [({}, changes)]

    net = fold(change_rows(spark, histories), replaces=True)

    assert applied(histories, net) == [{1: {"k": 1, "a": "newer", "b": 9}}]


def test_in_the_order_of_the_source_late_and_double_changes_lose(spark: SparkSession) -> None:
    kind = change_type(KEY, ROW)

    def row(frame: int, sequence: str, op: str, a: str | None) -> dict[str, Any]:
        cells = None if op == "delete" else {"k": 1, "a": a, "b": None}
        key = {"history": 0, "k": 1}
        return {"frame_seq": frame, "ordinal": 0, "op": op, "key": key, "row": cells, "sequence": sequence}

    landed = [row(1, "02", "insert", "second"), row(2, "03", "delete", None), row(3, "02", "insert", "second")]
    late = [*landed, row(4, "05", "insert", "fifth"), row(5, "04", "delete", None)]

    ended, newest = (fold(spark.createDataFrame(rows, kind), by_sequence=True).collect() for rows in (landed, late))

    assert [(r.op, r.sequence, r.frame_seq) for r in ended] == [("delete", "03", 3)]
    assert [(r.op, r.sequence, r.row.a) for r in newest] == [("insert", "05", "fifth")]


def test_rows_that_tell_of_bad_frames_come_to_the_first_of_them(spark: SparkSession) -> None:
    error = {"error_class": "INVALID_VALUE", "reason": "json"}
    rows = [{"frame_seq": at, "error": {**error, "reason": str(at)}} for at in (9, 7, 8)]
    good = [{"frame_seq": 6, "ordinal": 0, "op": "delete", "key": {"history": 0, "k": 1}}]

    net = fold(spark.createDataFrame([*rows, *good], change_type(KEY, ROW)))

    found = {row.key and row.key.k: row.error and row.error.reason for row in net.collect()}
    assert found == {1: None, None: "7"}


@pytest.mark.parametrize(
    ("kind", "usable"),
    [
        (T.StringType(), True),
        (T.BinaryType(), True),
        (T.BooleanType(), True),
        (T.ByteType(), True),
        (T.LongType(), True),
        (T.DecimalType(38, 10), True),
        (T.DateType(), True),
        (T.TimestampType(), True),
        (T.TimestampNTZType(), True),
        (T.FloatType(), False),
        (T.DoubleType(), False),
        (T.ArrayType(T.LongType()), False),
        (T.StructType().add("x", T.LongType()), False),
    ],
)
def test_keys_are_of_types_whose_values_can_be_told_apart(kind: T.DataType, usable: bool) -> None:
    key = T.StructType().add("k", kind)
    if usable:
        check_key(key, table="t")
        return
    with pytest.raises(UnusableKey, match="which cannot be a key"):
        check_key(key, table="t")
