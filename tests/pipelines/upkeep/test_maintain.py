"""A round of maintenance over tables that a build made: what goes, what stays, and that everything goes on after it."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import silverfold.pipelines.upkeep.maintain
import silverfold.pipelines.upkeep.retention
from silverfold.conf.errors import ApplyError, SparkUnavailable
from silverfold.conf.model import Maintain
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.storage.cuts import read_cuts
from silverfold.pipelines.upkeep.maintain import Done, Maintenance
from silverfold.pipelines.upkeep.rebuild import Rebuild
from silverfold.pipelines.verifying import verify_log
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, summarize, verify_table
from tests.support.building import FEED, Built, table
from tests.support.copies import BuiltMarket
from tests.support.deaths import Died, dying
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.landing import landed

COLUMNS = {"Sym": "String", "Qty": "Long"}
MONTH_LATER = datetime(2023, 12, 14, 22, 13, 20, tzinfo=UTC)


class Market(BuiltMarket):
    """Two tables, one keyed by a column; two epochs, a build after each. Positions 0 to 17, and from 18 on."""

    def __init__(self, spark: SparkSession, warehouse: Path) -> None:
        self.spark, self.warehouse = spark, warehouse
        self.built = Built(spark, warehouse, {"quotes": table(), "keyed": table(keys=("Sym",))})
        self.history = LandedHistory({"quotes": COLUMNS, "keyed": COLUMNS})
        for qty in (1, 2):
            self.history.connect()
            for name in ("quotes", "keyed"):
                self.history.snapshot(name, {1: {"Sym": "AAPL", "Qty": qty}, 2: {"Sym": "IBM", "Qty": qty}})
            self.update(10 * qty)
        verify_log.record(self.built.places, summarize(self.built.places, FEED, "bronze", self.verified(), MONTH_LATER))

    def update(self, qty: int) -> None:
        for name in ("quotes", "keyed"):
            self.history.update(name, modified={1: {"Qty": qty}})
        assert self.built.land_and_build(self.history) == {}

    def maintain(self, *, dry_run: bool = False) -> list[Done]:
        settings = self.built.settings.model_copy(update={"maintain": Maintain(vacuum_hours=24)})
        return list(Maintenance(self.spark, settings, CONNECTOR, self.built.feed, MONTH_LATER, dry_run).run())

    def rebuild(self, name: str) -> None:
        Rebuild(self.spark, self.built.settings, CONNECTOR, self.built.feed, name, "a").run()

    def verified(self) -> list[TableVerification]:
        return [verify_table(self.built.places, CONNECTOR, self.built.feed, name) for name in ("quotes", "keyed")]

    def verdicts(self) -> set[Verdict]:
        return {each.verdict for each in self.verified()}

    def forgotten(self) -> list[Path]:
        """Put a file that no table refers to, two days old, beside every table's own."""
        files = [self.warehouse / folder / "part-forgotten.parquet" for folder in FOLDERS]
        long_ago = (datetime.now(UTC) - timedelta(days=2)).timestamp()
        for file in files:
            file.write_bytes(b"x")
            os.utime(file, (long_ago, long_ago))
        return files

    def versions(self) -> list[int]:
        return [DeltaTable(str(self.warehouse / folder)).version() for folder in FOLDERS]


FOLDERS = (
    f"bronze/{FEED}",
    f"silver/{FEED}/quotes",
    f"silver/{FEED}/keyed",
    f"_silverfold/{FEED}/cuts",
    f"_silverfold/{FEED}/verified",
)


@pytest.fixture(scope="module")
def market_built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Market:
    """Build the tables once; each test has a copy."""
    return Market(spark, tmp_path_factory.mktemp("market"))


@pytest.fixture
def market(market_built: Market, warehouse: Path) -> Market:
    return market_built.copied_to(warehouse)


def test_everything_goes_on_after_a_round(market: Market):
    cuts = read_cuts(market.built.places, FEED)
    forgotten = market.forgotten()

    done = market.maintain()

    assert [each for each in done if each.failed] == []
    assert [file.name for file in forgotten if file.exists()] == []
    assert {each.table for each in done} == set(FOLDERS)
    assert done[0].result == "dropped frames 0 to 21: quotes stands on the snapshot at 22"
    assert [frame.frame_seq for frame in landed(market.built.places)][:5] == [18, 19, 20, 21, 22]
    assert (market.verdicts(), read_cuts(market.built.places, FEED)) == ({Verdict.EQUAL}, cuts)
    silver = market.versions()[1:3]
    market.maintain()
    assert market.versions()[1:3] == silver, "at rest nothing is committed: else Delta drops the cuts' notes in time"
    market.rebuild("keyed")
    shutil.rmtree(market.warehouse / "silver" / FEED / "quotes")
    market.rebuild("quotes")
    assert market.verdicts() == {Verdict.EQUAL}
    market.update(30)
    assert (market.verdicts(), market.built.rows("quotes")[1]["Qty"]) == ({Verdict.EQUAL}, 30)


