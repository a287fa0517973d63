"""The acknowledged records of one shard, and the checkpoint that follows from them.

A point is a batch and an index, ordered in this way. Acknowledged points are disjoint closed ranges. The checkpoint is
the last whole batch of the lowest range, once that range begins at the lower bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import takewhile
from typing import Final, NamedTuple

_LAST_INDEX: Final = (1 << 32) - 1
"""The index before 0: a gap ends with it."""


class Point(NamedTuple):
    """A record's place in its shard."""

    batch: int
    batch_index: int


class AckWindow:
    """The acknowledgements of one shard, from its lower bound on.

    Args:
        start: The first batch to read.
    """

    def __init__(self, start: int) -> None:
        self.lower_bound = Point(start, 0)
        """All records before it are acknowledged, and stored as the checkpoint."""
        self._sizes: dict[int, int] = {}
        """Records of each batch that was read; 0 at the ends of a gap."""
        self._starts: list[Point] = []
        self._ends: list[Point] = []

    @property
    def ranges(self) -> list[tuple[Point, Point]]:
        """The acknowledged ranges above the lower bound, both ends inclusive."""
        return list(zip(self._starts, self._ends, strict=True))

    def read(self, batch: int, size: int) -> None:
        """Note that a batch was read."""
        self._sizes[batch] = size

    def gap(self, first: int, last: int) -> None:
        """Count a hole in the log as acknowledged. It is not joined to its neighbours yet."""
        at = bisect_right(self._starts, Point(first, 0))
        self._starts.insert(at, Point(first, 0))
        self._ends.insert(at, Point(last, _LAST_INDEX))
        self._sizes.setdefault(first, 0)
        self._sizes.setdefault(last, 0)

    def acknowledge(self, points: Iterable[Point]) -> tuple[int, int | None]:
        """Acknowledge records, and move the lower bound at most once.

        Returns:
            The number of records that were accepted, and the checkpoint to store; None if there is none.
        """
        accepted = sum(map(self._accept, points))
        return accepted, self._commit()

    def unacknowledged(self, batch: int, indexes: Iterable[int]) -> list[int]:
        """Return those of the indexes that are still to be acknowledged, ascending."""
        return [each for each in sorted(indexes) if not self._is_acknowledged(Point(batch, each))]

    def _accept(self, point: Point) -> bool:
        if point.batch_index >= self._sizes.get(point.batch, 0) or point < self.lower_bound:
            return False
        at = bisect_right(self._starts, point)
        if at and self._ends[at - 1] >= point:
            return False
        after_left = bool(at) and self._follows(self._ends[at - 1], point)
        before_right = at < len(self._starts) and self._follows(point, self._starts[at])
        if after_left and before_right:
            del self._starts[at], self._ends[at - 1]
        elif after_left:
            self._ends[at - 1] = point
        elif before_right:
            self._starts[at] = point
        else:
            self._starts.insert(at, point)
            self._ends.insert(at, point)
        return True

    def _is_acknowledged(self, point: Point) -> bool:
        at = bisect_right(self._starts, point)
        return point < self.lower_bound or (bool(at) and self._ends[at - 1] >= point)

    def _commit(self) -> int | None:
        if not self._starts or self._starts[0] != self.lower_bound:
            return None
        end = self._ends[0]
        checkpoint = self._last_whole(end)
        if checkpoint is None:
            return None
        del self._starts[0], self._ends[0]
        self.lower_bound = self._next(checkpoint)
        if checkpoint.batch != end.batch:
            self._starts.insert(0, self.lower_bound)
            self._ends.insert(0, end)
        for batch in list(takewhile(lambda batch: batch <= checkpoint.batch, self._sizes)):  # in the order of reading
            del self._sizes[batch]
        return checkpoint.batch

    def _last_whole(self, end: Point) -> Point | None:
        """Return the end of the last whole batch of a range; None if it has none, or is not known to have one."""
        if end.batch not in self._sizes:
            return None
        if end.batch_index == (self._sizes[end.batch] - 1) & _LAST_INDEX:
            return end
        before = end.batch - 1
        return Point(before, (self._sizes[before] - 1) & _LAST_INDEX) if before in self._sizes else None

    def _is_last(self, point: Point) -> bool:
        size = self._sizes.get(point.batch)
        return size is not None and (size == 0 or point.batch_index == size - 1)

    def _next(self, point: Point) -> Point:
        return Point(point.batch + 1, 0) if self._is_last(point) else Point(point.batch, point.batch_index + 1)

    def _follows(self, point: Point, later: Point) -> bool:
        return later == self._next(point)
