"""The quarantine beside the tables: how what is in it stands, and what a running build makes of it.

People decide elsewhere (`pipelines.held`) while the build runs, so a table that is held looks again. A skip is noted
before the commit that leaves the frame out, and the commit itself tells how many it left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from connectors.base import Cut
from pipelines.cuts import position_reached, read_cuts
from pipelines.held import SKIPPED, Hold, HoldState, hold, quarantined, release, skip, version
from pipelines.places import Places


class Quarantined(NamedTuple):
    """One quarantined position, seen beside its table."""

    table: str
    hold: Hold
    applied: int
    """Position the table has reached; -1 for none."""

    @property
    def state(self) -> HoldState:
        """How it stands."""
        return self.hold.state(self.applied)

    @property
    def holds(self) -> bool:
        """The table stands before it."""
        return self.state is HoldState.HOLDING

    @property
    def is_over(self) -> bool:
        """The table took it, or a snapshot made it needless."""
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
    """One table's quarantine, as of the last look.

    Args:
        skips: A frame that cannot be decoded is left out at once: setting ``on_bad_frame``.
    """

    places: Places
    feed: str
    table: str
    skips: bool
    holding: frozenset[int] = field(init=False, default=frozenset())
    """Positions that hold the table."""
    _skipped: dict[int, Hold] = field(init=False, default_factory=dict)
    _seen: int = field(init=False, default=-1)

    def look(self) -> bool:
        """Read the ledger if it has grown since the last look; tell whether it had. Raises StoreUnavailable."""
        newest = version(self.places, self.feed, self.table)
        if newest == self._seen:
            return False
        known = quarantined(self.places, self.feed, self.table)
        self.holding = frozenset(each.position for each in known if each.holds)
        self._skipped = {each.position: each for each in known if each.resolution == SKIPPED}
        self._seen = newest
        return True

    def left_out(self, cut: Cut) -> tuple[int, ...]:
        """Return the positions of the cut's frames that are not to be decoded."""
        return tuple(at for at in sorted(self._skipped) if _applies(cut, at))

    def take(self, found: Hold, *, now: datetime, is_frame: bool) -> bool:
        """Note what the table could not take; tell whether it may go on without it.

        Args:
            is_frame: It is a frame that cannot be decoded. Nothing else can be left out.

        Raises:
            StoreUnavailable: The quarantine cannot be read or written now; nothing was noted.
        """
        self.look()
        if is_frame and (self.skips or found.position in self._skipped):
            skip(self.places, self.feed, self.table, found, now=now)
            self.look()
            return True
        hold(self.places, self.feed, self.table, found)
        return False

    def passed(self, cut: Cut, left_out: Collection[int], *, now: datetime) -> None:
        """Note that the table has taken a cut without some of its frames. Raises StoreUnavailable.

        A skip that was undone while the cut was being applied came too late: it is noted again.
        """
        needless = [at for at in self._skipped if cut.replaces and at <= cut.last and not _applies(cut, at)]
        for position in left_out:
            skip(self.places, self.feed, self.table, self._skipped[position], now=now)
        release(self.places, self.feed, self.table, through=cut.last, now=now, needless=needless)
        for position in needless:
            del self._skipped[position]

    def catch_up(self, *, now: datetime) -> None:
        """Look, and note what an earlier builder could not note before it died. Raises StoreUnavailable."""
        self.look()
        if self._skipped:
            replacing = [cut for cut in read_cuts(self.places, self.feed, table=self.table) if cut.replaced]
            newest = max((cut.first_position for cut in replacing), default=-1)
            release(
                self.places,
                self.feed,
                self.table,
                through=-1,
                now=now,
                needless=[at for at in self._skipped if at < newest],
            )
            self.look()


def _applies(cut: Cut, position: int) -> bool:
    return any(first <= position <= last for first, last in cut.spans)
