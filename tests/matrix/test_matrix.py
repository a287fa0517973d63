"""The matrix: pairwise combinations of settings, each with many small histories, compared with the oracle."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from tests.matrix.pairs import pairs_of, possible_pairs
from tests.matrix.settings import LAWS, PARAMETERS, SAMPLED, Settings, drawn, refused, sample
from tests.matrix.shrink import Case, run_case, shrunk

SAMPLE = sample()
BY_DAY = (2, 30)
"""Lines of the sample that run by day, as short stories: each kind of source but those of `DRAWN_BY_DAY`.

They have the fewest builds of their kinds. All 32 lines would take ten minutes of processor time even when short; at
night they run in full.
"""
DRAWN_BY_DAY = {
    "positional": "tests/properties/test_build_model.py",
    "positional-keys": "tests/properties/test_build_model.py",
    "positional-upsert": "tests/properties/test_build_model.py",
    "upsert": "tests/matrix/connectors/test_connectors.py",  # webhooks
}
"""Kinds of which another module has random histories by day."""
NIGHTS = 5
"""Repetitions of the sample at night, each redrawn; each table has twelve lanes."""


def check(spark: SparkSession, case: Case, *, tries: int) -> None:
    found = run_case(spark, case)
    if found is not None:
        pytest.fail(str(shrunk(found, lambda smaller: run_case(spark, smaller), tries)), pytrace=False)


@pytest.mark.parametrize("seed", BY_DAY)
def test_short_stories_are_exact(spark: SparkSession, seed: int) -> None:
    check(spark, Case(SAMPLE[seed], seed, short=True), tries=0)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(len(SAMPLE)))
def test_every_pair_of_settings_is_exact(spark: SparkSession, seed: int) -> None:
    check(spark, Case(SAMPLE[seed], seed), tries=0)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1000 + NIGHTS * len(SAMPLE)))
def test_settings_drawn_at_random_are_exact(spark: SparkSession, seed: int) -> None:
    settings = drawn(random.Random(seed), SAMPLE[seed % len(SAMPLE)])
    check(spark, Case(settings, seed), tries=40)


def test_every_pair_of_settings_that_go_together_is_in_the_sample() -> None:
    assert possible_pairs(SAMPLED) <= set().union(*map(pairs_of, SAMPLE))
    assert {SAMPLE[line].kind for line in BY_DAY} == set(SAMPLED["kind"]) - DRAWN_BY_DAY.keys()
    assert not any(refused(settings) for settings in SAMPLE)


@pytest.mark.parametrize("reason", [reason for reason, _ in LAWS])
def test_each_law_of_what_goes_together_refuses_something(reason: str) -> None:
    rng = random.Random(0)
    refusals = {refused(_any(rng)) for _ in range(3000)}
    assert reason in refusals


def _any(rng: random.Random) -> Settings:
    return Settings(**{name: rng.choice(values) for name, values in PARAMETERS.items()})
