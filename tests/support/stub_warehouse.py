"""A warehouse with one stub table: add changes, build, read silver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.connectors.base import Feed
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.storage.cuts import last_cuts
from silverfold.pipelines.store import open_table
from tests.support.building_once import all_rows
from tests.support.change_model import Change
from tests.support.running import run_once
from tests.support.stub_connector import FEED, STREAM, StubConnector, StubHistory, StubOptions, StubTable


class StubWarehouse:
    """A warehouse with one stub table."""

    def __init__(self, spark: SparkSession, warehouse: Path, connector: StubConnector) -> None:
        self.spark, self.connector = spark, connector
        self.places = Places(str(warehouse))
        self.history = StubHistory(self.places)
        self.history.connect()

    def build(self, **settings: Any) -> Mapping[str, SilverfoldError]:
        """Land and apply everything, with these table settings."""
        return run_once(self.started(**settings))

    def started(self, **settings: Any) -> FeedBuild:
        """Land all frames; return the build of a new process with these table settings."""
        self.history.land()
        local = load_settings(None, "local", {}).model_copy(update={"warehouse": self.places.warehouse})
        build = FeedBuild.open(lambda: self.spark, local, self.connector, self.feed_with(**settings))
        build.refresh()
        return build

    def feed_with(self, **settings: Any) -> Feed:
        """Return the feed with these table settings."""
        return Feed(FEED, FEED, "unused", StubOptions(), {STREAM: StubTable(source="T", **settings)})

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """Return the silver rows by ``k``."""
        return self.shown(self.places.silver(FEED, STREAM))

    def shown(self, place: Place) -> dict[int, tuple[Any, ...]]:
        return {row["k"]: (row["a"], row["b"]) for row in all_rows(open_table(place))}

    def notes(self) -> Mapping[str, int]:
        """Return the counters of the last cut."""
        return last_cuts(self.places, FEED)[STREAM].notes


def change(op: str, k: int, **sent: Any) -> Change:
    return Change(0, op, (0, k), {} if op == "delete" else {"lane": 0, "k": k, **sent})
