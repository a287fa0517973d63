"""Where the cuts of one table must stop: what it could not take, found by shorter cuts and retried when that may help.

A bad frame is identified by its error. Any other error is of a cut as a unit, so shorter cuts are tried (`_Search`).
Some errors may be fixed by a later update, in whichever cut: two rows with one key, a row that fails a rule, a column
that a rule names. Once more has landed, everything is retried at once, or twice as much each time where that exceeds
the limits of a cut.

A table thus advances to the last update after which nothing is wrong, whenever its cuts were made and however long they
are. The exception is a search that takes more than `MOST_TRIES` in a row, or an error without ``since``, such as one of
Spark's: then the cut is bisected.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from silverfold.conf.errors import (
    DuplicateKey,
    ExpectationFailed,
    NullKey,
    SilverfoldError,
    Unexplained,
    UnusableExpectation,
)
from silverfold.connectors.base import Cut

MOST_TRIES = 32
"""Number of consecutive cuts shortened to an error's ``since`` before bisection starts."""


def pairs_parted(
    cut: Cut, places: Iterable[tuple[int, str, tuple[int, ...]]], earliest: Sequence[int] | None = None
) -> Sequence[int]:
    """Return, per update of a cut, how many pairs a shorter cut that ends with it would part.

    A pair is an update and one that comes later, but is older in the source's order: a partial change completes a newer
    one in one cut only.

    Args:
        places: Of the frames, by position: the position, a part of the source, and the frame's place there.
        earliest: Per update, the index of the first one that a cut may have together with it; by default the cut's.
    """
    parts: dict[str, tuple[list[int], list[tuple[int, ...]]]] = {}
    for position, part, place in places:
        updates, in_order = parts.setdefault(part, ([], []))
        updates.append(bisect_right(cut.begins, position) - 1)
        in_order.append(place)
    steps = [0] * (len(cut.begins) + 1)
    for updates, in_order in parts.values():
        since = [0 if earliest is None else bisect_left(updates, earliest[update]) for update in updates]
        for at, newer in enumerate(_first_newer(in_order, since)):
            if newer < at:
                steps[updates[newer]] += 1
                steps[updates[at]] -= 1
    return list(accumulate(steps[:-1]))


def _first_newer(places: Sequence[tuple[int, ...]], since: Sequence[int]) -> Sequence[int]:
    """Return, per place, the index of the first greater one from its index in ``since`` on; its own or more if none is.

    Nearly always that is the first greater one of all.
    """
    found, asked = list(range(len(places))), dict[int, list[int]]()
    greatest, ascending = list[int](), list[tuple[int, ...]]()
    for at, place in enumerate(places):
        if not ascending or place > ascending[-1]:
            ascending.append(place)
            greatest.append(at)
        elif (newer := bisect_right(ascending, place)) < len(ascending):
            found[at] = greatest[newer]
            if found[at] < since[at]:
                asked.setdefault(since[at], []).append(at)
    if asked:
        _find_from(asked, places, found)
    return found


def _find_from(asked: Mapping[int, Sequence[int]], places: Sequence[tuple[int, ...]], found: list[int]) -> None:
    """Find the first greater places from an index on, of those that are asked for by that index."""
    ranks = {place: -rank for rank, place in enumerate(sorted(set(places)))}
    indexes, negated = list[int](), list[int]()  # of the places from here on that none before them reaches, last first
    for index in reversed(range(len(places))):
        rank = ranks[places[index]]
        while negated and negated[-1] >= rank:
            negated.pop()
            indexes.pop()
        negated.append(rank)
        indexes.append(index)
        for at in asked.get(index, ()):
            greater = bisect_left(negated, ranks[places[at]])
            found[at] = indexes[greater - 1] if greater else at


def joined_updates(cut: Cut, places: Iterable[tuple[int, str, tuple[int, ...]]]) -> Cut:
    """Return a cut whose updates are joined where a shorter cut would part a pair (`pairs_parted`)."""
    *inner, _ = pairs_parted(cut, places)
    apart = [at for at, pairs in enumerate(inner, 1) if not pairs]
    begins = (cut.begins[0], *(cut.begins[at] for at in apart))
    return replace(cut, begins=begins, ends=(*(cut.ends[at - 1] for at in apart), cut.ends[-1]))


