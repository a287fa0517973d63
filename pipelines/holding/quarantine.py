"""The quarantine of a table: the state of its entries, and what a running build does with them.

Users decide elsewhere (`pipelines.holding.quarantine_log`) while the build runs, so the build rereads the quarantine of
a held table. A skip is recorded before the commit that leaves the frame out, and the commit itself records which frames
it left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from silverfold.conf.errors import RebuildNeeded, SchemaDrift, UndecodableFrame
from silverfold.connectors.base import Cut
from silverfold.pipelines.holding.quarantine_log import (
    LEFT_OUT,
    PASSED,
    PASSED_OVER,
    SKIPPED,
    Hold,
    HoldState,
    hold,
    quarantined,
    resolve,
    skip_all,
    version,
)
from silverfold.pipelines.landing.ranges import Range, is_inside
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.commit_note import REBUILT, CommitNote
from silverfold.pipelines.storage.cuts import newest_note, newest_notes, position_reached, read_cuts
from silverfold.pipelines.store import open_table

_RECENT_CUTS = 100
"""Number of newest cuts to search for one that a builder could not record before it died."""


class Quarantined(NamedTuple):
    """One quarantined position, in relation to its table."""

    table: str
    hold: Hold
    applied: int
    """Position the table has reached; -1 for none."""

    @property
    def state(self) -> HoldState:
        """State of the position."""
        return self.hold.state(self.applied)

    @property
    def holds(self) -> bool:
        """The table is held before it."""
        return self.state is HoldState.HOLDING

    @property
    def is_over(self) -> bool:
        """The table took it, or a snapshot superseded it."""
        return self.state is HoldState.RESOLVED

    @property
    def ahead(self) -> bool:
        """The table has yet to pass it, with or without the frame."""
        return not self.is_over and self.hold.position > self.applied


def read_quarantine(places: Places, feed: str, tables: Iterable[str]) -> list[Quarantined]:
    """Return every position ever quarantined, by table and position. Raises StoreUnavailable."""
    found = []
    for table in tables:
        known = quarantined(places, feed, table)
        applied = position_reached(places, feed, table) if known else -1
        found += [Quarantined(table, each, applied) for each in known]
    return found


@dataclass
class Quarantine:
    """One table's quarantine, as last read.

    Args:
        skips: Undecodable frames are left out at once: setting ``on_bad_frame``.
        keeps_history: A skipped frame stays left out of the table's history, whatever snapshot comes later.
        lost: Returns the positions that bronze has lost (`pipelines.landing.bronze_table.lost_from`): the table
            continues without.
    """

    places: Places
    feed: str
    table: str
    skips: bool
    keeps_history: bool = False
    lost: Callable[[], Sequence[Range]] = tuple
    holding: frozenset[int] = field(init=False, default=frozenset())
    """Positions that hold the table."""
    _left_out: dict[int, Hold] = field(init=False, default_factory=dict)
    _seen: int = field(init=False, default=-1)

    def refresh(self) -> bool:
        """Read the ledger if it has grown since the last call; return whether it had. Raises StoreUnavailable."""
        newest = version(self.places, self.feed, self.table)
        if newest == self._seen:
            return False
        self._read()
        self._seen = newest
        return True

    def left_out(self, cut: Cut) -> tuple[int, ...]:
        """Return the positions of the cut's frames that are not to be decoded."""
        return tuple(at for at in sorted(self._left_out) if is_inside((at, at), cut.spans))

    def leaves_out_after(self, position: int) -> bool:
        """Return whether a frame behind a position is not to be decoded."""
        return any(at > position for at in self._left_out)

    def add(self, found: Hold, others: Sequence[Hold] = (), *, now: datetime, is_frame: bool = False) -> bool:
        """Record what the table could not take; return whether it may continue without it.

        Args:
            others: Frames behind it that cannot be decoded either: left out with it if the table skips such frames.
            is_frame: It is a frame that cannot be decoded. Nothing else can be left out.

        Raises:
            StoreUnavailable: The quarantine cannot be read or written now; nothing was recorded.
        """
        self._read()
        if is_frame and (self.skips or found.position in self._left_out):
            skip_all(self.places, self.feed, self.table, [found, *(others if self.skips else ())], now=now)
            self._read()
            return True
        hold(self.places, self.feed, self.table, found)
        return False

    def record_cut(self, cut: Cut, *, now: datetime) -> None:
        """Record that the table has taken a cut without some of its frames. Raises StoreUnavailable.

        A skip that was undone while the cut was being applied came too late: the skip is recorded again. A skip of
        something the cut passed or read also came too late: it is over.
        """
        left_out = [self._left_out[position] for position in cut.left_out]
        skip_all(self.places, self.feed, self.table, left_out, now=now)

        def resolution(known: Hold) -> str | None:
            if known.position > cut.last or known.position in cut.left_out:
                return None
            if known.holds and known.position <= cut.after:  # of an earlier cut, whose own commit records the outcome
                return None
            if known.position > cut.after and not cut.replaces and self._is_lost(known):
                return _resolution_if_lost(known) if known.holds else None
            if known.holds or (known.resolution == SKIPPED and known.position > cut.after):
                return self._passed(known, cut.spans[0][0])
            return self._superseded if known.resolution == SKIPPED and cut.replaces else None

        if resolve(self.places, self.feed, self.table, resolution, now=now):
            self._read()
        if any(position <= cut.after for position in self.holding):
            self.catch_up(now=now)

    def catch_up(self, *, now: datetime) -> None:
        """Read the ledger, and record what an earlier builder or rebuild could not before it died, and what is lost.

        Raises:
            StoreUnavailable: The quarantine, or its table, cannot be read or written now.
        """
        self.refresh()
        if self._seen < 0:  # nothing was ever quarantined
            return
        silver = open_table(self.places.silver(self.feed, self.table))
        last = newest_note(silver)
        if (
            last is not None
            and REBUILT in (last.notes or {})
            and last.frames is not None
            and resolve(self.places, self.feed, self.table, resolution_by_rebuild(last), now=now)
        ):
            self._read()
        if not self.holding and not any(known.resolution == SKIPPED for known in self._left_out.values()):
            return
        notes = list(islice(newest_notes(silver), _RECENT_CUTS))
        cuts = read_cuts(self.places, self.feed, table=self.table)
        newest = max((cut.first_position for cut in cuts if cut.replaced), default=-1)

        def resolution(known: Hold) -> str | None:
            if not (known.holds or known.resolution == SKIPPED):
                return None
            taken = _cut_containing(known.position, notes)
            was_left_out = None if taken is None or taken.frames is None else str(known.position) in taken.frames
            if known.resolution == SKIPPED:
                read = was_left_out is False and not self._is_lost(known)
                return PASSED if read else self._superseded if known.position < newest else None
            passing = next((cut for cut in cuts if cut.last_position >= known.position), None)
            if passing is None:
                return _resolution_if_lost(known) if self._is_lost(known) else None
            return SKIPPED if was_left_out else self._passed(known, passing.first_position)

        if resolve(self.places, self.feed, self.table, resolution, now=now):
            self._read()

    def resolve_through(self, landed: int, *, now: datetime) -> None:
        """Record that nothing up to a position holds the table any more: it has taken all of its own frames.

        This happens after a setting is restored that had made it take other frames. Raises StoreUnavailable.
        """

        def resolution(known: Hold) -> str | None:
            return PASSED if known.holds and known.position <= landed else None

        if self.holding and resolve(self.places, self.feed, self.table, resolution, now=now):
            self._read()

    def _is_lost(self, known: Hold) -> bool:
        return is_inside((known.position, known.position), self.lost())

    def _passed(self, known: Hold, begins: int) -> str:
        """Return the resolution of an entry that a cut beginning at ``begins`` has passed."""
        return PASSED_OVER if self.keeps_history and known.holds and known.update_position < begins else PASSED

    @property
    def _superseded(self) -> str:
        """Resolution of a skipped frame that a snapshot has passed."""
        return LEFT_OUT if self.keeps_history else PASSED

    def _read(self) -> None:
        known = quarantined(self.places, self.feed, self.table)
        self.holding = frozenset(each.position for each in known if each.holds)
        self._left_out = {each.position: each for each in known if each.is_left_out}


