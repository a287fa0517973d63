"""The feed's Spark decoder: landed packets become change rows, without folding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.connectors.base import ControlFrame, Cut
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.row_decoder import EachFrame, UnfoldedDecoder
from silverfold.connectors.tengi.decoder.changes import ChangeReader
from silverfold.connectors.tengi.decoder.schemas import Schemas, read_schemas
from silverfold.connectors.tengi.options import TengiFeed, TengiTable


@dataclass(frozen=True)
class TengiDecoder(UnfoldedDecoder[TengiTable]):
    """The `connectors.base.Decoder` of one feed."""

    feed: TengiFeed

    def context(self, control: Iterable[ControlFrame]) -> Schemas:
        """Return the schemas of the feed's tables, all versions."""
        return read_schemas(control)

    def row_type(self, context: Schemas, cut: Cut, table: TengiTable) -> StructType:
        """Return the table's columns by the newest schema before the cut's end. Raises SchemaDrift."""
        row = pa.schema(list(self._reader(context, cut, table).rows.row))
        return from_arrow_schema(row, prefer_timestamp_ntz=True)

    def changes(self, frames: ArrowRows, context: Schemas, cut: Cut, table: TengiTable) -> ArrowRows:
        """Return a change for each row of an update or a part of a snapshot."""
        reader = self._reader(context, cut, table)
        return frames.run(EachFrame(_Read(reader), reader.type), reader.type, "frame_seq", "body")

    def _reader(self, context: Schemas, cut: Cut, table: TengiTable) -> ChangeReader:
        return ChangeReader(context.of(cut, table), self.feed.options.max_packet)


@dataclass(frozen=True)
class _Read:
    reader: ChangeReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.reader.read(batch.column("frame_seq").to_pylist(), batch.column("body").to_pylist())
