"""Days of a feed whose frames are dropped once their table has a base."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.conf.model import Maintain, Settings
from silverfold.conf.unix_time import unix_micros
from silverfold.connectors.base import Connector, Feed
from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.sqlitecloud_webhooks.connector import CONNECTOR as WEBHOOKS
from silverfold.connectors.sqlitecloud_webhooks.receiver.landing import Landing
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.reading.status import TableStatus, read_status
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.maintain import Done, Maintenance
from silverfold.pipelines.upkeep.rebuild import Rebuild, Rebuilt
from silverfold.pipelines.verifying.verify import TableVerification, verify_history, verify_table
from tests.support.building_once import all_rows, build_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)
FIRST_DAY = datetime(2023, 11, 14, tzinfo=UTC)


@dataclass
class Days:
    """A feed that lands frames once a day, and is built and maintained a day later; ``bronze_days`` is one."""

    spark: SparkSession
    warehouse: Path
    connector: Connector
    feed: Feed
    today: datetime = FIRST_DAY
    _epoch: int = field(init=False, default=0)

    def copied_to(self, warehouse: Path) -> Days:
        """Return the same in another, empty warehouse. Changes of the copy are its own."""
        shutil.copytree(self.warehouse, warehouse, dirs_exist_ok=True)
        twin = copy(self)
        twin.warehouse = warehouse
        return twin

    @property
    def places(self) -> Places:
        return Places(str(self.warehouse))

    @property
    def settings(self) -> Settings:
        local = load_settings(None, "local", {})
        return local.model_copy(update={"warehouse": str(self.warehouse), "maintain": Maintain(bronze_days=1)})

    @property
    def floor(self) -> int:
        return retained_from(self.places.bronze(self.feed.name), self.feed.name)

    def land(self, *frames: Frame) -> int:
        """Land an epoch, and let a day pass; return the last position."""
        self._epoch += 1
        writer = BronzeWriter.open(self.places.bronze(self.feed.name), self.feed.name, token="test")
        batch = Batch(writer.last + 1)
        batch.add([mark("opened"), *frames], self._epoch, unix_micros(self.today))
        writer.append(batch.prepare().table)
        self.today += DAY
        return writer.last

    def faults(self) -> dict[str, SilverfoldError]:
        return build_once(self.spark, self.warehouse, self.connector, self.feed)

    def build(self) -> None:
        assert self.faults() == {}

    def maintain(self, *, dry_run: bool = False) -> list[Done]:
        now = self.today - timedelta(hours=1)  # what landed last is too young to go
        return list(Maintenance(self.spark, self.settings, self.connector, self.feed, now, dry_run).run())

    def drop(self) -> None:
        """Begin to maintain: make the bases, and drop what they have."""
        now, bronze = self.today - timedelta(hours=1), f"bronze/{self.feed.name}"
        round_of_it = Maintenance(self.spark, self.settings, self.connector, self.feed, now).run()
        assert next(done for done in round_of_it if done.table == bronze).result.startswith("dropped frames")

    def rebuild(self, table: str) -> Rebuilt:
        return Rebuild(self.spark, self.settings, self.connector, self.feed, table, "a").run()

    def remove(self, table: str) -> None:
        shutil.rmtree(self.places.silver(self.feed.name, table).url)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows = all_rows(open_table(self.places.silver(self.feed.name, table)))
        return sorted(rows, key=lambda row: str(list(row.values())))

    def verify(self, table: str) -> TableVerification:
        return verify_table(self.places, self.connector, self.feed, table)

    def verify_history(self, table: str) -> TableVerification:
        return verify_history(self.places, self.connector, self.feed, table)

    def status(self) -> list[TableStatus]:
        return list(read_status(self.places, self.connector, self.feed, now=self.today).tables)


def webhooks(feed: Feed) -> Callable[..., list[Frame]]:
    """Return a function from bodies to frames, of one receiver that announces each column once."""
    landing = Landing([WEBHOOKS.stream(feed, name) for name in feed.tables])
    return lambda *bodies: [frame for body in bodies for frame in landing.frames(body)]
