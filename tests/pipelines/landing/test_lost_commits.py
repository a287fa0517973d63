"""A silver table that lacks what its position says: a power cut emptied its newest commit, or somebody restored it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.places import Place
from silverfold.pipelines.reading.status import read_status
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory


def emptied(_spark: SparkSession, place: Place) -> str:
    """Empty the newest commit, of which Spark may still know what it said."""
    max((Path(place.url) / "_delta_log").glob("*.json")).write_text("")
    return "the commit of its newest version is an empty file, as a power cut leaves"


def restored(spark: SparkSession, place: Place) -> str:
    before = DeltaTable(place.url).version() - 1
    spark.sql(f"RESTORE TABLE delta.`{place.url}` TO VERSION AS OF {before}").collect()
    return f"version {before + 2} restored older rows, and later cuts are not applied again"


@pytest.mark.parametrize("damage", [emptied, restored])
@pytest.mark.parametrize(
    "settings",
    [pytest.param({"stored_as_scd_type": 2}, marks=pytest.mark.nightly), {}],
)
def test_a_table_that_lacks_its_newest_cut_holds_until_it_is_rebuilt_or_read_anew(
    spark: SparkSession,
    warehouse: Path,
    settings: dict[str, Any],
    damage: Callable[[SparkSession, Place], str],
) -> None:
    built = Built(spark, warehouse, {"t": table(**settings)})
    history = LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Qty": 10}, 2: {"Qty": 20}, 3: {"Qty": 30}})
    assert built.land_and_build(history) == {}
    history.update("t", removed=[1], added={4: {"Qty": 40}}, modified={2: {"Qty": 21}})
    assert built.land_and_build(history) == {}
    why = damage(spark, built.places.silver(FEED, "t"))

    (found,) = read_status(built.places, CONNECTOR, built.feed, now=datetime.now(UTC)).tables
    assert found.built_otherwise == why
    history.update("t", modified={3: {"Qty": 31}})
    (held,) = built.land_and_build(history).values()
    assert why in str(held)
    if settings:
        Rebuild(spark, built.settings, CONNECTOR, built.feed, "t", "again").run()
    else:
        history.connect()
        history.snapshot("t", {2: {"Qty": 21}, 3: {"Qty": 31}, 4: {"Qty": 40}})
    assert built.land_and_build(history) == {}

    assert built.rows("t") == {2: {"Qty": 21}, 3: {"Qty": 31}, 4: {"Qty": 40}}
    given = (built.places, CONNECTOR, built.feed, "t")
    assert verify_table(*given).verdict is Verdict.EQUAL
    assert not settings or verify_history(*given).verdict is Verdict.EQUAL
