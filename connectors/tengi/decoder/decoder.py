"""The feed's Spark decoder: landed packets become change rows, without folding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from silverfold.conf.errors import InvalidValue, SchemaDrift, WireError
from silverfold.conf.names import caseless
from silverfold.connectors.base import Cut
from silverfold.connectors.common.arrow_rows import ArrowRows
from silverfold.connectors.common.row_decoder import UnfoldedDecoder, decode_frames
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.tengi.decoder.changes import ChangeReader
from silverfold.connectors.tengi.decoder.schemas import Schema, TableSchemas
from silverfold.connectors.tengi.options import ROW_NUMBER, TengiFeed, TengiTable
from silverfold.connectors.tengi.protocol.feed.columns import ColumnType, parse_type, whole
from silverfold.connectors.tengi.protocol.frame_access import read_frame
from silverfold.connectors.tengi.protocol.values import Packet

_Landed: TypeAlias = tuple[int, Schema | str]
"""Position of a control frame, and its schema; for an unreadable one, the reason as text."""


@dataclass(frozen=True)
class Schemas:
    """The schemas of a feed's streams with their positions, in order. Repeated ones are left out."""

    by_stream: Mapping[str, tuple[_Landed, ...]]

    def of(self, cut: Cut, table: TengiTable) -> TableSchemas:
        """Return the schemas that the frames of a cut may have.

        Raises:
            SchemaDrift: No schema landed before the cut's end; the newest one is unreadable, or its keys are not those
                of the settings; or it has no keys, but a column with the name of a row number.
        """
        declared = {name: parse_type(text) for name, text in table.columns.items()}
        if declared and table.keys:
            return TableSchemas(Schema(0, table.keys, declared))
        landed = [each for each in self.by_stream.get(cut.stream, ()) if each[0] < cut.last]
        if not landed:
            raise SchemaDrift("the source has not told its columns", table=cut.stream)
        newest = landed[-1][1]
        reason = newest if isinstance(newest, str) else None if declared else newest.unreadable
        if isinstance(newest, str) or reason is not None:
            raise SchemaDrift(f"its columns, as the source tells them: {reason}", table=cut.stream)
        keys, columns = table.keys or newest.keys, declared or newest.columns
        if (unknown := next((key for key in keys if key not in columns), None)) is not None:
            where = "settings" if declared else "source"
            raise SchemaDrift(f"no column {unknown} in the {where}, though it is a key", table=cut.stream)
        if not keys and (taken := [name for name in columns if caseless(name) in ROW_NUMBER]):
            raise SchemaDrift(f"the source has no keys, so rows are numbered in {taken[0]}: set keys", table=cut.stream)
        if newest.keys and set(keys) != set(newest.keys):
            raise SchemaDrift(
                f"the settings have other keys than the source: {', '.join(newest.keys)}", table=cut.stream
            )
        known = tuple([(at, schema) for at, schema in landed if isinstance(schema, Schema)])
        return TableSchemas(Schema(newest.version, keys, columns), () if declared else known)


@dataclass(frozen=True)
class TengiDecoder(UnfoldedDecoder[TengiTable]):
    """The `connectors.base.Decoder` of one feed."""

    feed: TengiFeed

    def context(self, control: Iterable[ControlFrame]) -> Schemas:
        """Return the schemas of the feed's tables, all versions."""
        return read_schemas(control)

    def row_type(self, context: Schemas, cut: Cut, table: TengiTable) -> StructType:
        """Return the table's columns in the newest schema before the cut's end. Raises SchemaDrift."""
        row = pa.schema(list(self._reader(context, cut, table).rows.row))
        return from_arrow_schema(row, prefer_timestamp_ntz=True)

    def changes(self, frames: ArrowRows, context: Schemas, cut: Cut, table: TengiTable) -> ArrowRows:
        """Return a change for each row of an update or a part of a snapshot."""
        return decode_frames(frames, self._reader(context, cut, table))

    def _reader(self, context: Schemas, cut: Cut, table: TengiTable) -> ChangeReader:
        return ChangeReader(context.of(cut, table), self.feed.options.max_packet)


def read_schemas(control: Iterable[ControlFrame]) -> Schemas:
    """Collect the schemas in control frames."""
    by_stream: dict[str, list[_Landed]] = {}
    first_seen: dict[str, dict[str, int]] = {}
    for frame in control:
        if frame.stream is None:
            continue
        landed, seen = by_stream.setdefault(frame.stream, []), first_seen.setdefault(frame.stream, {})
        found: Schema | str
        try:
            found = _read_schema(read_frame(frame.body), seen)
        except WireError as error:
            found = str(error)
        if not landed or landed[-1][1] != found:
            landed.append((frame.frame_seq, found))
    return Schemas({stream: tuple(landed) for stream, landed in by_stream.items()})


def _read_schema(packet: Packet, seen: dict[str, int]) -> Schema:
    keys, columns = _texts(packet.get_value("keys")), _texts(packet.get_value("columns"))
    if packet.name != "schema" or not columns:
        raise InvalidValue("no schema with columns", reason="bad_schema")
    version = whole(packet.get_value("version"), 32, "version")
    ordered = [keys.get(str(at)) for at in range(len(keys))]
    names = [name for name in ordered if name in columns]
    if len(set(names)) < len(keys):
        raise InvalidValue("a key is no column, or is one twice", reason="bad_schema")
    for name in sorted(columns):
        seen.setdefault(name, len(seen))
    kinds, unreadable = dict[str, ColumnType](), None
    for name in sorted(columns, key=seen.__getitem__):
        try:
            kinds[name] = parse_type(columns[name])
        except InvalidValue as error:
            kinds[name], unreadable = ColumnType("void"), str(error)
    return Schema(version, tuple(map(str, names)), kinds, unreadable)


def _texts(found: Any) -> dict[str, str]:
    if not isinstance(found, Packet) or not all(type(each) is str for each in found.values.values()):
        raise InvalidValue("keys and columns are Packets of texts", reason="bad_schema")
    return found.values
