"""Random histories, built by a decoder that cannot read some of their frames, against tables kept in dictionaries.

Meanwhile each table stands as it stood after some whole number of its updates. Once the decoder is repaired, trying
again leaves what a build without any error would have left.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.jobs.quarantine import only
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine import read_quarantine
from tests.properties.test_build_model import Step, Story, StoryRunner, stories
from tests.support.building import FEED
from tests.support.misreading import misreading
from tests.support.silver_model import ModelTable


class Misread(StoryRunner):
    """Tells a story to a build that cannot read one frame in so many.

    Args:
        every: One of so many positions is bad.
        offset: Which.
    """

    def __init__(self, spark: SparkSession, warehouse: Path, story: Story, *, every: int, offset: int) -> None:
        super().__init__(spark, warehouse, story)
        self.every, self.offset = every, offset
        self.earlier: Mapping[str, list[Any]] = {name: [expected_rows(model)] for name, model in self.models.items()}
        self.held: set[str] = set()

    def land(self, step: Step) -> None:
        self.note()
        super().land(step)

    def note(self) -> None:
        """Keep how every table stood after the step before."""
        for name, model in self.models.items():
            self.earlier[name].append(expected_rows(model))

    def start(self) -> FeedBuild:
        every, offset = self.every, self.offset  # a step may go to a worker, and takes what it names along
        return misreading(self.built.start(), lambda position: position % every == offset)

    def build(self, *, restart: bool) -> None:
        self.note()
        self.built.land(self.history)
        if restart or self.feed_build is None:
            self.feed_build = self.start()
        errors = self.build_cuts(self.feed_build)
        assert {error.error_class for error in errors.values()} <= {"UNDECODABLE_FRAME"}
        self.held |= set(errors)

    def compare(self) -> None:
        for name, model in self.models.items():
            if self.built.exists(name):
                found = self.built.records(name) if model.log else self.built.rows(name)
                changes = sorted((tuple(row.values()) for row in found), key=repr) if model.log else found
                assert changes in self.earlier[name]

    def retry(self) -> None:
        """Do as `silverfold quarantine retry` does, with a decoder that has no fault."""
        ahead = {row.table for row in read_quarantine(self.built.places, FEED, self.models) if row.ahead}
        feed = only(self.built.feed, sorted(ahead))
        repaired = FeedBuild.open(lambda: self.built.spark, self.built.settings, CONNECTOR, feed)
        assert self.built.build(repaired) == {}


def expected_rows(model: ModelTable) -> Any:
    """Return what silver must hold now: a log's changes, sorted, or rows by key."""
    return sorted(model.changes, key=repr) if model.log else model.rows


@settings(
    max_examples=settings().max_examples // 20,  # an example is many seconds of Spark
    phases=(Phase.explicit, Phase.generate),  # shrinking would take an hour
)
@given(story=stories(), every=st.integers(3, 9), offset=st.integers(0, 2))
def test_trying_again_after_a_fix_gives_what_no_error_would_have_given(
    spark: SparkSession, story: Story, every: int, offset: int
):
    with tempfile.TemporaryDirectory() as warehouse:
        misread = Misread(spark, Path(warehouse), story, every=every, offset=offset)
        misread.run()
        event(f"{len(misread.held)} tables held")

        misread.retry()

        StoryRunner.compare(misread)
        assert not any(row.ahead for row in read_quarantine(misread.built.places, FEED, misread.models))
