"""Begin the rebuild of a table without snapshots with its base; its rows are judged anew where the rules are others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Self

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from silverfold.conf.errors import ApplyError, ExpectationFailed, StoreUnavailable
from silverfold.conf.names import caseless
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.places import REASONS, BasePlaces, Place, Places, SidePlaces
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.companions import CompanionVersions, Part, companion, companion_place, tables_of
from silverfold.pipelines.storage.cuts import all_cuts, app_id, current_cuts, newest_note, position_reached
from silverfold.pipelines.storage.swap import replace_companion
from silverfold.pipelines.store import naming_damaged_file, open_table
from silverfold.pipelines.upkeep.beginnings import base_misfit, base_needed
from silverfold.transforms.complete_rows import is_incomplete
from silverfold.transforms.expectations import FAILED, Rule, is_quarantined, rules_digest, rules_of, with_failed_rules
from silverfold.transforms.merge import POSITION, PRESENT, Recorded, append
from silverfold.transforms.spark_errors import named_errors
from silverfold.transforms.sql import quoted


@dataclass(frozen=True)
class _Base:
    """The base of one table, and its companion tables, at one version."""

    session: SparkSession
    places: BasePlaces
    feed: str
    table: str
    opened: DeltaTable
    newest: CommitNote
    """Commit note of its newest cut."""

    @classmethod
    def open(cls, session: SparkSession, places: BasePlaces, feed: str, table: str) -> Self:
        """Open the base. Raises StoreUnavailable."""
        opened = open_table(places.silver(feed, table))
        note = newest_note(opened)
        if opened is None or note is None:
            raise StoreUnavailable(f"{places.own(feed)}: somebody has removed it")
        return cls(session, places, feed, table, opened, note)

    def note(self) -> CommitNote:
        """Return a note for all its cuts together. Raises StoreUnavailable."""
        cuts = current_cuts(all_cuts(self.places, self.feed, [self.table]))
        known = quarantined(self.places, self.feed, self.table)
        return replace(
            self.newest,
            first_position=cuts[0].first_position,
            updates=sum(cut.updates for cut in cuts),
            frames={str(each.position): each.resolution for each in known if each.resolution is not None},
        )

    def rows(self) -> DataFrame:
        """Return its rows. Lazy."""
        return self._at(self.places.silver(self.feed, self.table), self.opened.version())

    def rows_of(self, part: Part) -> DataFrame | None:
        """Return the rows of a companion table; None without one. Lazy. Raises StoreUnavailable."""
        found = companion(self.places, self.feed, self.table, part, at=self.opened.version())
        if found.is_gone:
            raise StoreUnavailable(f"{self.places.own(self.feed)}: its {part} is gone")
        if found.committed is None:
            return None
        return self._at(companion_place(self.places, self.feed, self.table, part), found.committed.version())

    def _at(self, place: Place, version: int) -> DataFrame:
        with named_errors(self.table):
            return self.session.read.format("delta").option("versionAsOf", version).load(place.url)


def begin_from_base(session: SparkSession, places: Places, side: SidePlaces, connector: Connector, feed: Feed) -> None:
    """Begin the rebuild of a table with the rows of its base, if bronze lacks frames that it was built from.

    Does nothing once the rebuild has begun. The rows are judged anew where the rules are others. Runs Spark jobs.

    Args:
        session: Not shared with other writers.

    Raises:
        ApplyError: `base_misfit`, or Spark or Delta refused. ExpectationFailed: A row of it
            fails a rule whose action is ``fail``.
        StoreUnavailable: The base cannot be read now, or a file of it is damaged or missing.
    """
    table, given = side.table, (places, connector, feed, side.table)
    if base_needed(*given) is None or position_reached(side, feed.name, table) >= 0:
        return
    if (misfit := base_misfit(*given)) is not None:
        raise ApplyError(misfit, table=table)
    base = _Base.open(session, places.base(table), feed.name, table)
    with naming_damaged_file(*tables_of(base.places, feed.name, table)):
        rules, note, rows, side_rows = rules_of(feed.tables[table]), base.note(), base.rows(), base.rows_of("aside")
        if note.rules not in (None, rules_digest(rules)):
            later = _columns(places.silver(feed.name, table))
            with named_errors(table):
                rows, side_rows = judged_anew(rows, side_rows, rules, later, table=table)
            note = replace(note, rules=rules_digest(rules))
        history = base.rows_of("history") if feed.tables[table].keeps_history else None
        beside: Mapping[Part, DataFrame | None] = {
            "history": history,
            "tombstones": base.rows_of("tombstones"),
            "aside": side_rows,
        }
        _write(base, side, note, rows, beside)


def _columns(place: Place) -> Sequence[StructField]:
    """Return the columns of a table; none if there is no table. Raises StoreUnavailable."""
    opened = open_table(place)
    return () if opened is None else StructType.fromJson(json.loads(opened.schema().to_json())).fields


def _write(
    base: _Base, side: SidePlaces, note: CommitNote, rows: DataFrame, beside: Mapping[Part, DataFrame | None]
) -> None:
    """Write the companion tables, and last the table with the versions of them that count."""
    metadata = note.to_json()

    def written(part: Part, rows: DataFrame) -> int:
        return replace_companion(rows, companion_place(side, base.feed, base.table, part), metadata, table=base.table)

    versions = {part: None if rows is None else written(part, rows) for part, rows in beside.items()}
    text = replace(note, **CompanionVersions(**versions)._asdict()).to_json()
    recorded = Recorded(app_id(base.feed, base.table), note.last_position, text)
    append(rows, side.silver(base.feed, base.table).url, recorded=recorded)


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
        incomplete = side_rows.where(is_incomplete(REASONS))
        complete = side_rows.where(~is_incomplete(REASONS)).drop(PRESENT, REASONS)
        rows = rows.unionByName(complete, allowMissingColumns=True)
    after = rows.select(F.struct(*map(quoted, columns)).alias("after"), F.col(POSITION))
    has = {caseless(name) for name in columns}
    others = [field for field in later if caseless(field.name) not in has and field.name != POSITION]
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
