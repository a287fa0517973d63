"""What one node delivered of a subscription: its shards' windows, the unacknowledged records, the check list.

Nothing here waits or sends: a reading context asks whether it may read, and which records are due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from silverfold.connectors.hstreamdb.protocol.records import RecordId
from silverfold.connectors.hstreamdb.server.reading.ack_window import AckWindow, Point
from silverfold.connectors.hstreamdb.server.reading.redelivery import CheckList, DueRecords


class UnknownShard(Exception):
    """An acknowledgement names a shard that the subscription does not have; the call ends with an unforeseen error."""


class DeliveryState:
    """State of batches read, sent and acknowledged.

    Args:
        bounds: The first batch that is not acknowledged, of each shard.
        max_unacked: No more is read while so many records are not acknowledged.
        timeout: Seconds after which a record is sent again.
    """

    def __init__(self, bounds: Mapping[int, int], *, max_unacked: int, timeout: float) -> None:
        self.windows = {shard: AckWindow(bound) for shard, bound in bounds.items()}
        self.unacked = 0
        """Records of first deliveries, less those acknowledged."""
        self._max_unacked = max_unacked
        self._check_list = CheckList(timeout)
        self._now = 0.0

    @property
    def may_read(self) -> bool:
        """Whether the limit allows a round of reading. A round may exceed it."""
        return self.unacked < self._max_unacked

    def sent(self, shard: int, batch: int, size: int) -> None:
        """Note the first delivery of a batch."""
        self.unacked += size
        self.sent_again(shard, batch, range(size))

    def sent_again(self, shard: int, batch: int, indexes: Iterable[int]) -> None:
        """Note records whose next deadline counts from the last tick."""
        self._check_list.register(self._now, shard, batch, indexes)

    def acknowledge(self, ids: Iterable[RecordId]) -> dict[int, int]:
        """Acknowledge the records of one request.

        Returns:
            The checkpoints to store, by shard.

        Raises:
            UnknownShard: An id names another shard. Ids of shards before it are acknowledged.
        """
        checkpoints = {}
        for shard, points in _by_shard(ids).items():
            if shard not in self.windows:
                raise UnknownShard(shard)
            accepted, checkpoint = self.windows[shard].acknowledge(points)
            self.unacked -= accepted
            for batch, indexes in _by_batch(points).items():
                self._check_list.acknowledge(shard, batch, indexes)
            if checkpoint is not None:
                checkpoints[shard] = checkpoint
        return checkpoints

    def tick(self, now: float) -> list[DueRecords]:
        """Set the time; return the records to send again, without those acknowledged meanwhile."""
        self._now = now
        due = self._check_list.take_due(now)
        for each in due:
            each.indexes = set(self.windows[each.shard].unacknowledged(each.batch, each.indexes))
        return [each for each in due if each.indexes]


def _by_shard(ids: Iterable[RecordId]) -> Mapping[int, list[Point]]:
    found = defaultdict[int, list[Point]](list)
    for shard, batch, index in ids:
        found[shard].append(Point(batch, index))
    return found


def _by_batch(points: Iterable[Point]) -> Mapping[int, list[int]]:
    found = defaultdict[int, list[int]](list)
    for batch, index in points:
        found[batch].append(index)
    return found
