"""Random histories of any source through the whole engine, against a dictionary, at every committed version.

Many small histories, one to a lane, live in one table: they are landed, cut and applied together.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from conf.load import load_settings
from conf.model import Build, CutLimits
from connectors.base import Feed
from jobs.build import run
from pipelines.build import FeedBuild
from pipelines.cuts import read_cuts
from pipelines.places import Place, Places
from pipelines.silver import SilverTable
from pipelines.verify import Verdict, verify_history, verify_table
from tests.support.change_model import Change, State, after
from tests.support.told import COLUMNS, FEED, STREAM, ToldConnector, ToldHistory, ToldOptions, ToldTable

LANES = 30
KEYS = range(4)
STORIES = max(1, settings().max_examples // 40)
"""How often all `LANES` histories are lived through."""


@dataclass
class Source:
    """A table that changes, what has been landed of it, and what silver must be at each position."""

    rng: random.Random
    history: ToldHistory
    truth: State = field(default_factory=dict)
    at: dict[int, State] = field(default_factory=dict)
    """What silver is once it has reached a position: that of an update's end."""
    _told: State = field(default_factory=dict)

    def change(self, *, moves: bool = False) -> list[Change]:
        """Change the source; return what it says of it."""
        changes = [self._one(lane, moves=moves) for lane in self.rng.sample(range(LANES), 12) for _ in range(2)]
        self.truth = after(self.truth, changes, columns=COLUMNS)
        return changes

    def tell(self, changes: Sequence[Change]) -> None:
        """Land an update."""
        self._told = after(self._told, changes, columns=COLUMNS)
        self.at[self.history.update(changes)] = self._told

    def snapshot(self) -> None:
        """Land a snapshot as of now, among its rows an update that came meanwhile."""
        self.history.begin_snapshot()
        rows = [Change(0, "snapshot", key, cells) for key, cells in self.truth.items()]
        self.rng.shuffle(rows)
        half = len(rows) // 2
        self.history.snapshot_rows(rows[:half])
        self.history.update(self.change())
        self.history.snapshot_rows(rows[half:])
        self._told = self.truth
        self.at[self.history.end_snapshot()] = self._told

    def epoch(self, *, build: Callable[[], None]) -> None:
        """Connect; updates the snapshot has too; the snapshot; updates; one that is torn; some nobody hears of."""
        self.history.connect()
        for _ in range(self.rng.randint(0, 2)):
            self.history.update(self.change())
        self.snapshot()
        for _ in range(self.rng.randint(1, 3)):
            self.tell(self.change(moves=self.rng.random() < 0.7))
            if self.rng.random() < 0.4:
                build()
        if self.rng.random() < 0.5:
            self.history.torn(self.change())
        self.change(moves=True)

    def _one(self, lane: int, *, moves: bool) -> Change:
        op, k = self.rng.choice(["insert", "update", "update", "delete", *(["move"] * 2 if moves else [])]), self._key()
        if op == "delete":
            return Change(0, op, (lane, k))
        cells = {"lane": lane, "k": k, "a": self.rng.choice(["x", "y", None]), "b": self.rng.choice([1, 2, None])}
        sent = {name: cells[name] for name in cells if name in ("lane", "k") or self.rng.random() < 0.6}
        if op != "move":
            return Change(0, op, (lane, k), sent)
        return Change(0, "update", (lane, k), sent, (lane, self.rng.choice([other for other in KEYS if other != k])))

    def _key(self) -> int:
        return self.rng.choice(KEYS)


class Engine:
    """Builds of one feed, by processes that come and go, every cut applied once or twice."""

    def __init__(self, spark: SparkSession, warehouse: Path, rng: random.Random, connector: ToldConnector) -> None:
        self.spark, self.rng, self.connector = spark, rng, connector
        self.places = Places(str(warehouse))
        table = ToldTable(source="T", stored_as_scd_type=2)
        self.feed = Feed(FEED, FEED, "unused", ToldOptions(), {STREAM: table})
        local = load_settings(None, "local", {})
        cut = CutLimits(max_frames=rng.choice([3, 200]))
        self.settings = local.model_copy(update={"warehouse": str(warehouse), "build": Build(cut=cut)})

    def build(self) -> None:
        """Apply everything that has landed, as a process of its own."""
        feed_build = FeedBuild(self.spark, self.settings, self.connector, self.feed)
        twice = self.rng.random() < 0.3
        with pytest.MonkeyPatch.context() as patch:
            if twice:
                patch.setattr(SilverTable, "apply", applied_twice(SilverTable.apply))
            feed_build.refresh()
            assert run(feed_build, threading.Event(), follow=False, poll_seconds=1) == {}

    def committed(self) -> dict[int, list[tuple[Any, ...]]]:
        """Return the rows of each committed version, by the position it stands at."""
        place = self.places.silver(FEED, STREAM)
        cuts = read_cuts(self.places, FEED)
        return {cut.last_position: rows_of(place, "true", version=cut.delta_version) for cut in cuts}

    def as_of(self, position: int) -> list[tuple[Any, ...]]:
        """Return the rows that stood at a position, told by the history table."""
        stood = f"__START_AT <= {position} AND (__END_AT IS NULL OR __END_AT > {position})"
        return rows_of(self.places.history(FEED, STREAM), stood)


def applied_twice(apply: Callable[..., Any]) -> Callable[..., Any]:
    def twice(table: SilverTable, *work: Any) -> Any:
        row = apply(table, *work)
        apply(table, *work)
        return row

    return twice


def rows_of(place: Place, where: str, *, version: int | None = None) -> list[tuple[Any, ...]]:
    listed = ", ".join(COLUMNS)
    opened = DeltaTable(place.url, version=version)
    found = QueryBuilder().register("t", opened).execute(f"SELECT {listed} FROM t WHERE {where}").read_all()
    return sorted((tuple(row.values()) for row in pa.table(found).to_pylist()), key=repr)


def rows(state: State) -> list[tuple[Any, ...]]:
    return sorted((tuple(cells[name] for name in COLUMNS) for cells in state.values()), key=repr)


@settings(max_examples=STORIES)
@given(st.integers(0, 2**32))
def test_every_committed_version_is_the_source_as_it_stood(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(spark, Path(folder), rng, ToldConnector())
        source = Source(rng, ToldHistory(engine.places))

        def build() -> None:
            source.history.land()
            engine.build()

        for _ in range(rng.randint(1, 2)):
            source.epoch(build=build)
        build()

        assert engine.committed() == {at: rows(source.at[at]) for at in engine.committed()}
        assert {at: engine.as_of(at) for at in source.at} == {at: rows(state) for at, state in source.at.items()}
        for verify in (verify_table, verify_history):
            found = verify(engine.places, engine.connector, engine.feed, STREAM)
            assert (found.verdict, found.differences) == (Verdict.EQUAL, ())
