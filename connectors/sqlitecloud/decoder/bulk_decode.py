"""Decode pattern-matching notifications into change rows, column by column, without parsing JSON.

A regular expression (`notification_pattern.compile_splitter`) splits each text into the JSON literals of its values;
Arrow parses them per column. Changes it cannot handle are left to the row decoder: nothing is rejected here.
"""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.connectors.sqlitecloud.decoder.change_rows import ChangeRows, take_lists, without
from silverfold.connectors.sqlitecloud.decoder.json_literals import Mask, is_bulk_readable, read_all, read_literals
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.notification_pattern import compile_matcher, compile_splitter
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column

Notice: TypeAlias = tuple[int, bytes]
"""Position and text of a notification."""


class _Changes(NamedTuple):
    """Changes as columns; a literal is empty where no value was sent."""

    ops: pa.Array
    cells: list[pa.Array]
    """Literals of each column of the table."""
    old_keys: list[pa.Array]
    """Literals of each key column."""
    sent: list[Mask]
    """Per column, the mask of changes that carry it."""

    def is_op(self, op: str) -> Mask:
        """Return the mask of changes with an operation."""
        return np.asarray(pc.equal(self.ops, op))


class BulkDecoder:
    """A batch of notifications that match the table's pattern.

    Args:
        snapshot_end: Position up to which notifications overlay a snapshot, and are left to the row decoder; -1 without
            a snapshot.
    """

    def __init__(
        self, rows: ChangeRows, described: Description, options: SqliteCloudOptions, snapshot_end: int
    ) -> None:
        self._rows, self._options, self._snapshot_end = rows, options, snapshot_end
        self._keys = [described.names.index(name) for name in rows.keys]
        self._is_usable = all(is_bulk_readable(rows.columns[at]) for at in self._keys)
        self._matches, self._split = compile_matcher(described), compile_splitter(described)
        self._clear()

    def take(self, position: int, text: bytes) -> bool:
        """Add a notification; return False if the row decoder must handle it."""
        if not self._is_usable or position <= self._snapshot_end:
            return False
        decoded = text.decode(errors="surrogateescape")
        if not self._matches(decoded):
            return False
        parts = self._split(decoded)
        self._parts += parts
        self._counts.append(len(parts))
        self._notices.append((position, text))
        return True

    @property
    def size(self) -> int:
        """The number of changes in the batch."""
        return len(self._parts)

    def batch(self) -> tuple[pa.RecordBatch | None, list[Notice]]:
        """Return the change rows and the notifications left to the row decoder; clear the batch."""
        parts, counts, notices = self._parts, self._counts, self._notices
        self._clear()
        if not parts:
            return None, []
        owners = np.repeat(np.arange(len(counts)), counts)
        positions = np.array([position for position, _ in notices], np.int64)[owners]
        ordinals = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
        batch, unhandled = self._batch(self._changes(parts), pa.array(positions), pa.array(ordinals.astype(np.int32)))
        remaining = [notices[at] for at in np.unique(owners[unhandled])]
        return without(batch, [position for position, _ in remaining]), remaining

    def _clear(self) -> None:
        self._parts: list[tuple[str, ...]] = []
        self._counts: list[int] = []
        self._notices: list[Notice] = []

    def _changes(self, parts: list[tuple[str, ...]]) -> _Changes:
        ops, *literals = (pa.array(column, pa.string()) for column in zip(*parts, strict=True))
        cells, old_keys = literals[: len(self._rows.columns)], literals[len(self._rows.columns) :]
        return _Changes(pc.utf8_lower(ops), cells, old_keys, [np.asarray(pc.not_equal(each, "")) for each in cells])

    def _batch(self, changes: _Changes, positions: pa.Array, ordinals: pa.Array) -> tuple[pa.RecordBatch, Mask]:
        """Return the change rows, and a mask of those left to the row decoder."""
        cells, unhandled = self._cells(changes)
        old_keys = []
        for at, literals in zip(self._keys, changes.old_keys, strict=True):
            before, rest = _read_key(self._rows.columns[at], pc.if_else(changes.is_op("update"), literals, ""))
            old_keys.append(before)
            unhandled |= rest
        if self._options.insert_absent == "error":
            unhandled |= changes.is_op("insert") & ~np.logical_and.reduce(changes.sent)
        batch = self._rows.batch(
            positions, ordinals, changes.ops, cells=cells, old_keys=old_keys, present=self._present(changes)
        )
        return batch, unhandled

    def _cells(self, changes: _Changes) -> tuple[list[pa.Array], Mask]:
        """Return the values of each column, a delete's key included, and a mask of changes with an unparsed value."""
        unhandled = np.zeros(len(changes.ops), np.bool_)
        cells = []
        for at, (column, literals) in enumerate(zip(self._rows.columns, changes.cells, strict=True)):
            if at in self._keys:
                old_key = changes.old_keys[self._keys.index(at)]
                read, rest = _read_key(column, pc.if_else(changes.is_op("delete"), old_key, literals))
            else:
                read, rest = read_all(column, literals)
            cells.append(read)
            unhandled |= rest
        return cells, unhandled

    def _present(self, changes: _Changes) -> pa.Array:
        """Return the known columns: for a partial update, those that were sent."""
        sent = np.stack(changes.sent)
        partial = changes.is_op("update") & ~sent.all(axis=0) & (self._options.update_columns == "partial")
        known = sent[:, partial]
        packed = np.packbits(known, axis=0).T
        shapes = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, firsts, which = np.unique(shapes, return_index=True, return_inverse=True)
        codes = np.full(len(partial), -1)
        codes[partial] = which
        names = [column.name for column in self._rows.columns]
        return take_lists([list(compress(names, known[:, at])) for at in firsts], codes)


def _read_key(column: Column, literals: pa.Array) -> tuple[pa.Array, Mask]:
    """Return values as `read_literals` does. A real as text is left to the row decoder: 1 and 1.0 are one key."""
    read, rest = read_literals(column, literals)
    if column.kind == "string" and not column.texts_only:
        rest = rest | pc.match_substring_regex(literals, r"^-?[0-9]+[.eE]").to_numpy(zero_copy_only=False)
    return read, rest
