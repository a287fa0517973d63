"""Turns landed frames of one table into change rows, in Arrow: what the feed's decoder runs in Spark.

What a notification says is decoded whole or not at all: it becomes its changes, or one row with ``error``. So does a
frame of a snapshot. Frames do not depend on one another, so they may come in any order, and in any number of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conf.errors import InvalidValue, WireError
from connectors.sqlitecloud.control import Description
from connectors.sqlitecloud.landed import notified_text, selected_rows
from connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from connectors.sqlitecloud.payload import Change, Key, TableUpdate, read_notification
from connectors.sqlitecloud.values import Column, columns_of

SNAPSHOT: Final = "snapshot"
"""Of a frame: its kind; of a change row: that it is a row of a snapshot."""

NAMES: Final = pa.list_(pa.string())
ERROR: Final = pa.struct([("error_class", pa.string()), ("reason", pa.string())])

_CHANGES_AT_ONCE: Final = 1 << 13
"""Changes that become one batch, about: a few more, where a notification has many."""


@dataclass(frozen=True)
class ChangeReader:
    """Reads the frames of one table's stream in one cut. Picklable.

    Args:
        described: The table, as the control frame of its last snapshot tells.
        settled: Position up to which notifications overlay the cut's snapshot; None without one.
    """

    described: Description
    table: SqliteCloudTable
    options: SqliteCloudOptions
    settled: int | None = None
    columns: tuple[Column, ...] = field(init=False)
    type: pa.Schema = field(init=False)
    """Of the change rows, as far as `transforms.changes` needs them: the other columns are always NULL."""

    def __post_init__(self) -> None:
        columns = columns_of(self.described, self.table, self.options)
        row = pa.struct([(column.name, column.arrow) for column in columns])
        key = pa.struct([row.field(name) for name in self.described.keys])
        own = [("frame_seq", pa.int64()), ("ordinal", pa.int32()), ("op", pa.string()), ("key", key), ("old_key", key)]
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "type", pa.schema([*own, ("row", row), ("present", NAMES), ("error", ERROR)]))

    def read(self, positions: Sequence[int], kinds: Sequence[str], bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the change rows of frames; one with ``error`` for each that cannot be read."""
        heard = _Heard(self)
        for position, kind, body in zip(positions, kinds, bodies, strict=True):
            try:
                if kind == SNAPSHOT:
                    yield from self._selected(position, body)
                else:
                    heard.take(position, read_notification(notified_text(body)))
            except WireError as error:
                yield error_rows([position], [error], self.type)
            if len(heard.changes) >= _CHANGES_AT_ONCE:
                yield from heard.batches()
                heard = _Heard(self)
        yield from heard.batches()

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
        told = list(zip(self.columns, zip(*found.rows, strict=True), strict=True))
        typed = [column.array(cells, sent=False) for column, cells in told]
        for _, unfit in typed:
            for error in unfit.values():
                raise error
        count, arrays = len(found.rows), [array for array, _ in typed]
        yield self.batch(
            pa.array(np.full(count, position)),
            pa.array(np.arange(count, dtype=np.int32)),
            pa.repeat(SNAPSHOT, count),
            self.struct("key", [arrays[names.index(name)] for name in self.described.keys]),
            pa.nulls(count, self.type.field("old_key").type),
            self.struct("row", arrays),
            pa.nulls(count, NAMES),
            pa.nulls(count, ERROR),
        )

    def struct(self, name: str, fields: Iterable[pa.Array], *, mask: pa.Array | None = None) -> pa.Array:
        """Return a column of the change rows that is a struct; ``mask`` tells which of them are NULL."""
        return pa.StructArray.from_arrays(list(fields), fields=list(self.type.field(name).type), mask=mask)

    def batch(self, *columns: pa.Array) -> pa.RecordBatch:
        """Return all columns of the change rows as one batch."""
        return pa.RecordBatch.from_arrays(list(columns), schema=self.type)


_Told: TypeAlias = tuple[int, int, str, Key, Key | None, dict[str, Any], int]
"""One change: position, ordinal, operation, key, old key, the columns that were sent, and which of the table's columns
are thereby known: an index into lists of names; -1 for all, or none."""


