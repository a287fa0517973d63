"""Keeps the tables of a feed small: old frames dropped, small files joined, files nobody refers to removed.

Nothing here changes what a table shows. All is safe beside receivers, builds and readers: what conflicts with a
commit of theirs is left for the next run, and files are removed only once they were out of use for long enough.

Silver, histories and tombstones are written by Spark, which alone knows all their files: deletion vectors lie beside
them. Bronze and the ledgers are written by delta-rs, and are looked after by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from conf.errors import ApplyError, StoreUnavailable
from conf.model import Settings
from connectors.base import Connector, Feed
from pipelines import ledger
from pipelines.places import Place, Places
from pipelines.retention import describe, drop_frames, keep_append_only, plan_retention
from pipelines.spark import own_session
from pipelines.store import naming_the_store, open_table
from pipelines.writer import compact
from transforms.faults import named_errors
from transforms.sql import path_table

_Step: TypeAlias = Callable[[Place], str]

_SETTINGS = {
    # How young a file may be removed is our own setting: else Delta goes by a week, and refuses to be told otherwise.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # The one folder of a table is listed in as many tasks: by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}


class Done(NamedTuple):
    """What was done to one table, or would be."""

    table: str
    """Its place below the warehouse."""
    told: str
    failed: bool = False
    """It did not work this time, and nothing was lost by it."""


@dataclass(frozen=True)
class Maintenance:
    """One round over a feed's tables.

    Args:
        now: UTC.
        dry_run: Say what would be done, and change nothing.
    """

    spark: SparkSession
    settings: Settings
    connector: Connector
    feed: Feed
    now: datetime
    dry_run: bool = False

    def run(self) -> Iterator[Done]:
        """Look after one table after the other; yield what was done. Runs Spark jobs; safe to repeat."""
        yield from self._each(self._places.bronze(self.feed.name), [self._drop, self._join_bronze, self._vacuum_ours])
        for place in self._written_by_spark():
            yield from self._each(place, [self._optimize, self._vacuum_silver])
        for place in self._ledgers():
            yield from self._each(place, [self._join_ledger, self._vacuum_ours])

    @property
    def _places(self) -> Places:
        return Places(self.settings.warehouse, self.settings.storage())

    def _written_by_spark(self) -> Iterator[Place]:
        for name in self.feed.tables:
            yield self._places.silver(self.feed.name, name)
            yield self._places.history(self.feed.name, name)
            yield self._places.tombstones(self.feed.name, name)
            yield self._places.aside(self.feed.name, name)

    def _ledgers(self) -> Iterator[Place]:
        yield self._places.cuts(self.feed.name)
        for name in self.feed.tables:
            yield self._places.quarantine(self.feed.name, name)

    def _each(self, place: Place, steps: Sequence[_Step]) -> Iterator[Done]:
        for step in steps:
            try:
                if open_table(place) is None:
                    return
                told = step(place)
            except (StoreUnavailable, ApplyError) as error:
                yield Done(self._name(place), f"left for the next run: {error}", failed=True)
            else:
                yield Done(self._name(place), told)

    def _name(self, place: Place) -> str:
        root = self._places.bronze("").url.removesuffix("bronze/")
        return place.url.removeprefix(root)

    def _drop(self, bronze: Place) -> str:
        keep_since = self.now - timedelta(days=self.settings.maintain.bronze_days)
        retention = plan_retention(self._places, self.connector, self.feed, keep_since=keep_since)
        if self.dry_run:
            return f"would drop {describe(retention)}" if retention.drops else describe(retention)
        if not retention.drops:
            keep_append_only(bronze)
            return describe(retention)
        drop_frames(bronze, self.feed.name, retention)
        return f"dropped {describe(retention)}"

    def _join_bronze(self, bronze: Place) -> str:
        return f"{_files(bronze)} files" if self.dry_run else f"{compact(bronze)} files joined"

    def _join_ledger(self, place: Place) -> str:
        if self.dry_run:
            return f"{_files(place)} files"
        return f"{ledger.compact(place)} files joined"

    def _vacuum_ours(self, place: Place) -> str:
        with naming_the_store(place):
            removed = _opened(place).vacuum(
                self.settings.maintain.vacuum_hours, dry_run=self.dry_run, enforce_retention_duration=False, full=True
            )
        return f"{len(removed)} files {'would be ' if self.dry_run else ''}removed"

    def _optimize(self, silver: Place) -> str:
        if self.dry_run:
            return f"{_files(silver)} files"
        (row,) = self._sql(silver, f"OPTIMIZE {path_table(silver.url)}")
        return f"{row['metrics']['numFilesRemoved']} files joined to {row['metrics']['numFilesAdded']}"

    def _vacuum_silver(self, silver: Place) -> str:
        hours = f"RETAIN {self.settings.maintain.vacuum_hours} HOURS"
        if self.dry_run:
            found = self._sql(silver, f"VACUUM {path_table(silver.url)} {hours} DRY RUN")
            return f"{len(found)} files would be removed"
        self._sql(silver, f"VACUUM {path_table(silver.url)} {hours}")
        return "unused files removed"

    def _sql(self, place: Place, statement: str) -> list[Row]:
        session = own_session(self.spark)
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        with named_errors(self._name(place)):
            return session.sql(statement).collect()


def _opened(place: Place) -> DeltaTable:
    table = open_table(place)
    if table is None:
        raise StoreUnavailable(f"{place}: the table is gone")
    return table


def _files(place: Place) -> int:
    return len(_opened(place).file_uris())