def resolution_by_rebuild(note: CommitNote) -> Callable[[Hold], str | None]:
    """Return a function from a hold to its resolution by a rebuild, or None if it stays unchanged.

    Args:
        note: Commit note of the rebuild. Entries that asked for a rebuild are over, since running builds continue.
    """
    frames = note.frames or {}

    def resolution(known: Hold) -> str | None:
        recorded = frames.get(str(known.position))
        if PASSED_OVER in {recorded, known.resolution}:
            now = PASSED_OVER if recorded == PASSED_OVER else PASSED
            return None if now == known.resolution else now
        if known.resolution == SKIPPED:
            return recorded if recorded in (PASSED, LEFT_OUT) else None
        asked = known.error_class == RebuildNeeded.error_class
        outgrown = known.error_class == SchemaDrift.error_class and known.position <= note.last_position
        return PASSED if known.holds and (asked or outgrown) else None

    return resolution


def _resolution_if_lost(known: Hold) -> str:
    """Return the resolution of a hold whose position is lost: a bad frame is skipped, anything else passed."""
    return SKIPPED if known.error_class == UndecodableFrame.error_class else PASSED


def _cut_containing(position: int, notes: Sequence[CommitNote]) -> CommitNote | None:
    """Return the newest cut that contains a position; None if none does, or it is a rebuild."""
    found = next((note for note in notes if note.first_position <= position <= note.last_position), None)
    return None if found is None or REBUILT in (found.notes or {}) else found
