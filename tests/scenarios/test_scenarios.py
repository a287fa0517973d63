"""Runs every scenario folder twice: as one build of all parts, and as a build after each part.

A folder holds ``history.json`` (why, the tables, and calls of `LandedHistory` in parts) and ``expected.json``: the rows
of each silver table, without positions but for a log's own; what the last cut of a part did to a table when parts are
built one by one (``last_cut``); and which tables hold after which part (``held``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from connectors.base import Kind
from pipelines.cuts import last_cuts
from tests.support.building import FEED, Built, table
from tests.support.landed_history import LandedHistory

HERE = Path(__file__).parent
SITUATIONS = sorted(folder.name for folder in HERE.iterdir() if (folder / "history.json").exists())


class Scenario:
    """One folder."""

    def __init__(self, situation: str) -> None:
        told = json.loads((HERE / situation / "history.json").read_text())
        self.tables = {name: table(**found.get("settings", {})) for name, found in told["tables"].items()}
        self.history = LandedHistory({name: found["columns"] for name, found in told["tables"].items()})
        self.parts: list[list[dict[str, Any]]] = told["parts"]
        self.expected: dict[str, Any] = json.loads((HERE / situation / "expected.json").read_text())

    def tell(self, part: list[dict[str, Any]]) -> None:
        """Append the frames of one part."""
        for call in part:
            given = {name: argument(name, value) for name, value in call.items() if name != "call"}
            getattr(self.history, call["call"])(**given)


def argument(name: str, value: Any) -> Any:
    """Return a call's argument as `LandedHistory` takes it: JSON has no numbers as names, no bytes, no kinds."""
    if name == "kind":
        return Kind(value)
    if name == "body":
        return bytes.fromhex(value)
    return {int(key): row for key, row in value.items()} if isinstance(value, dict) else value


@pytest.fixture(params=SITUATIONS)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return Scenario(request.param)


def assert_rows(spark: SparkSession, built: Built, scenario: Scenario) -> None:
    for name, rows in scenario.expected["rows"].items():
        actual = built.with_positions(name) if scenario.tables[name].keeps_log else built.silver(name)
        expected = spark.createDataFrame([tuple(row) for row in rows], actual.schema)
        assert_df_equality(actual, expected, ignore_row_order=True)


def test_one_build_of_everything(spark: SparkSession, warehouse: Path, scenario: Scenario) -> None:
    built = Built(spark, warehouse, scenario.tables)
    for part in scenario.parts:
        scenario.tell(part)

    built.land_and_build(scenario.history)

    assert_rows(spark, built, scenario)


def test_a_build_after_each_part(spark: SparkSession, warehouse: Path, scenario: Scenario) -> None:
    built = Built(spark, warehouse, scenario.tables)
    held, last_cut = scenario.expected.get("held", {}), scenario.expected.get("last_cut", {})
    for number, part in enumerate(scenario.parts, 1):
        scenario.tell(part)

        faults = built.land_and_build(scenario.history)

        assert sorted(faults) == held.get(str(number), [])
        for name, expected in last_cut.items():
            if number == expected["part"]:
                cut = last_cuts(built.places, FEED)[name]
                assert {key: getattr(cut, key) for key in expected if key != "part"} == {
                    key: value for key, value in expected.items() if key != "part"
                }
    assert_rows(spark, built, scenario)
