"""Random histories, built at random points in random cuts, against tables kept in dictionaries.

One table is keyed by its row keys, one by a column of its own whose values move from row to row, one has no snapshots
and is a log or takes upserts. Updates are torn, sent twice over, empty, interleaved; epochs end anywhere.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.connectors.frames import Kind
from silverfold.pipelines.applying import build
from silverfold.pipelines.applying.apply_cut import apply_cut
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.cut_job import CutJob
from silverfold.pipelines.applying.silver import SilverTable
from silverfold.pipelines.storage.cuts import CutRow, read_cuts
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.silver_model import ModelTable

COLUMNS = {"K": "Long", "A": "String", "B": "Long"}
ROW_KEYS = [0, 1, 2, 3, 65_535, 65_536, 10**12]
KEYS = range(12)
"""Values of K: more than there are rows, so that there is always a free one."""

UPDATES_ONLY = {
    "log": table(source="log", mode="updates_only"),
    "upsert": table(source="upsert", mode="updates_only", apply="upsert"),
}

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Story:
    """What happens.

    Args:
        third: Which of `UPDATES_ONLY` the third table is.
        steps: Calls to both history and model; ``("build", restart)`` lands and builds, by a new process or the old.
        twice: Tables whose every cut is applied twice.
    """

    third: str
    steps: Sequence[Step]
    max_frames: int
    twice: frozenset[str]

    @property
    def tables(self) -> dict[str, DeephavenTable]:
        return {"state": table(), "keyed": table(keys=("K",)), self.third: UPDATES_ONLY[self.third]}


def models(third: str) -> dict[str, ModelTable]:
    names = list(COLUMNS)
    last = ModelTable(names, log=third == "log", upsert=third == "upsert")
    return {"state": ModelTable(names), "keyed": ModelTable(names), third: last}


@st.composite
def stories(draw: st.DrawFn) -> Story:
    third = draw(st.sampled_from(sorted(UPDATES_ONLY)))
    steps: list[Step] = []
    tables = models(third)
    for _ in range(draw(st.integers(2, 3))):
        for model in tables.values():
            model.connect()
        epoch: list[Step] = [("connect",), *draw(epochs(tables)), ("close",)]
        epoch.insert(draw(st.integers(len(epoch) // 3, len(epoch))), ("build", draw(st.booleans())))
        steps += epoch
    return Story(
        third=third,
        steps=[*steps, ("build", draw(st.booleans()))],
        max_frames=draw(st.sampled_from([10_000, 25, 8])),
        twice=draw(st.frozensets(st.sampled_from(sorted(tables)), min_size=1)),
    )


@st.composite
def epochs(draw: st.DrawFn, tables: dict[str, ModelTable]) -> list[Step]:
    """Updates of all tables, their calls in turns; the last of each may lack its end."""
    pending: dict[str, list[Step]] = {name: [] for name in tables}
    fresh = {name for name in tables if name not in UPDATES_ONLY}
    steps: list[Step] = []
    for name in draw(st.lists(st.sampled_from(sorted(tables)), min_size=25, max_size=60)):
        if not pending[name]:
            pending[name] = draw(updates(name, tables[name], snapshot=name in fresh))
        step = pending[name].pop(0)
        tell(tables[name], step)
        steps.append(step)
        if step[0] == "end":
            fresh.discard(name)
    return steps


@st.composite
def updates(draw: st.DrawFn, name: str, model: ModelTable, *, snapshot: bool) -> list[Step]:
    """The calls of one whole update."""
    sends: list[Step] = []
    if not snapshot:
        ends = st.tuples(st.sampled_from(ROW_KEYS), st.sampled_from(ROW_KEYS))
        ranges = [(min(pair), max(pair)) for pair in draw(st.lists(ends, max_size=2))]
        sends += [("removed", name, ranges)] if ranges else []
        sends += [("modified", name, rows) for rows in draw(st.lists(partial_rows(), max_size=2))]
    whole = snapshot or name == "keyed"
    sends += [("added", name, rows) for rows in draw(st.lists(whole_rows() if whole else partial_rows(), max_size=2))]
    if name == "keyed":
        sends = draw(with_keys_of_their_own(sends, model, snapshot=snapshot))
    return [("begin", name, snapshot), *draw(st.permutations(sends)), ("end", name)]


def whole_rows() -> st.SearchStrategy[dict[int, dict[str, Any]]]:
    row = st.fixed_dictionaries({"K": st.integers(0, 3), "A": texts(), "B": numbers()})
    return st.dictionaries(st.sampled_from(ROW_KEYS), row, max_size=5)


def partial_rows() -> st.SearchStrategy[dict[int, dict[str, Any]]]:
    optional = {"K": st.integers(0, 3), "A": texts(), "B": numbers()}
    row = st.fixed_dictionaries({}, optional=optional).filter(bool)
    return st.dictionaries(st.sampled_from(ROW_KEYS), row, min_size=1, max_size=4)


def texts() -> st.SearchStrategy[str | None]:
    return st.sampled_from([None, "", "a", "é"])


def numbers() -> st.SearchStrategy[int | None]:
    return st.one_of(st.none(), st.integers(-2, 2))


@st.composite
def with_keys_of_their_own(draw: st.DrawFn, sends: Sequence[Step], model: ModelTable, *, snapshot: bool) -> list[Step]:
    """Give K new values wherever it is sent, so that no two rows share one afterwards: rows move, swap and follow."""
    touched = sorted({key for _, _, rows in sends if isinstance(rows, dict) for key, row in rows.items() if "K" in row})
    stays = {} if snapshot or model.rows is None else model.rows
    taken = {row["K"] for key, row in stays.items() if key not in touched}
    free = draw(st.permutations([value for value in KEYS if value not in taken]))
    value_of = dict(zip(touched, free, strict=False))
    return [
        (verb, name, {key: {**row, "K": value_of[key]} if "K" in row else row for key, row in rows.items()})
        if isinstance(rows, dict)
        else (verb, name, rows)
        for verb, name, rows in sends
    ]


def tell(model: ModelTable, step: Step) -> None:
    match step:
        case ("begin", _, snapshot):
            model.begin(snapshot=snapshot)
        case ("end", _):
            model.end()
        case (verb, _, sent):
            model.send(verb, sent)


def applied_twice(job: CutJob) -> CutRow | None:
    """Apply a cut a second time, which must change nothing and say the same."""
    first = apply_cut(job)
    version = version_of(job.silver)
    again = apply_cut(job)
    assert (again, version_of(job.silver)) == (first, version)
    return first


def version_of(silver: SilverTable) -> int:
    opened = open_table(silver.place)
    assert opened is not None
    return opened.version()


class StoryRunner:
    """Carries a story out: lands it, builds, and compares with the model after every build."""

    def __init__(self, spark: SparkSession, warehouse: Path, story: Story) -> None:
        self.story, self.models = story, models(story.third)
        self.built = Built(spark, warehouse, story.tables, max_frames=story.max_frames)
        self.history = LandedHistory(dict.fromkeys(story.tables, COLUMNS))
        self.kinds: dict[str, Kind] = {}
        self.feed_build: FeedBuild | None = None

    def run(self) -> None:
        for step in self.story.steps:
            match step:
                case ("connect",):
                    self.history.connect()
                    for model in self.models.values():
                        model.connect()
                case ("close",):
                    self.history.close()
                case ("build", restart):
                    self.build(restart=restart)
                    self.compare()
                case _:
                    self.land(step)
                    tell(self.models[step[1]], step)

    def land(self, step: Step) -> None:
        verb, name = step[:2]
        match verb:
            case "begin":
                self.kinds[name] = Kind.SNAPSHOT if step[2] else Kind.DATA
                self.history.begin(name, self.kinds[name])
            case "end":
                self.history.end(name, self.kinds[name])
            case "removed":
                self.history.removed(name, step[2], self.kinds[name])
            case _:
                self.history.rows(name, step[2], modified=verb == "modified", kind=self.kinds[name])

    def build(self, *, restart: bool) -> None:
        self.built.land(self.history)
        if restart or self.feed_build is None:
            self.feed_build = self.built.start()
        else:
            self.feed_build.refresh()
        assert self.build_cuts(self.feed_build) == {}

    def build_cuts(self, feed_build: FeedBuild) -> dict[str, Any]:
        """Build, applying each cut of some tables twice; return the errors by table."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(build, "apply_cut", self.apply)
            return dict(self.built.build(feed_build))

    def apply(self, job: CutJob) -> CutRow | None:
        return applied_twice(job) if job.silver.name in self.story.twice else apply_cut(job)

    def compare(self) -> None:
        for name, model in self.models.items():
            assert self.built.exists(name) == (model.rows is not None)
            if model.rows is None:
                continue
            if model.log:
                found = [tuple(row.values()) for row in self.built.records(name)]
                assert sorted(found, key=repr) == sorted(model.changes, key=repr)
            else:
                assert self.built.rows(name) == model.rows
            assert verify_table(self.built.places, CONNECTOR, self.built.feed, name).verdict is Verdict.EQUAL
            cuts = read_cuts(self.built.places, FEED, table=name)
            positions = [cut.last_position for cut in cuts]
            assert positions == sorted(set(positions)), "each cut is listed once"


@settings(
    max_examples=settings().max_examples // 20,  # an example is many seconds of Spark
    phases=(Phase.explicit, Phase.generate),  # shrinking would take an hour
)
@given(story=stories())
def test_silver_is_what_a_dictionary_would_hold(spark: SparkSession, story: Story):
    with tempfile.TemporaryDirectory() as warehouse:
        StoryRunner(spark, Path(warehouse), story).run()
