"""Where the cuts of one table must stop: what it could not take, found by halves and tried again when it may be over.

A bad frame names itself. Any other fault is of a whole cut, so the cut is halved until one update is left: the table
stands before it. Two rows on one key may be told apart by a later update, whichever cut that is in, and a row that
fails a rule may be mended by one: once more has landed, all of it is tried at once, or twice as much each time where
that is more than a cut may have. So a table's rows depend neither on when its cuts were made nor on how long they are.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, field

from conf.errors import DuplicateKey, ExpectationFailed, NullKey, SilverfoldError
from connectors.base import Cut


@dataclass(frozen=True)
class _Stop:
    fault: SilverfoldError
    tried: int
    """Last position of the longest cut that failed for it. A longer one may not."""


@dataclass
class Stops:
    """The positions that cuts of one table may not reach."""

    _stops: dict[int, _Stop] = field(default_factory=dict)
    _half: int | None = None
    _longest: int = -1

    @property
    def fault(self) -> SilverfoldError | None:
        """What holds the table; None when nothing does."""
        return self._stops[min(self._stops)].fault if self._stops else None

    @property
    def longer(self) -> int:
        """How many frames a cut may have that is to pass what holds the table, whatever its limits; 0 for no more."""
        passing = [2 * (stop.tried - at + 1) for at, stop in self._stops.items() if stop.tried < sys.maxsize]
        return max(passing, default=0)

    def within(self, cut: Cut) -> int | None:
        """Return the last position in the cut that it may not reach; None when it may be applied as it is."""
        positions = [at for at, stop in self._stops.items() if cut.last <= stop.tried]
        if self._half is not None:
            positions.append(self._half)
        inside = (at for at in positions if any(first <= at <= last for first, last in cut.spans))
        return max(inside, default=None)

    def hold(self, position: int, cut: Cut, fault: SilverfoldError) -> None:
        """Stop before a position, for good or until more has landed, as the fault may be."""
        passing = isinstance(fault, DuplicateKey | NullKey | ExpectationFailed)
        self._stops[position] = _Stop(fault, max(cut.last, self._longest) if passing else sys.maxsize)
        self._half, self._longest = None, -1

    def halve(self, cut: Cut) -> int | None:
        """Note that a whole cut failed; return where the next shorter one stops, or None when none is worth trying."""
        known = [at for at in self._stops if cut.begins[0] <= at <= cut.last]
        if known or len(cut.begins) == 1:
            return None
        self._longest = max(self._longest, cut.last)
        self._half = cut.begins[len(cut.begins) // 2]
        return self._half

    def keep(self, positions: Collection[int]) -> None:
        """Forget the stops at all but some positions: the others are over by what people or other builds did."""
        self._stops = {at: stop for at, stop in self._stops.items() if at in positions}

    def passed(self, position: int) -> None:
        """Forget what the table has passed."""
        self._half, self._longest = None, -1
        self._stops = {at: stop for at, stop in self._stops.items() if at > position}
