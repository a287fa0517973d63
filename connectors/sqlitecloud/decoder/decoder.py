"""The feed's Spark decoder: landed notifications and snapshots become change rows, without folding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.conf.errors import SchemaDrift, WireError
from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.row_decoder import EachFrame, UnfoldedDecoder
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.sqlitecloud.decoder.changes import ChangeReader
from silverfold.connectors.sqlitecloud.decoder.channel_messages import LOG, MESSAGES, AddedRows
from silverfold.connectors.sqlitecloud.options import SqliteCloudFeed, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, read_description


@dataclass(frozen=True)
class Context:
    """Descriptions by stream and epoch, each with its position, in order; an unreadable one is the reason, as text.

    Small and picklable.
    """

    descriptions: Mapping[tuple[str, int], tuple[tuple[int, Description | str], ...]]

    def description(self, cut: Cut) -> Description:
        """Return the description from the cut's snapshot, or from the last snapshot before the cut.

        Raises:
            SchemaDrift: There is none, or it is unreadable.
        """
        before = cut.last if cut.snapshot_end is None else cut.snapshot_end
        found = [described for at, described in self.descriptions.get((cut.stream, cut.epoch), ()) if at < before]
        if not found:
            raise SchemaDrift(f"epoch {cut.epoch} does not tell its columns", table=cut.stream)
        described = found[-1]
        if isinstance(described, str):
            raise SchemaDrift(f"its columns, as described in epoch {cut.epoch}: {described}", table=cut.stream)
        return described


def read_context(control: Iterable[ControlFrame]) -> Context:
    """Collect the descriptions in control frames."""
    descriptions: dict[tuple[str, int], tuple[tuple[int, Description | str], ...]] = {}
    for frame in control:
        if frame.stream is None:
            continue
        described: Description | str
        try:
            described = read_description(frame.body)
        except WireError as error:
            described = str(error)
        at = (frame.stream, frame.epoch)
        descriptions[at] = (*descriptions.get(at, ()), (frame.frame_seq, described))
    return Context(descriptions)


@dataclass(frozen=True)
class SqliteCloudDecoder(UnfoldedDecoder[SqliteCloudTable]):
    """The `connectors.base.Decoder` of one feed."""

    feed: SqliteCloudFeed

    def context(self, control: Iterable[ControlFrame]) -> Context:
        """Return the table descriptions of the feed's snapshots."""
        return read_context(control)

    def row_type(self, context: Context, cut: Cut, table: SqliteCloudTable) -> StructType:
        """Return the table's columns, as described by the snapshot that the cut is based on.

        Raises:
            SchemaDrift: There is no description, or the settings name columns that do not exist.
        """
        if table.only_adds:
            return from_arrow_schema(pa.schema(list(_added(table).row)))
        return from_arrow_schema(pa.schema(list(self._reader(context, cut, table).type.field("row").type)))

    def changes(self, frames: ArrowRows, context: Context, cut: Cut, table: SqliteCloudTable) -> ArrowRows:
        """Return a change for each notified entry and snapshot row; an insert for each appended row.

        In a snapshot's overlay, an update that moves a row and carries all its columns also yields an insert.
        """
        added = table.only_adds
        step = _ReadAdded(table.log) if added else _ReadChanges(self._reader(context, cut, table))
        return frames.run(EachFrame(step, step.type), step.type, "frame_seq", "kind", "body")

    def _reader(self, context: Context, cut: Cut, table: SqliteCloudTable) -> ChangeReader:
        described = context.description(cut)
        unknown = sorted(table.types.keys() - set(described.names))
        if unknown:
            raise SchemaDrift(f"the source lacks column {unknown[0]}, whose type is set", table=cut.stream)
        if table.keys and set(table.keys) != set(described.keys):
            landed_keys = ", ".join(described.keys)
            way = "start `silverfold receive` again, which reads the table by those"
            raise SchemaDrift(
                f"rows landed by their {landed_keys}, the settings have other keys: {way}", table=cut.stream
            )
        return ChangeReader(described, table, self.feed.options, cut.snapshot_end)


def _added(table: SqliteCloudTable) -> AddedRows:
    return LOG if table.log else MESSAGES


@dataclass(frozen=True)
class _ReadChanges:
    reader: ChangeReader

    @property
    def type(self) -> pa.Schema:
        return self.reader.type

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.reader.read(*(batch.column(at).to_pylist() for at in range(3)))


@dataclass(frozen=True)
class _ReadAdded:
    is_log: bool

    @property
    def type(self) -> pa.Schema:
        return (LOG if self.is_log else MESSAGES).type

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = LOG if self.is_log else MESSAGES
        for batch in batches:
            yield from rows.changes(batch.column("frame_seq").to_pylist(), batch.column("body").to_pylist())
