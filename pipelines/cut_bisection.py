"""Where the cuts of one table must stop: what it could not take, found by shorter cuts, tried again when that may help.

A bad frame names itself. Any other fault is of a whole cut, so shorter ones are tried (`_Search`). Two rows on one key
may be told apart by a later update, whichever cut that is in, a row that fails a rule may be mended by one, a column
that a rule names may come with one: once more has landed, all of it is tried at once, or twice as much each time where
that is more than a cut may have. So a table goes as far as the last update after which nothing is wrong, whenever its
cuts were made and however long they are; unless that takes more than `MOST_TRIES` in a row, or a fault does not say
since when it is so, as an error of Spark's does not: then halves are tried.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from conf.errors import DuplicateKey, ExpectationFailed, NullKey, SilverfoldError, UnusableExpectation
from connectors.base import Cut

MOST_TRIES = 32
"""How many cuts in a row end where a fault says since when it is so, before halves are tried."""


@dataclass(frozen=True)
class _Stop:
    fault: SilverfoldError
    tried: int
    """Last position of the longest cut that failed for it. A longer one may not."""


@dataclass
class _Search:
    """The search for the longest cut that can be applied, among those that begin at one update.

    A fault that says since when it is so rules out all cuts from there to the one that failed: the next ends before. Of
    one that does not say, longer cuts are taken to fail too, and what is between is halved.

    Args:
        begins: Of the updates of the longest cut that failed.
        last: Its last position.
        low: Cuts of up to so many updates fail.
        high: Cuts of so many updates or more fail.
        top: Cuts fail from the one that is tried now up to so many updates.
    """

    begins: Sequence[int]
    last: int
    low: int
    high: int
    top: int = 0
    tries: int = 0

    def failed(self, count: int, since: int | None) -> int | None:
        """Note that a cut of so many updates failed; return how many the next one has, None when none is left."""
        self.top, self.tries = max(self.top, count), self.tries + 1
        if since is None or self.tries > MOST_TRIES:
            self.high, self.top = count, 0
        elif (shorter := bisect_right(self.begins, since) - 1) > self.low:
            return shorter
        else:
            self.low, self.top = self.top, 0
        middle = (self.low + self.high) // 2
        return middle if self.low < middle < self.high else None


@dataclass
class CutBisection:
    """The positions that cuts of one table may not reach."""

    _stops: dict[int, _Stop] = field(default_factory=dict)
    _shorter: int | None = None
    _search: _Search | None = None

    @property
    def fault(self) -> SilverfoldError | None:
        """What holds the table; None when nothing does."""
        return self._stops[min(self._stops)].fault if self._stops else None

    @property
    def longer(self) -> int:
        """How many frames a cut may have that is to pass what holds the table, whatever its limits; 0 for no more."""
        return max((2 * (tried - at + 1) for at, tried in self._passing()), default=0)

    @property
    def tried(self) -> int:
        """Behind which position such a cut must end, or it would fail as those before it; -1 for none."""
        return max((tried for _, tried in self._passing()), default=-1)

    def _passing(self) -> list[tuple[int, int]]:
        """Return the stops that a longer cut may pass, and the end of the longest that did not."""
        return [(at, stop.tried) for at, stop in self._stops.items() if stop.tried < sys.maxsize]

    def within(self, cut: Cut) -> int | None:
        """Return the last position in the cut that it may not reach; None when it may be applied as it is."""
        positions = [at for at, stop in self._stops.items() if cut.last <= stop.tried]
        if self._shorter is not None:
            positions.append(self._shorter)
        inside = (at for at in positions if any(first <= at <= last for first, last in cut.spans))
        return max(inside, default=None)

    def hold(self, position: int, cut: Cut, fault: SilverfoldError) -> None:
        """Stop before a position, for good or until more has landed, as the fault may be."""
        passing = isinstance(fault, DuplicateKey | NullKey | ExpectationFailed | UnusableExpectation)
        longest = cut.last if self._search is None else self._search.last
        self._stops[position] = _Stop(fault, longest if passing else sys.maxsize)
        self._end_search()

    def shorten(self, cut: Cut, since: int | None) -> int | None:
        """Note that a whole cut failed; return where the next shorter one stops, or None when none is worth trying.

        Args:
            since: `conf.errors.ApplyError.since`.
        """
        if self._search is None or self._search.begins[0] != cut.begins[0]:
            known = [stop.tried for at, stop in self._stops.items() if cut.begins[0] <= at <= cut.last]
            failed = sum(end <= max(known, default=-1) for end in cut.ends)
            self._search = _Search(cut.begins, cut.last, low=failed, high=len(cut.begins) + 1)
        count = self._search.failed(len(cut.begins), since)
        self._shorter = None if count is None else self._search.begins[count]
        return self._shorter

    def keep(self, positions: Collection[int]) -> None:
        """Forget the stops at all but some positions: the others are over by what people or other builds did."""
        self._stops = {at: stop for at, stop in self._stops.items() if at in positions}

    def passed(self, position: int) -> None:
        """Forget what the table has passed."""
        self._end_search()
        self._stops = {at: stop for at, stop in self._stops.items() if at > position}

    def _end_search(self) -> None:
        self._shorter, self._search = None, None
