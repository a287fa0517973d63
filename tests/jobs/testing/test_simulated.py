"""A feed that is received from a server in the test, and built."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import ConfigError
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.pipelines.landing.bronze import last_position
from silverfold.testing import assert_silver_equals, simulated
from tests.support.project_folder import QUOTES, bronze_of, write_project


def test_silver_catches_up_with_a_source_in_the_test_as_often_as_it_changes(
    spark: SparkSession, tmp_path: Path, warehouse: Path
):
    conf = write_project(tmp_path, f'{QUOTES}mode = "snapshot_with_updates"\n')
    quotes = LiveTable({"Sym": "String", "Bid": "Long"})
    with quotes.update() as update:
        update.add([{"Sym": "AAPL", "Bid": 10}])
    with (
        TableServer.start() as source,
        simulated(spark, conf, "market", f"127.0.0.1:{source.port}", warehouse) as market,
    ):
        source.export_table("Quotes", quotes)
        market.catch_up()
        assert_silver_equals(spark, market, "quotes", [{"Sym": "AAPL", "Bid": 10}])
        with quotes.update() as update:
            update.add([{"Sym": "IBM", "Bid": 20}])
        market.catch_up()
        assert_silver_equals(spark, market, "quotes", [{"Sym": "AAPL", "Bid": 10}, {"Sym": "IBM", "Bid": 20}])
        with pytest.raises(AssertionError, match=r"feed market has not caught up in 0\.0 s"):
            market.catch_up(until=lambda: False, patience=0.0)
    assert market.project.status("market").feeds[0].receiver.reason == "stopped here"


def test_a_feed_that_is_not_in_the_settings_is_refused(tmp_path: Path, warehouse: Path):
    conf = write_project(tmp_path)
    with (
        pytest.raises(ConfigError, match="feeds: found 'shop'"),
        simulated(None, conf, "shop", "127.0.0.1:1", warehouse),
    ):
        pass
    assert last_position(bronze_of(warehouse), "market") == -1
