"""The log of one shard: batches by LSN, in memory, with retention by age."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

FIRST_EPOCH: Final = 2
"""The first epoch of a new log; a real one is not known."""


class LogEntry(NamedTuple):
    """A batch as stored: a serialized `BatchedRecord` with its time of append."""

    lsn: int
    appended_ms: int
    stored: bytes
    size: int
    """Number of its records, as its producer gave it."""


class Gap(NamedTuple):
    """LSNs without batches, both ends inclusive."""

    first: int
    last: int


class ShardLog:
    """The batches of a shard, in the order of their LSNs.

    Args:
        retention: Seconds after which batches vanish; 0 for never.
        clock: Returns the seconds since 1970.
    """

    def __init__(
        self,
        shard_id: int,
        stream: str,
        key_range: tuple[int, int],
        *,
        retention: int,
        clock: Callable[[], float],
    ) -> None:
        self.shard_id, self.stream, self.key_range = shard_id, stream, key_range
        self.epoch = FIRST_EPOCH
        self._next = (FIRST_EPOCH << 32) + 1
        self._retention, self._clock = retention, clock
        self._entries: dict[int, LogEntry] = {}
        self._lsns: list[int] = []
        self.bytes = 0
        """Bytes of its batches."""
        self._lost: list[int] = []
        self._unreadable = set[int]()

    @property
    def tail(self) -> int:
        """LSN of the last batch, even if it vanished; of an empty log, the one before its first."""
        return self._next - 1

    def append(self, stored: bytes, size: int, appended_ms: int) -> int:
        """Store a batch; return its LSN."""
        entry = LogEntry(self._next, appended_ms, stored, size)
        self._entries[entry.lsn] = entry
        self._lsns.append(entry.lsn)
        self.bytes += len(stored)
        self._next += 1
        self._expire()
        return entry.lsn

    def read(self, lsn: int) -> LogEntry | Gap | None:
        """Return the batch at an LSN, or the gap that begins there; None if there is nothing yet."""
        self._expire()
        if lsn in self._entries:
            return self._entries[lsn]
        at = bisect_left(self._lsns, lsn)
        last = self._lsns[at] - 1 if at < len(self._lsns) else self.tail
        return Gap(lsn, last) if lsn <= last else None

    def loss_at(self, lsn: int) -> int | None:
        """Return the last LSN of the gap that begins at an LSN, if a batch of it was lost."""
        gap = self.read(lsn)
        if isinstance(gap, Gap) and any(gap.first <= each <= gap.last for each in self._lost):
            return gap.last
        return None

    def read_again(self, lsn: int) -> LogEntry | None:
        """Return a batch that was read before; None if it vanished, or cannot be read again."""
        self._expire()
        return None if lsn in self._unreadable else self._entries.get(lsn)

    def at_time(self, time_ms: int) -> int:
        """Return the LSN of the first batch appended at a time or later; else the one after the tail."""
        at = bisect_left(self._lsns, time_ms, key=lambda lsn: self._entries[lsn].appended_ms)
        return self._lsns[at] if at < len(self._lsns) else self._next

    def trim(self, last: int) -> None:
        """Drop all batches up to an LSN."""
        dropped = bisect_left(self._lsns, last + 1)
        for lsn in self._lsns[:dropped]:
            self._remove(lsn)
        del self._lsns[:dropped]
        self._lost = [each for each in self._lost if each > last]

    def drop_oldest(self) -> None:
        """Drop the oldest batch."""
        self.trim(self._lsns[0])

    def begin_epoch(self) -> None:
        """Skip the rest of the epoch's LSNs, as after a change of the sequencer."""
        self.epoch += 1
        self._next = (self.epoch << 32) + 1

    def lose(self, lsn: int) -> None:
        """Lose a batch: readers see a gap. Harmless if there is none."""
        if lsn in self._entries:
            self._remove(lsn)
            self._lsns.remove(lsn)
            self._lost.append(lsn)

    def make_unreadable(self, lsn: int) -> None:
        """Let a batch be delivered once, and never read again."""
        self._unreadable.add(lsn)

    def _expire(self) -> None:
        if self._retention:
            self.trim(self.at_time(int((self._clock() - self._retention) * 1000)) - 1)

    def _remove(self, lsn: int) -> None:
        self.bytes -= len(self._entries.pop(lsn).stored)
        self._unreadable.discard(lsn)
