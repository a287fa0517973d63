"""Runs a history: the source changes, its receiver lands, builds run in between; finally everything is compared."""

from __future__ import annotations

import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.sql import SparkSession

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.conf.model import Build, CutLimits
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.places import Place
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.matrix.checks import END, SIDE_COLUMNS, START, Different
from tests.matrix.connectors.space import Settings
from tests.matrix.connectors.world import FEED, Expected, Row, World
from tests.support.commits import dying_at_commit
from tests.support.deaths import Died
from tests.support.running import run_once

MakeWorld: TypeAlias = Callable[[Path, Settings, Random], World]

ROUNDS = 4
_ALL_FRAMES = 200_000


@dataclass(frozen=True)
class Failure:
    """Failure of a history."""

    command: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}\n  {self.command}\n{self.detail}"


def run_history(
    spark: SparkSession, make: MakeWorld, settings: Settings, seed: int, *, rounds: int, command: str
) -> Failure | None:
    """Run a history in its own warehouse; return the failure, if any. Runs Spark jobs."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with make(Path(folder), settings, Random(f"{seed}/world")) as world:
                live(spark, world, Random(f"{seed}/life"), rounds)
        except Different as different:
            return Failure(command, different.kind, str(different)[:2500])
        except Exception as error:
            trace = "".join(traceback.format_exception(error)[-8:])
            return Failure(command, type(error).__name__, f"{error}"[:600] + "\n" + trace[-2500:])
    return None


def live(spark: SparkSession, world: World, rng: Random, rounds: int) -> None:
    """Run a world for some rounds.

    Raises:
        Different: A table differs from its source.
    """
    world.receive()
    builds = rng.sample(range(1, rounds), rng.choice([0, 1, 1]))
    for number in range(rounds):
        for _ in range(rng.randint(1, 6)):
            world.change()
        if rng.random() < 0.6:
            world.disturb()
        if number in builds:
            _build_between(spark, world, rng)
    world.rest()
    world.stop()
    faults = _build(spark, world, frames=_some_frames(world, rng))
    if faults:
        raise Different("something holds a table", {name: f"{e.error_class}: {e}" for name, e in faults.items()})
    for table in world.chosen:
        _compare(world, table, world.expected(table))
        _verify(world, table)


def _build_between(spark: SparkSession, world: World, rng: Random) -> None:
    """Build while the receiver runs, if the result does not depend on timing; or build alone, possibly dying."""
    dies = rng.random() < 0.5
    alone = dies or world.keeps_time
    if alone:
        world.pause()
    death = dying_at_commit(rng.randrange(6), after=rng.random() < 0.5) if dies else nullcontext()
    with suppress(Died), death:
        _build(spark, world, frames=_some_frames(world, rng))
    if alone:
        world.receive()


def _some_frames(world: World, rng: Random) -> int:
    """Return the maximum number of frames in a cut: all landed frames, or fewer."""
    return rng.choice([_ALL_FRAMES, _ALL_FRAMES, 4 + len(world.landed()) // 2])


def _build(spark: SparkSession, world: World, *, frames: int) -> Mapping[str, SilverfoldError]:
    """Apply the landed frames in a new process; return the error of each held table."""
    if open_table(world.places.bronze(FEED)) is None:
        return {}
    changed = {"warehouse": world.places.warehouse, "build": Build(cut=CutLimits(max_frames=frames))}
    settings = load_settings(None, "local", {}).model_copy(update=changed)
    return run_once(FeedBuild.open(lambda: spark, settings, world.connector, world.feed))


def _compare(world: World, table: str, expected: Expected) -> None:
    silver = _rows(world.places.silver(FEED, table))
    found = [shown for row in silver for shown in expected.shown(_without(row, expected.ignored))]
    _same(f"{table}: silver", found, expected.rows)
    side_rows = _rows(world.places.side_table(FEED, table), "NOT array_has(_reasons, 'unexplained')")
    later = dict.fromkeys(name for row in expected.side_rows for name in row)  # every column of the side table's rows
    _same(
        f"{table}: rows aside",
        [later | _without(row, (*SIDE_COLUMNS, *expected.ignored)) for row in side_rows],
        expected.side_rows,
    )
    if expected.history:
        current = _rows(world.places.history(FEED, table), f'"{END}" IS NULL')
        _same(
            f"{table}: versions that stand",
            [_without(row, (START, END, *expected.ignored)) for row in current],
            expected.rows,
        )


def _verify(world: World, table: str) -> None:
    keeps_history = world.feed.tables[table].keeps_history
    for verify in (verify_table, verify_history)[: 2 if keeps_history else 1]:
        found = verify(world.places, world.connector, world.feed, table)
        nothing = found.verdict is Verdict.NOT_BUILT and not world.expected(table).rows
        if found.verdict is not Verdict.EQUAL and not nothing:
            raise Different(
                f"{verify.__name__} says {found.verdict}", f"{table}: {found.reason} {found.differences[:3]}"
            )


def _rows(place: Place, where: str = "TRUE") -> list[Row]:
    opened = open_table(place)
    if opened is None:
        return []
    found = QueryBuilder().register("t", opened).execute(f"SELECT * FROM t WHERE {where}").read_all()
    rows: list[Row] = pa.table(found).to_pylist()
    return rows


def _without(row: Row, names: Sequence[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _same(what: str, found: Iterable[Row], expected: Iterable[Row]) -> None:
    here, there = (Counter(repr(normalized(row)) for row in rows) for rows in (found, expected))
    if here != there:
        surplus, lacking = sorted((here - there).elements()), sorted((there - here).elements())
        shown = [
            f"\n  {name}: {len(rows)}{_lines(rows)}" for name, rows in (("not expected", surplus), ("lacking", lacking))
        ]
        raise Different(f"{what.partition(': ')[2]} differs", f"{what}{''.join(shown)}")


def _lines(rows: Sequence[str]) -> str:
    return "".join(f"\n    {row}"[:700] for row in rows[:3])


def normalized(value: Any) -> Any:
    """Return a value in canonical form: NaN equals NaN, zero has no sign, times are in UTC."""
    if isinstance(value, dict):
        return {name: normalized(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [normalized(each) for each in value]
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, Decimal):
        return f"decimal {format(value, 'f')}"
    if isinstance(value, datetime):
        return f"time {value.astimezone(UTC).isoformat()}"
    return value
