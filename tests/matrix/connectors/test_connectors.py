"""Pairwise combinations of each connector's settings: silver is compared with the simulator's own data."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.matrix.connectors.cases import WORLDS, Case, case_of, sample
from tests.matrix.connectors.space import Settings

NIGHT = 40
"""Number of histories per connector at night: those of the sample, then random ones."""
BY_DAY, ROUNDS = 2, 2
"""Tables and rounds of the single history per connector by day."""
ELSEWHERE = {
    "deephaven": "tests/properties/test_build_model.py",
    "sqlitecloud": "tests/connectors/sqlitecloud/test_reconstructed.py",
    "tengi": "tests/jobs/test_tengi_kills.py",
}
"""Connectors whose histories by day are those of another module."""


def check(spark: SparkSession, case: Case) -> None:
    found = case.run(spark)
    if found is not None:
        pytest.fail(str(found), pytrace=False)


@pytest.mark.parametrize(
    "connector", [pytest.param(name, marks=[pytest.mark.nightly] if name in ELSEWHERE else []) for name in WORLDS]
)
def test_silver_is_what_the_source_holds(spark: SparkSession, connector: str) -> None:
    case = case_of(connector, _cheap(connector))
    check(spark, replace(case, settings=Settings(case.settings.feed, case.settings.tables[:BY_DAY]), rounds=ROUNDS))


def _cheap(connector: str) -> int:
    """Return the sample's first case with only one history table by day: each of its changes costs a merge."""
    histories = [[table["history"] for table in row.tables[:BY_DAY]].count("2") for row in sample(connector)]
    return histories.index(1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(NIGHT))
@pytest.mark.parametrize("connector", WORLDS)
def test_silver_is_what_the_source_holds_whatever_the_settings(spark: SparkSession, connector: str, seed: int) -> None:
    check(spark, case_of(connector, seed))


@pytest.mark.parametrize("connector", WORLDS)
def test_every_pair_of_settings_that_go_together_is_among_those_of_the_night(connector: str) -> None:
    space, rows = WORLDS[connector][0], sample(connector)

    assert len(rows) <= NIGHT
    assert space.possible_pairs <= set().union(*(row.pairs for row in rows))
    assert [space.parsed(space.written(row)) for row in rows] == rows


@pytest.mark.parametrize("connector", WORLDS)
def test_every_value_goes_with_some_others(connector: str) -> None:
    space = WORLDS[connector][0]
    possible = {each for pair in space.possible_pairs for each in pair}
    assert possible == {(name, value) for name, values in space.every.items() for value in values}
