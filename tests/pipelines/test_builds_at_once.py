"""Two builds of one feed at once: each goes on from where the other has come, and neither takes that for a fault."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connectors.deephaven.connector import CONNECTOR
from pipelines.cuts import read_cuts
from pipelines.verify import Verdict, verify_table
from tests.support.building import FEED, Built, table
from tests.support.landed_history import LandedHistory

SMALL = {"small": {"condition": "Qty < 3", "action": "quarantine"}}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"expect": SMALL}, marks=pytest.mark.nightly),
        pytest.param({"stored_as_scd_type": 2}, marks=pytest.mark.nightly),
    ],
)
def test_two_builds_at_once_come_to_the_table(
    spark: SparkSession, warehouse: Path, settings: dict[str, object]
) -> None:
    built = Built(spark, warehouse, {"t": table(**settings)}, max_frames=6)
    history = LandedHistory({"t": {"Qty": "Long"}})
    history.connect()
    history.snapshot("t", {key: {"Qty": 0} for key in range(6)})
    for number in range(8):
        history.update("t", modified={number % 6: {"Qty": number}}, added={10 + number: {"Qty": number}})
    built.land(history)
    both = [built.start(), built.start()]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(built.build, both))

    assert found == [{}, {}]
    assert verify_table(built.places, CONNECTOR, built.feed, "t").verdict is Verdict.EQUAL
    assert len(built.rows("t")) == (4 if "expect" in settings else 14)
    cuts = [cut.last_position for cut in read_cuts(built.places, FEED)]
    assert len(cuts) == len(set(cuts)), "whoever commits a cut lists it, and nobody else"
