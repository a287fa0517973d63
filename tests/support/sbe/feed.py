"""An SBE feed whose bronze is written by the connector itself, without a socket: land, build, read silver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silverfold.conf.errors import SilverfoldError
from silverfold.conf.load import load_settings
from silverfold.conf.model import Settings
from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Frame, mark
from silverfold.connectors.sbe.connector import CONNECTOR
from silverfold.connectors.sbe.options import SbeOptions, SbeTable
from silverfold.connectors.sbe.protocol.schemas import read_schema
from silverfold.connectors.sbe.protocol.session import Session
from silverfold.connectors.sbe.receiver.landing import Landing
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.writer import FrameWriter
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.verify import TableVerification, verify_table
from tests.support.building_once import all_rows, build_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "stream"


def options(schema: str = "builtin", framing: str = "sofh") -> SbeOptions:
    """Return a feed's options, validated as from its file."""
    return validated(SbeOptions, {"schema": schema, "framing": framing}, file="test")


def table(**settings: Any) -> SbeTable:
    """Return a table's settings, validated as from the feed's file."""
    return validated(SbeTable, settings, file="test")


@dataclass
class SbeFeed:
    """A warehouse of one feed.

    Args:
        schema: Name or path of the reader's schema.
        tables: Table settings by name.
    """

    warehouse: Path
    tables: Mapping[str, SbeTable]
    schema: str = "builtin"
    address: str = "127.0.0.1:1"
    _epoch: int = field(init=False, default=0)

    @property
    def places(self) -> Places:
        """Addresses of its tables."""
        return Places(str(self.warehouse))

    @property
    def feed(self) -> Feed:
        """The feed with its current settings."""
        return Feed(FEED, "sbe", self.address, options(self.schema), self.tables)

    @property
    def settings(self) -> Settings:
        """Settings of the warehouse."""
        return load_settings(None, "local", {}).model_copy(update={"warehouse": str(self.warehouse)})

    def land(self, *bodies: bytes) -> int:
        """Land an epoch of messages; return the position of the last. The first message is the second frame."""
        read, framing = read_schema(self.schema), FRAMINGS["sofh"]
        schema = read.load()
        landing = Landing(schema, Session(schema, framing), has_positions=False, reported=set())
        octets = FrameWriter(framing, byte_order=schema.byte_order).write(bodies)
        return self.land_frames(*landing.begin(read.text, read.text), *landing.receive(octets), *landing.receive_eof())

    def land_frames(self, *frames: Frame) -> int:
        """Land an epoch of any frames; return the position of the last."""
        self._epoch += 1
        writer = BronzeWriter.open(self.places.bronze(FEED), FEED, token="test")
        batch = Batch(writer.last + 1)
        batch.add([mark("opened"), *frames], self._epoch, 1_700_000_000_000_000)
        writer.append(batch.prepare().table)
        return writer.last

    def build(self, spark: SparkSession) -> dict[str, SilverfoldError]:
        """Apply everything that has landed, as a new process; return the error of each held table."""
        return build_once(spark, self.warehouse, CONNECTOR, self.feed)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the silver table's rows, read by delta-rs."""
        return all_rows(open_table(self.places.silver(FEED, name)))

    def verify(self, name: str) -> TableVerification:
        """Verify a silver table against bronze."""
        return verify_table(self.places, CONNECTOR, self.feed, name)
