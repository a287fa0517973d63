"""Bases: a table without snapshots as it was at a position, so that bronze need not keep every frame before it.

A base is built by the same `FeedBuild` as the table, from bronze, at a place of its own (`Places.base`): up to the
first frame that is too young to be dropped, and never beyond the table. Each round adds what has aged since. Its own
log records its position, as any table's does, so it is whole after a crash at any step. Silver has no part in it: what
is wrong there does not get into the base.

Once frames before it are dropped (`pipelines.upkeep.retention`), verification and rebuilds begin with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from silverfold.conf.errors import ApplyError, ExpectationFailed, StoreUnavailable
from silverfold.conf.model import Settings
from silverfold.conf.names import folded
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.applying.build import FeedBuild
from silverfold.pipelines.holding.quarantine_log import copy_left_out, quarantined
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.landing.bronze_table import lost_from
from silverfold.pipelines.landing.dropped import base_position, dropped_of
from silverfold.pipelines.landing.losses import is_on_other_bronze, losses_of
from silverfold.pipelines.places import (
    LATE_PARTIAL,
    REASONS,
    UNEXPLAINED,
    BasePlaces,
    Place,
    Places,
    SidePlaces,
    places_of,
)
from silverfold.pipelines.storage.companions import CompanionVersions, Part, companion, companion_place
from silverfold.pipelines.storage.cuts import (
    all_cuts,
    app_id,
    built_otherwise,
    current_cuts,
    newest_note,
    position_reached,
)
from silverfold.pipelines.storage.remove_tree import remove_tree
from silverfold.pipelines.storage.silver_position import silver_position
from silverfold.pipelines.storage.swap import replace_companion
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.beginnings import base_needed, begins_at
from silverfold.transforms.expectations import FAILED, Rule, is_quarantined, rules_digest, rules_of, with_failed_rules
from silverfold.transforms.merge import POSITION, PRESENT, Recorded, append
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import quoted


def first_since(bronze: Place, moment: datetime, *, after: int) -> int | None:
    """Return the position of the first frame received since a moment; None without one. Raises StoreUnavailable."""
    since = pa.scalar(moment.astimezone(UTC), pa.timestamp("us", "UTC"))
    for batch in read_small_columns(bronze, after=after):
        young = batch.filter(pc.field("received_at") >= since)
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
            SilverfoldError: It stopped at a frame or a setting, or the store is unavailable. What it reached counts.
        """
        applied = position_reached(self._live, self.feed.name, self.table)
        position = base_position(self._live, self.feed.name, self.table)
        reason = self._why_none(position)
        if reason is not None:
            return f"not made, {reason}" if position is None else f"stays at position {position}: {reason}"
        bound = applied + 1 if before is None else min(before, applied + 1)
        if dry_run:
            return f"would take what landed before position {bound}"
        self._remove_useless(position)
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

    def _remove_useless(self, position: int | None) -> None:
        """Remove a base that leads nowhere, if bronze can make another: behind dropped frames, or of other settings.

        The table goes last: a base that is removed in part is still found to be useless.
        """
        feed, places = self.feed.name, self._places
        keys = self.feed.tables[self.table].keys
        is_stale = position is None and position_reached(places, feed, self.table) >= 0
        is_whole = not dropped_of(self._live.bronze(feed), feed, self.table).floor
        if is_stale or (is_whole and built_otherwise(places, self.connector, self.feed, self.table, keys)):
            for part in get_args(Part):
                remove_tree(companion_place(places, feed, self.table, part))
            remove_tree(places.own(feed))

    def _build(self, before: int) -> int:
        feed = replace(self.feed, tables={self.table: self.feed.tables[self.table]})
        copy_left_out(self._live, self._places, feed.name, self.table)
        with FeedBuild.open(
            lambda: self.spark, self.settings, self.connector, feed, places=self._places, before=before
        ) as build:
            build.refresh()
            while (step := build.step(self.table)).moved:
                pass
            if step.error is not None:
                raise step.error
            return build.tables[self.table].position()


def _is_there(place: Place) -> bool:
    try:
        return open_table(place) is not None
    except StoreUnavailable:  # its log is damaged
        return True


def advice_without_base(places: Places, feed: str, table: str) -> str:
    """Return the way on for a table that lacks frames which only a base, now gone, had."""
    found = [place for place in (places.silver(feed, table), places.history(feed, table)) if _is_there(place)]
    there = ", ".join(map(str, [*found, places.base(table).own(feed)]))
    return f"no base has what was there. To begin anew with what is left, remove {there}"