@dataclass(frozen=True)
class _Stop:
    fault: SilverfoldError
    tried: int
    """Last position of the longest cut that failed with it. A longer one may succeed."""


@dataclass
class _Search:
    """The search for the longest cut that can be applied, among those that begin at one update.

    An error with ``since`` rules out all cuts from there to the one that failed: the next cut ends before. Without
    ``since``, longer cuts are assumed to fail too, and the range between is bisected.

    Args:
        begins: First positions of the updates of the longest cut that failed.
        last: Its last position.
        low: Cuts of up to this many updates fail.
        high: Cuts of this many updates or more fail.
        top: Cuts fail from the size tried now up to this many updates.
    """

    begins: Sequence[int]
    last: int
    low: int
    high: int
    top: int = 0
    tries: int = 0

    def failed(self, count: int, since: int | None) -> int | None:
        """Record that a cut of ``count`` updates failed; return the size of the next one, None if none is left."""
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
        """The error that holds the table; None if none does."""
        return self._stops[min(self._stops)].fault if self._stops else None

    @property
    def frames_allowed(self) -> int:
        """Number of frames allowed, beyond any limits, in a cut to pass what holds the table; 0 for no extra."""
        return max((2 * (tried - at + 1) for at, tried in self._passing()), default=0)

    @property
    def tried(self) -> int:
        """Position after which such a cut must end, or it would fail like those before; -1 for none."""
        return max((tried for _, tried in self._passing()), default=-1)

    def _passing(self) -> list[tuple[int, int]]:
        """Return the stops that a longer cut may pass, each with the end of the longest cut that failed."""
        return [(at, stop.tried) for at, stop in self._stops.items() if stop.tried < sys.maxsize]

    def within(self, cut: Cut) -> int | None:
        """Return the last position in the cut that it may not reach; None if it may be applied as it is."""
        positions = [at for at, stop in self._stops.items() if cut.last <= stop.tried]
        if self._shorter is not None:
            positions.append(self._shorter)
        inside = (at for at in positions if any(first <= at <= last for first, last in cut.spans))
        return max(inside, default=None)

    def hold(self, position: int, cut: Cut, fault: SilverfoldError, *, in_source_order: bool = False) -> None:
        """Stop before a position: for good, or until more has landed, depending on the error.

        Args:
            in_source_order: The source has an order of its own: what explains a change may land after it.
        """
        passing = isinstance(fault, DuplicateKey | NullKey | ExpectationFailed | UnusableExpectation)
        passing |= in_source_order and isinstance(fault, Unexplained)
        longest = cut.last if self._search is None else self._search.last
        self._stops[position] = _Stop(fault, longest if passing else sys.maxsize)
        self._end_search()

    def shorten(self, cut: Cut, since: int | None) -> int | None:
        """Record that a cut failed as a unit; return where the next shorter one stops, or None if none is worth trying.

        Args:
            cut: Its updates are those that may be applied apart (`joined_updates`).
            since: `conf.errors.ApplyError.since`.
        """
        if self._search is None or self._search.begins[0] != cut.begins[0]:
            known = [stop.tried for at, stop in self._stops.items() if cut.begins[0] <= at <= cut.last]
            failed = sum(end <= max(known, default=-1) for end in cut.ends)
            self._search = _Search(cut.begins, cut.last, low=failed, high=len(cut.begins) + 1)
        count = self._search.failed(bisect_right(self._search.begins, cut.last), since)
        self._shorter = None if count is None else self._search.begins[count]
        return self._shorter

    def retain(self, positions: Collection[int]) -> None:
        """Drop the stops at all other positions: they were resolved by users or by other builds."""
        self._stops = {at: stop for at, stop in self._stops.items() if at in positions}

    def drop_passed(self, position: int) -> None:
        """Drop stops that the table has passed."""
        self._end_search()
        self._stops = {at: stop for at, stop in self._stops.items() if at > position}

    def _end_search(self) -> None:
        self._shorter, self._search = None, None
