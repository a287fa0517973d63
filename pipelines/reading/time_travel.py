"""Find the versions of a feed's silver tables that show it as of one source position, or one point in time.

As of a position P, a table is read at its newest cut that ends at or before P. This is the state of a build that has
seen bronze up to P and no further, unless that build would apply more:

- if all of the table's cuts end before what is missing, it has not reached P yet and is not read at all;
- if a later cut applied what is missing in one commit with updates after P, no version shows P itself. The table is
  read before that cut, and a note reports it.

Tables without a note are consistent with each other: each has every update up to P, and none beyond.

As of a point in time, P is the newest position at which every table built by then can be read without a note.
Everything up to P was committed by that time. Builds apply what has landed to all tables before they refresh, so such a
position exists after nearly every refresh; a table that holds keeps P before its hold.

A table's history is shown as of the same cut as the table, so that both agree: the versions that had begun by then,
with those that ended later as current. The positions in the current history suffice for that, whatever was removed of
the table. They do not for a source-ordered source, or after a later rebuild: then the history's version of that time is
read.

Reads the logs, the list of cuts, and bronze's small columns between a table's cut and P.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from silverfold.conf.errors import PositionGap, QueryFailed
from silverfold.conf.model import CutLimits
from silverfold.connectors.base import Connector, Cut, Feed
from silverfold.pipelines.holding.quarantine_log import holds
from silverfold.pipelines.landing.bronze import last_position, read_small_columns
from silverfold.pipelines.landing.bronze_table import lost_from
from silverfold.pipelines.landing.dropped import dropped_of
from silverfold.pipelines.places import Place, Places, history_of
from silverfold.pipelines.planning.plan import Planner
from silverfold.pipelines.planning.rules import StreamRules
from silverfold.pipelines.storage.companions import companion
from silverfold.pipelines.storage.cuts import CutRow, all_cuts, app_id, current_cuts, position_in
from silverfold.pipelines.storage.silver_position import SilverPosition
from silverfold.pipelines.store import naming_the_store, open_table
from silverfold.pipelines.upkeep.beginnings import history_rebuilt


@dataclass(frozen=True)
class AsOf:
    """How to read a feed's tables as of one position.

    Args:
        versions: Delta version of each table that can be read. A history is a table too, named by `history_of`.
        missing: Why a table cannot be read. A table that is not built is in neither.
        notes: Remarks on tables that can be read, one line each.
        until: For each history in landing order, the position up to which that version is shown.
    """

    feed: str
    position: int
    versions: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    until: Mapping[str, int] = field(default_factory=dict)


def as_of(places: Places, connector: Connector, feed: Feed, then: int | datetime) -> AsOf:
    """Return how to read the feed's tables as of a position or a point in time: see the next two."""
    if isinstance(then, int):
        return as_of_position(places, connector, feed, then)
    return as_of_moment(places, connector, feed, then)


def as_of_position(places: Places, connector: Connector, feed: Feed, position: int) -> AsOf:
    """Return how to read the feed's tables as of a position.

    Raises:
        QueryFailed: The position has not landed yet.
        StoreUnavailable: A table cannot be read now.
    """
    landed = last_position(places.bronze(feed.name), feed.name)
    if position > landed:
        so_far = f"only up to position {landed}" if landed >= 0 else "nothing yet"
        raise QueryFailed(
            f"feed {feed.name} has landed {so_far}: there is no position {position}", condition="POSITION_NOT_LANDED"
        )
    return _Cuts.of(places, connector, feed).as_of(position)


def as_of_moment(places: Places, connector: Connector, feed: Feed, moment: datetime) -> AsOf:
    """Return how to read the feed's tables as of a point in time: at one position that all had reached by then.

    Args:
        moment: With a time zone.

    Raises:
        StoreUnavailable: A table cannot be read now.
    """
    then = _Cuts.of(places, connector, feed, moment)
    found = then.as_of(then.common_position())
    late = {
        name: f"table {table} of feed {feed.name} was not built yet at {moment.isoformat()}: "
        f"its first cut was committed at {rows[0].committed_at.isoformat()}"
        for table, rows in then.known.items()
        if rows and not then.rows[table]
        for name in then.names(table)
    }
    return replace(found, missing={**found.missing, **late})


class _TableView(NamedTuple):
    """How one table or history is read: at a version, maybe up to a position; or why it is not."""

    name: str
    version: int | None = None
    until: int | None = None
    why: str | None = None


