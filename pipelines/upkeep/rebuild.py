"""Rebuild a silver table from bronze next to the old one, and swap it in: one Delta commit, or nothing.

The new table is built by the same `FeedBuild` as usual, at a place of its own (`SidePlaces`), up to exactly the
position of the old table. Then one overwriting commit replaces the old rows and columns. The recorded position stays:
builds continue from it, even one that is running.

A build that advances the old table meanwhile cannot cause a mix (`pipelines.storage.swap`): the rebuild advances to the
table's new position and tries again, in the end while builds wait (`pipelines.storage.lease`). A table without a
position, or a missing one, is built to the newest position, which the commit records. Then the second of two such
commits fails or does nothing (``txnVersion``).

Companion tables (`pipelines.storage.companions`) are rebuilt too, and swapped in first, each in its own commit. The
silver commit decides for all: it records which of their versions count. If a rebuild dies before it, nothing of it
counts, and the next build undoes its writes; the old table is unchanged, and a later rebuild removes the files once
they are a day old. Two concurrent rebuilds do not share a place, and one swaps after the other.

Where frames were dropped, a table without snapshots begins as a copy of its base (`pipelines.upkeep.bases`). Any other
with an existing history is not rebuilt, since bronze no longer has all of it. If the history was removed by hand, it
restarts with the first complete snapshot left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from silverfold.conf.errors import ApplyError, Overtaken, PositionGap, RebuildNeeded, SchemaDrift, StoreUnavailable
from silverfold.conf.model import Settings
from silverfold.connectors.base import Connector, Feed
from silverfold.pipelines.applying.build import HOLDING_LATER, FeedBuild
from silverfold.pipelines.applying.silver import session_for
from silverfold.pipelines.applying.table_settings import follow_settings
from silverfold.pipelines.holding.quarantine import resolution_by_rebuild
from silverfold.pipelines.holding.quarantine_log import (
    PASSED_OVER,
    copy_left_out,
    holds,
    pass_over,
    quarantined,
    resolve,
)
from silverfold.pipelines.landing.bronze import last_position
from silverfold.pipelines.landing.bronze_table import lost_from, retained_from
from silverfold.pipelines.landing.dropped import base_position, dropped_of
from silverfold.pipelines.landing.losses import is_on_other_bronze, losses_of
from silverfold.pipelines.places import Place, Places, SidePlaces, places_of
from silverfold.pipelines.spark.session import close_session
from silverfold.pipelines.storage.commit_note import HISTORY_BEGINS, REBUILT, CommitNote
from silverfold.pipelines.storage.companions import CompanionVersions, Part, companion, companion_place
from silverfold.pipelines.storage.cuts import (
    app_id,
    from_record,
    newest_note,
    position_reached,
    read_cuts,
    recorded_in,
    restore,
)
from silverfold.pipelines.storage.lease import sole_writer
from silverfold.pipelines.storage.remove_tree import remove_tree, remove_unused, set_damaged_log_aside
from silverfold.pipelines.storage.silver_position import silver_position
from silverfold.pipelines.storage.swap import Live, TableMoved, replace_companion, swap_in
from silverfold.pipelines.store import open_table
from silverfold.pipelines.upkeep.base_start import begin_from_base
from silverfold.pipelines.upkeep.beginnings import (
    advice_without_base,
    base_needed,
    check_passed_over,
    history_begins_at,
    needs_from,
)
from silverfold.transforms.spark_errors import named_errors

_CATCH_UPS = 3
"""Number of attempts beside builds that keep changing the table, each of a shorter piece, before they have to wait."""

_LONGEST_WAIT = 600.0
"""Seconds that the last attempt waits for builds to end their cuts: one that hangs is not waited for."""

_UNUSED = timedelta(days=1)
"""A rebuild that wrote nothing for so long is considered dead."""

_OUTGROWN = (SchemaDrift.error_class, RebuildNeeded.error_class)  # hold a table for good: other columns or keys


class Rebuilt(NamedTuple):
    """The result of a rebuild."""

    table: str
    position: int
    """Position of the table."""
    delta_version: int
    """Version of the silver table with the rebuilt rows."""
    updates: int
    """Complete updates it was built from."""
    begins: int | None
    """Position from which its history was made, if earlier versions are missing; else None."""
    base: int | None
    """Position of the base that it begins with; None without."""


@dataclass(frozen=True)
class Rebuild:
    """The rebuild of one table.

    Args:
        token: Unique to this rebuild.
        tell: Called in this thread with the position of the new table, and the position it is built to.
        set_aside: Called with the place and new name of each unreadable log that was set aside.
    """

    spark: SparkSession
    settings: Settings
    connector: Connector
    feed: Feed
    table: str
    token: str
    tell: Callable[[int, int], None] = lambda _reached, _goal: None
    set_aside: Callable[[str], None] = lambda _log: None

    def run(self) -> Rebuilt:
        """Rebuild the table and swap it in. Runs Spark jobs; safe to repeat, and to run alongside builds and readers.

        Raises:
            PositionGap: Bronze lacks positions that are needed; the old table remains, as for every error.
            ApplyError: A frame cannot be decoded, a cut cannot be applied, nothing has landed, bronze does not lead to
                the old table's position, or builds kept changing the table.
            StoreUnavailable: Try again.
        """
        self._set_damaged_logs_aside()
        self._check_bronze()
        table = (self._places, self.feed.name, self.table)
        try:
            for _ in range(_CATCH_UPS):
                with suppress(TableMoved, Overtaken):
                    return self._attempt(sole_writer(*table))
            with sole_writer(*table, alone=True, patience=_LONGEST_WAIT):
                return self._attempt(nullcontext())
        except (TableMoved, Overtaken) as error:
            advice = "stop them, or try again when less comes"
            raise ApplyError(
                f"builds moved the table meanwhile, again and again: {advice}", table=self.table
            ) from error
        finally:
            self._clean_up()
            if "_session" in self.__dict__:
                close_session(self._session)

    @property
    def _places(self) -> Places:
        return places_of(self.settings)

    @property
    def _side(self) -> SidePlaces:
        return SidePlaces(self.settings.warehouse, self.settings.storage(), table=self.table, token=self.token)

    def _clean_up(self) -> None:
        """Remove the new table, and those of dead rebuilds. What cannot be removed now is left for another time."""
        with suppress(StoreUnavailable):
            self._discard()
            remove_unused(self._side.all_rebuilds(self.feed.name), since=datetime.now(UTC) - _UNUSED)

    def _discard(self) -> None:
        remove_tree(self._side.own(self.feed.name))

    def _set_damaged_logs_aside(self) -> None:
        """Set aside unreadable logs of tables that bronze can rebuild.

        Any other log must be put back by the user, or removed together with data that exists nowhere else.
        """
        feed, table = self.feed.name, self.table
        has_all = not self._floor() or base_position(self._places, feed, table) is not None
        is_whole = has_all and not lost_from(self._bronze)
        places = [companion_place(self._places, feed, table, part) for part in ("tombstones", "aside")]
        if is_whole or self._has_snapshots:
            places.append(self._places.silver(feed, table))
        if is_whole:
            places.append(self._places.history(feed, table))
        for log in (set_damaged_log_aside(place, self.token) for place in places):
            if log is not None:
                self.set_aside(log)

    def _check_bronze(self) -> None:
        """Raise if bronze has only part of what is needed for a table without snapshots, or for an existing history."""
        floor = self._floor()
        self._check_lost()
        given = (self._places, self.connector, self.feed, self.table)
        if base_needed(*given) is not None or needs_from(*given) == floor:
            return
        if not self._has_snapshots:
            advice = advice_without_base(self._places, self.feed.name, self.table)
            raise PositionGap(feed=self.feed.name, first=0, last=floor - 1, advice=advice)
        history = self._places.history(self.feed.name, self.table)
        if floor and self._keeps_history and open_table(history) is not None:
            lacks = f"bronze begins at position {floor}, so the history before it cannot be made anew"
            raise ApplyError(f"{lacks}: to let history begin there, remove {history}", table=self.table)

    def _check_lost(self) -> None:
        """Raise if lost frames are still in silver alone: for a table without snapshots, or an existing history."""
        begins_anew = self._has_snapshots and not self._keeps_history
        if begins_anew or not lost_from(self._bronze) or self._is_on_other_source():  # rebuild from what is left
            return
        places, feed = self._places, self.feed.name
        would_lose = places.history(feed, self.table) if self._has_snapshots else places.silver(feed, self.table)
        if open_table(would_lose) is None:
            return
        for first, last in losses_of(places, self.connector, self.feed, self.table).taken:
            advice = f"what there is of them would be lost. To begin anew without, remove {would_lose}, and rebuild"
            raise PositionGap(feed=feed, first=first, last=last, advice=advice)

    def _is_on_other_source(self) -> bool:
        """Return whether the table's position is known to belong to another stream, or to another bronze."""
        note = newest_note(open_table(self._places.silver(self.feed.name, self.table)))
        stream = self.connector.stream(self.feed, self.table)
        if note is not None and note.settings is not None and note.settings.get("stream", stream) != stream:
            return True
        now = silver_position(self._places, self.feed.name, self.table)
        return is_on_other_bronze(self._bronze, lost_from(self._bronze), now)

    def _advice(self, goal: int) -> str:
        """Return advice on how bronze can reach the table's position."""
        if last_position(self._bronze, self.feed.name) > goal:
            return ": what led there is lost, the next snapshot makes it whole" if self._has_snapshots else ""
        return ": start `silverfold receive` (again), which goes on behind the table"

    def _lacks_after(self, goal: int) -> bool:
        """Return whether bronze lacks the table's position, or what followed it."""
        if self._has_snapshots:
            return goal < self._floor()
        return not dropped_of(self._bronze, self.feed.name, self.table).is_enough(goal)

    def _floor(self) -> int:
        return retained_from(self._bronze, self.feed.name)

    @property
    def _bronze(self) -> Place:
        return self._places.bronze(self.feed.name)

    @property
    def _has_snapshots(self) -> bool:
        return self.connector.has_snapshots(self.feed.tables[self.table])

    def _follow_settings(self) -> None:
        table = self.feed.tables[self.table]
        follow_settings(self._session, self._places, self.feed.name, self.table, table, followed=set())

    @property
    def _keeps_history(self) -> bool:
        return self.feed.tables[self.table].keeps_history

    def _attempt(self, lease: AbstractContextManager[None]) -> Rebuilt:
        """Build the new table up to the old one's position, and swap it in while holding a lease.

        Raises:
            TableMoved, Overtaken: Others wrote meanwhile. Companion writes without a silver commit do not count.
        """
        place, app = self._places.silver(self.feed.name, self.table), app_id(self.feed.name, self.table)
        live = Live(place, app, recorded_in(open_table(place), app))
        goal, _ = from_record(live.recorded)
        if self._lacks_after(goal) or self._is_on_other_source():  # its frames were dropped or lost, or are another's
            goal = -1
        if goal >= 0 and position_reached(self._side, self.feed.name, self.table) > goal:
            self._discard()  # built without a table, and further than builds have come since
        further = goal < 0 or bool(self._outgrown_positions(self._places))
        reached, begins = self._build_through_drift(before=None if further else goal + 1, least=max(goal, 0))
        if reached < 0 <= goal and self._floor():
            reason = f"frames before position {self._floor()} were dropped while it was not in the feed"
            raise ApplyError(f"{reason}, its last snapshot among them: the next one makes it whole", table=self.table)
        if reached < goal or (reached > goal and not further):
            raise ApplyError(
                f"bronze leads to position {reached}, the table stands at {goal}{self._advice(goal)}", table=self.table
            )
        if reached < 0:
            raise ApplyError("nothing to build it from has landed", table=self.table)
        if self._keeps_history:
            check_passed_over(self._places, self._side, self.feed.name, self.table, goal)
        copy_left_out(self._side, self._places, self.feed.name, self.table)
        note = self._note(reached, begins)
        self._check_bronze()  # frames may have been dropped meanwhile
        base = base_needed(self._places, self.connector, self.feed, self.table)
        known = quarantined(self._side, self.feed.name, self.table)
        with lease:
            self._follow_settings()  # an overwrite may need it: a change feed knows no fewer columns of a mapped table
            version = self._swap_in(note, live)
            self._follow_settings()  # an overwrite ends the clustering
        for each in (each for each in known if each.resolution == PASSED_OVER):
            pass_over(self._places, self.feed.name, self.table, each)
        resolve(self._places, self.feed.name, self.table, resolution_by_rebuild(note), now=datetime.now(UTC))
        restore(self._places, self.feed.name, [self.table])
        return Rebuilt(self.table, reached, version, note.updates, begins, base)

    def _swap_in(self, note: CommitNote, live: Live) -> int:
        """Replace the old tables with the new ones, the silver table last; return its version."""
        metadata = note.to_json()
        versions = CompanionVersions(
            history=self._replaced("history", metadata) if self._keeps_history else None,
            tombstones=self._replaced("tombstones", metadata) if self.connector.source_ordered else None,
            aside=self._replaced("aside", metadata),
        )
        built = self._rows_at(self._side.silver(self.feed.name, self.table))
        return swap_in(built, replace(note, **versions._asdict()), live)

    def _replaced(self, part: Part, metadata: str) -> int | None:
        """Write a companion table; return the version with the rebuilt rows, None for nothing."""
        new, old = (companion_place(places, self.feed.name, self.table, part) for places in (self._side, self._places))
        found = companion(self._side, self.feed.name, self.table, part)
        if found.is_gone:
            raise StoreUnavailable(f"{new}: somebody has removed it")
        built = found.committed
        if built is None and open_table(old) is None:
            return None
        rows = self._rows_at(old).limit(0) if built is None else self._rows_at(new, built.version())
        return replace_companion(rows, old, metadata, table=self.table)

    def _outgrown_positions(self, places: Places) -> list[int]:
        """Return the positions whose columns or keys only a new table can have."""
        return [each.position for each in holds(places, self.feed.name, self.table) if each.error_class in _OUTGROWN]

    def _build_through_drift(self, *, before: int | None, least: int) -> tuple[int, int | None]:
        """Build the new table as far as possible; return the position reached, and where its history begins.

        A history whose columns or keys changed on the way begins after the last such change, even if a frame before it
        cannot be decoded. None for any other.
        """
        begins = history_begins_at(self._places, self.feed.name, self.table) if self._keeps_history else 0
        while True:
            past, reached, fault = begins - 1 if begins else None, -1, None
            copy_left_out(self._places, self._side, self.feed.name, self.table)
            try:
                reached = self._build(before=before, past=past, least=least)
            except (SchemaDrift, RebuildNeeded) as error:
                fault = error
            outgrown = self._outgrown_positions(self._places if fault is None else self._side)
            later = [each for each in outgrown if each > max(reached, past or 0) + 1]
            if later and self._keeps_history and self._has_snapshots:
                begins = min(later)
                self._discard()
            elif fault is not None:
                raise fault
            else:
                return reached, begins or None

    def _build(self, *, before: int | None, past: int | None, least: int) -> int:
        """Build the new table as far as possible; return the position reached.

        Args:
            least: Sufficient position: an error that holds the table there or later will also hold the rebuilt one.
        """
        feed = self.feed.apart(self.table)
        begin_from_base(self._session, self._places, self._side, self.connector, feed)
        with FeedBuild.open(
            lambda: self.spark, self.settings, self.connector, feed, places=self._side, before=before, past=past
        ) as build:
            build.refresh()
            goal = build.landed if before is None else before - 1
            while (step := build.step(self.table)).unfinished:
                if step.applied is not None:
                    self.tell(step.applied.last_position, goal)
            reached = build.tables[self.table].position()
        if step.error is not None and not (isinstance(step.error, HOLDING_LATER) and reached >= least):
            raise step.error
        return reached

    @cached_property
    def _session(self) -> SparkSession:
        return session_for(self.spark, self.feed.tables[self.table])

    def _rows_at(self, place: Place, version: int | None = None) -> DataFrame:
        reader = self._session.read.format("delta")
        with named_errors(self.table):
            return (reader if version is None else reader.option("versionAsOf", version)).load(place.url)

    def _note(self, reached: int, begins: int | None) -> CommitNote:
        newest = newest_note(open_table(self._side.silver(self.feed.name, self.table)))
        assert newest is not None, "it has reached a position"
        cuts = read_cuts(self._side, self.feed.name, table=self.table)
        known = quarantined(self._side, self.feed.name, self.table)
        return CommitNote(
            feed=self.feed.name,
            table=self.table,
            epoch=cuts[-1].epoch,
            first_position=cuts[0].first_position,
            last_position=reached,
            replaced=True,
            updates=sum(cut.updates for cut in cuts),
            notes={REBUILT: 1, **({} if begins is None else {HISTORY_BEGINS: begins})},
            landed_at=newest.landed_at,
            source_position=newest.source_position,
            settings=newest.settings,
            rules=newest.rules,
            frames={str(each.position): each.resolution for each in known if each.resolution is not None},
            partial=newest.partial,
            by=self.token,
        )
