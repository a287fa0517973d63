"""Builds one table of the stub connector, with its history and tombstones, and reads all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from silverfold.conf.load import load_settings
from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine import read_quarantine
from silverfold.pipelines.holding.quarantine_log import HoldState
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.cuts import position_in
from silverfold.pipelines.upkeep.maintain import Done, Maintenance
from silverfold.pipelines.upkeep.rebuild import Rebuild, Rebuilt
from silverfold.pipelines.verifying.verify import Verdict, verify_history, verify_table
from tests.support.running import run_once
from tests.support.stub_connector import FEED, STREAM, StubConnector, StubHistory, StubOptions, StubTable


@dataclass
class VersionedTable:
    """A feed with one table, which keeps history unless ``scd_type`` is 1."""

    spark: SparkSession
    warehouse: Path
    connector: StubConnector
    scd_type: Literal[1, 2] = 2
    places: Places = field(init=False)
    source: StubHistory = field(init=False)
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self.places = Places(str(self.warehouse))
        self.source = StubHistory(self.places)
        table = StubTable(source="T", stored_as_scd_type=self.scd_type)
        self.feed = Feed(FEED, FEED, "unused", StubOptions(), {STREAM: table})

    @property
    def settings(self) -> Settings:
        return load_settings(None, "local", {}).model_copy(update={"warehouse": str(self.warehouse)})

    @property
    def table(self) -> Place:
        return self.places.silver(FEED, STREAM)

    @property
    def history(self) -> Place:
        return self.places.history(FEED, STREAM)

    @property
    def tombstones(self) -> Place:
        return self.places.tombstones(FEED, STREAM)

    def build(self, *, holds: bool = False) -> None:
        """Land all frames and apply them in a new process."""
        self.source.land()
        feed_build = FeedBuild.open(lambda: self.spark, self.settings, self.connector, self.feed)
        assert bool(run_once(feed_build)) is holds

    def rebuild(self, token: str = "a") -> Rebuilt:
        return Rebuild(self.spark, self.settings, self.connector, self.feed, STREAM, token).run()

    def maintain(self) -> list[Done]:
        now = datetime(2024, 5, 1, tzinfo=UTC)
        return list(Maintenance(self.spark, self.settings, self.connector, self.feed, now).run())

    def sql(self, place: Place, statement: str) -> None:
        """Run SQL on a table, bypassing the build; ``{t}`` is the table."""
        self.spark.newSession().sql(statement.replace("{t}", f"delta.`{place.url}`")).collect()

    def verdicts(self) -> tuple[Verdict, Verdict]:
        """Verify the table and its history."""
        given = (self.places, self.connector, self.feed, STREAM)
        return verify_table(*given).verdict, verify_history(*given).verdict

    def quarantined(self) -> list[tuple[str | None, HoldState]]:
        """Return the resolution and state of every quarantined position."""
        found = read_quarantine(self.places, FEED, [STREAM])
        return [(each.hold.resolution, each.state) for each in found]

    def reached(self) -> list[int]:
        """Return the positions recorded in the logs of table, history and tombstones, where these exist."""
        found = {"apply": self.table, "history": self.history, "tombstones": self.tombstones}
        there = {name: place for name, place in found.items() if DeltaTable.is_deltatable(place.url)}
        return [position_in(DeltaTable(place.url), f"{name}/{FEED}/{STREAM}") for name, place in there.items()]


def rows_of(place: Place, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return a table's rows, sorted, read by delta-rs."""
    opened = QueryBuilder().register("t", DeltaTable(place.url))
    found = pa.table(opened.execute(f"SELECT {', '.join(columns)} FROM t").read_all())
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)