@dataclass(frozen=True)
class _Cuts:
    """The applied cuts of a feed's tables, oldest first per table.

    Args:
        known: All of them.
        rows: Those committed by the requested time.
    """

    places: Places
    connector: Connector
    feed: Feed
    known: Mapping[str, Sequence[CutRow]]
    rows: Mapping[str, Sequence[CutRow]]

    @cached_property
    def lost(self) -> Sequence[tuple[int, int]]:
        """Positions that bronze has lost (`pipelines.landing.bronze_table.lost_from`)."""
        return lost_from(self.places.bronze(self.feed.name))

    @staticmethod
    def of(places: Places, connector: Connector, feed: Feed, moment: datetime | None = None) -> _Cuts:
        cuts = all_cuts(places, feed.name, list(feed.tables))
        known = {table: current_cuts(cut for cut in cuts if cut.table == table) for table in feed.tables}
        if moment is None:
            return _Cuts(places, connector, feed, known, known)
        by_then = [cut for cut in cuts if cut.committed_at <= moment]
        then = {table: current_cuts(cut for cut in by_then if cut.table == table) for table in feed.tables}
        return _Cuts(places, connector, feed, known, then)

    def common_position(self) -> int:
        """Return the newest position at which no table lacks an update; -1 if there is none."""
        position = max((rows[-1].last_position for rows in self.rows.values() if rows), default=-1)
        while (since := self._lacking_since(position)) is not None:
            position = since - 1
        return position

    def names(self, table: str) -> list[str]:
        """Return the names of a table and of its history, if it has one."""
        return [table, history_of(table)] if self.feed.tables[table].keeps_history else [table]

    def as_of(self, position: int) -> AsOf:
        shown: list[_TableView] = []
        notes = []
        for table, rows in self.rows.items():
            row = _newest(rows, position)
            why = self._missing_reason(table, row, position)
            if why is not None:
                shown += [_TableView(name, why=why) for name in self.names(table)]
            elif row is not None:
                shown += [self._table(table, row, position), *self._history(table, row, position)]
                notes += self._notes(table, row, position)
        return AsOf(
            self.feed.name,
            position,
            versions={each.name: each.version for each in shown if each.version is not None},
            missing={each.name: each.why for each in shown if each.why is not None},
            notes=tuple(notes),
            until={each.name: each.until for each in shown if each.until is not None},
        )

    def _table(self, table: str, row: CutRow, position: int) -> _TableView:
        place, app = self.places.silver(self.feed.name, table), app_id(self.feed.name, table)
        if lost := what_is_lost(place, app, row):
            return _TableView(
                table, why=f"{self._describe(table)} cannot be read as of position {position} any more: {lost}"
            )
        return _TableView(table, version=row.delta_version)

    def _history(self, table: str, row: CutRow, position: int) -> list[_TableView]:
        """Return how the history is shown for a cut of its table; empty without a history."""
        return [self._history_view(table, name, row, position) for name in self.names(table)[1:]]

    def _history_view(self, table: str, name: str, row: CutRow, position: int) -> _TableView:
        then = companion(self.places, self.feed.name, table, "history", at=row.delta_version).committed
        if self.connector.source_ordered:
            why = self._table(table, row, position).why  # if that version is gone, the log cannot identify its history
            return self._version_view(table, name, then, position) if why is None else _TableView(name, why=why)
        now = companion(self.places, self.feed.name, table, "history").committed
        rebuilt = history_rebuilt(self.places, self.feed.name, table)
        was_another = rebuilt is not None and row.delta_version < rebuilt.delta_version
        shown = self._version_view(table, name, then if was_another or now is None else now, position)
        return shown if shown.version is None else shown._replace(until=row.last_position)

    def _version_view(self, table: str, name: str, history: DeltaTable | None, position: int) -> _TableView:
        if history is None:
            return _TableView(
                name, why=f"{self._describe(name)} was not kept with the cut of then, or was removed since"
            )
        lost = _removed_files(self.places.history(self.feed.name, table), history)
        if lost:
            return _TableView(
                name, why=f"{self._describe(name)} cannot be read as of position {position} any more: {lost}"
            )
        return _TableView(name, version=history.version())

    def _describe(self, name: str) -> str:
        return f"table {name} of feed {self.feed.name}"

    def _lacking_since(self, position: int) -> int | None:
        newest = ((table, _newest(rows, position)) for table, rows in self.rows.items())
        found = (self._lacks_or_reached(table, row, position) for table, row in newest if row is not None)
        return next((since for since in found if since is not None), None)

    def _lacks_or_reached(self, table: str, row: CutRow, position: int) -> int | None:
        """Do as `_lacks`; where bronze no longer has the missing frames, return the position after the table's cut."""
        try:
            return self._lacks(table, row, position)
        except PositionGap:
            return row.last_position + 1

    def _lacks(self, table: str, row: CutRow, position: int) -> int | None:
        """Return the end of the first update that a build would apply after a cut, having seen bronze up to a position.

        None if it would apply nothing. Where bronze no longer reaches back, or has lost what the next cut took, the end
        comes, less exactly, from that cut.
        """
        if row.last_position == position:
            return None
        later = next((each for each in self.known[table] if each.last_position > row.last_position), None)
        since = None if later is None else _first_end(later, after=row.last_position)
        next_end = since if since is not None and since <= position else None
        if later is not None and any(row.last_position < last and first <= position for first, last in self.lost):
            return next_end
        try:
            lacking = self._planned(table, row, position)
        except PositionGap:
            if later is not None:
                return next_end
            if self._is_quiet(table, row, position):
                return None
            raise
        return None if lacking is None else min(lacking.ends)

    def _is_quiet(self, table: str, row: CutRow, position: int) -> bool:
        """Return whether a cut has all that bronze dropped of its stream, and nothing came since, up to a position."""
        bronze, stream = self.places.bronze(self.feed.name), self.connector.stream(self.feed, table)
        dropped = dropped_of(bronze, self.feed.name, table)
        if dropped.complete is None or row.last_position < dropped.complete:
            return False
        is_of_it = (pc.field("stream") == stream) & (pc.field("frame_seq") <= position)
        batches = read_small_columns(bronze, after=max(dropped.floor - 1, row.last_position))
        return not any(batch.filter(is_of_it).num_rows for batch in batches)

    def _planned(self, table: str, row: CutRow, position: int) -> Cut | None:
        rules = StreamRules.of(self.connector, self.feed, table, SilverPosition(row.last_position))
        planner = Planner(self.feed.name, {table: rules}, lost=self.lost)
        for batch in read_small_columns(self.places.bronze(self.feed.name), after=row.last_position - 1):
            seen = int(np.searchsorted(batch["frame_seq"].to_numpy(), position, side="right"))
            planner.add_frames(batch.slice(0, seen))
            if seen < batch.num_rows:
                break
        return planner.plan(table, CutLimits()).cut

    def _missing_reason(self, table: str, row: CutRow | None, position: int) -> str | None:
        """Return why a table never existed as of a position; None if it did, or is not built."""
        name, rows = self._describe(table), self.rows[table]
        if row is None:
            first = rows[0].last_position if rows else None
            no_cut = f"{name} has no cut at or before position {position}: its first ends at position {first}"
            return None if first is None else no_cut
        how = self._how_to_reach(table, row, position) if row is rows[-1] else None
        return how and f"{name} has reached only position {row.last_position}, not {position}: {how}"

    def _how_to_reach(self, table: str, row: CutRow, position: int) -> str | None:
        """Return what to do about a table whose last cut is before a position; None if it lacks nothing there."""
        try:
            lacks = self._lacks(table, row, position)
        except PositionGap as gap:
            return str(gap)
        if lacks is None:
            return None
        held = next(iter(holds(self.places, self.feed.name, table)), None)
        why = None if held is None else f"it holds at position {held.position}: {held.reason}"
        return why or f"run `silverfold build {self.feed.name} --once`"

    def _notes(self, table: str, row: CutRow, position: int) -> list[str]:
        rows = self.rows[table]
        if row is rows[-1] or self._lacks(table, row, position) is None:
            return []
        later = rows[rows.index(row) + 1].last_position
        return [
            f"table {table} of feed {self.feed.name} is read as of position {row.last_position}: "
            f"what followed came in one commit, up to position {later}"
        ]


