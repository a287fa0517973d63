"""Makes a silver table anew from bronze, beside the old one, and swaps it in: one Delta commit, or nothing.

The new table is built by the same `FeedBuild` as ever, at a place of its own (`SidePlaces`), up to exactly the position
the old table has reached. Then one overwriting commit puts its rows and columns in the old one's stead. The recorded
position stays: builds go on from it, also one that runs at this moment.

A build that moves the old table meanwhile cannot lead to a mix (`pipelines.swap`): the rebuild goes on to where the
table is now, and tries again. A table that has no position yet, or is gone, is built to the newest position, which the
commit records: then the one of two that commits second fails or does nothing (``txnVersion``).

What is beside the table (`pipelines.beside`) is made anew with it, and swapped in first, each in a commit of its own.
The table's commit decides for all: it says which of their versions count. Of a rebuild that died before it nothing
counts, and the build that follows takes it back.

Of a history, what bronze no longer tells cannot be made anew: where frames were dropped, a table whose history is there
is not rebuilt. Without it (removed by hand) history begins anew with the first whole snapshot that is left.

A rebuild that dies leaves the old table as it was; a later one removes the files it left, once they are a day old. Two
at once do not share a place, and one swaps after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from conf.errors import ApplyError, Overtaken, PositionGap, RebuildNeeded, SchemaDrift, StoreUnavailable
from conf.model import Settings
from connectors.base import Connector, Feed
from pipelines.applying.target import session_for
from pipelines.beginnings import HISTORY_BEGINS, REBUILT, begins_at, history_begins_at
from pipelines.beside import Counting, Part, beside, place_beside
from pipelines.bronze import last_position
from pipelines.bronze_table import lost_from, retained_from
from pipelines.build import HOLDING_LATER, FeedBuild
from pipelines.commit_note import CommitNote
from pipelines.cuts import app_id, from_record, newest_note, position_reached, read_cuts, recorded_in, restore
from pipelines.lease import sole_writer
from pipelines.losses import losses_of
from pipelines.places import Place, Places, SidePlaces, places_of
from pipelines.quarantine import as_rebuilt
from pipelines.quarantine_log import PASSED_OVER, holds, pass_over, quarantined, resolve, skip
from pipelines.reached import is_of_another
from pipelines.reached import reached as reached_by
from pipelines.remove_tree import remove_tree, remove_unused, set_damaged_log_aside
from pipelines.spark import close_session
from pipelines.store import open_table
from pipelines.swap import Live, TableMoved, replace_beside, swap_in
from transforms.spark_errors import named_errors

_ATTEMPTS = 5
"""How often a rebuild follows a table that other builds move."""

_UNUSED = timedelta(days=1)
"""After so long in which it wrote nothing, a rebuild is dead."""

_OUTGROWN = (SchemaDrift.error_class, RebuildNeeded.error_class)
"""What holds a table for good whose columns or keys are not those of the source."""


class Rebuilt(NamedTuple):
    """What a rebuild made."""

    table: str
    position: int
    """Position the table stands at."""
    delta_version: int
    """Version of the silver table that is the rebuilt one."""
    updates: int
    """Whole updates it was built from."""
    begins: int | None
    """Position from which its history was made, where it lacks what was before; else None."""


@contextmanager
def _writing_alone(places: Places, feed: str, table: str) -> Iterator[None]:
    """Let the block write the table with no other Spark beside. Raises TableMoved where others do so just now."""
    try:
        with sole_writer(places, feed, table):
            yield
    except Overtaken as error:
        raise TableMoved from error


@dataclass(frozen=True)
class Rebuild:
    """The rebuild of one table.

    Args:
        token: Unlike any other rebuild's.
        tell: Called with the position that the new table has reached, and the one it is built to; in this thread.
        set_aside: Called with the place, and its new name, of each log that could not be read and was set aside.
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
        """Build the table anew and swap it in. Runs Spark jobs; safe to repeat, and beside builds and readers.

        Raises:
            PositionGap: Bronze lacks positions that are needed; the old table stands, as for every error.
            ApplyError: A frame cannot be decoded or a cut not applied, nothing has landed, bronze does not lead to
                where the old table stands, or builds have moved it all the time.
            StoreUnavailable: Try again.
        """
        self._set_damaged_aside()
        self._check_bronze()
        try:
            for _ in range(_ATTEMPTS):
                with suppress(TableMoved):
                    return self._attempt()
        finally:
            self._leave()
            if "_session" in self.__dict__:
                close_session(self._session)
        raise ApplyError(f"builds moved the table {_ATTEMPTS} times meanwhile; try again", table=self.table)

    @property
    def _places(self) -> Places:
        return places_of(self.settings)

    @property
    def _side(self) -> SidePlaces:
        return SidePlaces(self.settings.warehouse, self.settings.storage(), table=self.table, token=self.token)

    def _leave(self) -> None:
        """Remove what was built, and what rebuilds have left that died. What cannot be removed now is, another time."""
        with suppress(StoreUnavailable):
            self._discard()
            remove_unused(self._side.all_rebuilds(self.feed.name), since=datetime.now(UTC) - _UNUSED)

    def _discard(self) -> None:
        remove_tree(self._side.own(self.feed.name))

    def _set_damaged_aside(self) -> None:
        """Set aside the logs that cannot be read of what bronze can make anew.

        Any other is for people to put back, or to remove with what it has and nobody else.
        """
        feed, table = self.feed.name, self.table
        is_whole = not self._floor() and not lost_from(self._bronze)
        places = [place_beside(self._places, feed, table, part) for part in ("tombstones", "aside")]
        if is_whole or self._has_snapshots:
            places.append(self._places.silver(feed, table))
        if is_whole:
            places.append(self._places.history(feed, table))
        for log in (set_damaged_log_aside(place, self.token) for place in places):
            if log is not None:
                self.set_aside(log)

    def _check_bronze(self) -> None:
        """Refuse to build from a part what needs the whole: a table without snapshots, and a history that is there."""
        floor = self._floor()
        self._check_lost()
        if begins_at(self._places, self.connector, self.feed, self.table) == floor:
            return
        if not self._has_snapshots:
            raise PositionGap(feed=self.feed.name, first=0, last=floor - 1)
        history = self._places.history(self.feed.name, self.table)
        if floor and self._keeps_history and open_table(history) is not None:
            raise ApplyError(
                f"bronze begins at position {floor}, so the history before it cannot be made anew: "
                f"to let history begin there, remove {history}",
                table=self.table,
            )

    def _check_lost(self) -> None:
        """Refuse to build anew what silver has, and bronze has lost: of a table without snapshots, or a history."""
        begins_anew = self._has_snapshots and not self._keeps_history
        if begins_anew or not lost_from(self._bronze) or self._stands_on_another():  # it is made anew of what there is
            return
        places, feed = self._places, self.feed.name
        would_lose = places.history(feed, self.table) if self._has_snapshots else places.silver(feed, self.table)
        if open_table(would_lose) is None:
            return
        for first, last in losses_of(places, self.connector, self.feed, self.table).taken:
            advice = f"what there is of them would be lost. To begin anew without, remove {would_lose}, and rebuild"
            raise PositionGap(feed=feed, first=first, last=last, advice=advice)

    def _check_passed_over(self, goal: int) -> None:
        """Refuse to lose versions of a history: those of updates up to a position that could not be taken today."""
        feed, table = self.feed.name, self.table
        if not self._keeps_history or open_table(history := self._places.history(feed, table)) is None:
            return
        before = {each.position for each in quarantined(self._places, feed, table) if each.resolution == PASSED_OVER}
        snapshots = [cut for cut in read_cuts(self._side, feed, table=table) if cut.replaced]
        found = quarantined(self._side, feed, table)
        for each in (each for each in found if each.resolution == PASSED_OVER and each.position <= goal):
            end = next(cut.last_position for cut in snapshots if cut.last_position > each.position)
            if not any(each.position <= position <= end for position in before):
                reason = f"position {each.position} cannot be applied as things are set ({each.reason}): its history"
                lacks = f"would lack what came from there to the next snapshot. To begin it anew, remove {history}"
                raise ApplyError(f"{reason} {lacks}", table=table)

    def _stands_on_another(self) -> bool:
        """Tell whether its position is one of another stream, or of another bronze, as far as it tells."""
        note = newest_note(open_table(self._places.silver(self.feed.name, self.table)))
        stream = self.connector.stream(self.feed, self.table)
        if note is not None and note.settings is not None and note.settings.get("stream", stream) != stream:
            return True
        now = reached_by(self._places, self.feed.name, self.table)
        return is_of_another(self._bronze, lost_from(self._bronze), now)

    def _way_on(self, goal: int) -> str:
        """Say what lets bronze lead to where the table stands."""
        if last_position(self._bronze, self.feed.name) > goal:
            return ": what led there is lost, the next snapshot makes it whole" if self._has_snapshots else ""
        return ": start `silverfold receive` (again), which goes on behind the table"

    def _floor(self) -> int:
        return retained_from(self._bronze, self.feed.name)

    @property
    def _bronze(self) -> Place:
        return self._places.bronze(self.feed.name)

    @property
    def _has_snapshots(self) -> bool:
        return self.connector.has_snapshots(self.feed.tables[self.table])

    @property
    def _keeps_history(self) -> bool:
        return self.feed.tables[self.table].keeps_history

    def _attempt(self) -> Rebuilt:
        place, app = self._places.silver(self.feed.name, self.table), app_id(self.feed.name, self.table)
        live = Live(place, app, recorded_in(open_table(place), app))
        goal, _ = from_record(live.recorded)
        if goal < self._floor() or self._stands_on_another():  # what led there was dropped, or lost, or is not its own
            goal = -1
        if goal >= 0 and position_reached(self._side, self.feed.name, self.table) > goal:
            self._discard()  # while there was no table yet, it was built further than builds have come since
        further = goal < 0 or bool(self._outgrown(self._places))
        reached, begins = self._built(before=None if further else goal + 1, least=max(goal, 0))
        if reached < 0 <= goal and self._floor():
            reason = f"frames before position {self._floor()} were dropped while it was not in the feed"
            raise ApplyError(f"{reason}, its last snapshot among them: the next one makes it whole", table=self.table)
        if reached < goal or (reached > goal and not further):
            raise ApplyError(
                f"bronze leads to position {reached}, the table stands at {goal}{self._way_on(goal)}", table=self.table
            )
        if reached < 0:
            raise ApplyError("nothing to build it from has landed", table=self.table)
        self._check_passed_over(goal)
        _copy_skips(self._side, self._places, self.feed.name, self.table)
        note = self._note(reached, begins)
        self._check_bronze()  # frames may have been dropped meanwhile
        known = quarantined(self._side, self.feed.name, self.table)
        with _writing_alone(self._places, self.feed.name, self.table):
            version = self._swap_in(note, live)
        for each in (each for each in known if each.resolution == PASSED_OVER):
            pass_over(self._places, self.feed.name, self.table, each)
        resolve(self._places, self.feed.name, self.table, as_rebuilt(note), now=datetime.now(UTC))
        restore(self._places, self.feed.name, [self.table])
        return Rebuilt(self.table, reached, version, note.updates, begins)

    def _swap_in(self, note: CommitNote, live: Live) -> int:
        """Put what was built in the stead of what is there, the table last; return its version.

        Raises:
            TableMoved: Others wrote meanwhile. What did not come to the table counts for nobody.
        """
        metadata = note.to_json()
        versions = Counting(
            history=self._replaced("history", metadata) if self._keeps_history else None,
            tombstones=self._replaced("tombstones", metadata) if self.connector.source_ordered else None,
            aside=self._replaced("aside", metadata),
        )
        built = self._rows_at(self._side.silver(self.feed.name, self.table))
        return swap_in(built, replace(note, **versions._asdict()), live)

    def _replaced(self, part: Part, metadata: str) -> int | None:
        """Write one of the tables beside the table; return the version that has what was built, None for nothing.

        Raises:
            TableMoved: A build wrote it at the same moment.
        """
        new, old = (place_beside(places, self.feed.name, self.table, part) for places in (self._side, self._places))
        found = beside(self._side, self.feed.name, self.table, part)
        if found.is_gone:
            raise StoreUnavailable(f"{new}: somebody has removed it")
        built = found.counts
        if built is None and open_table(old) is None:
            return None
        rows = self._rows_at(old).limit(0) if built is None else self._rows_at(new, built.version())
        try:
            return replace_beside(rows, old, metadata, table=self.table)
        except Overtaken as error:
            raise TableMoved from error

    def _outgrown(self, places: Places) -> list[int]:
        """Return the positions whose columns or keys only a new table can have."""
        return [each.position for each in holds(places, self.feed.name, self.table) if each.error_class in _OUTGROWN]

    def _built(self, *, before: int | None, least: int) -> tuple[int, int | None]:
        """Build the new table as far as it goes; return the position it has reached, and where its history begins.

        A history whose columns or keys changed on the way begins behind the last such change, though a frame before it
        cannot be decoded; None for any other.
        """
        begins = history_begins_at(self._places, self.feed.name, self.table) if self._keeps_history else 0
        while True:
            past, reached, fault = begins - 1 if begins else None, -1, None
            _copy_skips(self._places, self._side, self.feed.name, self.table)
            try:
                reached = self._build(before=before, past=past, least=least)
            except (SchemaDrift, RebuildNeeded) as error:
                fault = error
            outgrown = self._outgrown(self._places if fault is None else self._side)
            later = [each for each in outgrown if each > max(reached, past or 0) + 1]
            if later and self._keeps_history and self._has_snapshots:
                begins = min(later)
                self._discard()
            elif fault is not None:
                raise fault
            else:
                return reached, begins or None

    def _build(self, *, before: int | None, past: int | None, least: int) -> int:
        """Build the new table as far as it goes; return the position it has reached.

        Args:
            least: Position that is far enough: what holds it there or later will hold the table, too.
        """
        feed = replace(self.feed, tables={self.table: self.feed.tables[self.table]})
        with FeedBuild(
            lambda: self.spark,
            self.settings,
            self.connector,
            feed,
            places=self._side,
            before=before,
            past=past,
        ) as build:
            build.refresh()
            goal = build.landed if before is None else before - 1
            while (step := build.step(self.table)).moved:
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
            by=self.token,
        )


def _copy_skips(source: Places, target: Places, feed: str, table: str) -> None:
    """Let the frames that one table went on without be left out of the other too."""
    known = {each.position for each in quarantined(target, feed, table) if each.is_left_out}
    for each in quarantined(source, feed, table):
        if each.is_left_out and each.position not in known:
            skip(target, feed, table, each, now=each.resolved_at or each.found_at)
