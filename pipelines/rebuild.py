"""Makes a silver table anew from bronze, beside the old one, and swaps it in: one Delta commit, or nothing.

The new table is built by the same `FeedBuild` as ever, at a place of its own (`SidePlaces`), up to exactly the position
the old table has reached. Then one overwriting commit puts its rows and columns in the old one's stead. The recorded
position stays: builds go on from it, also one that runs at this moment.

A build that moves the old table meanwhile cannot lead to a mix:

- before the swap's commit begins, the position is not the one that was built to: a task of the commit itself looks,
  and fails it;
- from then on, Delta fails whichever of the two commits second, since the swap reads and replaces every file. A cut
  that changed no row, and an appended one of a log, do not conflict, and need not: what they did stands;

and the rebuild goes on to where the table stands now, and tries again. A table that has no position yet, or is gone,
is built to the newest position, which the commit records: then the one of two that commits second fails or does
nothing (``txnVersion``).

History and tombstones are made anew with the table, and swapped in the same way, each in a commit of its own, in the
order in which a build writes them: history, tombstones, table. Each is what a build would have left at one position, so
whatever a death leaves, old or new, the build that follows goes on from it as from a death of its own: it writes to
none of the three what its log records already. A build that died before it wrote the table has left history or
tombstones ahead of it; then all are built to where those stand, and the table's commit records that position. The next
rebuild makes all three anew again.

Of a history, what bronze no longer tells cannot be made anew: where frames were dropped, a table whose history is there
is not rebuilt. Without it (removed by hand) history begins anew with the first whole snapshot that is left.

A rebuild that dies leaves the old table as it was; the next one removes what it left. Two at once do not share a place;
the second takes the first one's files away, and the first fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from conf.errors import ApplyError, PositionGap
from conf.model import Settings
from connectors.base import Connector, Feed
from pipelines.bronze_table import retained_from
from pipelines.build import FeedBuild
from pipelines.cuts import (
    CommitNote,
    app_id,
    from_commit,
    history_id,
    read_cuts,
    recorded_position,
    restore,
    tombstones_id,
)
from pipelines.held import SKIPPED, quarantined, skip
from pipelines.leftovers import remove_tree
from pipelines.places import Place, Places
from pipelines.spark import own_session
from pipelines.store import naming_the_store, open_table
from transforms.aside import overwrite
from transforms.faults import named_errors
from transforms.merge import plainly_typed

_ATTEMPTS = 5
"""How often a rebuild follows a table that other builds move."""

_MOVED = "SILVERFOLD_TABLE_MOVED"
_LOST = (_MOVED, "DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""In a commit's error: another commit came first."""


@dataclass(frozen=True)
class SidePlaces(Places):
    """Where a rebuild of one table works: bronze is where it is, all that is written is in a folder of its own.

    Args:
        table: The table that is rebuilt.
        token: Unlike any other rebuild's.
    """

    table: str = ""
    token: str = ""

    def root(self, feed: str) -> Place:
        """Return where all rebuilds of the table work."""
        return self._at("silver", feed, f"{self.table}__rebuild")

    def silver(self, feed: str, table: str) -> Place:
        """Return the place of the new table."""
        return self._beside(feed, "table")

    def history(self, feed: str, table: str) -> Place:
        """Return the place of the new table's past rows."""
        return self._beside(feed, "history")

    def cuts(self, feed: str) -> Place:
        """Return the place of the list of cuts that made the new table."""
        return self._beside(feed, "cuts")

    def quarantine(self, feed: str, table: str) -> Place:
        """Return the place of what the new table could not take."""
        return self._beside(feed, "quarantine")

    def tombstones(self, feed: str, table: str) -> Place:
        """Return the place of the new table's remembered deletes."""
        return self._beside(feed, "tombstones")

    def aside(self, feed: str, table: str) -> Place:
        """Return the place of the rows that may not stand in the new table."""
        return self._beside(feed, "aside")

    def _beside(self, feed: str, part: str) -> Place:
        return self._at("silver", feed, f"{self.table}__rebuild", self.token, part)


