"""Changes that come late among partial updates: nowhere to be placed, they mark their keys until a whole row comes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from silverfold.pipelines.reading.status import read_status
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.stub_connector import STREAM, StubConnector
from tests.support.stub_warehouse import StubWarehouse, change

STUB = StubConnector(continuity="resume", snapshots=False, source_ordered=True)
NOW = datetime(2026, 11, 27, tzinfo=UTC)


def degraded_keys(stub: StubWarehouse, **settings: Any) -> int:
    status = read_status(stub.places, STUB, stub.feed_with(**settings), now=NOW).tables[0]
    assert status.degraded is (status.degraded_keys > 0)
    return status.degraded_keys


def verified(stub: StubWarehouse, **settings: Any) -> tuple[Verdict, str | None, int | None]:
    found = verify_table(stub.places, STUB, stub.feed_with(**settings), STREAM)
    return found.verdict, found.reason, found.found_rows


@pytest.mark.parametrize("rules", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_change_that_comes_late_among_partial_updates_marks_its_key_until_a_whole_row_comes(
    spark: SparkSession, warehouse: Path, rules: bool
) -> None:
    expect = {"expect": {"small": {"condition": "b < 100", "action": "quarantine"}}} if rules else {}
    stub = StubWarehouse(spark, warehouse, STUB)
    rows = [change("insert", k, a=a, b=0) for k, a in ((1, "x"), (2, "y"), (3, "z"), (4, "w"))]
    stub.history.update(rows, sequences=["01", "02", "03", "04"])
    assert stub.build(**expect) == {}
    stub.history.update([change("update", k, a="new") for k in (1, 2, 3)], sequences=["20", "20", "20"])
    stub.history.update([change("delete", 4)], sequences=["21"])
    assert stub.build(**expect) == {}
    assert (degraded_keys(stub, **expect), verified(stub, **expect)) == (0, (Verdict.EQUAL, None, 3))

    late = [change("update", k, b=5) for k in (1, 2, 4)]  # 4 is deleted later: its result is known
    again = [change("update", 3, a="new"), change("delete", 4)]  # come a second time
    sequences = ["10", "10", "10", "20", "21", "11"]
    stub.history.update([*late, *again, change("insert", 3, a="old", b=7)], sequences=sequences)
    assert stub.build(**expect) == {}
    assert stub.rows() == {1: ("new", 0), 2: ("new", 0), 3: ("new", 0)}
    assert stub.notes() == {"late_partial": 3}
    assert degraded_keys(stub, **expect) == 3
    reason = "3 keys not compared: changes came late among partial updates"
    assert verified(stub, **expect) == (Verdict.EQUAL, reason, 0)

    stub.history.update([change("update", 1, b=6), change("insert", 2, a="whole", b=8)], sequences=["30", "31"])
    assert stub.build(**expect) == {}
    assert stub.rows() == {1: ("new", 6), 2: ("whole", 8), 3: ("new", 0)}
    assert (degraded_keys(stub, **expect), stub.notes()) == (2, {"inserts_over_row": 1})

    stub.history.update([change("delete", 1), change("insert", 3, a="z", b=9)], sequences=["40", "41"])
    assert stub.build(**expect) == {}
    assert (degraded_keys(stub, **expect), verified(stub, **expect)) == (0, (Verdict.EQUAL, None, 2))


def test_versions_that_lack_a_late_change_are_marked_until_a_rebuild(spark: SparkSession, warehouse: Path) -> None:
    stub, history = StubWarehouse(spark, warehouse, STUB), {"stored_as_scd_type": 2}
    rows = [change("insert", k, a=a, b=0) for k, a in ((1, "x"), (2, "y"), (3, "z"))]
    stub.history.update(rows, sequences=["01", "02", "03"])
    newer = [change("update", 1, a="new"), change("update", 3, a="new"), change("delete", 3)]
    stub.history.update(newer, sequences=["20", "20", "25"])
    assert stub.build(**history) == {}
    late = [change("update", k, b=5) for k in (1, 3)]
    stub.history.update([*late, change("insert", 1, a="whole", b=8)], sequences=["10", "10", "30"])
    assert stub.build(**history) == {}

    assert (stub.rows()[1], degraded_keys(stub, **history)) == (("whole", 8), 2)
    feed = stub.feed_with(**history)
    found = verify_history(stub.places, STUB, feed, STREAM)
    reason = "2 keys not compared: changes came late among partial updates"
    assert (found.verdict, found.reason, found.found_rows) == (Verdict.EQUAL, reason, 1)

    settings = stub.started(**history).settings
    Rebuild(spark, settings, STUB, feed, STREAM, "again").run()
    found = verify_history(stub.places, STUB, feed, STREAM)
    assert (found.verdict, found.reason, found.found_rows) == (Verdict.EQUAL, None, 8)
    assert degraded_keys(stub, **history) == 0


@pytest.mark.nightly
def test_a_late_partial_update_behind_a_whole_row_of_the_same_cut_marks_nothing(
    spark: SparkSession, warehouse: Path
) -> None:
    stub = StubWarehouse(spark, warehouse, STUB)
    stub.history.update([change("insert", 1, a="x", b=0)], sequences=["05"])
    assert stub.build() == {}
    stub.history.update([change("update", 1, b=1), change("insert", 1, a="y", b=2)], sequences=["03", "06"])
    assert stub.build() == {}
    assert (stub.rows(), degraded_keys(stub)) == ({1: ("y", 2)}, 0)


@pytest.mark.nightly
def test_late_whole_rows_mark_nothing_until_an_update_is_partial(spark: SparkSession, warehouse: Path) -> None:
    stub = StubWarehouse(spark, warehouse, STUB)
    stub.history.update([change("insert", 1, a="x", b=0), change("insert", 2, a="y", b=0)], sequences=["01", "02"])
    assert stub.build() == {}
    stub.history.update([change("insert", 1, a="new", b=1)], sequences=["20"])
    assert stub.build() == {}
    stub.history.update([change("insert", 1, a="old", b=9), change("delete", 1)], sequences=["10", "11"])
    assert stub.build() == {}
    assert (stub.rows(), degraded_keys(stub)) == ({1: ("new", 1), 2: ("y", 0)}, 0)
    stub.history.update([change("update", 2, a="z")], sequences=["30"])
    assert stub.build() == {}
    stub.history.update([change("insert", 2, a="old", b=9)], sequences=["25"])
    assert stub.build() == {}
    assert (stub.rows()[2], degraded_keys(stub), stub.notes()["late_partial"]) == (("z", 0), 1, 1)


def test_an_update_waits_for_its_row_in_a_table_without_rules_that_is_there(
    spark: SparkSession, warehouse: Path
) -> None:
    stub = StubWarehouse(spark, warehouse, StubConnector(continuity="resume", source_ordered=True))
    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", 1, a="x", b=1)], sequences=["01"])
    stub.history.end_snapshot()
    assert stub.build() == {}
    stub.history.update([change("update", 2, b=5)], sequences=["05"])
    assert stub.build() == {}
    stub.history.update([change("insert", 2, a="y", b=0)], sequences=["03"])
    assert stub.build() == {}
    assert stub.rows() == {1: ("x", 1), 2: ("y", 5)}
