"""Random histories of Deephaven tables that keep every version, against dictionaries, at the end of every update.

One table begins anew with a snapshot in each epoch, one has no snapshots and takes upserts. Ranges removed are narrow
and wide; processes die between the commit of the history and that of the table; the cuts of each build are others.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.frames import Kind
from silverfold.pipelines.applying import build, write
from silverfold.pipelines.verifying.verify import Verdict, verify_history
from tests.properties.test_engine_model import applied_twice
from tests.support.building import Built, table
from tests.support.deaths import Died, dying
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.silver_model import ModelTable, Rows

COLUMNS = {"A": "String", "B": "Long", "C": "Long"}
KEYS = [*range(8), 4_000, 4_096, 5_000, 9_000, *range(65_532, 65_540), 70_000, 10**6, 10**12, 2**62]
TABLES = {
    "state": table(stored_as_scd_type=2),
    "upsert": table(source="upsert", mode="updates_only", apply="upsert", stored_as_scd_type=2),
}


class Moment(NamedTuple):
    """The end of an update."""

    position: int
    rows: Rows


class StoryRunner:
    """Tells a random history, builds it by processes that come and go, and compares after each build."""

    def __init__(self, spark: SparkSession, warehouse: Path, rng: random.Random) -> None:
        self.spark, self.warehouse, self.rng = spark, warehouse, rng
        self.history = LandedHistory(dict.fromkeys(TABLES, COLUMNS))
        self.models = {name: ModelTable(list(COLUMNS), upsert=name == "upsert") for name in TABLES}
        self.pending: dict[str, list[Moment]] = {name: [] for name in TABLES}
        self.at: dict[str, list[Moment]] = {name: [] for name in TABLES}
        """What has been applied."""
        self.landed = -1

    def epoch(self) -> None:
        """Connect; a snapshot; updates of both tables, among them builds; perhaps one that is torn."""
        self.history.connect()
        for model in self.models.values():
            model.connect()
        self.update("state", snapshot=True)
        for _ in range(self.rng.randint(5, 8)):
            self.update(self.rng.choice(list(TABLES)))
            if self.rng.random() < 0.1:
                self.build()
        if self.rng.random() < 0.5:
            self.begin(self.rng.choice(list(TABLES)), snapshot=False)
        self.history.close()

    def update(self, name: str, *, snapshot: bool = False) -> None:
        """Tell a whole update. In its midst a build may come: it waits for the end."""
        kind = self.begin(name, snapshot=snapshot)
        if self.rng.random() < 0.05:
            self.build()
        self.history.end(name, kind)
        model = self.models[name]
        model.end()
        assert model.rows is not None
        self.pending[name].append(Moment(self.landed + len(self.history.frames), model.rows))

    def begin(self, name: str, *, snapshot: bool) -> Kind:
        """Tell all of an update but its end."""
        kind = Kind.SNAPSHOT if snapshot else Kind.DATA
        self.history.begin(name, kind)
        self.models[name].begin(snapshot=snapshot)
        for verb, sent in self.sends(snapshot=snapshot):
            self.models[name].send(verb, sent)
            if verb == "removed":
                self.history.removed(name, sent, kind)
            else:
                self.history.rows(name, sent, modified=verb == "modified", kind=kind)
        return kind

    def sends(self, *, snapshot: bool) -> Sequence[tuple[str, Any]]:
        """Return the messages of an update, in any order: what they do does not depend on it."""
        if snapshot:
            return [("added", self.rows(14))]
        found: list[tuple[str, Any]] = [("modified", self.rows(5)) for _ in range(self.rng.randint(0, 2))]
        found += [("added", self.rows(4)) for _ in range(self.rng.randint(0, 1))]
        found += [("removed", [self.range()]) for _ in range(self.rng.choice([0, 0, 1, 2]))]
        self.rng.shuffle(found)
        return found

    def rows(self, count: int) -> dict[int, dict[str, Any]]:
        return {key: self.cells() for key in self.rng.sample(KEYS, count)}

    def cells(self) -> dict[str, Any]:
        sent = self.rng.sample(sorted(COLUMNS), self.rng.randint(1, len(COLUMNS)))
        values: Mapping[str, Sequence[Any]] = {"A": ("x", "", None), "B": (1, 2, None), "C": (-1, None)}
        return {name: self.rng.choice(values[name]) for name in sent}

    def range(self) -> tuple[int, int]:
        first = self.rng.choice(KEYS)
        last = self.rng.choice([first, first + 3, first + 4_095, first + 4_096, self.rng.choice(KEYS)])
        return min(first, last), max(first, last)

    def build(self) -> None:
        """Land and build, in cuts of any size. A process that dies in it leaves the rest to the next."""
        built = Built(self.spark, self.warehouse, TABLES, max_frames=self.rng.choice([10_000, 60, 25]))
        self.landed = built.land(self.history)
        with pytest.MonkeyPatch.context() as patch, suppress(Died):
            if self.rng.random() < 0.3:
                patch.setattr(write, "write_history", dying(write.write_history, after=True))
            elif self.rng.random() < 0.3:
                patch.setattr(build, "apply_cut", applied_twice)
            assert built.build() == {}
            for name in TABLES:
                self.at[name] += self.pending[name]
                self.pending[name] = []
                self.compare(built, name)

    def compare(self, built: Built, name: str) -> None:
        if not self.at[name]:
            return
        versions = built.versions(name)
        for moment in self.at[name]:
            assert as_of(versions, moment.position) == moment.rows, moment.position
        assert built.rows(name) == self.at[name][-1].rows
        found = verify_history(built.places, CONNECTOR, built.feed, name)
        assert (found.verdict, found.differences) == (Verdict.EQUAL, ())


def as_of(versions: Sequence[Mapping[str, Any]], position: int) -> dict[int, dict[str, Any]]:
    """Return the rows that stood at a position, by key."""
    current = [v for v in versions if v["__START_AT"] <= position and (v["__END_AT"] or position + 1) > position]
    rows = {version["_row_key"]: {name: version[name] for name in COLUMNS} for version in current}
    assert len(rows) == len(current), "a row stands once"
    return rows


@pytest.mark.nightly
@settings(
    max_examples=max(1, settings().max_examples // 20),
    phases=(Phase.explicit, Phase.generate),  # shrinking would take an hour
)
@given(seed=st.integers(0, 2**32))
def test_history_tells_the_rows_at_the_end_of_every_update(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as warehouse:
        runner = StoryRunner(spark, Path(warehouse), rng)
        for _ in range(rng.randint(2, 3)):
            runner.epoch()
        while any(runner.pending.values()):
            runner.build()
