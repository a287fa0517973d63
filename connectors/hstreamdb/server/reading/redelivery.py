"""Records that are sent again: when they are due, and the rest of a batch as a batch of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from silverfold.conf.errors import WireError
from silverfold.connectors.hstreamdb.protocol.compression import compress, decompress
from silverfold.connectors.hstreamdb.protocol.frames import MAX_PLAIN_BYTES
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, BatchHStreamRecords


@dataclass(slots=True)
class DueRecords:
    """Records of one batch that are sent again at a time, unless they are acknowledged before."""

    deadline: float
    shard: int
    batch: int
    indexes: set[int]


class CheckList:
    """Records that were sent and are not acknowledged, by the time at which they are due.

    Args:
        timeout: Seconds from sending to the deadline.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._entries: dict[tuple[int, int], DueRecords] = {}
        """By shard and batch, in the order of their deadlines: all have the same timeout."""

    def register(self, now: float, shard: int, batch: int, indexes: Iterable[int]) -> None:
        """Note records as sent.

        Args:
            now: Never earlier than in calls before.
        """
        self._entries.pop((shard, batch), None)
        self._entries[shard, batch] = DueRecords(now + self._timeout, shard, batch, set(indexes))

    def acknowledge(self, shard: int, batch: int, indexes: Iterable[int]) -> None:
        """Forget records."""
        if entry := self._entries.get((shard, batch)):
            entry.indexes.difference_update(indexes)
            if not entry.indexes:
                del self._entries[shard, batch]

    def take_due(self, now: float) -> list[DueRecords]:
        """Remove and return the records that are due."""
        due = []
        for entry in self._entries.values():
            if entry.deadline > now:
                break
            due.append(entry)
        for entry in due:
            del self._entries[entry.shard, entry.batch]
        return due


def pick_records(stored: BatchedRecord, indexes: Sequence[int]) -> BatchedRecord | None:
    """Return some records of a batch, compressed anew with its type; None if the batch does not hold them.

    Args:
        indexes: Places in the batch, ascending.
    """
    kind = stored.compression_type
    try:
        expanded = decompress(stored.payload, kind, limit=MAX_PLAIN_BYTES)
        records = BatchHStreamRecords.FromString(expanded).records
    except (WireError, DecodeError):
        return None
    if indexes[-1] >= len(records):
        return None
    payload = BatchHStreamRecords(records=[records[each] for each in indexes]).SerializeToString()
    picked = BatchedRecord(compression_type=kind, batch_size=len(indexes), payload=compress(payload, kind))
    picked.publish_time.CopyFrom(stored.publish_time)
    return picked
