"""Situations, each a folder of frames and of what silver must hold: built after every part, and all at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from silverfold.conf.errors import SilverfoldError
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.verifying.verify import Verdict, verify_table
from silverfold.testing import assert_silver_equals
from tests.support.building import FEED, Built
from tests.support.scenario import Expected, read

FOLDERS = sorted(script.parent for script in Path(__file__).parent.glob("*/script.txt"))
NEAR_TO_OTHERS = {
    "column-left-out-stays",
    "dropped-column-stops-the-table",
    "empty-snapshot-empties-the-table",
    "log-stops-where-a-column-is-gone",
    "new-column-after-reconnect",
    "removed-range-of-a-trillion",
    "snapshot-only-writes-only-what-differs",
    "updates-only-log",
}
"""Built in one go by day, part after part only at night.

The others are built part after part by day, which ends in the same table, and in one go only at night.
"""


def by_day(*, near: bool) -> pytest.MarkDecorator:
    """Try all folders at night, and by day those that are near to others, or the rest."""
    marks = {folder: () if (folder.name in NEAR_TO_OTHERS) == near else (pytest.mark.nightly,) for folder in FOLDERS}
    return pytest.mark.parametrize(
        "folder", [pytest.param(folder, id=folder.name, marks=marks[folder]) for folder in FOLDERS]
    )


@by_day(near=False)
def test_a_build_after_every_part_shows_the_table_of_that_part(spark, warehouse: Path, folder: Path):
    scenario = read(folder)
    built = Built(spark, warehouse, scenario.tables)

    for history, expected in zip(scenario.histories(), scenario.after, strict=True):
        faults = built.land_and_build(history)
        assert_held(built, faults, expected)
        for name, table in expected.items():
            assert_rows(built, name, table)
            assert table.written is None or written(built, name, table.written) == table.written
            assert verify_table(built.places, CONNECTOR, built.feed, name).verdict is Verdict.EQUAL


@by_day(near=True)
def test_one_build_of_all_parts_shows_the_last_table(spark, warehouse: Path, folder: Path):
    scenario = read(folder)
    built = Built(spark, warehouse, scenario.tables)
    for history in scenario.histories():
        built.land(history)

    faults = built.build()

    assert_held(built, faults, scenario.at_once)
    for name, table in scenario.at_once.items():
        expected = spark.createDataFrame([tuple(row) for row in table.rows], table.schema)
        assert_silver_equals(spark, built.silver_feed, name, expected)


def assert_held(built: Built, faults: Mapping[str, SilverfoldError], expected: Mapping[str, Expected]) -> None:
    held = {name: fault.error_class for name, fault in faults.items()}
    assert held == {name: table.held for name, table in expected.items() if table.held}
    assert {name for name in built.feed.tables if built.exists(name)} == expected.keys()


def assert_rows(built: Built, name: str, expected: Expected) -> None:
    """Compare types and rows without Spark, which would take longer than the build. As text, where NaN is NaN."""
    fields = json.loads(DeltaTable(built.places.silver(FEED, name).url).schema().to_json())["fields"]
    typed = [(field["name"], field["type"]) for field in fields if field["name"] != "_position"]
    assert typed == [(field.name, field.dataType.jsonValue()) for field in T.StructType.fromDDL(expected.schema)]
    records = built.records(name)
    assert all(list(record) == [name for name, _ in typed] for record in records)
    assert sorted(repr(list(record.values())) for record in records) == sorted(map(repr, expected.rows))


def written(built: Built, name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """What the last commit says it wrote, by Delta's own counts."""
    metrics = DeltaTable(built.places.silver(FEED, name).url).history(1)[0]["operationMetrics"]
    return {count: int(metrics[f"numTargetRows{count}"]) for count in counts}