def test_a_round_under_which_spark_ends_tells_that_and_ends(market: Market, monkeypatch: pytest.MonkeyPatch):
    def lost(*_: object) -> str:
        raise ApplyError("Spark: Error while sending or receiving", table="quotes")

    monkeypatch.setattr(Maintenance, "_optimize", lost)
    monkeypatch.setattr("silverfold.pipelines.spark.session.has_ended", lambda: True)

    with pytest.raises(SparkUnavailable, match="Spark has ended before its work was done"):
        market.maintain()


def test_a_dry_run_changes_nothing_and_tells_what_would_be(market: Market):
    forgotten, versions = market.forgotten(), market.versions()

    done = market.maintain(dry_run=True)

    assert done[0].result == "would drop frames 0 to 21: quotes stands on the snapshot at 22"
    assert [each.result for each in done if "would be removed" in each.result] == ["1 files would be removed"] * 5
    assert (market.versions(), all(file.exists() for file in forgotten)) == (versions, True)
    assert retained_from(market.built.places.bronze(FEED), FEED) == 0


@pytest.mark.nightly
def test_a_round_that_dies_at_any_step_leaves_tables_that_verify_and_go_on(
    market: Market, monkeypatch: pytest.MonkeyPatch
):
    steps: list[tuple[Any, str, bool]] = [
        (silverfold.pipelines.upkeep.retention, "_frames_below", False),
        (silverfold.pipelines.upkeep.retention, "write_deltalake", True),
        (silverfold.pipelines.upkeep.maintain, "compact", True),
        (Maintenance, "_optimize", True),
        (Maintenance, "_vacuum_silver", True),
        (Maintenance, "_join_ledger", True),
    ]
    for owner, name, after in steps:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying(getattr(owner, name), after))
            patch.setattr(silverfold.pipelines.upkeep.retention, "keep_append_only", lambda _: None)
            with pytest.raises(Died):
                market.maintain()
        assert market.verdicts() == {Verdict.EQUAL}, name

    done = market.maintain()

    assert [each for each in done if each.failed] == []
    assert DeltaTable(str(market.warehouse / FOLDERS[0])).metadata().configuration["delta.appendOnly"] == "true"
    market.update(30)
    assert market.verdicts() == {Verdict.EQUAL}


def test_frames_that_are_there_twice_stop_a_build_until_a_round_leaves_them_once(market: Market):
    market.history.update("quotes", modified={1: {"Qty": 99}})
    market.built.land(market.history)
    bronze = DeltaTable(str(market.warehouse / FOLDERS[0]))
    write_deltalake(bronze, bronze.to_pyarrow_table(), mode="append")

    stopped = market.built.build()
    message = market.maintain()[0].result

    assert {fault.error_class for fault in stopped.values()} == {"DOUBLED_POSITIONS"}
    assert message == (
        "removed the second of frames that were there twice from position 0 to 38; "
        "dropped frames 0 to 21: quotes stands on the snapshot at 22"
    )
    assert market.built.build() == {}
    assert (market.verdicts(), market.built.rows("quotes")[1]["Qty"]) == ({Verdict.EQUAL}, 99)


@pytest.mark.parametrize(("form", "notices"), [("INT96", True), ("TIMESTAMP_MICROS", False)])
def test_a_table_that_has_timestamps_in_the_old_form_is_noticed(
    spark: SparkSession, warehouse: Path, form: str, notices: bool
):
    built, session = Built(spark, warehouse, {"quotes": table()}), spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", form)
    rows = session.sql("SELECT 1L AS _row_key, timestamp'2024-05-01 00:00:00' AS at")
    silver = built.places.silver(FEED, "quotes").url
    rows.select("_row_key").write.format("delta").save(silver)
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(silver)

    (files, _) = Maintenance(spark, built.settings, CONNECTOR, built.feed, MONTH_LATER, dry_run=True).run()

    noticed = (
        "; some have timestamps as INT96, which many readers misread before 1677 and after 2262: "
        "`silverfold rebuild market quotes` rewrites them"
    )
    assert files.result.partition(" files")[2] == (noticed if notices else "")
