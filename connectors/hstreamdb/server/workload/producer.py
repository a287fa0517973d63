"""Appends the changes of a table to a stream, row by row and batch by batch, as one producer would."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.protocol.frames import encode_batch, encode_entry
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, CompressionType
from silverfold.connectors.hstreamdb.protocol.records import HRecord, Json, RawRecord, Record
from silverfold.connectors.hstreamdb.protocol.streams import KeyRange, find_shard, key_hash
from silverfold.connectors.hstreamdb.server.workload.layouts import RecordLayout, RowChange, change_record
from silverfold.connectors.hstreamdb.server.workload.tables import ChangingTable

_RECORDS_OF_A_BATCH: Final = 100
_BYTES_OF_A_BATCH: Final = 1_000_000


class TableProducer:
    """Changes a table, and appends a record for each change to the shard of its row.

    Args:
        ranges: Shards of the stream, by their start.
        append: Stores a batch in a shard; called in the order of the changes of each row.
    """

    def __init__(
        self,
        table: ChangingTable,
        ranges: Sequence[KeyRange],
        append: Callable[[int, BatchedRecord], object],
        *,
        layout: RecordLayout,
        compression: CompressionType,
    ) -> None:
        self._table, self._ranges, self._append = table, list(ranges), append
        self._layout, self._compression = layout, compression

    def load(self) -> int:
        """Append the rows there are; return their number."""
        return self._produce(self._table.snapshot())

    def change(self) -> int:
        """Make one update of some changes; return their number."""
        return self._produce(self._table.change())

    def _produce(self, changes: Sequence[RowChange]) -> int:
        entries, now_ms = defaultdict[int, list[bytes]](list), int(time.time() * 1000)
        for change in changes:
            key = json.dumps(list(change.key([self._table.key]).values()))
            fields = change_record(change, [self._table.key], self._layout, now_ms)
            entries[find_shard(self._ranges, key_hash(key))].append(_entry(fields, key))
        for shard, encoded in entries.items():
            for batch in _batches(encoded):
                self._append(shard, encode_batch(batch, self._compression))
        return len(changes)


def _batches(entries: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield entries in batches of at most 100, which are no larger than a node takes uncompressed."""
    batch: list[bytes] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == _RECORDS_OF_A_BATCH or size + len(entry) > _BYTES_OF_A_BATCH):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry)
    if batch:
        yield batch


def _entry(fields: dict[str, Json], key: str) -> bytes:
    """Return a record of an object; as JSON text where an HRecord would change a number."""
    record: Record = HRecord(fields)
    try:
        return encode_entry(record, key)
    except InvalidValue:
        record = RawRecord(json.dumps(fields, ensure_ascii=False).encode())
        return encode_entry(record, key)
