"""AUTO CDC against a dictionary: however the same changes are split into batches, they come to the same table.

Many histories live in one table, one to a lane, each split in its own way: one run of a few batches tries them all.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import silverfold.transforms.autocdc.apply
from silverfold.pipelines.spark.session import own_session
from silverfold.transforms.autocdc.apply import apply_changes
from silverfold.transforms.merge import Recorded
from tests.support.building_once import all_rows
from tests.support.deaths import Died, dying

SCHEMA = "lane int, k int, a string, b bigint, s struct<x:int,y:int>, op string, seq bigint"
BATCHES = 3

Cells = dict[str, Any]
Row = tuple[Any, ...]


class Change(NamedTuple):
    """One change; of a truncate lane and key are None."""

    lane: int | None
    k: int | None
    op: str
    seq: int
    a: str | None = None
    b: int | None = None
    s: tuple[int | None, int | None] | None = None

    @property
    def line(self) -> Row:
        return (self.lane, self.k, self.a, self.b, self.s, self.op, self.seq)

    @property
    def rank(self) -> tuple[Any, ...]:
        """What one of two changes with a key and a sequence wins by."""
        cells = (least(self.a), least(self.b), least(self.s and tuple(map(least, self.s))))
        return (self.op != "D", sum(map(len, cells)), *cells)


def least(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,)


@dataclass(frozen=True)
class Mode:
    """How a table is made of changes."""

    scd: int
    partial: bool = False
    tracked: tuple[str, ...] | None = None
    truncates: bool = False

    @property
    def options(self) -> dict[str, Any]:
        return {
            "stored_as_scd_type": self.scd,
            "ignore_null_updates": self.partial,
            "track_history_column_list": None if self.tracked is None else list(self.tracked),
            "apply_as_truncates": "op = 'T'" if self.truncates else None,
        }


MODES = [
    Mode(1),
    Mode(1, partial=True),
    Mode(1, truncates=True),
    Mode(1, partial=True, truncates=True),
    Mode(2),
    Mode(2, partial=True),
    Mode(2, tracked=("a",)),
    Mode(2, partial=True, tracked=("a", "s")),
]


def expected(mode: Mode, changes: Iterable[Change]) -> list[Row]:
    """Return the rows the table must have."""
    truncated = max((change.seq for change in changes if change.op == "T"), default=-1)
    sent: dict[Row, dict[int, Change]] = {}
    for change in changes:
        if change.op != "T" and change.seq >= truncated:
            mine = sent.setdefault((change.lane, change.k), {})
            mine[change.seq] = max(mine.get(change.seq, change), change, key=lambda each: each.rank)
    return sorted((row for key, mine in sent.items() for row in rows_of(mode, key, mine)), key=repr)


def rows_of(mode: Mode, key: Row, sent: Mapping[int, Change]) -> Iterator[Row]:
    versions: list[list[Any]] = []  # cells, start, end, sequence of the last change
    for seq, change in sorted(sent.items()):
        cells: Cells | None = versions[-1][0] if versions and versions[-1][2] is None else None
        if change.op == "D":
            if cells is not None:
                versions[-1][2] = seq
            continue
        now = {"a": change.a, "b": change.b, "s": change.s}
        if mode.partial:
            now = patched(cells or dict.fromkeys("abs"), now)
        if cells is not None and mode.tracked is not None and all(now[n] == cells[n] for n in mode.tracked):
            versions[-1][0], versions[-1][3] = now, seq
            continue
        if cells is not None:
            versions[-1][2] = seq
        versions.append([now, seq, None, seq])
    for cells, start, end, last in versions:
        if mode.scd == 2:
            yield (*key, *cells.values(), start, end)
        elif end is None:
            yield (*key, *cells.values(), last)


def patched(cells: Cells, sent: Cells) -> Cells:
    now = {name: cells[name] if value is None else value for name, value in sent.items()}
    if cells["s"] is not None and sent["s"] is not None:
        now["s"] = tuple(old if new is None else new for old, new in zip(cells["s"], sent["s"], strict=True))
    return now


def apply(spark: SparkSession, path: Path, number: int, changes: Iterable[Change], mode: Mode, **options: Any) -> None:
    source = own_session(spark).createDataFrame([change.line for change in changes], SCHEMA)
    apply_changes(
        source,
        str(path),
        keys=["lane", "k"],
        sequence_by="seq",
        apply_as_deletes="op = 'D'",
        except_column_list=["op", "seq"],
        recorded=Recorded("t", number),
        **mode.options,
        **options,
    )


def found(path: Path) -> list[Row]:
    """Read without Spark, in a tenth of its time."""
    rows = all_rows(DeltaTable(str(path)))
    return sorted((tuple(tuple(v.values()) if n == "s" and v else v for n, v in row.items()) for row in rows), key=repr)


def assert_same(actual: Sequence[Row], wanted: Sequence[Row], changes: Sequence[Change]) -> None:
    """Show the smallest lane that differs."""
    lanes = {row[0] for row in set(actual) ^ set(wanted)}
    assert len(actual) == len(wanted) or lanes, "rows are doubled"
    if lanes:
        lane = min(lanes, key=lambda each: sum(change.lane == each for change in changes))
        mine = [change for change in changes if change.lane in (lane, None)]
        assert [r for r in actual if r[0] == lane] == [r for r in wanted if r[0] == lane], mine


def random_change(rng: random.Random, lane: int) -> Change:
    k, seq = rng.randrange(2), rng.randrange(8)
    if rng.random() < 0.3:
        return Change(lane, k, "D", seq)
    s = rng.choice([None, None, (1, None), (None, 2), (3, 4)])
    return Change(lane, k, "U", seq, rng.choice(["x", "y", None]), rng.choice([1, 2, None]), s)


def every_split(changes: Sequence[Change]) -> Iterator[tuple[list[Change], ...]]:
    """Yield all ways to give each change to one of the batches."""
    for batches in itertools.product(range(BATCHES), repeat=len(changes)):
        yield tuple([c for c, at in zip(changes, batches, strict=True) if at == batch] for batch in range(BATCHES))


def modes(*quick: Mode) -> pytest.MarkDecorator:
    """Try all modes at night, and by day some."""
    marks = {mode: () if mode in quick else (pytest.mark.nightly,) for mode in MODES}
    return pytest.mark.parametrize("mode", [pytest.param(mode, id=str(mode), marks=marks[mode]) for mode in MODES])


@modes(Mode(1), Mode(2, partial=True, tracked=("a", "s")))
def test_every_split_of_the_same_changes_comes_to_the_same_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    rng = random.Random(15)
    batches: list[list[Change]] = [[] for _ in range(BATCHES)]
    lanes = itertools.count()
    for _ in range(4):
        story = [random_change(rng, 0)._replace(k=0, seq=rng.randrange(4)) for _ in range(4)]
        for split in every_split(story):
            lane = next(lanes)
            for batch, part in zip(batches, split, strict=True):
                batch += [change._replace(lane=lane) for change in part]
    for _ in range(300):
        lane = next(lanes)
        for change in [random_change(rng, lane) for _ in range(rng.randint(2, 10))]:
            for batch in rng.sample(batches, rng.choice([1, 1, 2])):
                batch.append(change)
    if mode.truncates:
        batches[1] += [Change(None, None, "T", 2), Change(None, None, "T", 3)]
        batches[2] += [Change(None, None, "T", 1), Change(None, None, "T", 3)]
    for number, batch in enumerate(batches):
        rng.shuffle(batch)
        monkeypatch.setattr(
            silverfold.transforms.autocdc.apply, "_FEW", 0 if number == 1 else 10_000
        )  # either way goes on with others'
        apply(spark, tmp_path / "t", number, batch, mode)
        changes = [change for each in batches[: number + 1] for change in each]
        assert_same(found(tmp_path / "t"), expected(mode, changes), changes)


@modes()
def test_what_is_forgotten_below_the_horizon_is_not_missed(spark: SparkSession, tmp_path: Path, mode: Mode) -> None:
    rng = random.Random(16)
    changes: list[Change] = []
    for number in range(4):
        horizon = 4 * number
        batch = [change for lane in range(80) for change in [random_change(rng, lane) for _ in range(3)]]
        batch = [change._replace(seq=horizon + change.seq) for change in batch if change.lane != number]
        if mode.truncates and number in (2, 3):
            batch.append(Change(None, None, "T", horizon + 1))
        changes += batch
        apply(spark, tmp_path / "t", number, batch, mode, tombstone_horizon=f"t._position < {horizon}")
        assert_same(found(tmp_path / "t"), expected(mode, changes), changes)


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
@modes(Mode(2, partial=True, tracked=("a", "s")))
def test_a_batch_that_died_before_the_table_was_written_can_be_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, after: bool
) -> None:
    rng = random.Random(17)
    changes = [random_change(rng, lane) for lane in range(60) for _ in range(6)]
    apply(spark, tmp_path / "t", 0, changes[::2], mode, tombstone_horizon="t._position < 0")
    with monkeypatch.context() as patch:
        for step in ("merge_rows", "write_history", "rebuild_rows"):
            patch.setattr(
                silverfold.transforms.autocdc.apply,
                step,
                dying(getattr(silverfold.transforms.autocdc.apply, step), after=after),
            )
        with pytest.raises(Died):
            apply(spark, tmp_path / "t", 1, changes[1::2], mode, tombstone_horizon="t._position < 0")
    apply(spark, tmp_path / "t", 1, changes[1::2], mode, tombstone_horizon="t._position < 0")

    assert_same(found(tmp_path / "t"), expected(mode, changes), changes)
