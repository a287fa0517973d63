"""Restores the order of a table's changes. It takes packets as they arrive, and returns what to do with each.

An update may be partial, so change 8 must not land before change 7, even if 7 arrives later. Times are arguments.

=======================================  =================================================================
a change at the next position            lands, and then every held one that follows it
at or before the position                `Duplicate`
later                                    held; after a while `Gap` and `Ask`; beyond the bound `GivenUp`
no position yet, or a greater epoch      held until a snapshot is complete, which sets the position; asked for with
                                         growing waits. `NewerEpoch` warns of a greater epoch
any, while a snapshot is under way       held: if it landed, the snapshot's older state would replace it
any, once one was given up half-way      held until another snapshot is complete
=======================================  =================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.tengi.protocol.feed.packets import Position
from silverfold.connectors.tengi.protocol.values import Identifier

MAX_HELD: Final = 10_000
"""Default for the most changes of a table that are held."""
MAX_HELD_BYTES: Final = 8 << 20
"""Default for the most bytes of the held changes."""
SAME_GAPS: Final = 3
"""The connection ends when the same gap is found so many times in a row. The next one begins at what landed."""
_ASKS_FROM_POSITION: Final = 2
"""A snapshot of a greater epoch is asked for from the position so many times, and then from the beginning."""
_MOST_DOUBLINGS: Final = 5
"""The wait for what does not come doubles with each time that it is asked for, up to so often."""
_REMEMBERED: Final = 16
"""Number of ended snapshots that are remembered: their late parts are duplicates."""

T = TypeVar("T")
Boundary: TypeAlias = Literal["whole", "begin", "inside", "end"]


class Land(NamedTuple, Generic[T]):
    """Land a packet. It has a position if it is a change, or the part that completes a snapshot."""

    item: T
    boundary: Boundary
    position: Position | None


class Duplicate(NamedTuple, Generic[T]):
    """Only count a packet: it landed before, or a snapshot supersedes it."""

    item: T


class GivenUp(NamedTuple, Generic[T]):
    """Land a mark in place of a packet: there is no room to hold it. The source sends it again."""

    item: T


class Gap(NamedTuple):
    """Land a mark that names the missing positions, both ends inclusive."""

    epoch: str
    first: int
    last: int


class NewerEpoch(NamedTuple):
    """Land a mark: changes of a greater epoch wait for a snapshot of it, which has not come."""

    epoch: str
    landed: str


class Ask(NamedTuple):
    """Subscribe again from the position, or from the beginning if there is none."""

    position: Position | None


Action: TypeAlias = Land[T] | Duplicate[T] | GivenUp[T] | Gap | NewerEpoch | Ask


@dataclass
class _SnapshotParts:
    """A snapshot under way."""

    position: Position
    id: Identifier
    parts: set[int] = field(default_factory=set)
    highest: int = -1
    last: int | None = None


class TableOrder(Generic[T]):
    """The order of one table on one connection.

    Args:
        position: The last position that landed; None for none. Every action that lands updates it.
        wait: Seconds after which a missing change is asked for again.
        max_held: Most changes to hold.
        max_bytes: Most bytes of the held changes.
    """

    def __init__(
        self,
        table: str,
        position: Position | None = None,
        *,
        wait: float = 5.0,
        max_held: int = MAX_HELD,
        max_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self.position = position
        self.deadline: float | None = None
        """When to call `elapsed`; None for never."""
        self.held_bytes = 0
        self._table, self._wait, self._max_held, self._max_bytes = table, wait, max_held, max_bytes
        self._held: dict[Position, tuple[T, int]] = {}
        self._snapshot: _SnapshotParts | None = None
        self._over: list[Identifier] = []
        self._missed = False
        self._gaps = self._snapshot_asks = 0
        self._abandoned_at: Position | None = None
        """The position that `abandon_snapshot` took. One older snapshot is a duplicate: it may come late, and be none
        that was asked for. A second one is taken, for the source may have none that is newer."""

    @property
    def held(self) -> int:
        """Number of changes held."""
        return len(self._held)

    @property
    def has_snapshot(self) -> bool:
        """Whether a snapshot is under way."""
        return self._snapshot is not None

    def change(self, position: Position, item: T, size: int, now: float) -> list[Action[T]]:
        """Take a change or an update, of ``size`` bytes.

        Raises:
            RemoteProtocolError: ``gap``: the same change is missing for the third time.
        """
        if (self.position is not None and position <= self.position) or position in self._held:
            return [Duplicate(item)]
        if self.position is not None and position == _next(self.position) and self._snapshot is None:
            self.position, self._gaps = position, 0
            is_alone = not self._held and not self._missed and self.deadline is None  # nearly always
            return [Land(item, "whole", position), *(() if is_alone else self._follow(now))]
        if len(self._held) < self._max_held and self.held_bytes + size <= self._max_bytes:
            self._held[position] = item, size
            self.held_bytes += size
            self._start_timer(now)
            return []
        asks = not self._missed and self._snapshot is None
        self._missed = True
        return [GivenUp(item), *(self._ask(now, position) if asks else ())]

    def snapshot_part(
        self, position: Position, id: Identifier, item: T, now: float, *, part: int, is_last: bool
    ) -> list[Action[T]]:
        """Take a part of a snapshot. It is a duplicate if its snapshot is older than the newest, or than the position.

        Raises:
            RemoteProtocolError: ``snapshot_part``: a part follows the last one.
        """
        snapshot = self._snapshot
        if snapshot is None or snapshot.id != id:
            newest = max((each for each in (self.position, snapshot and snapshot.position) if each), default=None)
            if id in self._over or (newest is not None and position < newest):
                return [Duplicate(item)]
            if self._abandoned_at is not None and position < self._abandoned_at:
                self._abandoned_at = None
                self._end_of(id)
                return [Duplicate(item)]
            self._end_snapshot()
            snapshot = self._snapshot = _SnapshotParts(position, id)
            self.deadline = None
        if part in snapshot.parts:
            return [Duplicate(item)]
        is_first = not snapshot.parts
        snapshot.parts.add(part)
        snapshot.highest = max(snapshot.highest, part)
        snapshot.last = part if is_last else snapshot.last
        if snapshot.last is not None and snapshot.highest > snapshot.last:
            detail = f"a snapshot has a part behind its last, {snapshot.last}"
            raise RemoteProtocolError(detail, stream=self._table, reason="snapshot_part")
        if snapshot.last is None or len(snapshot.parts) <= snapshot.last:
            return [Land(item, "begin" if is_first else "inside", None)]
        boundary: Boundary = "whole" if is_first else "end"
        return [Land(item, boundary, snapshot.position), *self._complete(snapshot.position, now)]

    def abandon_snapshot(self, now: float) -> None:
        """Forget a snapshot under way, because of a new subscription, and the position with it: ask for another one.

        Some of its parts have landed: changes that landed now would belong to an update that never ends. They are held
        until another snapshot is complete. Late parts are duplicates.
        """
        if self._snapshot is not None:
            self._end_snapshot()
            self._abandoned_at = self.position or self._abandoned_at
            self.position = None
            self._restart_timer(now)

    def _end_snapshot(self) -> None:
        if self._snapshot is not None:
            self._end_of(self._snapshot.id)
            self._snapshot = None

    def _end_of(self, id: Identifier) -> None:
        self._over = [*self._over, id][-_REMEMBERED:]

    def elapsed(self, now: float) -> list[Action[T]]:
        """Return the actions due at a time. Safe to call at any time. Raises RemoteProtocolError as `change`."""
        if self.deadline is None or now < self.deadline:
            return []
        return self._ask(now, min(self._held, default=None))

    def postpone(self, seconds: float) -> None:
        """Wait so many seconds longer for a missing change."""
        if self.deadline is not None:
            self.deadline += seconds

    def _complete(self, position: Position, now: float) -> list[Action[T]]:
        self._end_snapshot()
        self.position, self._gaps, self._snapshot_asks = position, 0, 0
        superseded = [each for each in self._held if each <= position]
        actions: list[Action[T]] = [Duplicate(self._pop(each)) for each in superseded]
        missed = self._missed
        actions += self._follow(now)
        return [*actions, Ask(self.position)] if missed else actions

    def _follow(self, now: float) -> list[Action[T]]:
        """Land the held changes that follow, and start the wait for the next missing one anew."""
        actions: list[Action[T]] = []
        while self.position is not None and (position := _next(self.position)) in self._held:
            actions.append(Land(self._pop(position), "whole", position))
            self.position = position
        self._restart_timer(now)
        return actions

    def _restart_timer(self, now: float) -> None:
        self.deadline, self._missed = None, False
        if self._held:
            self._start_timer(now)

    def _pop(self, position: Position) -> T:
        item, size = self._held.pop(position)
        self.held_bytes -= size
        return item

    def _start_timer(self, now: float) -> None:
        if self.deadline is None and self._snapshot is None:
            self.deadline = now + self._patience

    @property
    def _patience(self) -> float:
        return doubled(self._wait, self._snapshot_asks)

    def _ask(self, now: float, found: Position | None) -> list[Action[T]]:
        """Ask for the changes missing before a change. In another epoch, their positions are unknown."""
        if found is not None and (self.position is None or found.epoch != self.position.epoch):
            return self._ask_for_snapshot(now, found.epoch)
        self.deadline = now + self._patience
        if self.position is None or found is None:
            return [Ask(self.position)]
        first = self.position.seq + 1
        last = min(each for each in (found, *self._held) if each.epoch == found.epoch).seq - 1
        self._gaps += 1
        if self._gaps >= SAME_GAPS:
            detail = f"changes {first} to {last} of {self.position.epoch} did not come, however often asked for"
            raise RemoteProtocolError(detail, stream=self._table, reason="gap")
        return [Gap(self.position.epoch, first, last), Ask(self.position)]

    def _ask_for_snapshot(self, now: float, epoch: str) -> list[Action[T]]:
        """Ask for a snapshot of an epoch. If none comes, ask from the beginning: the source may send none unasked.

        The held changes are dropped then: the source may not be in their epoch. If it is, its snapshot has them.
        """
        self._snapshot_asks += 1
        self.deadline = now + self._patience
        if self.position is None:
            return [Ask(None)]
        if self._snapshot_asks <= _ASKS_FROM_POSITION:
            return [NewerEpoch(epoch, self.position.epoch), Ask(self.position)]
        self.position, self.held_bytes = None, 0
        self._held.clear()
        self._restart_timer(now)
        return [Ask(None)]


def doubled(wait: float, times: int) -> float:
    """Return the wait for what was asked for in vain so many times."""
    return wait * float(1 << min(times, _MOST_DOUBLINGS))


def _next(position: Position) -> Position:
    return Position(position.epoch, position.seq + 1)
