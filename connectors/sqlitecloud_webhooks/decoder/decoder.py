"""The feed's Spark decoder: landed webhooks become change rows, without folding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from conf.model import Table
from connectors.common.arrow_rows import ArrowRows
from connectors.base import ControlFrame, Cut, Feed
from connectors.common.row_decoder import EachFrame, UnfoldedDecoder
from connectors.sqlitecloud_webhooks.decoder.changes import ChangeReader
from connectors.sqlitecloud_webhooks.protocol.columns import Context, columns_of, read_context
from connectors.sqlitecloud_webhooks.protocol.messages import SourceTable
from connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable


@dataclass(frozen=True)
class WebhookDecoder(UnfoldedDecoder):
    """The `connectors.base.Decoder` of one feed."""

    feed: Feed

    def context(self, control: Iterable[ControlFrame]) -> Context:
        """Return the columns that webhooks have named."""
        return read_context(control)

    def row_type(self, context: Context, cut: Cut, table: Table) -> StructType:
        """Return the table's columns: keys, those with configured types, then the others in order of appearance."""
        return from_arrow_schema(pa.schema(list(self._reader(context, cut, table).type.field("row").type)))

    def changes(self, frames: ArrowRows, context: Context, cut: Cut, table: Table) -> ArrowRows:
        """Return a change for each row of a webhook."""
        reader = self._reader(context, cut, table)
        return frames.run(EachFrame(_Read(reader), reader.type), reader.type, "frame_seq", "body")

    def _reader(self, context: Context, cut: Cut, table: Table) -> ChangeReader:
        options = self.feed.options
        assert isinstance(options, WebhookOptions)
        assert isinstance(table, WebhookTable)
        columns = columns_of(context.stream_columns(cut.stream), table, options)
        database, name = options.database, cut.stream.removeprefix(f"{options.database}/")
        return ChangeReader(SourceTable(database, name), columns, table.keys, options.insert_absent)


@dataclass(frozen=True)
class _Read:
    reader: ChangeReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.reader.read(batch.column("frame_seq").to_pylist(), batch.column("body").to_pylist())
