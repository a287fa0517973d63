"""A SQLite Cloud feed whose bronze is written by hand, without a socket: land epochs, build, read silver."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.conf.model import Settings
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.payload import parse_streams
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import TableVerification, verify_table
from tests.support.building_once import all_rows, build_once
from tests.support.sqlitecloud.notices import framed, rowset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "shop"


def notified(message: Mapping[str, Any] | str) -> Frame:
    """Return the landed frame of a notification."""
    text = message if isinstance(message, str) else json.dumps(message)
    return Frame(framed(text), Kind.DATA, Boundary.WHOLE, parse_streams(text.encode())[0])


def snapshot_begins(description: Description) -> list[Frame]:
    """Return the frames that land before a snapshot is requested: its description and its beginning."""
    control = Frame(description.to_json(), Kind.CONTROL, Boundary.NONE, description.table)
    begin = mark("snapshot begin", stream=description.table)._replace(boundary=Boundary.BEGIN)
    return [control, begin]


def selected(description: Description, rows: Sequence[Sequence[Any]]) -> Frame:
    """Return the landed frame of snapshot rows."""
    return Frame(rowset(description.names, rows), Kind.SNAPSHOT, Boundary.INSIDE, description.table)


def snapshot_ends(description: Description) -> Frame:
    """Return the frame that lands once nothing can overtake the snapshot."""
    return mark("snapshot complete", stream=description.table)._replace(boundary=Boundary.END)


@dataclass
class SqliteCloudFeed:
    """A warehouse of one feed.

    Args:
        tables: Table settings by name.
        received_at: Receive time of frames, in microseconds since 1970.
    """

    warehouse: Path
    tables: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0
    received_at: int = 1_700_000_000_000_000

    @property
    def places(self) -> Places:
        """Addresses of its tables."""
        return Places(str(self.warehouse))

    @property
    def feed(self) -> Feed:
        """The feed with its current settings."""
        tables = {name: SqliteCloudTable.model_validate(given) for name, given in self.tables.items()}
        return Feed(FEED, "sqlitecloud", "", SqliteCloudOptions.model_validate(self.options), tables)

    @property
    def settings(self) -> Settings:
        """Settings of its warehouse."""
        return load_settings(None, "local", {}).model_copy(update={"warehouse": str(self.warehouse)})

    def connect(self, *frames: Frame) -> int:
        """Land the beginning of an epoch; return the position of the last frame."""
        self.epoch += 1
        return self.land(mark("opened"), *frames)

    def land(self, *frames: Frame) -> int:
        """Land frames; return the position of the last."""
        writer = BronzeWriter.open(self.places.bronze(FEED), FEED, token="test")
        batch = Batch(writer.last + 1)
        batch.add(list(frames), self.epoch, self.received_at)
        writer.append(batch.prepare().table)
        return writer.last

    def build(self, spark: SparkSession) -> dict[str, SilverfoldError]:
        """Apply everything that has landed, as a new process; return the error of each held table."""
        return build_once(spark, self.warehouse, CONNECTOR, self.feed)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the silver table's rows without positions, read by delta-rs."""
        rows = all_rows(open_table(self.places.silver(FEED, name)))
        return [{name: row[name] for name in row if name != "_position"} for row in rows]

    def verify(self, name: str) -> TableVerification:
        """Verify a silver table against bronze."""
        return verify_table(self.places, CONNECTOR, self.feed, name)
