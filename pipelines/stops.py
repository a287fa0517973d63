"""Where the cuts of one table must stop: what it could not take, found by halves and tried again when it may be over.

A bad frame names itself. Any other fault is of a whole cut. Where it tells since when it is so, the cut ends before
that update next, and so on; else the cut is halved until one update is left. Two rows on one key may be told apart by a
later update, whichever cut that is in, and a row that fails a rule may be mended by one: once more has landed, all of
it is tried at once, or twice as much each time where that is more than a cut may have. So a table goes as far as the
last update after which nothing is wrong, whenever its cuts were made and however long they are; unless that takes more
than `MOST_TRIES` in a row, for then halves are tried.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, field

from conf.errors import DuplicateKey, ExpectationFailed, NullKey, SilverfoldError
from connectors.base import Cut

MOST_TRIES = 32
"""How many cuts in a row end where a fault says since when it is so, before halves are tried."""


@dataclass(frozen=True)
class _Stop:
    fault: SilverfoldError
    tried: int
    """Last position of the longest cut that failed for it. A longer one may not."""


@dataclass
class Stops:
    """The positions that cuts of one table may not reach."""

    _stops: dict[int, _Stop] = field(default_factory=dict)
    _shorter: int | None = None
    _longest: int = -1
    _tries: int = 0

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
        passing = isinstance(fault, DuplicateKey | NullKey | ExpectationFailed)
        self._stops[position] = _Stop(fault, max(cut.last, self._longest) if passing else sys.maxsize)
        self._forget_tries()

    def shorten(self, cut: Cut, since: int | None) -> int | None:
        """Note that a whole cut failed; return where the next shorter one stops, or None when none is worth trying.

        Args:
            since: `conf.errors.ApplyError.since`.
        """
        first, others = cut.begins[0], [begin for begin in cut.begins if begin > cut.begins[0]]
        if since is not None and self._tries < MOST_TRIES:
            stop = max((begin for begin in others if begin <= since), default=None)
        elif others and not any(first <= at <= cut.last for at in self._stops):
            stop = others[(len(others) - 1) // 2]
        else:
            stop = None
        if stop is not None:
            self._longest, self._shorter, self._tries = max(self._longest, cut.last), stop, self._tries + 1
        return stop

    def keep(self, positions: Collection[int]) -> None:
        """Forget the stops at all but some positions: the others are over by what people or other builds did."""
        self._stops = {at: stop for at, stop in self._stops.items() if at in positions}

    def passed(self, position: int) -> None:
        """Forget what the table has passed."""
        self._forget_tries()
        self._stops = {at: stop for at, stop in self._stops.items() if at > position}

    def _forget_tries(self) -> None:
        self._shorter, self._longest, self._tries = None, -1, 0
