"""Every version of every row of a Deephaven table: at the updates' own ends, however many of them a cut holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.connectors.frames import Kind
from tests.support.building import Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.deephaven.vectors import VECTORS

COLUMNS = {"Sym": "String", "Qty": "Long"}


def versions(built: Built) -> list[tuple[Any, ...]]:
    return sorted((tuple(version.values()) for version in built.versions("quotes")), key=repr)


@pytest.mark.parametrize("max_frames", [200_000, pytest.param(9, marks=pytest.mark.nightly)])
def test_each_update_ends_and_begins_versions_whatever_the_cuts(spark: SparkSession, warehouse: Path, max_frames: int):
    built = Built(spark, warehouse, {"quotes": table(stored_as_scd_type=2)}, max_frames=max_frames)
    history = LandedHistory({"quotes": COLUMNS})
    history.connect()  # 0, 1, 2
    rows = {1: {"Sym": "AAPL", "Qty": 10}, 2: {"Sym": "IBM", "Qty": 20}, 5_000: {"Sym": "TSLA", "Qty": 30}}
    history.snapshot("quotes", rows)  # 3 to 6
    history.update("quotes", modified={1: {"Qty": 11}})  # 7 to 9
    history.update("quotes", modified={1: {"Sym": "A"}})  # 10 to 12
    history.update("quotes", removed=range(10_000), added={2: {"Sym": "NEW"}}, modified={1: {"Qty": 0}})  # 13 to 17
    history.update("quotes", added={7: {"Sym": "X", "Qty": 5}})  # 18 to 21
    history.update("quotes", removed=range(3, 9_000))  # 22 to 24
    history.update("quotes", removed=[2], modified={7: {"Qty": 1}})  # 25 to 28: row 7 is gone already
    history.update("quotes", added={7: {"Sym": "Y"}})  # 29 to 31
    history.close()  # 32
    assert built.land_and_build(history) == {}

    history.columns = {"quotes": {**COLUMNS, "Bid": "Double"}}
    history.connect()  # 33, 34, 35
    history.snapshot("quotes", {7: {"Sym": "Y"}, 8: {"Sym": "Z", "Qty": 1, "Bid": 1.5}})  # 36 to 40
    history.update("quotes", removed=range(8, 20_000))  # 41 to 43
    assert built.land_and_build(history) == {}

    assert versions(built) == [
        (1, "A", 11, 12, 17, None),
        (1, "AAPL", 10, 6, 9, None),
        (1, "AAPL", 11, 9, 12, None),
        (2, "IBM", 20, 6, 17, None),
        (2, "NEW", None, 17, 28, None),
        (5_000, "TSLA", 30, 6, 17, None),
        (7, "X", 5, 21, 24, None),
        (7, "Y", None, 31, None, None),  # the new snapshot has it as it was, and stands for it from then on
        (8, "Z", 1, 40, 43, 1.5),
    ]
    assert built.rows("quotes") == {7: {"Sym": "Y", "Qty": None, "Bid": None}}


def test_a_frame_that_cannot_be_decoded_begins_no_version(spark: SparkSession, warehouse: Path):
    built = Built(spark, warehouse, {"quotes": table(stored_as_scd_type=2)})
    history = LandedHistory({"quotes": COLUMNS})
    history.connect()
    history.begin("quotes", Kind.SNAPSHOT)
    history.rows("quotes", {1: {"Sym": "A", "Qty": 1}}, modified=False, kind=Kind.SNAPSHOT)
    history.inside("quotes", VECTORS["unknown-template"].body, Kind.SNAPSHOT)
    history.end("quotes", Kind.SNAPSHOT)

    held = built.land_and_build(history)

    assert {name: fault.error_class for name, fault in held.items()} == {"quotes": "UNDECODABLE_FRAME"}
    assert versions(built) == []