class _Heard:
    """Changes that were notified, on their way into batches."""

    def __init__(self, reader: ChangeReader) -> None:
        self.changes: list[_Told] = []
        self._reader = reader
        self._names = reader.described.names
        self._keys = reader.described.keys
        self._known = frozenset(column.name for column in reader.described.columns)
        self._lists: list[list[str]] = []
        self._shapes: dict[tuple[str, ...], int] = {}

    def take(self, position: int, update: object) -> None:
        """Take all changes of a notification, or none. Raises InvalidValue."""
        if not isinstance(update, TableUpdate):
            raise InvalidValue("the message of a channel changes no table", reason="unknown_kind")
        changes = update.changes if update.keys == self._keys else self._reordered(update)
        overlays = self._reader.settled is not None and position <= self._reader.settled
        told: list[_Told] = []
        for change in changes:
            present = self._present(change)
            op, key, old_key, columns = change
            told.append((position, len(told), op, key, old_key, columns, present))
            if overlays and old_key is not None and present < 0:
                # The snapshot may lack the old row, which is elsewhere by then: all of the new one is known here.
                told.append((position, len(told), "insert", key, None, columns, -1))
        self.changes += told

    def _reordered(self, update: TableUpdate) -> list[Change]:
        if sorted(update.keys) != sorted(self._keys):
            detail = f"the key is {', '.join(update.keys)}, in the snapshot it was {', '.join(self._keys)}"
            raise InvalidValue(detail, reason="other_keys")
        order = [update.keys.index(name) for name in self._keys]

        def ordered(key: Key) -> Key:
            return tuple([key[place] for place in order])

        return [
            change._replace(key=ordered(change.key), old_key=change.old_key and ordered(change.old_key))
            for change in update.changes
        ]

    def _present(self, change: Change) -> int:
        if change.op == "delete":
            return -1
        names = tuple(change.columns)
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._shapes[names] = self._shape(names)
        options = self._reader.options
        if change.op == "insert":
            if shape >= 0 and options.insert_absent == "error":
                absent = sorted({*self._names} - {*names})
                raise InvalidValue(f"an INSERT lacks {', '.join(absent)}", reason="absent_column")
            return -1
        return -1 if options.update_columns == "full" else shape

    def _shape(self, names: tuple[str, ...]) -> int:
        """Return which of the table's columns are known to a change that carries these; -1 for all."""
        unknown = sorted({*names} - self._known)
        if unknown:
            detail = f"column {unknown[0]!r:.80} was not there when the snapshot was taken"
            raise InvalidValue(detail, reason="unknown_column")
        sent = [name for name in self._names if name in names or name in self._keys]
        if len(sent) == len(self._names):
            return -1
        self._lists.append(sent)
        return len(self._lists) - 1

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the change rows, and the errors of notifications that hold a value which does not fit."""
        if not self.changes:
            return
        unfit: dict[int, WireError] = {}
        batch = self._batch(unfit)
        positions = batch.column("frame_seq")
        if not unfit:
            yield batch
            return
        bad = pa.array(list(unfit), pa.int64())
        yield batch.filter(pc.invert(pc.is_in(positions, bad)))
        yield error_rows(list(unfit), list(unfit.values()), self._reader.type)

    def _batch(self, unfit: dict[int, WireError]) -> pa.RecordBatch:
        positions, ordinals, ops, keys, old_keys, sent, present = zip(*self.changes, strict=True)

        def typed(name: str, values: list[Any]) -> pa.Array:
            array, wrong = columns[name].array(values, sent=True)
            for index, error in wrong.items():
                unfit.setdefault(positions[index], error)
            return array

        columns = {column.name: column for column in self._reader.columns}
        now = {name: typed(name, [key[at] for key in keys]) for at, name in enumerate(self._keys)}
        before = [typed(name, [key and key[at] for key in old_keys]) for at, name in enumerate(self._keys)]
        cells = [now[name] if name in now else typed(name, [told.get(name) for told in sent]) for name in columns]
        deleted = pa.array([op == "delete" for op in ops])
        return self._reader.batch(
            pa.array(positions, pa.int64()),
            pa.array(ordinals, pa.int32()),
            pa.array(ops, pa.string()),
            self._reader.struct("key", now.values()),
            self._reader.struct("old_key", before, mask=_unmoved(list(now.values()), before)),
            self._reader.struct("row", cells, mask=deleted),
            self._lists_of(present),
            pa.nulls(len(deleted), ERROR),
        )

    def _lists_of(self, present: Sequence[int]) -> pa.Array:
        codes = np.array(present, np.int64)
        return pa.array(self._lists, NAMES).take(pa.array(np.maximum(codes, 0), mask=codes < 0))


def _unmoved(keys: Sequence[pa.Array], old: Sequence[pa.Array]) -> pa.Array:
    """Tell which changes leave their row at its key: none was sent before, or it is the same once it is typed."""
    same = reduce(pc.and_, [pc.equal(now, before) for now, before in zip(keys, old, strict=True)])
    return pc.fill_null(same, True)


def error_rows(positions: Sequence[int], errors: Sequence[WireError], schema: pa.Schema) -> pa.RecordBatch:
    """Return change rows that tell of frames which cannot be read, and nothing else."""
    told = [{"error_class": error.error_class, "reason": str(error)} for error in errors]
    others = [pa.nulls(len(told), kind) for kind in schema.types[1:-1]]
    return pa.RecordBatch.from_arrays([pa.array(positions, pa.int64()), *others, pa.array(told, ERROR)], schema=schema)
