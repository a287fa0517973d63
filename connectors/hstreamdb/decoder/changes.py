"""Decoding of landed frames into change rows, in Arrow: what the feed's decoder runs in Spark.

A frame is decoded or is one row with ``error``; in a good frame, each record that cannot be read is one. Frames are
independent of one another, so they may come in any order and in any number of batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.change_rows import CHANGES_AT_ONCE, NAMES, TIME, ChangeRows, error_rows, key_type
from silverfold.connectors.hstreamdb.decoder.floors import Floors, position_text
from silverfold.connectors.hstreamdb.decoder.landed_records import LandedRecords, first_ids, landed_records, received
from silverfold.connectors.hstreamdb.decoder.layouts import Change, RecordReader
from silverfold.connectors.hstreamdb.options import HStreamTable
from silverfold.connectors.hstreamdb.protocol.messages.batches import HStreamRecord
from silverfold.connectors.hstreamdb.protocol.records import HRecord, decode_record


class _Placed(NamedTuple):
    """A change and the place of its record."""

    position: int
    ordinal: int
    sequence: str
    change: Change


@dataclass(frozen=True)
class ChangeReader:
    """Decodes frames of one table's stream in one cut. Picklable.

    Args:
        floors: Records at or below them have landed before.
        limit: Most bytes of a batch, decompressed.
    """

    table: HStreamTable
    floors: Floors
    limit: int
    rows: ChangeRows = field(init=False)
    records: RecordReader = field(init=False)

    def __post_init__(self) -> None:
        records = RecordReader(self.table)
        row = pa.struct([(column.name, column.arrow) for column in records.columns])
        rows = ChangeRows(row, key_type(row, self.table.keys), frozenset({"old_key"}), ordered=True)
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "rows", rows)

    @property
    def type(self) -> pa.Schema:
        """Schema of the change rows."""
        return self.rows.type

    def read(self, positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of frames, and rows with ``error``, in no order."""
        errors: list[tuple[int, WireError]] = []
        for frames in self._in_parts(positions, bodies, errors):
            yield from self._changes(frames, errors)
        if errors:
            yield error_rows(self.type, [position for position, _ in errors], [error for _, error in errors])

    def _in_parts(
        self, positions: Sequence[int], bodies: Sequence[bytes], errors: list[tuple[int, WireError]]
    ) -> Iterator[list[LandedRecords]]:
        """Yield good frames, of about `CHANGES_AT_ONCE` records; without those that had landed before."""
        frames, count = list[LandedRecords](), 0
        for position, body in zip(positions, bodies, strict=True):
            try:
                found = received(body)
                shard_id, batch_id = first_ids(found)
                if batch_id <= self.floors.before(shard_id, position):
                    continue
                frame = landed_records(position, found, limit=self.limit)
            except WireError as error:
                errors.append((position, error))
                continue
            frames.append(frame)
            count += len(frame.records)
            if count >= CHANGES_AT_ONCE:
                yield frames
                frames, count = [], 0
        if frames:
            yield frames

    def _changes(
        self, frames: Sequence[LandedRecords], errors: list[tuple[int, WireError]]
    ) -> Iterator[pa.RecordBatch]:
        placed: list[_Placed] = []
        for frame in frames:
            for ordinal, (index, record) in enumerate(zip(frame.indexes.tolist(), frame.records, strict=True)):
                try:
                    changes = self.records.changes(read_json(record))
                except WireError as error:
                    errors.append((frame.position, error))
                    continue
                sequence = position_text(frame.shard_id, frame.batch_id, index)
                placed += [_Placed(frame.position, ordinal, sequence, change) for change in changes]
        if placed:
            yield self._batch(placed)

    def _batch(self, placed: Sequence[_Placed]) -> pa.RecordBatch:
        changes = [each.change for each in placed]
        cells = [
            pa.array([change.cells.get(column.name) for change in changes], column.arrow)
            for column in self.records.columns
        ]
        present = [
            None if change.op == "delete" or self.records.is_whole(change.cells) else list(change.cells)
            for change in changes
        ]
        return self.rows.batch(
            pa.array([each.position for each in placed], pa.int64()),
            pa.array([change.op for change in changes], pa.string()),
            cells,
            ordinals=pa.array([each.ordinal for each in placed], pa.int32()),
            present=pa.array(present, NAMES),
            sequences=pa.array([each.sequence for each in placed], pa.string()),
            source_times=pa.array([change.source_time for change in changes], TIME),
        )


def read_json(record: HStreamRecord) -> Any:
    """Return the JSON in a record. Raises InvalidValue (chapter 11, step 7, and ``bad_json``)."""
    _, found = decode_record(record)
    if isinstance(found, HRecord):
        return found.fields
    try:
        return _read_text(found.payload)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InvalidValue("a raw record is no JSON text", reason="bad_json") from error


_read_text: Final = msgspec.json.Decoder(float_hook=Decimal).decode
"""Exact: integers of any size, and decimals."""
