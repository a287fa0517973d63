"""Histories of each connector, by seed: first those of its sample, then random ones."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pyspark.sql import SparkSession

from tests.matrix.connectors import deephaven_world, sbe_world, sqlitecloud_world, tengi_world, webhooks_world
from tests.matrix.connectors.history import ROUNDS, Failure, MakeWorld, run_history
from tests.matrix.connectors.space import Settings, Space

WORLDS: Mapping[str, tuple[Space, MakeWorld]] = {
    "deephaven": (deephaven_world.SPACE, deephaven_world.DeephavenWorld),
    "sbe": (sbe_world.SPACE, sbe_world.SbeWorld),
    "sqlitecloud": (sqlitecloud_world.SPACE, sqlitecloud_world.SqliteCloudWorld),
    "tengi": (tengi_world.SPACE, tengi_world.TengiWorld),
    "sqlitecloud_webhooks": (webhooks_world.SPACE, webhooks_world.WebhooksWorld),
}
"""By connector name: its parameter space, and the factory of its world."""


@dataclass(frozen=True)
class Case:
    """One history."""

    connector: str
    seed: int
    settings: Settings
    rounds: int = ROUNDS

    @property
    def command(self) -> str:
        """Command that repeats it."""
        written = WORLDS[self.connector][0].written(self.settings)
        of_seed = f"--connector {self.connector} --seed {self.seed} --rounds {self.rounds}"
        return f"python -m tests.matrix.connectors {of_seed} --settings='{written}'"

    def run(self, spark: SparkSession) -> Failure | None:
        """Run the history; return the failure, if any. Runs Spark jobs."""
        make = WORLDS[self.connector][1]
        return run_history(spark, make, self.settings, self.seed, rounds=self.rounds, command=self.command)


@cache
def sample(connector: str) -> list[Settings]:
    """Return settings in which every pair of values occurs."""
    return WORLDS[connector][0].sample()


def case_of(connector: str, seed: int) -> Case:
    """Return the case of a seed."""
    rows = sample(connector)
    drawn = rows[seed] if seed < len(rows) else WORLDS[connector][0].drawn(random.Random(seed))
    return Case(connector, seed, drawn)
