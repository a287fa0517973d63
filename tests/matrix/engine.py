"""The engine of one feed: builds, rebuilds and maintenance in processes that start, end and die."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.conf.model import Build as BuildSettings
from silverfold.conf.model import CutLimits, Maintain
from silverfold.conf.model import Settings as Conf
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine_log import holds, skip
from silverfold.pipelines.places import Places
from silverfold.pipelines.upkeep.maintain import Maintenance
from silverfold.pipelines.upkeep.rebuild import Rebuild
from tests.matrix.checks import Different, Phase
from tests.matrix.landing import OTHER, TABLE, landing
from tests.matrix.layout import Layout
from tests.matrix.steps import Death
from tests.support.commits import dying_at_commit
from tests.support.deaths import Died
from tests.support.running import run_once

Found = TypeVar("Found")


class Engine:
    """The engine of a feed with the table of a story."""

    def __init__(self, spark: SparkSession, folder: Path, layout: Layout) -> None:
        self.layout, self.settings, self.phase = layout, layout.settings, Phase()
        self.places = Places(str(folder))
        self.landing = landing(layout, self.places)
        self._spark, self._rebuilds = spark, 0
        self._tables: tuple[str, ...] = (TABLE,)
        self._running: FeedBuild | None = None
        self._careful = False

    def change(self, phase: Phase) -> None:
        """Continue in a new process with other settings."""
        self.phase, self._running = phase, None

    def dying(self, death: Death | None, work: Callable[[], Found]) -> Found | None:
        """Run the work; return its result, or None if the process dies."""
        if death is None:
            return work()
        try:
            with dying_at_commit(death.commit, after=death.after):
                return work()
        except Died:
            self._running, self._careful = None, True
            return None

    def build(self) -> Mapping[str, SilverfoldError]:
        """Apply the landed frames, in the running process or a new one; return the error of each held table."""
        running = self._running
        if running is None or running.connector != self.connector():  # other frames are misread now
            running = FeedBuild.open(lambda: self._spark, self._conf(), self.connector(), self.feed())
        self._running = running if self.settings.process == "same" else None
        return run_once(running)

    def maintain(self) -> None:
        now = datetime.now(UTC)
        done = list(Maintenance(self._spark, self._conf(), self.connector(), self.feed(), now).run())
        failed = [each for each in done if each.failed]
        if failed:
            raise Different("maintain failed", failed)

    def rebuild(self) -> None:
        self._rebuilds += 1
        Rebuild(
            self._spark, self._conf(whole=True), self.connector(), self.feed(), TABLE, token=f"{self._rebuilds}"
        ).run()

    def be_away(self) -> None:
        """Remove the table from the feed while another is built and frames are dropped; then add it again."""
        self._running, self._tables = None, (OTHER,)
        self.build()
        self.maintain()
        self._running, self._tables = None, (TABLE, OTHER)

    def skip_bad_frames(self) -> None:
        """Skip the undecodable frames that hold the table, as an operator would."""
        feed = self.landing.feed_name
        for hold in holds(self.places, feed, TABLE):
            if hold.position in self.landing.bad:
                skip(self.places, feed, TABLE, hold, now=datetime.now(UTC))

    def connector(self) -> Connector:
        return self.landing.connector(misreads=not self.phase.mended)

    def feed(self) -> Feed:
        judges = self.layout.source.judges and not self.phase.mended
        return self.landing.feed(
            self._tables,
            {
                "stored_as_scd_type": 2 if self.settings.keeps_history else 1,
                "on_bad_frame": "skip" if self.settings.fault == "skip" else "hold",
                "on_unexplained": "error" if judges else "count",
                "expect": {
                    name: self._expectation(name, rule.sql)
                    for name, rule in self.layout.rules(loose=self.phase.loose).items()
                },
            },
        )

    def _expectation(self, name: str, condition: str) -> dict[str, str]:
        """Return a rule's expectation, as the settings require; with ``fail``, the rule "quoted" raises an error."""
        if self.settings.rules != "fail":
            return {"condition": condition, "action": "quarantine"}
        if name == "quoted" and not self.phase.mended:
            return {"condition": f"if({condition}, TRUE, raise_error('quoted') IS NULL)", "action": "warn"}
        return {"condition": condition, "action": "warn" if self.phase.mended else "fail"}

    def _conf(self, *, whole: bool = False) -> Conf:
        """Return the settings; after a death, cuts are smaller, as after running out of memory."""
        tiny = (self.settings.cuts == "tiny" or self._careful) and not self.phase.mended and not whole
        self._careful = self._careful and whole
        frames = (12 if self.settings.deephaven else 3) if tiny else 200_000
        changed = {
            "warehouse": self.places.warehouse,
            "build": BuildSettings(cut=CutLimits(max_frames=frames)),
            "maintain": Maintain(bronze_days=0),
        }
        return load_settings(None, "local", {}).model_copy(update=changed)