class Rebuilt(NamedTuple):
    """What a rebuild made."""

    table: str
    position: int
    """Position the table stands at."""
    delta_version: int
    """Version of the silver table that is the rebuilt one."""
    updates: int
    """Whole updates it was built from."""


class _Part(NamedTuple):
    """A table that is made anew: where it is built, where it is to be, and whose position its log records."""

    built: Place
    live: Place
    app: str


class _Swap(NamedTuple):
    """What is to be committed."""

    rows: DataFrame
    note: CommitNote
    recorded: int
    """Position of the old table, which must still be so; -1 when it has none, or is gone."""


@dataclass(frozen=True)
class Rebuild:
    """The rebuild of one table.

    Args:
        token: Unlike any other rebuild's.
    """

    spark: SparkSession
    settings: Settings
    connector: Connector
    feed: Feed
    table: str
    token: str

    def run(self) -> Rebuilt:
        """Build the table anew and swap it in. Runs Spark jobs; safe to repeat, and beside builds and readers.

        Raises:
            PositionGap: Bronze lacks positions that are needed; the old table stands, as for every error.
            ApplyError: A frame cannot be decoded or a cut not applied, nothing has landed, bronze does not lead to
                where the old table stands, or builds have moved it all the time.
            StoreUnavailable: Try again.
        """
        self._check_bronze()
        self._tidy()
        try:
            for _ in range(_ATTEMPTS):
                rebuilt = self._attempt()
                if rebuilt is not None:
                    return rebuilt
        finally:
            self._tidy()
        raise ApplyError(f"builds moved the table {_ATTEMPTS} times meanwhile; try again", table=self.table)

    @property
    def _places(self) -> Places:
        return Places(self.settings.warehouse, self.settings.storage())

    @property
    def _side(self) -> SidePlaces:
        return SidePlaces(self.settings.warehouse, self.settings.storage(), table=self.table, token=self.token)

    def _tidy(self) -> None:
        remove_tree(self._side.root(self.feed.name))

    def _check_bronze(self) -> None:
        """Refuse to build from a part what needs the whole: a table without snapshots, and a history that is there."""
        floor = retained_from(self._places.bronze(self.feed.name), self.feed.name)
        if floor and not self.connector.has_snapshots(self.feed.tables[self.table]):
            raise PositionGap(feed=self.feed.name, first=0, last=floor - 1)
        history = self._places.history(self.feed.name, self.table)
        if floor and self._keeps_history and open_table(history) is not None:
            raise ApplyError(
                f"bronze begins at position {floor}, so the history before it cannot be made anew: "
                f"to let history begin there, remove {history}",
                table=self.table,
            )

    @property
    def _keeps_history(self) -> bool:
        return self.feed.tables[self.table].keeps_history

    def _parts(self) -> list[_Part]:
        """Return all that a build writes for the table, in its order: the table is the last."""
        feed, table, live, side = self.feed.name, self.table, self._places, self._side
        history = _Part(side.history(feed, table), live.history(feed, table), history_id(feed, table))
        tombstones = _Part(side.tombstones(feed, table), live.tombstones(feed, table), tombstones_id(feed, table))
        return [
            *([history] if self._keeps_history else []),
            *([tombstones] if self.connector.sequenced else []),
            _Part(side.silver(feed, table), live.silver(feed, table), app_id(feed, table)),
        ]

    def _attempt(self) -> Rebuilt | None:
        stood = [recorded_position(part.live, part.app) for part in self._parts()]
        goal = max(stood)
        _copy_skips(self._places, self._side, self.feed.name, self.table)
        reached = self._build(before=None if goal < 0 else goal + 1)
        if goal >= 0 and reached != goal:
            raise ApplyError(f"bronze leads to position {reached}, the table stands at {goal}", table=self.table)
        if reached < 0:
            raise ApplyError("nothing to build it from has landed", table=self.table)
        self._swap_aside()
        note, version = self._note(reached), None
        for part, recorded in zip(self._parts(), stood, strict=True):
            if open_table(part.built) is None:  # no cut had a delete to remember
                continue
            version = swap_in(_Swap(self._rows_at(part.built), note, recorded), part.live, part.app)
            if version is None:
                return None
        assert version is not None, "the table itself has been built"
        _copy_skips(self._side, self._places, self.feed.name, self.table)
        restore(self._places, self.feed.name, [self.table])
        return Rebuilt(self.table, reached, version, note.updates)

    def _swap_aside(self) -> None:
        """Put what the new table keeps aside in the old one's stead: it counts by the position both stand at."""
        built, live = (places.aside(self.feed.name, self.table) for places in (self._side, self._places))
        if open_table(built) is not None:
            overwrite(self._rows_at(built), live.url)
        elif open_table(live) is not None:
            overwrite(self._rows_at(live).limit(0), live.url)

    def _build(self, *, before: int | None) -> int:
        """Build the new table as far as it goes; return the position it has reached."""
        feed = replace(self.feed, tables={self.table: self.feed.tables[self.table]})
        build = FeedBuild(self.spark, self.settings, self.connector, feed, places=self._side, before=before)
        build.refresh()
        while True:
            (step,) = build.step()
            if step.error is not None and not step.moved:
                raise step.error
            if not step.moved:
                return build.tables[self.table].position()

    def _rows_at(self, place: Place) -> DataFrame:
        return own_session(self.spark).read.format("delta").load(place.url)

    def _note(self, reached: int) -> CommitNote:
        cuts = read_cuts(self._side, self.feed.name, table=self.table)
        return CommitNote(
            feed=self.feed.name,
            table=self.table,
            epoch=cuts[-1].epoch,
            first_position=cuts[0].first_position,
            last_position=reached,
            replaced=True,
            updates=sum(cut.updates for cut in cuts),
            notes={"rebuilt": 1},
        )


