"""Tables that others put in our folders, or that were moved there: refused with a message, not built upon."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from silverfold.conf.errors import StoreUnavailable
from silverfold.conf.load import load_settings
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.landing.bronze import last_position, read_small_columns
from silverfold.pipelines.landing.bronze_table import lost_from, retained_from
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.remove_tree import set_damaged_log_aside
from silverfold.pipelines.verifying.verify import verify_table
from tests.support.running import run_once
from tests.support.stub_connector import FEED, STREAM, StubConnector, StubHistory
from tests.support.stub_warehouse import StubWarehouse, change

READERS: dict[str, Callable[[Places], object]] = {
    "last position": lambda places: last_position(places.bronze(FEED), FEED),
    "small columns": lambda places: list(read_small_columns(places.bronze(FEED))),
    "losses": lambda places: lost_from(places.bronze(FEED)),
    "retention": lambda places: retained_from(places.bronze(FEED), FEED),
}


@pytest.mark.parametrize("reader", READERS)
def test_another_table_in_bronze_s_folder_is_named(warehouse: Path, reader: str) -> None:
    places = Places(str(warehouse))
    write_deltalake(places.bronze(FEED).url, pa.table({"x": [1]}))
    with pytest.raises(StoreUnavailable, match="this is not a bronze table, it has no column frame_seq: move it away"):
        READERS[reader](places)


def test_another_table_in_the_quarantine_s_folder_is_named(warehouse: Path) -> None:
    places = Places(str(warehouse))
    write_deltalake(places.quarantine(FEED, "t").url, pa.table({"x": [1]}))
    with pytest.raises(StoreUnavailable, match="this is not a table of ours, it has no column position"):
        quarantined(places, FEED, "t")


def test_a_table_whose_folder_was_moved_to_another_name_holds(spark: SparkSession, warehouse: Path) -> None:
    connector = StubConnector(snapshots=False)
    stub = StubWarehouse(spark, warehouse, connector)
    other = StubHistory(stub.places, feed=stub.history.feed, stream="other")
    for history in (stub.history, other):
        history.update([change("insert", 1, a="x", b=1)])
    assert stub.build() == {}
    feed = replace(stub.feed_with(), tables={"other": stub.feed_with().tables[STREAM]})
    shutil.move(stub.places.silver(FEED, STREAM).url, stub.places.silver(FEED, "other").url)
    local = load_settings(None, "local", {}).model_copy(update={"warehouse": stub.places.warehouse})

    def build() -> str:
        return str(run_once(FeedBuild.open(lambda: spark, local, connector, feed))["other"])

    held = build()

    reason = f"it was built as table {STREAM} of feed {FEED}"
    assert held == f"other: {reason}: move it away, or run silverfold rebuild {FEED} other"
    assert verify_table(stub.places, connector, feed, "other").reason == reason
    foreign = stub.places.silver(FEED, "other").url
    shutil.rmtree(foreign)
    write_deltalake(foreign, pa.table({"lane": [0], "k": [7], "a": ["x"], "b": [7]}))
    assert build().startswith("other: it has rows that no build wrote: move it away, or")


def test_checksums_of_commits_that_are_gone_do_not_stop_the_next_ones(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(str(tmp_path / "t"))
    for _ in range(2):
        spark.range(1).write.format("delta").mode("append").save(place.url)
    log = tmp_path / "t" / "_delta_log"
    for kind in ("json", "crc"):
        (log / f"{1:020}.{kind}").unlink()
    write_deltalake(place.url, pa.table({"id": [5]}), mode="append")  # beside the checksum of the commit that is gone

    assert set_damaged_log_aside(place, "token") is None

    assert spark.read.format("delta").option("versionAsOf", 1).load(place.url).count() == 2
