"""Builds silver tables from landed histories, as `silverfold build --once` does, and reads them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.conf.model import Build, CutLimits, FeedSettings, Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.jobs.testing.silver import SilverFeed
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine_log import Hold, holds
from silverfold.pipelines.places import Places
from silverfold.pipelines.project import Project
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.store import open_table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.running import run_once

FEED = "market"


class Built:
    """A warehouse of one feed: land histories, build, read silver.

    Args:
        tables: Silver tables; a plain name gets default settings.
        address: Source address, for tests that receive.
        max_frames: Maximum number of frames in a cut.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Path,
        tables: Mapping[str, DeephavenTable],
        *,
        options: DeephavenOptions | None = None,
        address: str = "unused",
        max_frames: int = 200_000,
    ) -> None:
        self.spark = spark
        self.places = Places(str(warehouse))
        self.feed = Feed(FEED, "deephaven", address, options or DeephavenOptions(), tables)
        self.settings = settings_at(warehouse, max_frames)

    def land(self, history: LandedHistory) -> int:
        """Land what was added to the history; return the last position."""
        history.streams |= {name: CONNECTOR.stream(self.feed, name) for name in self.feed.tables}
        return history.land(self.places.bronze(FEED), FEED)

    def start(self) -> FeedBuild:
        """Return the build of a new process, refreshed from bronze."""
        feed_build = FeedBuild.open(lambda: self.spark, self.settings, CONNECTOR, self.feed)
        feed_build.refresh()
        return feed_build

    def build(self, feed_build: FeedBuild | None = None) -> dict[str, SilverfoldError]:
        """Apply everything that has landed; return the error of each held table. By default starts a new build."""
        return run_once(feed_build or self.start())

    def land_and_build(self, history: LandedHistory) -> dict[str, SilverfoldError]:
        """Land the history, then build."""
        self.land(history)
        return self.build()

    def exists(self, table: str) -> bool:
        """Return whether the silver table exists."""
        return open_table(self.places.silver(FEED, table)) is not None

    @property
    def silver_feed(self) -> SilverFeed:
        """The feed, for `assert_silver_equals`."""
        tables = {name: each.model_dump(mode="json", exclude_unset=True) for name, each in self.feed.tables.items()}
        options = self.feed.options.model_dump(mode="json", by_alias=True, exclude_unset=True)
        settings = FeedSettings(connector="deephaven", address="unused:1", options=options, tables=tables)
        return SilverFeed(Project(self.settings.model_copy(update={"feeds": {FEED: settings}})), FEED)

    def silver(self, table: str) -> DataFrame:
        """Return the silver table without its positions."""
        return self.spark.read.format("delta").load(self.places.silver(FEED, table).url).drop("_position")

    def with_positions(self, table: str) -> DataFrame:
        """Return the silver table, positions included."""
        return self.spark.read.format("delta").load(self.places.silver(FEED, table).url)

    def records(self, table: str) -> list[dict[str, Any]]:
        """Return the silver table's rows without positions, read by delta-rs, in a tenth of Spark's time."""
        opened = open_table(self.places.silver(FEED, table))
        assert opened is not None
        found = pa.table(QueryBuilder().register("silver", opened).execute("SELECT * FROM silver").read_all())
        rows: list[dict[str, Any]] = found.drop_columns(["_position"]).to_pylist()
        return rows

    def rows(self, table: str) -> dict[Any, dict[str, Any]]:
        """Return `records` by row key."""
        records = self.records(table)
        by_key = {record.pop("_row_key"): record for record in records}
        assert len(by_key) == len(records), "a row key is there once"
        return by_key

    def notes(self, table: str) -> Mapping[str, int]:
        """Return the counters of the table's last cut."""
        return last_cuts(self.places, FEED)[table].notes

    def settle(self, settings: DeephavenTable) -> None:
        """Replace the settings of the only table."""
        self.feed = replace(self.feed, tables=dict.fromkeys(self.feed.tables, settings))

    def versions(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of the history table, read as by `records`; empty if there is no history yet."""
        opened = open_table(self.places.history(FEED, table))
        if opened is None:
            return []
        found: list[dict[str, Any]] = pa.table(
            QueryBuilder().register("history", opened).execute("SELECT * FROM history").read_all()
        ).to_pylist()
        return found

    def holds(self, table: str) -> Sequence[Hold]:
        """Return the table's holds in the feed's quarantine."""
        return holds(self.places, FEED, table)


def table(**settings: Any) -> DeephavenTable:
    """Return a table's settings."""
    return DeephavenTable(**{"source": "T", **settings})


def settings_at(warehouse: Path, max_frames: int) -> Settings:
    """Return the settings of a build whose cuts have at most so many frames."""
    local = load_settings(None, "local", {})
    build = Build(cut=CutLimits(max_frames=max_frames))
    return local.model_copy(update={"warehouse": str(warehouse), "build": build})
