"""The feed's Spark decoder: landed batches become change rows, in the source's own order, without folding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.row_decoder import UnfoldedDecoder, decode_frames
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.hstreamdb.decoder.changes import ChangeReader
from silverfold.connectors.hstreamdb.decoder.floors import read_floors
from silverfold.connectors.hstreamdb.options import HStreamFeed, HStreamTable

_LAST_INDEX: Final = (1 << 32) - 1


@dataclass(frozen=True)
class HStreamDecoder(UnfoldedDecoder[HStreamTable]):
    """The `connectors.base.Decoder` of one feed. Its context are the feed's control frames."""

    announces_columns: ClassVar[bool] = False
    feed: HStreamFeed

    def context(self, control: Iterable[ControlFrame]) -> Sequence[ControlFrame]:
        """Return the control frames, which have the committed floors: a cut reads those that it needs."""
        return tuple(control)

    def row_type(self, context: Sequence[ControlFrame], cut: Cut, table: HStreamTable) -> StructType:
        """Return the declared columns, whatever the records have."""
        return from_arrow_schema(pa.schema(list(self._reader(context, cut, table).rows.row)))

    def changes(self, frames: ArrowRows, context: Sequence[ControlFrame], cut: Cut, table: HStreamTable) -> ArrowRows:
        """Return a change for each record that had not landed before; two where a key changes."""
        return decode_frames(frames, self._reader(context, cut, table))

    def tombstone_horizon(self, context: Sequence[ControlFrame], cut: Cut, table: HStreamTable) -> str | None:
        """Return the condition on tombstones ``t`` that may go: those up to the floors that landed before the cut.

        Nothing new comes below them. None if no floor landed.
        """
        begin = cut.spans[0][0]
        floors = read_floors(context, begin)
        ends = [
            (_position(shard_id, 0, 0), _position(shard_id, batch_id, _LAST_INDEX))
            for shard_id in sorted(floors.by_shard)
            if (batch_id := floors.before(shard_id, begin))
        ]
        return " OR ".join(f"t._position BETWEEN '{first}' AND '{last}'" for first, last in ends) or None

    def _reader(self, context: Sequence[ControlFrame], cut: Cut, table: HStreamTable) -> ChangeReader:
        return ChangeReader(table, read_floors(context, cut.spans[0][0]), self.feed.options.max_batch_bytes)


def _position(shard_id: int, batch_id: int, index: int) -> str:
    """Return a record's id as ``_position`` has it: `column_changes.RecordPositions.sequences`."""
    return f"{shard_id:020d}-{batch_id:020d}-{index:010d}"