def _first_end(cut: CutRow, *, after: int) -> int:
    """Return where the first update of a cut may end. For a replacing cut that includes superseded updates."""
    if cut.replaced:
        return after + 1
    return cut.last_position if cut.updates == 1 else max(cut.first_position, after + 1)


def what_is_lost(silver: Place, app: str, row: CutRow) -> str | None:
    """Return what was removed of the version that a cut made; None if it can still be read.

    Lists the table's folder, unless the newest version still has all of the files. Raises StoreUnavailable.
    """
    newest = open_table(silver)
    if newest is None:
        return None
    try:
        opened = DeltaTable(silver.url, row.delta_version, storage_options=dict(silver.storage_options))
    except DeltaError:
        return f"the log of its version {row.delta_version} was cleaned up"
    if position_in(opened, app) != row.last_position:
        return f"its version {row.delta_version} is of another table"
    return _removed_files(silver, opened)


def _removed_files(place: Place, opened: DeltaTable) -> str | None:
    """Return what was removed of an open table's version; None if it can be read."""
    newest = open_table(place)
    with naming_the_store(place):
        removed = _files(opened) - (set() if newest is None else _files(newest))
        gone = removed - _in_folder(place) if removed else removed
    return f"VACUUM removed {len(gone)} files of its version {opened.version()}" if gone else None


def _files(table: DeltaTable) -> set[str]:
    return {unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}


def _in_folder(silver: Place) -> set[str]:
    store = PyFileSystem(DeltaStorageHandler(silver.url, dict(silver.storage_options)))
    return {found.path for found in store.get_file_info(FileSelector("", recursive=True))}  # column mapping has folders


def _newest(rows: Sequence[CutRow], position: int) -> CutRow | None:
    return next((row for row in reversed(rows) if row.last_position <= position), None)
