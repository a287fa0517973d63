"""Decodes one table's landed frames into change rows, in Arrow. The feed's decoder runs it in Spark.

A frame yields its changes, or one row with ``error``. Frames are independent of one another, so they may come in any
order and in any number of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.change_rows import CHANGES_AT_ONCE, ChangeRows, error_rows, key_type, names_sent
from silverfold.connectors.tengi.decoder.columns import Column
from silverfold.connectors.tengi.decoder.schemas import TableSchemas
from silverfold.connectors.tengi.options import ROW_NUMBER
from silverfold.connectors.tengi.protocol.feed.columns import whole
from silverfold.connectors.tengi.protocol.frame_access import read_frame
from silverfold.connectors.tengi.protocol.values import Packet

_UNSET: Final[Any] = ...
"""A column that was not sent."""


class _Change(NamedTuple):
    op: str
    cells: Sequence[Any]
    """One per column; `_UNSET` for a column that was not sent. A delete has its key alone."""
    old_key: Sequence[Any] | None
    """The key before an update that sends key columns; else None."""


_Number: TypeAlias = tuple[int, int]
_NUMBER: Final = pa.struct([(name, pa.int64()) for name in ROW_NUMBER])


@dataclass(frozen=True)
class ChangeReader:
    """Decodes the frames of one table's stream in one cut. Picklable.

    Args:
        limit: Most bytes of a packet.
    """

    schemas: TableSchemas
    limit: int
    columns: tuple[Column, ...] = field(init=False)
    rows: ChangeRows = field(init=False)

    def __post_init__(self) -> None:
        newest = self.schemas.newest
        columns = tuple(Column(name, kind) for name, kind in newest.columns.items())
        row = pa.struct([(column.name, column.arrow) for column in columns])
        object.__setattr__(self, "columns", columns)
        key = key_type(row, newest.keys) if newest.keys else _NUMBER
        object.__setattr__(self, "rows", ChangeRows(row, key))

    @property
    def type(self) -> pa.Schema:
        """Schema of the change rows."""
        return self.rows.type

    def read(self, positions: Sequence[int], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of frames, in no order. A frame that cannot be decoded gives one row with ``error``."""
        changes, at, ordinals, bad = list[_Change](), list[int](), list[int](), dict[int, WireError]()
        numbers = list[_Number]()
        for position, body in zip(positions, bodies, strict=True):
            try:
                packet = read_frame(body, limit=self.limit)
                found = list(self._changes(packet, position))
                numbers += () if self.schemas.newest.keys else _numbers(packet, len(found))
            except WireError as error:
                bad[position] = error
                continue
            changes += found
            at += [position] * len(found)
            ordinals += range(len(found))
            if len(changes) >= CHANGES_AT_ONCE:
                yield from self._batches(changes, at, ordinals, numbers)
                changes, at, ordinals, numbers = [], [], [], []
        if changes:
            yield from self._batches(changes, at, ordinals, numbers)
        if bad:
            yield error_rows(self.type, list(bad), bad.values())

    def _changes(self, packet: Packet, position: int) -> Iterator[_Change]:
        values = packet.values
        whole = self.schemas.names(values.get("version"), position)
        if packet.name == "change":
            yield self._change(_op(values.get("op")), values, whole)
        elif packet.name == "update":
            for op, name in _GROUPS.items():
                for entry in _entries(values.get(name)):
                    yield self._change(op, entry, whole)
        elif packet.name == "snapshot":
            for entry in _entries(values.get("rows")):
                yield _Change("snapshot", self._whole_row(entry, whole), None)
        else:
            raise InvalidValue(f"{packet.name!r:.80} has no changes", reason="unknown_packet")

    def _change(self, op: str, entry: Mapping[str, Any], whole: Iterable[str]) -> _Change:
        if op == "insert":
            return _Change(op, self._whole_row(entry, whole), None)
        if op not in ("update", "delete"):
            raise InvalidValue("neither INSERT, UPDATE nor DELETE", reason="unknown_op")
        names = self.schemas.newest.keys
        if not names:
            raise InvalidValue(f"a table without keys takes no {op}", reason="no_keys")
        key = _packet(entry.get("key")).values
        if not key.keys() >= set(names):
            raise InvalidValue(f"a key without {', '.join(sorted(set(names) - key.keys()))}", reason="absent_key")
        if op == "delete":
            return _Change(op, [key[name] if name in names else None for name in self.schemas.newest.columns], None)
        row = self._row(entry)
        is_moved = not row.keys().isdisjoint(names)
        cells = [row.get(name, key[name] if name in names else _UNSET) for name in self.schemas.newest.columns]
        return _Change(op, cells, [key[name] for name in names] if is_moved else None)

    def _whole_row(self, entry: Mapping[str, Any], whole: Iterable[str]) -> Sequence[Any]:
        row = self._row(entry)
        if absent := [name for name in whole if name not in row]:
            raise InvalidValue(f"a whole row without {', '.join(sorted(absent))}", reason="absent_column")
        return [row.get(name) for name in self.schemas.newest.columns]

    def _row(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the cells sent."""
        only_nulls = "row" not in entry and "nulls" in entry
        row: dict[str, Any] = {} if only_nulls else _packet(entry.get("row")).values
        nulls = entry.get("nulls")
        if nulls is None:
            return row
        names = _packet(nulls).values.keys()
        if not names.isdisjoint(row):
            raise InvalidValue(f"{min(names & row.keys())!r:.80} is in row and in nulls", reason="null_and_value")
        if not names.isdisjoint(self.schemas.newest.keys):
            raise InvalidValue("a key is NULL", reason="null_key")
        return row | dict.fromkeys(names)

    def _batches(
        self,
        changes: Sequence[_Change],
        positions: Sequence[int],
        ordinals: Sequence[int],
        numbers: Sequence[_Number],
    ) -> Iterator[pa.RecordBatch]:
        errors: dict[int, WireError] = {}
        ops, rows, old = zip(*changes, strict=True)
        updates = np.array([op == "update" for op in ops])

        def array(column: Column, cells: Sequence[Any]) -> pa.Array:
            found, wrong = column.array(cells)
            for at, error in wrong.items():
                errors.setdefault(positions[at], error)
            return found

        sent = list(zip(*rows, strict=True))
        known = [np.array([cell is not _UNSET for cell in cells]) for cells in sent]
        partial = updates & ~np.all(known, axis=0)
        cells = [
            array(column, [None if cell is _UNSET else cell for cell in found] if not there.all() else found)
            for column, found, there in zip(self.columns, sent, known, strict=True)
        ]
        by_name = {column.name: column for column in self.columns}
        keys = self.schemas.newest.keys
        old_keys = None
        if any(old):
            old_keys = [array(by_name[name], [key and key[at] for key in old]) for at, name in enumerate(keys)]
        batch = self.rows.batch(
            pa.array(positions, pa.int64()),
            pa.array(ops, pa.string()),
            cells,
            ordinals=pa.array(ordinals, pa.int32()),
            keys=[pa.array(each, pa.int64()) for each in zip(*numbers, strict=True)] or None,
            old_keys=old_keys,
            present=names_sent(list(by_name), known, partial),
        )
        yield from self.rows.whole_frames(batch, errors)


def _entries(found: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a group, by their number; none if it was not sent."""
    if found is None:
        return
    entries = _packet(found).values
    for number in range(len(entries)):
        entry = entries.get(str(number))
        if entry is None:
            raise InvalidValue(f"entry {number} of {len(entries)} is missing", reason="absent_entry")
        yield _packet(entry).values


def _numbers(packet: Packet, count: int) -> Iterator[_Number]:
    """Return the numbers of a packet's rows; each part of a snapshot has 2^32 of them. Raises InvalidValue."""
    part = packet.get_value("part", 0) if packet.name == "snapshot" else 0
    sequence, first = whole(packet.get_value("seq"), 64, "seq"), whole(part, 32, "part") << 32
    return ((sequence, first + at) for at in range(count))


def _op(found: Any) -> str:
    return _OPS.get(found, "") if type(found) is str else ""


def _packet(found: Any) -> Packet:
    if type(found) is not Packet:
        raise InvalidValue(f"{type(found).__name__} instead of a Packet", reason="wrong_type")
    return found


_OPS: Final = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_GROUPS: Final = {"delete": "removed", "update": "modified", "insert": "added"}
