"""Random histories of any source through the whole engine, against a dictionary, at every committed version.

Many small histories, one to a lane, live in a table, and two tables in a feed: they are landed, cut and applied
together.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import silverfold.pipelines.applying.build
import silverfold.pipelines.applying.write
from silverfold.conf.load import load_settings
from silverfold.conf.model import Build, CutLimits, Expectation
from silverfold.connectors.base import Feed
from silverfold.pipelines.applying.apply_cut import apply_cut
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.cut_job import CutJob
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.storage.cuts import CutRow, read_cuts
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.change_model import Change, State, after
from tests.support.deaths import Died, dying
from tests.support.running import run_once
from tests.support.stub_connector import (
    COLUMNS,
    FEED,
    STREAM,
    StubConnector,
    StubFeed,
    StubHistory,
    StubOptions,
    StubTable,
)

LANES = 30
KEYS = range(4)
STORIES = max(1, settings().max_examples // 40)
"""How often all `LANES` histories are lived through."""


STEPS = [
    (silverfold.pipelines.applying.write, "write_history"),
    (silverfold.pipelines.applying.write, "write_tombstones"),
    (silverfold.pipelines.applying.write, "replace_companion"),
    (silverfold.pipelines.applying.write, "merge"),
    (silverfold.pipelines.applying.write, "replace"),
    (silverfold.pipelines.applying.build, "record"),
]
"""Where a build may die: before or after each."""


@dataclass
class Source:
    """A table that changes, what has been landed of it, and what silver must be at each position."""

    rng: random.Random
    history: StubHistory
    truth: State = field(default_factory=dict)
    at: dict[int, State] = field(default_factory=dict)
    """What silver is once it has reached a position: that of an update's end."""
    spoilt: bool = False
    """Some frames say nothing that can be decoded."""
    _reported: State = field(default_factory=dict)

    def change(self, *, moves: bool = False) -> list[Change]:
        """Change the source; return what it says of it."""
        changes = [self._one(lane, moves=moves) for lane in self.rng.sample(range(LANES), 12) for _ in range(2)]
        self.truth = after(self.truth, changes, columns=COLUMNS)
        return changes

    def tell(self, changes: Sequence[Change]) -> None:
        """Land an update."""
        self._reported = after(self._reported, changes, columns=COLUMNS)
        self.at[self.history.update(changes)] = self._reported

    def snapshot(self, *, whole: bool) -> Iterator[None]:
        """Land a snapshot as of now, among its rows an update that came meanwhile; or the beginning of one."""
        self.history.begin_snapshot()
        rows = [Change(0, "snapshot", key, cells) for key, cells in self.truth.items()]
        self.rng.shuffle(rows)
        half = len(rows) // 2
        self.history.snapshot_rows(rows[:half])
        yield
        self.history.update(self.change())
        if whole:
            self.history.snapshot_rows(rows[half:])
            self._reported = self.truth
            self.at[self.history.end_snapshot()] = self._reported

    def epoch(self, *, whole: bool) -> Iterator[None]:
        """Live through an epoch, frame by frame: between them other tables may speak, and builds may run.

        Updates the snapshot has too; the snapshot, before whose end the source may be lost; updates, or the table once
        more; an update that is torn; some nobody hears of.
        """
        for _ in range(self.rng.randint(0, 2)):
            self.history.update(self.change())
            yield
        yield from self.snapshot(whole=whole)
        for _ in range(self.rng.randint(1, 3) if whole else 0):
            yield
            self.tell(self.change(moves=self.rng.random() < 0.7))
            if self.spoilt and self.rng.random() < 0.4:
                self.at[self.history.raw(b"{")] = self._reported
            if self.rng.random() < 0.2:
                yield from self.snapshot(whole=True)
        if whole and self.rng.random() < 0.5:
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
    """Builds of one feed, by processes that come and go and die, every cut applied once or twice."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Path,
        rng: random.Random,
        connector: StubConnector,
        tables: Mapping[str, StubTable],
    ) -> None:
        self.spark, self.rng, self.connector = spark, rng, connector
        self.places = Places(str(warehouse))
        self.feed = Feed(FEED, FEED, "unused", StubOptions(), tables)
        local = load_settings(None, "local", {})
        cut = CutLimits(max_frames=rng.choice([6, 200]))
        self.settings = local.model_copy(update={"warehouse": str(warehouse), "build": Build(cut=cut)})

    def build(self, *, lives: bool = False) -> None:
        """Apply everything that has landed, as a process of its own, which may die of it unless it is to live.

        Of two that die one is followed at once by another, and one only when more has landed.
        """
        with pytest.MonkeyPatch.context() as patch:
            if self.rng.random() < 0.3:
                patch.setattr(silverfold.pipelines.applying.build, "apply_cut", applied_twice)
            if not lives and self.rng.random() < 0.3:
                module, step = self.rng.choice(STEPS)
                patch.setattr(module, step, dying(getattr(module, step), self.rng.random() < 0.5))
            try:
                self._run()
            except Died:
                if self.rng.random() < 0.5:
                    return
                patch.undo()
                self._run()

    def _run(self) -> None:
        feed_build = FeedBuild.open(lambda: self.spark, self.settings, self.connector, self.feed)
        assert run_once(feed_build) == {}

    def committed(self, table: str = STREAM) -> dict[int, list[tuple[Any, ...]]]:
        """Return the rows of each committed version, by the position it stands at."""
        place = self.places.silver(FEED, table)
        cuts = [cut for cut in read_cuts(self.places, FEED) if cut.table == table]
        return {cut.last_position: rows_of(place, "true", version=cut.delta_version) for cut in cuts}

    def side_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows that the table keeps aside."""
        counts = companion(self.places, FEED, STREAM, "aside").committed
        return [] if counts is None else rows_of(self.places.side_table(FEED, STREAM), "true", version=counts.version())

    def as_of(self, position: int) -> list[tuple[Any, ...]]:
        """Return the rows that stood at a position, told by the history table."""
        condition = f"__START_AT <= {position} AND (__END_AT IS NULL OR __END_AT > {position})"
        return rows_of(self.places.history(FEED, STREAM), condition)