def swap_in(swap: _Swap, live: Place, app: str) -> int | None:
    """Put the rows in the old table's stead, in one commit; return its version.

    Returns:
        None when the table has moved: nothing was committed, or what was is followed by more to do.

    Raises:
        ApplyError: Spark or Delta refused. The old table stands.
    """
    before = _version(live)
    try:
        with named_errors(swap.note.table):
            _overwrite(swap, live, app)
    except ApplyError as error:
        if any(name in str(error.__cause__) for name in _LOST):
            return None
        raise
    return _found(live, swap, before)


def _overwrite(swap: _Swap, live: Place, app: str) -> None:
    rows, options = swap.rows, {"userMetadata": swap.note.to_json(), "overwriteSchema": "true"}
    if swap.recorded < swap.note.last_position:
        options |= {"txnAppId": app, "txnVersion": str(swap.note.last_position)}
    if swap.recorded >= 0:
        still = rows.sparkSession.range(1).mapInArrow(_StillStands(live, app, swap.recorded), rows.schema)
        rows = rows.unionByName(still)
    options |= {"delta.enableDeletionVectors": "true"}
    plainly_typed(rows).write.format("delta").mode("overwrite").options(**options).save(live.url)


@dataclass(frozen=True)
class _StillStands:
    """A part of a query that yields no row, and fails if a table has left its position."""

    live: Place
    app: str
    position: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            opened = open_table(self.live)
            found = None if opened is None else opened.transaction_version(self.app)
            if found != self.position:
                raise RuntimeError(f"{_MOVED}: {found}")
        return iter(())


def _version(live: Place) -> int:
    opened = open_table(live)
    return -1 if opened is None else opened.version()


def _found(live: Place, swap: _Swap, before: int) -> int | None:
    """Return the version our commit made, unless it is not there, or cuts of others came between."""
    opened = open_table(live)
    if opened is None or opened.version() <= before:
        return None
    with naming_the_store(live):
        newest_first = opened.history(opened.version() - before)
    ours = next((c["version"] for c in newest_first if c.get("userMetadata") == swap.note.to_json()), None)
    if ours is None:
        return None
    between = [from_commit(commit) for commit in newest_first if before < commit["version"] < ours]
    return None if any(cut is not None for cut in between) else int(ours)


def _copy_skips(source: Places, target: Places, feed: str, table: str) -> None:
    """Let the frames that one table went on without be left out of the other too."""
    for each in quarantined(source, feed, table):
        if each.resolution == SKIPPED and each.resolved_at is not None:
            skip(target, feed, table, each, now=each.resolved_at)
