"""A feed whose bronze is written by hand, frame by frame, for code that reads only bronze's small columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.conf.model import Strict, Table
from silverfold.connectors.base import Feed
from silverfold.pipelines.landing import bronze_table
from silverfold.pipelines.places import Places
from tests.support.bronze_rows import rows, small_columns


@dataclass(frozen=True)
class Snapshots:
    """The part of a connector that planning needs."""

    name: str = "scripted"
    continuity: str = "resync"
    source_ordered: bool = False

    def has_snapshots(self, table: Table) -> bool:
        return table.source != "Log"

    def stream(self, feed: Feed, table: str) -> str:
        return table

    def listens_at(self, feed: Feed) -> None:
        return None


def feed(*tables: str) -> Feed:
    return Feed("market", "scripted", "", Strict(), {name: Table(source=name.title()) for name in tables})


def land(places: Places, *lines: str, start: int = 0, bodies: Sequence[bytes] = (), kept_from: int = 0) -> None:
    """Land frames given as lines. ``bodies`` are those of the first frames; the others are empty.

    Args:
        kept_from: Frames before this position were removed by maintenance.
    """
    small = small_columns(rows(*lines, start=start))
    all_bodies = [*bodies, *[b""] * (small.num_rows - len(bodies))]
    marks = [Transaction(bronze_table.app_id("market"), start + small.num_rows - 1)]
    marks += [Transaction(bronze_table.retention_id("market"), kept_from)] if kept_from else []
    frames = small.append_column("source_position", pa.nulls(small.num_rows, pa.string()))
    frames = frames.append_column("body", pa.array(all_bodies, pa.binary())).cast(bronze_table.SCHEMA)
    write_deltalake(
        bronze_table.create(places.bronze("market")),
        frames,
        mode="append",
        commit_properties=CommitProperties(app_transactions=marks),
    )