def applied_twice(job: CutJob) -> CutRow | None:
    row = apply_cut(job)
    apply_cut(job)
    return row


def rows_of(place: Place, where: str, *, version: int | None = None) -> list[tuple[Any, ...]]:
    listed = ", ".join(COLUMNS)
    opened = DeltaTable(place.url, version=version)
    found = QueryBuilder().register("t", opened).execute(f"SELECT {listed} FROM t WHERE {where}").read_all()
    return sorted((tuple(row.values()) for row in pa.table(found).to_pylist()), key=repr)


def rows(state: State) -> list[tuple[Any, ...]]:
    return sorted((tuple(cells[name] for name in COLUMNS) for cells in state.values()), key=repr)


@pytest.mark.nightly
@settings(max_examples=STORIES)
@given(st.integers(0, 2**32))
def test_every_committed_version_is_the_source_as_it_stood(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    tables = {"t": StubTable(source="T", stored_as_scd_type=2), "u": StubTable(source="U")}
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(spark, Path(folder), rng, StubConnector(), tables)
        feed = StubFeed(engine.places)
        sources = {name: Source(rng, StubHistory(engine.places, feed=feed, stream=name)) for name in tables}
        live(engine, list(sources.values()))

        for name, source in sources.items():
            states = {at: rows(state) for at, state in source.at.items()}
            assert engine.committed(name) == {at: states[at] for at in engine.committed(name)}
            keeps_history = tables[name].keeps_history
            assert not keeps_history or {at: engine.as_of(at) for at in states} == states
            for verify in (verify_table, verify_history)[: 1 + keeps_history]:
                found = verify(engine.places, engine.connector, engine.feed, name)
                assert (found.verdict, found.differences) == (Verdict.EQUAL, ())


def live(engine: Engine, sources: Sequence[Source]) -> None:
    """Let the tables of a feed live through an epoch or two, each at its own pace, and builds with them."""
    rng, feed = engine.rng, sources[0].history
    for left in reversed(range(rng.randint(1, 2))):
        feed.connect()
        living = [source.epoch(whole=not left or rng.random() < 0.7) for source in sources]
        while living:
            one = rng.choice(living)
            if next(one, "over") == "over":
                living.remove(one)
            if rng.random() < 0.2 / len(sources):
                feed.land()
                engine.build()
    feed.land()
    engine.build(lives=True)


RULE = Expectation(condition="b IS NULL OR b < 2", action="quarantine")
HARMLESS = Expectation(condition="a IS NOT NULL", action="warn")


@pytest.mark.nightly
@settings(max_examples=STORIES)
@given(st.integers(0, 2**32))
def test_silver_is_the_rows_that_meet_the_rules_and_the_others_are_kept_aside(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    table = StubTable(source="T", expect={"b_is_small": RULE, "a_is_there": HARMLESS}, on_bad_frame="skip")
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(spark, Path(folder), rng, StubConnector(), {STREAM: table})
        source = Source(rng, StubHistory(engine.places), spoilt=True)
        live(engine, [source])

        (reached,) = [max(engine.committed())]
        assert engine.committed() == {at: rows(meeting(source.at[at])) for at in engine.committed()}
        assert engine.side_rows() == rows(
            {key: cells for key, cells in source.at[reached].items() if key not in meeting(source.at[reached])}
        )


def meeting(state: State) -> State:
    """Return the rows that meet the rule."""
    return {key: cells for key, cells in state.items() if cells["b"] is None or cells["b"] < 2}


@pytest.mark.nightly
@pytest.mark.parametrize("partial", [True, False])
@settings(max_examples=STORIES)
@given(st.integers(0, 2**32))
def test_where_the_source_has_an_order_of_its_own_silver_follows_that(
    spark: SparkSession, partial: bool, seed: int
) -> None:
    """Partial updates come again from an earlier one on; whole rows come in any order."""
    rng = random.Random(seed)
    connector = StubConnector(continuity="resume", snapshots=False, source_ordered=True)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(spark, Path(folder), rng, connector, {STREAM: StubTable(source="T")})
        log = sequenced_log(rng, partial=partial)
        landed: dict[int, State] = {}
        history, delivered = StubHistory(engine.places), set[int]()
        history.connect()
        for numbers in deliveries(rng, len(log), in_order=partial):
            delivered.update(numbers)
            at = history.update([log[number] for number in numbers], sequences=[f"{n:06}" for n in numbers])
            landed[at] = after({}, [log[number] for number in sorted(delivered)], columns=COLUMNS, upsert=True)
            if rng.random() < 0.3:
                history.land()
                engine.build()
        history.land()
        engine.build(lives=True)

        assert engine.committed() == {at: rows(landed[at]) for at in engine.committed()}


def sequenced_log(rng: random.Random, *, partial: bool) -> list[Change]:
    """Return what a source says of all lanes, in its order: whole rows and deletes, or partial updates too."""
    log = []
    for _ in range(12 * LANES):
        key, op = (rng.randrange(LANES), rng.choice(KEYS)), rng.choice(["insert", "update", "update", "delete"])
        cells = {"lane": key[0], "k": key[1], "a": rng.choice(["x", "y", None]), "b": rng.choice([1, 2, None])}
        sent = {n: cells[n] for n in cells if n in ("lane", "k") or op == "insert" or not partial or rng.random() < 0.6}
        log.append(Change(0, op, key, {} if op == "delete" else sent))
    return log


def deliveries(rng: random.Random, count: int, *, in_order: bool) -> list[list[int]]:
    """Return which changes land together: again from an earlier one on where the order holds, else shuffled."""
    size = count // 6
    if in_order:
        begins = [max(0, begin - rng.choice([0, 0, size // 2])) for begin in range(0, count, size)]
        return [list(range(begin, min(count, begin + size + size // 2))) for begin in begins]
    numbers = [*range(count), *rng.sample(range(count), size)]
    rng.shuffle(numbers)
    return [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]
