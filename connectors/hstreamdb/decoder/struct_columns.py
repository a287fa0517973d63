"""Changes in HRecords of the layouts ``unwrapped`` and ``row``, column by column: all records of a part at once.

Records of another layout, odd ones (`struct_members`) and those with an error are left to be read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.change_rows import Bools
from silverfold.connectors.hstreamdb.decoder import struct_values
from silverfold.connectors.hstreamdb.decoder.column_changes import ColumnChanges
from silverfold.connectors.hstreamdb.decoder.kinds import DeclaredColumn
from silverfold.connectors.hstreamdb.decoder.landed_records import LandedRecords
from silverfold.connectors.hstreamdb.decoder.layouts import RecordReader
from silverfold.connectors.hstreamdb.decoder.struct_members import (
    ABSENT,
    NULL,
    STRUCT,
    Ints,
    Members,
    StructBuffer,
)

_HEADER, _KEY, _PAYLOAD = 0x0A, 0x1A, 0x12


@dataclass(frozen=True)
class StructColumns:
    """Reads HRecords for one table. Picklable."""

    records: RecordReader

    def read(self, frames: Sequence[LandedRecords]) -> ColumnChanges | None:
        """Return the changes of the records of some frames; None if none can be read so."""
        if not self.records.reads_columns:
            return None
        ends = np.cumsum([len(frame.expanded) for frame in frames])
        starts = ends - [len(frame.expanded) for frame in frames]
        placed = [_placed(frame, start, end) for frame, start, end in zip(frames, starts, ends, strict=True)]
        start, end = np.concatenate([each[0] for each in placed]), np.concatenate([each[1] for each in placed])
        buffer = StructBuffer(b"".join([frame.expanded for frame in frames]), start == end)
        start = _payloads(buffer, start, end)
        if buffer.odd.all():
            return None
        try:
            return self._changes(buffer, start, end)
        except pa.ArrowInvalid:  # a text is not UTF-8: one by one, to find whose
            return None

    def _changes(self, buffer: StructBuffer, start: Ints, end: Ints) -> ColumnChanges:
        names, keys = list(self.records.table.columns), self.records.table.keys
        rows = np.flatnonzero(~buffer.odd)
        top = buffer.members(rows, start[rows], end[rows], [*self._layout_members, *names])
        wrapped = self._is_wrapped(buffer, top, names)
        value = top.get("value", top[names[0]])  # without one, nothing is wrapped
        deleted = wrapped & (value.kind == NULL)
        buffer.odd |= wrapped & ~deleted & (value.kind != STRUCT)
        inside = self._inside(buffer, value, wrapped & ~deleted, names)
        of = {name: _chosen(wrapped, inside[name], top[name]) for name in names}
        cells = {column.name: typed(buffer, column, of[column.name]) for column in self.records.columns}
        sent = {name: of[name].kind != ABSENT for name in names}
        if wrapped.any():
            self._take_keys(buffer, self._inside(buffer, top["key"], wrapped, keys), wrapped, cells, sent)
        for name in keys:
            buffer.odd |= ~sent[name] | np.asarray(cells[name].is_null())
        buffer.check_texts()
        return ColumnChanges(~buffer.odd, deleted, [cells[name] for name in names], [sent[name] for name in names])

    @property
    def _layout_members(self) -> Sequence[str]:
        """Members by which the layout is detected, and those of ``unwrapped``."""
        if self.records.table.layout == "row":
            return ()
        names = self.records.table.columns
        return [name for name in sorted({"key", "value", *self.records.layout_members}) if name not in names]

    def _is_wrapped(self, buffer: StructBuffer, top: Mapping[str, Members], names: Sequence[str]) -> Bools:
        """Return the mask of records of the layout ``unwrapped``. Other layouts, or further members, are odd."""
        if self.records.table.layout == "row":
            return np.zeros(len(buffer.odd), np.bool_)
        wrapped: Bools = (top["key"].kind == STRUCT) & (top["value"].kind != ABSENT)
        if self.records.table.layout == "unwrapped":
            buffer.odd |= ~wrapped
        for name, members in top.items():
            allowed = wrapped if name in ("key", "value") else np.zeros(len(wrapped), np.bool_)
            if name in names and name not in self.records.layout_members:
                allowed = allowed | ~wrapped
            buffer.odd |= (members.kind != ABSENT) & ~allowed
        return wrapped

    def _inside(self, buffer: StructBuffer, outer: Members, of: Bools, names: Sequence[str]) -> Mapping[str, Members]:
        rows = np.flatnonzero(of & ~buffer.odd)
        return buffer.members(rows, outer.start[rows], outer.end[rows], names)

    def _take_keys(
        self,
        buffer: StructBuffer,
        keys: Mapping[str, Members],
        wrapped: Bools,
        cells: dict[str, pa.Array],
        sent: dict[str, Bools],
    ) -> None:
        """Take keys of the layout ``unwrapped`` from ``key``; the row must agree, unless the key is trusted."""
        for column in self.records.columns:
            name = column.name
            if name not in keys:
                continue
            found = typed(buffer, column, keys[name])
            if not self.records.table.trust_key:
                same = np.asarray(pc.fill_null(pc.equal(found, cells[name]), False))
                buffer.odd |= wrapped & sent[name] & ~same
            cells[name] = pc.if_else(pa.array(wrapped), found, cells[name])
            sent[name] = np.where(wrapped, keys[name].kind != ABSENT, sent[name])


def _placed(frame: LandedRecords, start: int, end: int) -> tuple[Ints, Ints]:
    """Return where the records of a frame begin and end. All are empty if they are not encoded as producers do it.

    Args:
        start, end: The batch in the buffer.
    """
    sizes = np.array(frame.sizes, np.int64)
    headers = 2 + (sizes >= 1 << 7) + (sizes >= 1 << 14) + (sizes >= 1 << 21)
    ends = start + np.cumsum(sizes + headers)
    is_known = not len(sizes) or (ends[-1] == end and sizes.max() < 1 << 28)
    return (ends - sizes, ends) if is_known else (ends * 0, ends * 0)


def _payloads(buffer: StructBuffer, start: Ints, end: Ints) -> Ints:
    """Return where the payloads of HRecords begin. Raw records, and those with attributes, become odd."""
    header = buffer.at(start + 1).astype(np.int64)
    behind = start + 2 + np.minimum(header, 127)
    key = (header == 0) | ((buffer.at(start + 2) == _KEY) & (buffer.at(start + 3).astype(np.int64) + 2 == header))
    good = (buffer.at(start) == _HEADER) & (header < 128) & key & (behind < end) & (buffer.at(behind) == _PAYLOAD)
    length, payload = buffer.lengths(behind + 1)
    buffer.odd |= ~good | (payload + length != end)
    return payload


def _chosen(wrapped: Bools, inside: Members, top: Members) -> Members:
    if not wrapped.any():
        return top
    return Members(
        np.where(wrapped, inside.kind, top.kind),
        np.where(wrapped, inside.start, top.start),
        np.where(wrapped, inside.end, top.end),
    )


def typed(buffer: StructBuffer, column: DeclaredColumn, found: Members) -> pa.Array:
    """Return the values of a column, null where it is absent or null; marks records as odd whose value does not fit."""
    if column.kind.structs is None:
        return _converted(buffer, column, struct_values.texts(buffer, found))
    return column.kind.structs(buffer, found).cast(column.arrow)


def _converted(buffer: StructBuffer, column: DeclaredColumn, texts: pa.Array) -> pa.Array:
    """Return texts of another encoding, converted one by one."""
    values = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(column.value(text))
        except InvalidValue:
            buffer.odd[row] = True
            values.append(None)
    return pa.array(values, column.arrow)
