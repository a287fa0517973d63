"""A silver table whose newest commit a power cut emptied: Spark may know what it said, delta-rs does not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.reading.status import read_status
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory


@pytest.mark.parametrize(
    "settings",
    [pytest.param({"stored_as_scd_type": 2}, marks=pytest.mark.nightly), {}],
)
def test_a_table_whose_newest_commit_is_empty_holds_until_it_is_rebuilt_or_read_anew(
    spark: SparkSession, warehouse: Path, settings: dict[str, Any]
) -> None:
    built = Built(spark, warehouse, {"t": table(**settings)})
    history = LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {1: {"Qty": 10}, 2: {"Qty": 20}, 3: {"Qty": 30}})
    assert built.land_and_build(history) == {}
    history.update("t", removed=[1], added={4: {"Qty": 40}}, modified={2: {"Qty": 21}})
    assert built.land_and_build(history) == {}
    log = Path(built.places.silver(FEED, "t").url) / "_delta_log"
    max(log.glob("*.json")).write_text("")

    (found,) = read_status(built.places, CONNECTOR, built.feed, now=datetime.now(UTC)).tables
    assert found.built_otherwise == "the commit of its newest version is an empty file, as a power cut leaves"
    history.update("t", modified={3: {"Qty": 31}})
    (held,) = built.land_and_build(history).values()
    assert found.built_otherwise in str(held)
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
