"""Batches of numbered records, and the numbers in frames."""

from __future__ import annotations

from collections.abc import Iterable

from silverfold.connectors.hstreamdb.protocol.frames import decode_frame, encode_batch, encode_entry
from silverfold.connectors.hstreamdb.protocol.messages.batches import BatchedRecord, CompressionType
from silverfold.connectors.hstreamdb.protocol.records import HRecord, RecordId


def numbered(numbers: Iterable[int], compression: int = CompressionType.NONE, key: str = "") -> BatchedRecord:
    return encode_batch([encode_entry(HRecord({"n": number}), key) for number in numbers], compression)


def numbers_in(frame: bytes) -> dict[RecordId, int]:
    found = {}
    for each in decode_frame(frame).records:
        assert isinstance(each.record, HRecord)
        number = each.record.fields["n"]
        assert isinstance(number, int)
        found[each.id] = number
    return found
