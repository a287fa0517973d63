"""Every version of every row, exact at every cut: against a dictionary that is told one frame at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from silverfold.pipelines.spark.session import own_session
from silverfold.transforms.changes import change_type
from silverfold.transforms.history import END, START, Moments, write_history
from silverfold.transforms.merge import Recorded
from tests.support.building_once import all_rows
from tests.support.change_model import Change, State, after
from tests.transforms.test_fold import COLUMNS, FRAMES_EACH, KEY, ROW, Histories, change_rows, move, random_history

VERSIONS = "struct<history:int,k:int,a:string,b:bigint,__START_AT:bigint,__END_AT:bigint>"
STEPS = (2, 3, 6)
"""Frames below which the cuts of a history end."""

Version: TypeAlias = tuple[int, int, Any, Any, int, int | None]


def versions(history: int, changes: Sequence[Change], *, below: int) -> Iterator[Version]:
    """Tell what has been where from when to when. Each change leaves its frame in the row it makes."""
    state: State = {}
    open_at: dict[int, Version] = {}
    for frame in range(below):
        mine = [
            c if c.op == "delete" else c._replace(sent={**c.sent, "at": frame}) for c in changes if c.frame == frame
        ]
        state = after(state, mine, columns=COLUMNS)
        position = history * FRAMES_EACH + frame
        for key in [k for k in open_at if k not in state or state[k]["at"] == frame]:
            yield (*open_at.pop(key)[:-1], position)
        for key, cells in state.items():
            if cells["at"] == frame:
                open_at[key] = (history, key, cells["a"], cells["b"], position, None)
    yield from open_at.values()


def expected(histories: Histories, *, below: int) -> list[Version]:
    return [version for n, (_, changes) in enumerate(histories) for version in versions(n, changes, below=below)]


def stored(path: Path) -> list[tuple[Any, ...]]:
    """Read without Spark, in a tenth of its time."""
    return [tuple(row.values()) for row in all_rows(DeltaTable(str(path)))]


def read(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("delta").load(str(path))


@pytest.mark.parametrize("moves", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_versions_are_exact_at_every_cut(spark: SparkSession, tmp_path: Path, moves: bool) -> None:
    rng = random.Random(11 + moves)
    histories: Histories = [({}, random_history(rng, moves=moves)[1]) for _ in range(150)]
    changes = change_rows(own_session(spark), histories).withColumn("frame", F.col("frame_seq") % FRAMES_EACH)
    for number, (first, below) in enumerate(zip((0, *STEPS), STEPS, strict=False)):
        cut = changes.where(F.col("frame").between(first, below - 1)).drop("frame")
        for _ in range(2):  # a cut applied twice is applied once
            write_history(cut, str(tmp_path), recorded=Recorded("history/t", number), moves=moves)

        assert sorted(map(repr, stored(tmp_path))) == sorted(map(repr, expected(histories, below=below)))
    assert read(spark, tmp_path).schema.simpleString() == VERSIONS


def one(
    spark: SparkSession, path: Path, changes: Sequence[Change] | DataFrame, version: int, **options: Any
) -> list[Any]:
    frame = change_rows(own_session(spark), [({}, changes)]) if isinstance(changes, Sequence) else changes
    write_history(frame, str(path), recorded=Recorded("history/t", version), **options)
    return sorted((row["k"], row["a"], row[START], row[END]) for row in all_rows(DeltaTable(str(path))))


@pytest.mark.nightly
def test_a_snapshot_closes_what_vanished_opens_what_is_new_and_leaves_what_is_equal(
    spark: SparkSession, tmp_path: Path
) -> None:
    def row(frame: int, op: str, k: int, a: str) -> Change:
        return Change(frame, op, k, {"k": k, "a": a, "b": 0})

    one(spark, tmp_path, [row(1, "insert", 1, "same"), row(1, "insert", 2, "gone"), row(1, "insert", 3, "old")], 1)
    again = [row(7, "snapshot", 1, "same"), row(7, "snapshot", 3, "old"), row(7, "snapshot", 4, "new")]
    later = [Change(6, "update", 3, {"a": "overlaid"}), Change(9, "update", 1, {"a": "later"})]

    found = one(spark, tmp_path, [*again, *later], 9, moments=Moments(snapshot_end=8))

    assert found == [
        (1, "later", 9, None),
        (1, "same", 1, 9),
        (2, "gone", 1, 8),
        (3, "old", 1, 7),
        (3, "overlaid", 7, None),
        (4, "new", 7, None),
    ]


def test_an_identical_snapshot_changes_no_version(spark: SparkSession, tmp_path: Path) -> None:
    """Nor does one with the other zero, as SQL has it, also beside a map, which has no order."""
    cells = {"k": 1, "a": "x", "b": 0}

    def versions_after(change: Change, zero: float, **options: Any) -> list[Any]:
        rows = change_rows(own_session(spark), [({}, [change])])
        more = [F.lit(zero).alias("f"), F.create_map(F.lit("m"), F.array(F.lit(zero), F.lit(math.nan))).alias("m")]
        return one(spark, tmp_path, rows.withColumn("row", F.struct("row.*", *more)), change.frame, **options)

    before = versions_after(Change(1, "insert", 1, cells), 0.0)

    found = versions_after(Change(5, "snapshot", 1, cells), -0.0, moments=Moments(snapshot_end=5))

    assert found == before == [(1, "x", 1, None)]
    metrics = DeltaTable(str(tmp_path)).history(1)[0]["operationMetrics"]
    assert (metrics["numTargetRowsInserted"], metrics["numTargetRowsUpdated"]) == ("0", "0")


@pytest.mark.nightly
def test_moves_after_a_snapshot_in_the_same_cut_carry_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    changes = [Change(3, "snapshot", 1, {"k": 1, "a": "x", "b": 0}), move(5, 1, 2), Change(6, "update", 2, {"b": 4})]

    found = one(spark, tmp_path, changes, 6, moments=Moments(snapshot_end=4), moves=True)

    assert found == [(1, "x", 3, 5), (2, "x", 5, 6), (2, "x", 6, None)]


@pytest.mark.nightly
def test_in_the_order_of_the_source_late_changes_find_their_place(spark: SparkSession, tmp_path: Path) -> None:
    kind = change_type(KEY, ROW)
    key = {"history": 0, "k": 1}

    def apply(version: int, *changes: tuple[str, str, str | None]) -> list[Any]:
        rows = [
            {
                "frame_seq": version,
                "ordinal": at,
                "op": op,
                "key": key,
                "row": None if op == "delete" else {"k": 1, "a": a, "b": None},
                "sequence": sequence,
            }
            for at, (sequence, op, a) in enumerate(changes)
        ]
        frame = own_session(spark).createDataFrame(rows, kind)
        write_history(frame, str(tmp_path), recorded=Recorded("h", version), moments=Moments(by_sequence=True))
        return sorted((r.a, r[START], r[END]) for r in read(spark, tmp_path).collect())

    first = apply(1, ("02", "insert", "b"), ("06", "insert", "f"), ("08", "delete", None))
    second = apply(2, ("04", "insert", "d"), ("02", "insert", "b"), ("07", "insert", "g"))

    assert first == [("b", "02", "06"), ("f", "06", "08")]
    assert second == [("b", "02", "04"), ("d", "04", "06"), ("f", "06", "07"), ("g", "07", "08")]
    assert T.StringType() == read(spark, tmp_path).schema[START].dataType


POSITIONAL = change_type(T.StructType().add("_row_key", T.LongType()), T.StructType().add("a", T.StringType()))


def positional(
    spark: SparkSession,
    path: Path,
    version: int,
    entries: Sequence[tuple[int, str, int, str]],
    *,
    ranges: Sequence[tuple[int, int, int]] = (),
    snapshot_end: int | None = None,
    upsert: bool = False,
) -> list[Any]:
    session = spark.newSession()
    rows = [{"frame_seq": at, "op": op, "key": {"_row_key": k}, "row": {"a": a}} for at, op, k, a in entries]
    removed = session.createDataFrame(list(ranges), "moment long, first_key long, last_key long")
    changes = session.createDataFrame(rows, POSITIONAL)
    recorded, moments = Recorded("h", version), Moments(snapshot_end=snapshot_end)
    write_history(
        changes, str(path), recorded=recorded, moments=moments, ranges=removed if ranges else None, upsert=upsert
    )
    return sorted(tuple(row) for row in read(spark, path).collect())


@pytest.mark.nightly
def test_an_upsert_of_a_row_removed_in_the_same_moment_begins_a_row(spark: SparkSession, tmp_path: Path) -> None:
    entries = [(1, "update", 10, "first"), (1, "update", 20, "stays"), (3, "update", 10, "again")]

    found = positional(spark, tmp_path, 3, entries, ranges=[(3, 0, 15)], upsert=True)

    assert found == [(10, "again", 3, None), (10, "first", 1, 3), (20, "stays", 1, None)]


@pytest.mark.nightly
def test_removed_ranges_end_what_stands_and_what_began_before_them_in_the_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = positional(
        spark, tmp_path, 1, [(1, "insert", 10, "stays"), (1, "insert", 20, "goes"), (1, "insert", 30, "edge")]
    )
    second = positional(
        spark,
        tmp_path,
        9,
        [
            (3, "insert", 25, "begins"),
            (5, "insert", 20, "again"),
            (5, "update", 25, "unheard"),
            (7, "insert", 25, "later"),
        ],
        ranges=[(5, 11, 29), (9, 30, 10**15), (2, 25, 25)],
    )

    assert first == [(10, "stays", 1, None), (20, "goes", 1, None), (30, "edge", 1, None)]
    assert second == [
        (10, "stays", 1, None),
        (20, "again", 5, None),
        (20, "goes", 1, 5),
        (25, "begins", 3, 5),
        (25, "later", 7, None),
        (30, "edge", 1, 9),
    ]
