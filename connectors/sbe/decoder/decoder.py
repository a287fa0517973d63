"""The feed's decoder: turns landed messages into change rows in Spark, each decoded by its own version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.conf.errors import SchemaDrift, SchemaError
from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.row_decoder import EachFrame, UnfoldedDecoder
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sbe.decoder.changes import ChangeReader
from silverfold.connectors.sbe.decoder.layout import layout_of
from silverfold.connectors.sbe.options import SbeFeed, SbeTable
from silverfold.connectors.sbe.protocol.schemas import feed_schema


@dataclass(frozen=True)
class SbeDecoder(UnfoldedDecoder[SbeTable]):
    """`connectors.base.Decoder` of one feed. The settings' schema decodes all messages, including older versions."""

    announces_columns: ClassVar[bool] = False
    feed: SbeFeed

    def context(self, control: Iterable[ControlFrame]) -> None:
        """Return None: message headers are self-describing. The landed schema is for users only."""

    def row_type(self, context: None, cut: Cut, table: SbeTable) -> StructType:
        """Return the table's columns according to the settings' schema.

        Raises:
            SchemaDrift: The schema is no longer usable, or lacks names in the settings.
        """
        return from_arrow_schema(self._reader(cut, table).layout.row)

    def changes(self, frames: ArrowRows, context: None, cut: Cut, table: SbeTable) -> ArrowRows:
        """Return one change per message, or per entry of the table's group, unfolded."""
        reader = self._reader(cut, table)
        return frames.run(EachFrame(_Read(reader), reader.type), reader.type, "frame_seq", "body")

    def _reader(self, cut: Cut, table: SbeTable) -> ChangeReader:
        try:
            schema = feed_schema(self.feed.options.schema_, self.feed.options.accept)
            return ChangeReader(schema, table, layout_of(schema, schema.templates[int(cut.stream)], table))
        except (SchemaError, KeyError) as error:
            name = next(name for name, settings in self.feed.tables.items() if settings == table)
            raise SchemaDrift(f"template {cut.stream} cannot be read any more: {error}", table=name) from error


@dataclass(frozen=True)
class _Read:
    reader: ChangeReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.reader.read(batch.column("frame_seq"), batch.column("body"))
