"""Changes that no row explains: counted, or the table stops; where the order is the source's own, they wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import StoreUnavailable
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.store import count_rows, open_table
from tests.support.stub_connector import FEED, STREAM, StubConnector
from tests.support.stub_warehouse import StubWarehouse, change


def cannot_be_read(*_: object, **__: object) -> None:
    raise StoreUnavailable("a file is gone")


@pytest.mark.parametrize("finds", ["delta-rs", pytest.param("Spark", marks=pytest.mark.nightly)])
def test_what_no_row_explains_is_counted_or_stops_the_table_before_its_update(
    spark: SparkSession,
    warehouse: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    finds: str,
) -> None:
    if finds == "Spark":
        monkeypatch.setattr(SilverRows, "at", cannot_be_read)
    stub = StubWarehouse(spark, warehouse, StubConnector())
    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", 1, a="x", b=1), change("snapshot", 2, a="y", b=2)])
    stub.history.end_snapshot()
    good = stub.history.update([change("update", 1, b=5)])
    stub.history.update([change("update", 9, b=7), change("insert", 2, a="again", b=0), change("delete", 8)])
    stub.history.update([change("update", 9, a="still nothing")])

    stopped = stub.build(on_unexplained="error")

    assert (stopped[STREAM].error_class, stub.rows()) == ("UNEXPLAINED", {1: ("x", 5), 2: ("y", 2)})
    assert last_cuts(stub.places, FEED)[STREAM].last_position == good

    assert stub.build() == {}

    assert stub.rows() == {1: ("x", 5), 2: ("again", 0)}
    assert stub.notes() == {"updates_without_row": 2, "inserts_over_row": 1, "deletes_of_nothing": 1}
    assert "Exception" not in capfd.readouterr().err  # the first attempt to write failed, as it was meant to


@pytest.mark.parametrize("moved", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_table_goes_up_to_the_update_that_nothing_explains_though_its_key_was_left_before(
    spark: SparkSession, warehouse: Path, moved: bool
) -> None:
    stub = StubWarehouse(spark, warehouse, StubConnector())
    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", 1, a="x", b=1)])
    stub.history.end_snapshot()
    left = change("update", 2)._replace(old_key=(0, 1)) if moved else change("delete", 1)
    stub.history.update([left])
    good = stub.history.update([change("insert", 3, a="z", b=3)])
    stub.history.update([change("update", 1, b=9)])

    assert stub.build(on_unexplained="error").keys() == {STREAM}

    assert last_cuts(stub.places, FEED)[STREAM].last_position == good


@pytest.mark.nightly
def test_an_update_that_comes_before_its_row_waits_for_it(spark: SparkSession, warehouse: Path) -> None:
    stub = StubWarehouse(spark, warehouse, StubConnector(continuity="resume", source_ordered=True))
    stub.history.begin_snapshot()
    stub.history.snapshot_rows([change("snapshot", 1, a="x", b=1)], sequences=["01"])
    stub.history.end_snapshot()
    stub.history.update([change("update", 2, b=5), change("update", 3, b=6)], sequences=["05", "06"])
    assert stub.build() == {}
    side_table = stub.places.side_table(FEED, STREAM)
    assert (stub.rows(), stub.shown(side_table)) == ({1: ("x", 1)}, {2: (None, 5), 3: (None, 6)})
    assert stub.notes() == {"updates_without_row": 2}

    stub.history.update([change("update", 1, b=9)], sequences=["07"])
    assert stub.build() == {}
    assert (stub.rows(), stub.shown(side_table)) == ({1: ("x", 9)}, {2: (None, 5), 3: (None, 6)})
    assert stub.notes() == {}

    stub.history.update([change("insert", 2, a="late", b=0), change("delete", 3)], sequences=["03", "08"])
    stub.history.update([change("insert", 3, a="too late", b=0)], sequences=["04"])
    assert stub.build() == {}
    assert (stub.rows(), stub.shown(side_table)) == ({1: ("x", 9), 2: ("late", 5)}, {})

    stub.history.update([change("delete", 1)], sequences=["09"])
    assert stub.build() == {}
    opened = open_table(side_table)
    assert opened is not None
    assert (stub.rows(), count_rows(opened)) == ({2: ("late", 5)}, 0)
