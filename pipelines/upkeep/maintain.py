"""Maintain the tables of a feed: make bases, drop old frames, join small files, remove unreferenced files.

Nothing here changes what a table shows. All of it may run alongside receivers, builds and readers: anything that
conflicts with their commits is left for the next run, and files are removed only after being unused for long enough.

Silver tables, histories and tombstones are maintained by Spark, which wrote them: it alone knows all their files, as
they have deletion vectors. Bronze and the ledgers are written, and maintained, by delta-rs.

The models here are printed by ``silverfold maintain --json``: their names and meanings must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias, get_args
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import FileSystem
from pyarrow.parquet import ParquetFile
from pyspark.sql import Row, SparkSession

from silverfold.conf.errors import ApplyError, SilverfoldError, SparkUnavailable, StoreUnavailable
from silverfold.conf.model import Settings
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.landing.dropped import base_position
from silverfold.pipelines.landing.writer import compact
from silverfold.pipelines.places import Place, Places, places_of
from silverfold.pipelines.report import Report
from silverfold.pipelines.spark.session import close_session, own_session, raising_if_ended
from silverfold.pipelines.storage import ledger
from silverfold.pipelines.storage.companions import Part, companion, companion_place
from silverfold.pipelines.storage.lease import sole_writer
from silverfold.pipelines.store import files_of, naming_damaged_file, naming_the_store, open_table
from silverfold.pipelines.upkeep.bases import BaseBuild, first_since
from silverfold.pipelines.upkeep.retention import (
    Retention,
    describe,
    drop_frames,
    keep_append_only,
    plan_retention,
    remove_doubles,
)
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import path_table

_Step: TypeAlias = Callable[[Place], str]

_FOOTERS = 16
"""Number of oldest files searched for one with timestamps: a column may have been added later."""

_SETTINGS = {
    # Our own setting decides how young a file may be removed; otherwise Delta insists on a week.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # It would commit twice a day to unchanged tables, until Delta drops the cuts' notes from the log.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    # A table's single folder is listed in this many tasks; the default is 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}


class Done(Report):
    """What was done to one table, or would be."""

    table: str
    """Its place below the warehouse."""
    result: str
    failed: bool = False
    """It did not work this time; nothing was lost."""


class MaintenanceReport(Report):
    """Everything ``silverfold maintain --json`` prints."""

    at: datetime
    """When it began."""
    warehouse: str
    feed: str
    dry_run: bool
    """Nothing was changed: ``steps`` says what would be."""
    complete: bool
    """No step has ``failed``."""
    steps: tuple[Done, ...]
    """What was done, in this order; several for one table."""


@dataclass(frozen=True)
class Maintenance:
    """One round over a feed's tables.

    Args:
        now: UTC.
        dry_run: Report what would be done, and change nothing.
    """

    spark: SparkSession
    settings: Settings
    connector: Connector
    feed: Feed
    now: datetime
    dry_run: bool = False

    def report(self, on_step: Callable[[Done], object] = lambda _done: None) -> MaintenanceReport:
        """Do as `run`; return all that was done. ``on_step`` is called as each step ends."""
        steps = []
        for done in self.run():
            on_step(done)
            steps.append(done)
        return MaintenanceReport(
            at=self.now,
            warehouse=self.settings.warehouse,
            feed=self.feed.name,
            dry_run=self.dry_run,
            complete=not any(done.failed for done in steps),
            steps=tuple(steps),
        )

    def run(self) -> Iterator[Done]:
        """Maintain one table after the other; yield what was done. Runs Spark jobs; safe to repeat."""
        with_base = [name for name, table in self.feed.tables.items() if not self.connector.has_snapshots(table)]
        for name in with_base:
            yield from self._advance_base(name)
        yield from self._each(self._places.bronze(self.feed.name), [self._drop, self._join_bronze, self._vacuum_ours])
        for name in self.feed.tables:
            yield from self._table(self._places, name)
        of_feed = (self._places.cuts(self.feed.name), self._places.verified(self.feed.name))
        for place in (*of_feed, *map(self._quarantine, self.feed.tables)):
            yield from self._ledger(place)
        for name in with_base:
            base = self._places.base(name)
            yield from self._table(base, name)
            yield from self._ledger(base.cuts(self.feed.name))

    @property
    def _places(self) -> Places:
        return places_of(self.settings)

    def _quarantine(self, name: str) -> Place:
        return self._places.quarantine(self.feed.name, name)

    def _table(self, places: Places, name: str) -> Iterator[Done]:
        silver, optimize = places.silver(self.feed.name, name), partial(self._optimize, places, name)
        yield from self._each(silver, [optimize, self._vacuum_silver])
        for part in get_args(Part):
            place = companion_place(places, self.feed.name, name, part)
            yield from self._each(place, [optimize, partial(self._vacuum_beside, places, name, part)])

    def _ledger(self, place: Place) -> Iterator[Done]:
        yield from self._each(place, [self._join_ledger, self._vacuum_ours])

    def _advance_base(self, name: str) -> Iterator[Done]:
        base = BaseBuild(self.spark, self.settings, self.connector, self.feed, name)
        place = self._name(self._places.base(name).own(self.feed.name))
        try:
            with raising_if_ended():
                result = base.advance(self._first_young(name), dry_run=self.dry_run)
        except SparkUnavailable:
            raise
        except SilverfoldError as error:
            yield Done(table=place, result=f"left for the next run: {error}", failed=True)
        else:
            yield Done(table=place, result=result)

    def _first_young(self, name: str) -> int | None:
        known = base_position(self._places, self.feed.name, name)
        bronze = self._places.bronze(self.feed.name)
        return first_since(bronze, self._keep_since, after=-1 if known is None else known)

    def _each(self, place: Place, steps: Sequence[_Step]) -> Iterator[Done]:
        """Take the steps of one place; yield the result of each, but the same error of several only once."""
        failures = set[str]()
        for step in steps:
            try:
                if open_table(place) is None:
                    return
                with raising_if_ended():
                    result = step(place)
            except (StoreUnavailable, ApplyError) as error:
                if str(error) not in failures:
                    failures.add(str(error))
                    yield Done(table=self._name(place), result=f"left for the next run: {error}", failed=True)
            else:
                yield Done(table=self._name(place), result=result)

    def _name(self, place: Place) -> str:
        root = self._places.bronze("").url.removesuffix("bronze/")
        return place.url.removeprefix(root)

    def _drop(self, bronze: Place) -> str:
        retention = self._retention()
        if retention.doubled is not None:
            return self._leave_once(bronze, *retention.doubled)
        if self.dry_run:
            return f"would drop {describe(retention)}" if retention.drops else describe(retention)
        if not retention.drops:
            keep_append_only(bronze)
            return describe(retention)
        drop_frames(bronze, self.feed.name, retention)
        return f"dropped {describe(retention)}"

    def _retention(self) -> Retention:
        return plan_retention(self._places, self.connector, self.feed, keep_since=self._keep_since)

    @property
    def _keep_since(self) -> datetime:
        return self.now - timedelta(days=self.settings.maintain.bronze_days)

    def _leave_once(self, bronze: Place, first: int, last: int) -> str:
        found = f"frames that were there twice from position {first} to {last}"
        if self.dry_run:
            return f"would remove the second of {found}"
        remove_doubles(bronze, first, last)
        return f"removed the second of {found}; {self._drop(bronze)}"

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

    def _optimize(self, places: Places, name: str, silver: Place) -> str:
        if self.dry_run:
            return f"{_files(silver)} files{self._old_times(name, silver)}"
        with sole_writer(places, self.feed.name, name):
            (row,) = self._sql(silver, f"OPTIMIZE {path_table(silver.url)}")
        metrics = row["metrics"]
        joined = f"{metrics['numFilesRemoved']} files joined to {metrics['numFilesAdded']}"
        return f"{joined}{self._old_times(name, silver)}"

    def _old_times(self, name: str, silver: Place) -> str:
        """Return advice on timestamps that readers other than Spark misread; empty if there are none."""
        if not _has_int96(silver):
            return ""
        again = f"`silverfold rebuild {self.feed.name} {name}` rewrites them"
        return f"; some have timestamps as INT96, which many readers misread before 1677 and after 2262: {again}"

    def _vacuum_silver(self, silver: Place) -> str:
        hours = f"RETAIN {self.settings.maintain.vacuum_hours} HOURS"
        if self.dry_run:
            found = self._sql(silver, f"VACUUM {path_table(silver.url)} {hours} DRY RUN")
            return f"{len(found)} files would be removed"
        self._sql(silver, f"VACUUM {path_table(silver.url)} {hours}")
        return "unused files removed"

    def _vacuum_beside(self, places: Places, name: str, part: Part, place: Place) -> str:
        if companion(places, self.feed.name, name, part).is_committed:
            return self._vacuum_silver(place)
        return "no files removed: the version that the table counts is not the newest one"

    def _sql(self, place: Place, statement: str) -> list[Row]:
        session = own_session(self.spark)
        try:
            for name, value in _SETTINGS.items():
                session.conf.set(name, value)
            with naming_damaged_file(place), named_errors(self._name(place)):
                return session.sql(statement).collect()
        finally:
            close_session(session)


def _opened(place: Place) -> DeltaTable:
    table = open_table(place)
    if table is None:
        raise StoreUnavailable(f"{place}: the table is gone")
    return table


def _files(place: Place) -> int:
    return len(_opened(place).file_uris())


def _has_int96(place: Place) -> bool:
    """Return whether a table has timestamps as INT96, as Spark wrote them before it was configured otherwise.

    The oldest file with timestamps decides: later ones are not in an older form. Raises StoreUnavailable.
    """
    opened = _opened(place)
    if "timestamp" not in opened.schema().to_json():
        return False
    files = pa.table(opened.get_add_actions()).sort_by("modification_time")["path"].to_pylist()
    with naming_the_store(place):
        store = files_of(place)
        forms = (_time_forms(store, unquote(path)) for path in files[:_FOOTERS])
        return "INT96" in next(filter(None, forms), set())


def _time_forms(store: FileSystem, path: str) -> set[str]:
    """Return the physical types of a Parquet file's timestamps."""
    with ParquetFile(store.open_input_file(path)) as file:
        columns = [file.schema.column(at) for at in range(len(file.schema))]
    times = (each for each in columns if each.physical_type == "INT96" or each.logical_type.type == "TIMESTAMP")
    return {each.physical_type for each in times}