def begin_from_base(session: SparkSession, places: Places, side: SidePlaces, connector: Connector, feed: Feed) -> None:
    """Begin the rebuild of a table with the rows of its base, if bronze lacks frames that it was built from.

    Does nothing once the rebuild has begun. The rows are judged anew where the rules are others. Runs Spark jobs.

    Args:
        session: Not shared with other writers.

    Raises:
        ApplyError: The base was built with other settings, or Spark or Delta refused. ExpectationFailed: A row of it
            fails a rule whose action is ``fail``.
        StoreUnavailable: The base cannot be read now.
    """
    table, base = side.table, places.base(side.table)
    if base_needed(places, connector, feed, table) is None or position_reached(side, feed.name, table) >= 0:
        return
    other = built_otherwise(base, connector, feed, table, feed.tables[table].keys)
    if other is not None:
        own = base.own(feed.name)
        anew = f"put that back; or, to begin anew without what was dropped, remove {own} and the table"
        raise ApplyError(f"bronze has not what its base is made of, and {other}: {anew}", table=table)
    opened = open_table(base.silver(feed.name, table))
    note = newest_note(opened)
    if opened is None or note is None:
        raise StoreUnavailable(f"{base.own(feed.name)}: somebody has removed it")
    cuts = current_cuts(all_cuts(base, feed.name, [table]))
    known = quarantined(base, feed.name, table)
    note = replace(
        note,
        first_position=cuts[0].first_position,
        updates=sum(cut.updates for cut in cuts),
        frames={str(each.position): each.resolution for each in known if each.resolution is not None},
    )

    def rows_at(place: Place, version: int) -> DataFrame:
        with named_errors(table):
            return session.read.format("delta").option("versionAsOf", version).load(place.url)

    def rows_of(part: Part) -> DataFrame | None:
        found = companion(base, feed.name, table, part, at=opened.version())
        if found.is_gone:
            raise StoreUnavailable(f"{base.own(feed.name)}: its {part} is gone")
        place = companion_place(base, feed.name, table, part)
        return None if found.counts is None else rows_at(place, found.counts.version())

    rules = rules_of(feed.tables[table])
    rows, side_rows = rows_at(base.silver(feed.name, table), opened.version()), rows_of("aside")
    if note.rules not in (None, rules_digest(rules)):
        live = open_table(places.silver(feed.name, table))
        later = () if live is None else StructType.fromJson(json.loads(live.schema().to_json()))
        with named_errors(table):
            rows, side_rows = judged_anew(rows, side_rows, rules, later, table=table)
        note = replace(note, rules=rules_digest(rules))
    metadata = note.to_json()

    def written(part: Part, rows: DataFrame | None) -> int | None:
        if rows is None:
            return None
        return replace_companion(rows, companion_place(side, feed.name, table, part), metadata, table=table)

    versions = CompanionVersions(
        written("history", rows_of("history")),
        written("tombstones", rows_of("tombstones")),
        written("aside", side_rows),
    )
    recorded = Recorded(app_id(feed.name, table), note.last_position, replace(note, **versions._asdict()).to_json())
    append(rows, side.silver(feed.name, table).url, recorded=recorded)


def judged_anew(
    rows: DataFrame, side_rows: DataFrame | None, rules: Sequence[Rule], later: Iterable[StructField], *, table: str
) -> tuple[DataFrame, DataFrame | None]:
    """Return a table's rows and the rows aside as the rules have it, of those it had under others. Runs a Spark job.

    Args:
        later: Columns that the table gains afterwards: NULL to the rules.

    Raises:
        ExpectationFailed: A row fails a rule whose action is ``fail``.
    """
    order, columns = rows.columns, [name for name in rows.columns if name != POSITION]
    incomplete = None
    if side_rows is not None:
        is_incomplete = F.arrays_overlap(REASONS, F.array(F.lit(UNEXPLAINED), F.lit(LATE_PARTIAL)))
        incomplete = side_rows.where(is_incomplete)
        complete = side_rows.where(~is_incomplete).drop(PRESENT, REASONS)
        rows = rows.unionByName(complete, allowMissingColumns=True)
    after = rows.select(F.struct(*map(quoted, columns)).alias("after"), F.col(POSITION))
    has = {folded(name) for name in columns}
    others = [field for field in later if folded(field.name) not in has and field.name != POSITION]
    checked = with_failed_rules(after, rules, others)
    forbidden = [F.array_contains(FAILED, rule.name) for rule in rules if rule.action == "fail"]
    failing = checked.where(reduce(or_, forbidden)).count() if forbidden else 0
    if failing:
        raise ExpectationFailed(f"{failing} rows of the base fail rules that none may fail", table=table)
    out = is_quarantined(rules)
    unsent = F.lit(None).cast("array<string>").alias(PRESENT)
    quarantined_rows = checked.where(out).select("after.*", POSITION, unsent, F.col(FAILED).alias(REASONS))
    if incomplete is not None:
        quarantined_rows = quarantined_rows.unionByName(incomplete, allowMissingColumns=True)
    return checked.where(~out).select("after.*", POSITION).select(*map(quoted, order)), quarantined_rows
