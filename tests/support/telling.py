"""A warehouse of one told table: tell changes, build, look at silver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.connectors.base import Feed
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.applying.cuts import last_cuts
from silverfold.pipelines.places import Place, Places
from tests.support.change_model import Change
from tests.support.running import run_once
from tests.support.told import FEED, STREAM, ToldConnector, ToldHistory, ToldOptions, ToldTable


class Told:
    """A warehouse of one told table."""

    def __init__(self, spark: SparkSession, warehouse: Path, connector: ToldConnector) -> None:
        self.spark, self.connector = spark, connector
        self.places = Places(str(warehouse))
        self.history = ToldHistory(self.places)
        self.history.connect()

    def build(self, **settings: Any) -> Mapping[str, SilverfoldError]:
        """Apply what was told, with these settings of the table."""
        return run_once(self.started(**settings))

    def started(self, **settings: Any) -> FeedBuild:
        """Return the build of a process that starts now, with these settings; all that was told has landed."""
        self.history.land()
        table = ToldTable(source="T", **settings)
        feed = Feed(FEED, FEED, "unused", ToldOptions(), {STREAM: table})
        local = load_settings(None, "local", {}).model_copy(update={"warehouse": self.places.warehouse})
        build = FeedBuild(lambda: self.spark, local, self.connector, feed)
        build.refresh()
        return build

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """Return silver's rows by ``k``."""
        return self.shown(self.places.silver(FEED, STREAM))

    def shown(self, place: Place, where: str = "TRUE") -> dict[int, tuple[Any, ...]]:
        rows = self.spark.read.format("delta").load(place.url).where(where)
        return {row.k: (row.a, row.b) for row in rows.collect()}

    def notes(self) -> Mapping[str, int]:
        """Return what the last cut told."""
        return last_cuts(self.places, FEED)[STREAM].notes


def change(op: str, k: int, **sent: Any) -> Change:
    return Change(0, op, (0, k), {} if op == "delete" else {"lane": 0, "k": k, **sent})
