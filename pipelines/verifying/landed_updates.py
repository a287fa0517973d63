"""Find the complete updates of a stream in bronze, and read their frames in order of effect."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import DoubledPositions, PositionGap
from silverfold.connectors.frames import Boundary, Kind
from silverfold.pipelines.landing.bronze import read_small_columns, read_stream
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.landing.ranges import Range, is_inside
from silverfold.pipelines.places import Place

Body: TypeAlias = tuple[int, bytes]
"""Position and body of a frame."""


class LandedUpdate(NamedTuple):
    """A complete update of a stream in bronze."""

    begin: int
    end: int
    epoch: int
    snapshot: bool
    asked: bool
    """A snapshot that begins with a mark: it was requested at that point."""


def whole_updates(batches: Iterable[pa.RecordBatch], stream: str) -> Iterator[LandedUpdate]:
    """Yield a stream's complete updates from bronze's small columns, ordered by their ends."""
    opened: tuple[int, int, bool, bool] | None = None  # position, epoch, snapshot, asked
    for position, epoch, kind, boundary in _events(batches, stream):
        is_data = kind == Kind.DATA
        if boundary == Boundary.BEGIN:
            opened = (position, epoch, not is_data, kind == Kind.MARK)
        elif boundary == Boundary.END:
            if opened is not None and opened[1] == epoch:
                yield LandedUpdate(opened[0], position, *opened[1:])
            opened = None
        else:
            if not (is_data and opened is not None and opened[1:3] == (epoch, True)):
                opened = None
            yield LandedUpdate(position, position, epoch, not is_data, kind == Kind.MARK)


def last_state(updates: Sequence[LandedUpdate], *, resync: bool) -> list[LandedUpdate]:
    """Return the last complete snapshot and the updates that overlay it, in order of effect; none without a snapshot.

    Args:
        resync: Each epoch starts over; otherwise all epochs count as one.
    """
    snapshot = next((update for update in reversed(updates) if update.snapshot), None)
    if snapshot is None:
        return []
    epoch = [update for update in updates if update.epoch == snapshot.epoch or not resync]
    is_first = sum(update.snapshot for update in epoch) == 1 and not snapshot.asked
    overlay = [u for u in epoch if not u.snapshot and (is_first or u.begin > snapshot.begin)]
    return [snapshot, *sorted(overlay)]


@dataclass(frozen=True)
class LandedUpdates:
    """The complete updates of a stream, in landing order of their ends.

    Args:
        floor: Position from which bronze is retained.
        missing: First and last position of each range that bronze lacks.
        doubled: Positions that bronze has twice.
    """

    feed: str
    updates: Sequence[LandedUpdate]
    floor: int
    missing: Sequence[tuple[int, int]]
    doubled: Sequence[int] = ()

    def require(self, first: int) -> None:
        """Raise PositionGap or DoubledPositions if bronze lacks or repeats a position at or after ``first``."""
        for begin, end in self.missing:
            if end >= first:
                raise PositionGap(feed=self.feed, first=begin, last=end)
        twice = [position for position in self.doubled if position >= first]
        if twice:
            raise DoubledPositions(feed=self.feed, first=twice[0], last=twice[-1])


def landed_updates(bronze: Place, feed: str, stream: str, through: int, *, lost: Sequence[Range] = ()) -> LandedUpdates:
    """Return the complete updates up to and including a position. Raises StoreUnavailable.

    Args:
        lost: Ranges of positions that do not count as missing.
    """
    floor = retained_from(bronze, feed)
    seen = _PositionCheck(floor)
    batches = seen.check(_through(read_small_columns(bronze, after=floor - 1), through))
    updates = list(whole_updates(batches, stream))
    dropped = [(0, floor - 1)] if floor else []
    missing = [hole for hole in (*seen.holes, *seen.end(through)) if not is_inside(hole, lost)]
    return LandedUpdates(feed, updates, floor, [*dropped, *missing], seen.doubled)


class _PositionCheck:
    """Records missing and repeated positions as batches pass."""

    def __init__(self, first: int) -> None:
        self._next = first
        self.holes: list[tuple[int, int]] = []
        self.doubled: list[int] = []

    def check(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for position in batch["frame_seq"].to_pylist():
                if position > self._next:
                    self.holes.append((self._next, position - 1))
                elif position < self._next:
                    self.doubled.append(position)
                self._next = position + 1
            yield batch

    def end(self, last: int) -> list[tuple[int, int]]:
        return [(self._next, last)] if self._next <= last else []


def _through(batches: Iterable[pa.RecordBatch], last: int) -> Iterator[pa.RecordBatch]:
    return (batch.filter(pc.less_equal(batch["frame_seq"], last)) for batch in batches)


def _events(batches: Iterable[pa.RecordBatch], stream: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield position, epoch, kind and boundary of the frames that begin or end an update."""
    boundaries = pa.array([boundary.value for boundary in _UPDATE_BOUNDARIES], pa.string())
    for batch in batches:
        is_boundary = pc.is_in(batch["boundary"].cast(pa.string()), boundaries)
        mine = batch.filter(pc.and_(pc.equal(batch["stream"].cast(pa.string()), stream), is_boundary))
        names = ("frame_seq", "epoch", "kind", "boundary")
        yield from zip(*(mine[name].to_pylist() for name in names), strict=True)


_UPDATE_BOUNDARIES = (Boundary.BEGIN, Boundary.END, Boundary.WHOLE)


def in_order_of_effect(
    bronze: Place, stream: str, order: Sequence[LandedUpdate]
) -> Iterator[tuple[LandedUpdate, Iterable[Body]]]:
    """Yield updates in order of effect, each with its frames, which must be read before the next update.

    Frames that landed before their turn are buffered in memory; all others are read on demand. An update that lies
    inside another one is a single frame.
    """
    if not order:
        return
    first, last = min(update.begin for update in order), max(update.end for update in order)
    frames = _Frames(_frames(read_stream(bronze, stream, first=first, last=last)), order)
    for update in order:
        mine = frames.of(update)
        yield update, mine
        deque(mine, maxlen=0)  # skip the frames that were not read


class _Frames:
    """Returns frames, read in landing order, update by update."""

    def __init__(self, frames: Iterator[Body], updates: Iterable[LandedUpdate]) -> None:
        self._frames = frames
        self._begins = {update.begin: update for update in updates}
        self._early: dict[LandedUpdate, list[Body]] = {}

    def of(self, update: LandedUpdate) -> Iterator[Body]:
        """Yield an update's frames."""
        if update in self._early:
            yield from self._early.pop(update)
            return
        longer: LandedUpdate | None = None
        for position, body in self._frames:
            begun = self._begins.get(position)
            if begun is not None and begun.begin < begun.end:
                longer = begun
            owner = begun or longer
            if owner is update:
                yield position, body
            elif owner is not None:
                self._early.setdefault(owner, []).append((position, body))
            if longer is not None and position == longer.end:
                longer = None
            if position == update.end:
                return


def _frames(batches: Iterable[pa.RecordBatch]) -> Iterator[Body]:
    """Yield position and body of the frames that belong to updates; the body of a mark at either end is empty."""
    for batch in batches:
        names = ("frame_seq", "kind", "boundary", "body")
        for position, kind, boundary, body in zip(*(batch[name].to_pylist() for name in names), strict=True):
            if boundary != Boundary.NONE:
                yield position, body if kind in (Kind.DATA, Kind.SNAPSHOT) else b""
