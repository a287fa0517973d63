"""Decoding of one table's landed frames into change rows, in Arrow: what the feed's decoder runs in Spark.

A notification is decoded completely or not at all: it yields its changes, or one row with ``error``. So does a snapshot
frame. Frames are independent of one another, so they may come in any order and in any number of batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.change_rows import CHANGES_AT_ONCE, ChangeRows, error_rows, key_type
from silverfold.connectors.sqlitecloud.decoder.notification_decode import NotificationDecoder
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.frame_access import notification_text, selected_rows
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column, columns_of

SNAPSHOT: Final = "snapshot"
"""The kind of a frame, and the operation of a change row, that belong to a snapshot."""


@dataclass(frozen=True)
class ChangeReader:
    """Decodes the frames of one table's stream in one cut. Picklable.

    Args:
        described: The table, from the control frame of its last snapshot.
        snapshot_end: Position up to which notifications overlay the cut's snapshot; None without one.
    """

    described: Description
    table: SqliteCloudTable
    options: SqliteCloudOptions
    snapshot_end: int | None = None
    columns: tuple[Column, ...] = field(init=False)
    rows: ChangeRows = field(init=False)

    def __post_init__(self) -> None:
        columns = columns_of(self.described, self.table, self.options)
        row = pa.struct([(column.name, column.arrow) for column in columns])
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "rows", ChangeRows(row, key_type(row, self.described.keys)))

    @property
    def type(self) -> pa.Schema:
        """The schema of the change rows."""
        return self.rows.type

    def read(self, positions: Sequence[int], kinds: Sequence[str], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of frames, in any order; one with ``error`` for each frame that cannot be decoded."""
        snapshot_end = -1 if self.snapshot_end is None else self.snapshot_end
        notified = NotificationDecoder(self.rows, self.columns, self.described, self.options, snapshot_end)
        for position, kind, body in zip(positions, kinds, bodies, strict=True):
            try:
                if kind == SNAPSHOT:
                    yield from self._selected(position, body)
                else:
                    notified.take(position, notification_text(body))
            except WireError as error:
                yield error_rows(self.type, [position], [error])
            if notified.size >= CHANGES_AT_ONCE:
                yield from notified.batches()
        yield from notified.batches()

    def _selected(self, position: int, body: bytes) -> Iterator[pa.RecordBatch]:
        found = selected_rows(body, max_frame_bytes=self.options.max_frame_bytes)
        if not found.width:
            return
        names = self.described.names
        if found.width != len(names) or (found.names is not None and found.names != names):
            detail = f"columns {', '.join(found.names or ()) or found.width} are not those described"
            raise InvalidValue(detail, reason="other_columns")
        if not found.rows:
            return
        pairs = zip(self.columns, zip(*found.rows, strict=True), strict=True)
        typed = [column.array(cells, sent=False) for column, cells in pairs]
        for _, errors in typed:
            for error in errors.values():
                raise error
        count = len(found.rows)
        yield self.rows.batch(
            pa.array(np.full(count, position)),
            pa.repeat(SNAPSHOT, count),
            [array for array, _ in typed],
            ordinals=pa.array(np.arange(count, dtype=np.int32)),
        )
