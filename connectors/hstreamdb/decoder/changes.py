"""Decoding of landed frames into change rows, in Arrow: what the feed's decoder runs in Spark.

A frame is decoded or is one row with ``error``; in a good frame, each record that cannot be read is one. Frames are
independent of one another, so they may come in any order and in any number of batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.change_rows import CHANGES_AT_ONCE, NAMES, TIME, ChangeRows, error_rows, key_type
from silverfold.connectors.hstreamdb.decoder.column_changes import RecordPositions, column_batch
from silverfold.connectors.hstreamdb.decoder.floors import Floors
from silverfold.connectors.hstreamdb.decoder.landed_records import (
    LandedRecords,
    first_ids,
    landed_records,
)
from silverfold.connectors.hstreamdb.decoder.layouts import Change, RecordReader
from silverfold.connectors.hstreamdb.decoder.struct_columns import StructColumns
from silverfold.connectors.hstreamdb.decoder.struct_members import Ints
from silverfold.connectors.hstreamdb.decoder.text_columns import TextColumns
from silverfold.connectors.hstreamdb.decoder.values import exact_decimal
from silverfold.connectors.hstreamdb.options import HStreamTable
from silverfold.connectors.hstreamdb.protocol.frames import parse_frame
from silverfold.connectors.hstreamdb.protocol.messages.batches import Flag, HStreamRecord
from silverfold.connectors.hstreamdb.protocol.records import HRecord, decode_record

_Error: TypeAlias = tuple[int, WireError]
"""Position of a frame, and its error."""


@dataclass(frozen=True)
class ChangeReader:
    """Decodes frames of one table's stream in one cut. Picklable.

    Args:
        floors: Records at or below them landed earlier, and are skipped.
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
        """Yield the change rows of frames, and rows with ``error``, in no order.

        Records are read by columns where possible, the rest one by one.
        """
        errors: list[_Error] = []
        structs, texts = StructColumns(self.records), TextColumns(self.records)
        for frames in self._in_parts(positions, bodies, errors):
            records, located = list(chain.from_iterable(frame.records for frame in frames)), RecordPositions(frames)
            rest = np.arange(len(records))
            if (found := structs.read(frames)) is not None:
                yield column_batch(self.rows, located, rest, found)
                rest = rest[~found.good]
            raw = np.array([at for at in rest.tolist() if records[at].header.flag == Flag.RAW], np.int64)
            if len(raw) and (found := texts.read([records[at].payload for at in raw.tolist()])) is not None:
                yield column_batch(self.rows, located, raw, found)
                rest = np.setdiff1d(rest, raw)
            yield from self._one_by_one(located, rest, records, errors)
        if errors:
            yield error_rows(self.type, [position for position, _ in errors], [error for _, error in errors])

    def _in_parts(
        self, positions: Sequence[int], bodies: Sequence[bytes], errors: list[_Error]
    ) -> Iterator[list[LandedRecords]]:
        """Yield readable frames, in parts of about `CHANGES_AT_ONCE` records. Those that landed earlier are skipped."""
        frames, count = list[LandedRecords](), 0
        for position, body in zip(positions, bodies, strict=True):
            try:
                found = parse_frame(body)
                shard_id, batch_id = first_ids(found)
                if 0 < batch_id <= self.floors.before(shard_id, position):
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

    def _one_by_one(
        self, located: RecordPositions, numbers: Ints, records: Sequence[HStreamRecord], errors: list[_Error]
    ) -> Iterator[pa.RecordBatch]:
        changes, read = list[Change](), list[int]()
        for number, position in zip(numbers.tolist(), located.positions(numbers).to_pylist(), strict=True):
            try:
                found = self.records.changes(read_json(records[number]))
            except WireError as error:
                errors.append((position, error))
                continue
            changes += found
            read += [number] * len(found)
        if changes:
            yield self._batch(located, np.array(read), changes)

    def _batch(self, located: RecordPositions, numbers: Ints, changes: Sequence[Change]) -> pa.RecordBatch:
        cells = [
            pa.array([change.cells.get(column.name) for change in changes], column.arrow)
            for column in self.records.columns
        ]
        present = [
            None if change.op == "delete" or self.records.is_whole(change.cells) else list(change.cells)
            for change in changes
        ]
        return self.rows.batch(
            located.positions(numbers),
            pa.array([change.op for change in changes], pa.string()),
            cells,
            ordinals=located.ordinals(numbers),
            present=pa.array(present, NAMES),
            sequences=located.sequences(numbers),
            source_times=pa.array([change.source_time for change in changes], TIME),
        )


def read_json(record: HStreamRecord) -> Any:
    """Return the JSON in a record. Raises InvalidValue, as `decode_record` and for ``bad_json``."""
    _, found = decode_record(record)
    if isinstance(found, HRecord):
        return found.fields
    try:
        return _read_text(found.payload)
    except RecursionError as error:
        raise InvalidValue("a raw record has too many objects and lists in one another", reason="bad_json") from error
    except ValueError as error:
        raise InvalidValue(f"a raw record cannot be read as JSON: {error}", reason="bad_json") from error


_read_text: Final = msgspec.json.Decoder(float_hook=exact_decimal).decode
"""Exact: integers of any size, and decimals."""
