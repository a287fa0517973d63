"""Runs a story: every step goes to the engine and the oracle, and the results are compared."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatchmethod
from pathlib import Path

from pyspark.sql import SparkSession

from silverfold.conf.errors import SilverfoldError
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.matrix.checks import Checks, Different, Phase
from tests.matrix.engine import Engine
from tests.matrix.landing import TABLE
from tests.matrix.layout import Layout
from tests.matrix.oracle import Oracle
from tests.matrix.settings import Settings
from tests.matrix.steps import Away, Build, Columns, Connect, Loosen, Mend, Snapshot, Step, Update, Upkeep
from tests.support.sizes import as_if_large


class Life:
    """The life of one table in its own warehouse."""

    def __init__(self, spark: SparkSession, folder: Path, settings: Settings, seed: int) -> None:
        layout = Layout(settings)
        self.settings, self.engine, self.oracle = settings, Engine(spark, folder, layout), Oracle(layout.source)
        self.landing = self.engine.landing
        self.checks = Checks(layout, self.engine.places, self.landing.feed_name, self.oracle)
        self._rng = random.Random(f"{seed}/life")

    def live(self, steps: Iterable[Step]) -> None:
        """Run the steps; then repair all faults, build, and verify.

        Raises:
            Different: The engine and the oracle differ.
        """
        with time_zone(self.settings.zone):
            for step in steps:
                self.take(step)
            for step in (Mend(), Build()):
                self.take(step)
            self._verify()

    @singledispatchmethod
    def take(self, step: Step) -> None:
        """Run one step."""
        raise TypeError(step)

    @take.register
    def _(self, step: Connect) -> None:
        self.landing.connect(step)
        self.oracle.connect()

    @take.register
    def _(self, step: Columns) -> None:
        self.landing.columns()

    @take.register
    def _(self, step: Update) -> None:
        self.oracle.land(self.landing.update(step), step)

    @take.register
    def _(self, step: Snapshot) -> None:
        self.oracle.land(self.landing.snapshot(step), step)

    @take.register
    def _(self, step: Build) -> None:
        self.landing.land()
        faults = self.engine.dying(step.death, self._build)
        if faults is None:
            self.checks.look(self.engine.phase)
            if step.alone or self._rng.random() < 0.5:
                return
            faults = self._build()
        self.checks.look(self.engine.phase)
        self.checks.compare(faults)

    @take.register
    def _(self, step: Upkeep) -> None:
        if self.checks.position >= 0:
            self.engine.dying(step.death, self.engine.maintain if step.what == "maintain" else self.engine.rebuild)
            self.checks.look(self.engine.phase, rebuilt=step.what == "rebuild")

    @take.register
    def _(self, step: Away) -> None:
        self.landing.other()
        self.landing.land()
        self.engine.be_away()

    @take.register
    def _(self, step: Loosen) -> None:
        self.engine.change(Phase(self.engine.phase.mended, loose=True))

    @take.register
    def _(self, step: Mend) -> None:
        if self.settings.fault == "mended" and not self.engine.phase.mended:
            self.take(Build())  # only a frame that holds the table can be skipped
            self.engine.skip_bad_frames()
        self.engine.change(Phase(mended=True, loose=self.engine.phase.loose))
        self.oracle.mended = True

    def _build(self) -> Mapping[str, SilverfoldError]:
        """Build, sometimes treating the cut as large, since a table's cuts may have any size."""
        with as_if_large(wanted=self._rng.random() < 0.4):
            return self.engine.build()

    def _verify(self) -> None:
        for verify in (verify_table, verify_history)[: 2 if self.settings.keeps_history else 1]:
            found = verify(self.engine.places, self.engine.connector(), self.engine.feed(), TABLE)
            if found.verdict is not Verdict.EQUAL and self.checks.position >= 0:
                raise Different(f"{verify.__name__} says {found.verdict}", f"{found.reason} {found.differences[:2]}")


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    """Set the time zone of the process inside the block."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
