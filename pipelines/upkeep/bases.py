"""Bases: a table without snapshots as it was at a position, so that bronze need not keep every frame before it.

A base is built by the same `FeedBuild` as the table, from bronze, at a place of its own (`Places.base`): up to the
first frame that is too young to be dropped, and never beyond the table. Each round adds what has aged since. Its own
log records its position, as any table's does, so it is whole after a crash at any step. Silver has no part in it: what
is wrong there does not get into the base.

Once frames before it are dropped (`pipelines.upkeep.retention`), verification and rebuilds begin with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from silverfold.conf.errors import ApplyError
from silverfold.conf.model import Settings
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine_log import copy_left_out
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.landing.bronze_table import lost_from
from silverfold.pipelines.landing.dropped import base_position, dropped_of
from silverfold.pipelines.landing.losses import is_on_other_bronze, losses_of
from silverfold.pipelines.places import BasePlaces, Place, Places, places_of
from silverfold.pipelines.storage.companions import tables_of
from silverfold.pipelines.storage.cuts import built_otherwise, position_reached
from silverfold.pipelines.storage.remove_tree import remove_tree
from silverfold.pipelines.storage.silver_position import silver_position
from silverfold.pipelines.store import naming_damaged_file
from silverfold.pipelines.upkeep.beginnings import base_misfit, base_needed, begins_at


def first_since(bronze: Place, moment: datetime, *, after: int) -> int | None:
    """Return the position of the first frame received since a moment; None without one. Raises StoreUnavailable."""
    since = pa.scalar(moment.astimezone(UTC), pa.timestamp("us", "UTC"))
    for batch in read_small_columns(bronze, after=after):
        young = batch.filter(pc.greater_equal(batch["received_at"], since))
        if young.num_rows:
            position: int = young["frame_seq"][0].as_py()
            return position
    return None


@dataclass(frozen=True)
class BaseBuild:
    """The base of one table, whose stream has no snapshots."""

    spark: SparkSession
    settings: Settings
    connector: Connector
    feed: Feed
    table: str

    def advance(self, before: int | None, *, dry_run: bool = False) -> str:
        """Let the base take what landed before a position, None for all; return a message on it.

        Runs Spark jobs; safe to repeat, and to run alongside builds and readers.

        Raises:
            ApplyError: A table cannot begin with it, and bronze cannot make another; with the way on.
            SilverfoldError: It stopped at a frame or a setting, or the store is unavailable. What it reached counts.
        """
        applied = position_reached(self._live, self.feed.name, self.table)
        position = base_position(self._live, self.feed.name, self.table)
        reason = self._why_none(position)
        if reason is not None:
            return f"not made, {reason}" if position is None else f"stays at position {position}: {reason}"
        given = (self._live, self.connector, self.feed, self.table)
        misfit, is_needed = base_misfit(*given), base_needed(*given) is not None
        if misfit is not None and is_needed:
            raise ApplyError(misfit, table=self.table)
        bound = applied + 1 if before is None else min(before, applied + 1)
        if dry_run:
            return f"would take what landed before position {bound}"
        if misfit is not None or position is None:
            self._remove()
        reached = self._build(bound)
        if reached < 0:
            return "not made, no whole update is old enough"
        return f"stands at position {reached}"

    @property
    def _live(self) -> Places:
        return places_of(self.settings)

    @property
    def _places(self) -> BasePlaces:
        return self._live.base(self.table)

    def _why_none(self, position: int | None) -> str | None:
        """Return why bronze cannot make the base, or lead it further; None if it can."""
        places, feed = self._live, self.feed.name
        bronze, now = places.bronze(feed), silver_position(places, feed, self.table)
        if now.position < 0:
            return "the table is not built"
        keys = self.feed.tables[self.table].keys
        if (other := built_otherwise(places, self.connector, self.feed, self.table, keys)) is not None:
            return other
        if is_on_other_bronze(bronze, lost_from(bronze), now):
            return "the table was built from another bronze"
        taken = losses_of(places, self.connector, self.feed, self.table).taken
        if any(last > (-1 if position is None else position) for _, last in taken):
            return "the table has taken frames that bronze has lost"
        dropped = dropped_of(bronze, feed, self.table)
        begins = begins_at(places, self.connector, self.feed, self.table)
        if position is None and not dropped.is_enough(-1) and begins != dropped.floor:
            return "frames that the table has taken were dropped"
        return None

    def _remove(self) -> None:
        """Remove a base that leads nowhere, if there is one: behind dropped frames, damaged, or of other settings.

        The table goes last: a base that is removed in part is still found to be useless.
        """
        feed, places = self.feed.name, self._places
        if position_reached(places, feed, self.table) >= 0:
            for place in tables_of(places, feed, self.table):
                remove_tree(place)
            remove_tree(places.own(feed))

    def _build(self, before: int) -> int:
        feed = self.feed.apart(self.table)
        copy_left_out(self._live, self._places, feed.name, self.table)
        with (
            naming_damaged_file(*tables_of(self._places, feed.name, self.table)),
            FeedBuild.open(
                lambda: self.spark,
                self.settings,
                self.connector,
                feed,
                places=self._places,
                before=before,
                sees_later=True,
            ) as build,
        ):
            build.refresh()
            while (step := build.step(self.table)).unfinished:
                pass
            if step.error is not None:
                raise step.error
            return build.tables[self.table].position()
