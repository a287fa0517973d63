"""Makes change rows of notifications that are foreseen, column by column, without parsing them.

An expression takes a text apart into the spellings of its values (`foreseen.parts_of`), and Arrow reads those of a
column all at once. What is not plain in this way is left to be read change by change: nothing is refused here.
"""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.sqlitecloud.change_rows import ChangeRows, lists_of, without
from connectors.sqlitecloud.control import Description
from connectors.sqlitecloud.json_literals import Mask, is_read_at_once, read_all, read_literals
from connectors.sqlitecloud.notification_pattern import foresees, parts_of
from connectors.sqlitecloud.options import SqliteCloudOptions

Notice: TypeAlias = tuple[int, bytes]
"""Position and text of a notification."""


class _Changes(NamedTuple):
    """Changes as columns; a spelling is empty where nothing was sent."""

    ops: pa.Array
    cells: list[pa.Array]
    """Spellings of each column of the table."""
    old_keys: list[pa.Array]
    """Spellings of each column of the key."""
    sent: list[Mask]
    """Of each column, where it was sent."""

    def is_op(self, op: str) -> Mask:
        """Tell which of them are of an operation."""
        return np.asarray(pc.equal(self.ops, op))


class BulkDecoder:
    """Notifications that were foreseen, on their way into a batch.

    Args:
        snapshot_end: Position up to which notifications overlay a snapshot, which is not plain; -1 without one.
    """

    def __init__(
        self, rows: ChangeRows, described: Description, options: SqliteCloudOptions, snapshot_end: int
    ) -> None:
        self._rows, self._options, self._settled = rows, options, snapshot_end
        self._keys = [described.names.index(name) for name in rows.keys]
        self._is_used = all(is_read_at_once(rows.columns[at]) for at in self._keys)
        self._foresees, self._parts_of = foresees(described), parts_of(described)
        self._forget()

    def take(self, position: int, text: bytes) -> bool:
        """Take a notification, or tell that it is to be read otherwise: return False."""
        if not self._is_used or position <= self._settled:
            return False
        spelt = text.decode(errors="surrogateescape")
        if not self._foresees(spelt):
            return False
        parts = self._parts_of(spelt)
        self._parts += parts
        self._counts.append(len(parts))
        self._notices.append((position, text))
        return True

    @property
    def size(self) -> int:
        """How many changes were taken."""
        return len(self._parts)

    def batch(self) -> tuple[pa.RecordBatch | None, list[Notice]]:
        """Return the change rows, and the notifications that are to be read otherwise after all; then forget."""
        parts, counts, notices = self._parts, self._counts, self._notices
        self._forget()
        if not parts:
            return None, []
        of = np.repeat(np.arange(len(counts)), counts)
        positions = np.array([position for position, _ in notices], np.int64)[of]
        ordinals = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
        batch, odd = self._batch(self._changes(parts), pa.array(positions), pa.array(ordinals.astype(np.int32)))
        left = [notices[at] for at in np.unique(of[odd])]
        return without(batch, [position for position, _ in left]), left

    def _forget(self) -> None:
        self._parts: list[tuple[str, ...]] = []
        self._counts: list[int] = []
        self._notices: list[Notice] = []

    def _changes(self, parts: list[tuple[str, ...]]) -> _Changes:
        ops, *spelt = (pa.array(column, pa.string()) for column in zip(*parts, strict=True))
        cells, old_keys = spelt[: len(self._rows.columns)], spelt[len(self._rows.columns) :]
        return _Changes(pc.utf8_lower(ops), cells, old_keys, [np.asarray(pc.not_equal(each, "")) for each in cells])

    def _batch(self, changes: _Changes, positions: pa.Array, ordinals: pa.Array) -> tuple[pa.RecordBatch, Mask]:
        """Return the change rows, and which of them are not to be had this way."""
        cells, odd = self._cells(changes)
        old_keys = []
        for at, spelt in zip(self._keys, changes.old_keys, strict=True):
            before, rest = read_literals(self._rows.columns[at], pc.if_else(changes.is_op("update"), spelt, ""))
            old_keys.append(before)
            odd |= rest
        if self._options.insert_absent == "error":
            odd |= changes.is_op("insert") & ~np.logical_and.reduce(changes.sent)
        batch = self._rows.batch(
            positions, ordinals, changes.ops, cells=cells, old_keys=old_keys, present=self._present(changes)
        )
        return batch, odd

    def _cells(self, changes: _Changes) -> tuple[list[pa.Array], Mask]:
        """Return the values of each column, a delete's key included; and which changes have one that is not plain."""
        odd = np.zeros(len(changes.ops), np.bool_)
        cells = []
        for at, (column, spelt) in enumerate(zip(self._rows.columns, changes.cells, strict=True)):
            if at in self._keys:
                old_key = changes.old_keys[self._keys.index(at)]
                read, rest = read_literals(column, pc.if_else(changes.is_op("delete"), old_key, spelt))
            else:
                read, rest = read_all(column, spelt)
            cells.append(read)
            odd |= rest
        return cells, odd

    def _present(self, changes: _Changes) -> pa.Array:
        """Return which columns are known: those that were sent, of an update which lacks some."""
        sent = np.stack(changes.sent)
        partial = changes.is_op("update") & ~sent.all(axis=0) & (self._options.update_columns == "partial")
        known = sent[:, partial]
        packed = np.packbits(known, axis=0).T
        shapes = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, firsts, which = np.unique(shapes, return_index=True, return_inverse=True)
        codes = np.full(len(partial), -1)
        codes[partial] = which
        names = [column.name for column in self._rows.columns]
        return lists_of([list(compress(names, known[:, at])) for at in firsts], codes)
