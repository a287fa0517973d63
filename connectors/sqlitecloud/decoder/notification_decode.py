"""Decoding of notifications into change rows: change by change as they are read, then column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import astuple

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.common.change_rows import ChangeRows, names_sent
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Change, TableUpdate, read_notification
from silverfold.connectors.sqlitecloud.protocol.landed.typed_notification import compile_readers
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column

_ChangeRow: TypeAlias = tuple[Any, ...]
"""One change: its operation, then the fields of a `typed_notification.Entry`. The values may be any JSON."""


class NotificationDecoder:
    """A batch of changes from notifications.

    Args:
        snapshot_end: Position up to which notifications overlay a snapshot; -1 without one.
    """

    def __init__(
        self,
        rows: ChangeRows,
        columns: Sequence[Column],
        described: Description,
        options: SqliteCloudOptions,
        snapshot_end: int,
    ) -> None:
        self._rows, self._columns, self._options, self._snapshot_end = rows, columns, options, snapshot_end
        self._names, self._keys = described.names, described.keys
        self._known = frozenset(column.name for column in described.columns)
        self._key_indexes = [self._names.index(name) for name in self._keys]
        self._reader = compile_readers(described)
        self._clear()

    @property
    def size(self) -> int:
        """The number of changes in the batch."""
        return len(self._changes)

    def take(self, position: int, text: bytes) -> None:
        """Add all changes of a notification, or none. Raise InvalidValue."""
        entries = self._reader(text)(text)
        changes: Iterable[_ChangeRow]
        if entries is None:
            changes = map(self._change_row, self._parse(text))
        else:
            changes = [(entry.op, *astuple(entry)) for entry in entries]
        if self._options.insert_absent == "error":
            changes = map(self._check_complete, changes)
        if position <= self._snapshot_end:
            changes = self._overlay(changes)
        taken = list(changes)
        self._changes += taken
        self._positions += [position] * len(taken)
        self._ordinals += range(len(taken))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the change rows, and error rows for notifications with a value that does not fit; clear the batch."""
        if not self._changes:
            return
        errors: dict[int, WireError] = {}
        batch = self._batch(errors)
        self._clear()
        yield from self._rows.whole_frames(batch, errors)

    def _clear(self) -> None:
        self._changes: list[_ChangeRow] = []
        self._positions: list[int] = []
        self._ordinals: list[int] = []

    def _parse(self, text: bytes) -> list[Change]:
        """Return the changes of any notification, their keys in the order described."""
        update = read_notification(text)
        if not isinstance(update, TableUpdate):
            raise InvalidValue("the message of a channel changes no table", reason="unknown_kind")
        if update.keys == self._keys:
            return update.changes
        if sorted(update.keys) != sorted(self._keys):
            detail = f"the key is {', '.join(update.keys)}, in the snapshot it was {', '.join(self._keys)}"
            raise InvalidValue(detail, reason="other_keys")
        order = [update.keys.index(name) for name in self._keys]
        return [
            change._replace(
                key=tuple([change.key[at] for at in order]),
                old_key=change.old_key and tuple([change.old_key[at] for at in order]),
            )
            for change in update.changes
        ]

    def _change_row(self, change: Change) -> _ChangeRow:
        op, key, old_key, columns = change
        if op == "delete":
            return (op, *[UNSET] * len(self._names), key)
        if not columns.keys() <= self._known:
            detail = f"column {min(columns.keys() - self._known)!r:.80} was not there when the snapshot was taken"
            raise InvalidValue(detail, reason="unknown_column")
        cells = [columns.get(name, UNSET) for name in self._names]
        for at, value in zip(self._key_indexes, key, strict=True):
            cells[at] = value
        return (op, *cells, UNSET if old_key is None else old_key)

    def _check_complete(self, change: _ChangeRow) -> _ChangeRow:
        op, *cells, _ = change
        if op == "insert" and UNSET in cells:
            absent = sorted(name for name, cell in zip(self._names, cells, strict=True) if cell is UNSET)
            raise InvalidValue(f"an INSERT lacks {', '.join(absent)}", reason="absent_column")
        return change

    def _overlay(self, changes: Iterable[_ChangeRow]) -> Iterator[_ChangeRow]:
        """Yield changes for a snapshot, which may lack the old row of an update if it had moved by then.

        So an update that moves its row, and from which the new one is completely known, also inserts it.
        """
        for change in changes:
            yield change
            _, *cells, _ = change
            is_complete = self._options.update_columns == "full" or UNSET not in cells
            if is_complete and self._old_key(change) is not None:
                yield ("insert", *cells, UNSET)

    def _old_key(self, change: _ChangeRow) -> tuple[Any, ...] | None:
        """Return the old key of an update that moves its row. 1 and 1.0 are the same key."""
        op, *cells, old_key = change
        is_moved = op == "update" and old_key is not UNSET and old_key != tuple([cells[at] for at in self._key_indexes])
        return old_key if is_moved else None

    def _batch(self, errors: dict[int, WireError]) -> pa.RecordBatch:
        ops, *sent, sent_keys = zip(*self._changes, strict=True)

        def typed(at: int, values: list[Any]) -> pa.Array:
            array, wrong = self._columns[at].array(values, sent=True)
            for index, error in wrong.items():
                errors.setdefault(self._positions[index], error)
            return array

        old_keys = [self._old_key(change) for change in self._changes]
        deleted = [key if op == "delete" else () for op, key in zip(ops, sent_keys, strict=True)]
        now = {
            at: typed(at, [key[k] if key else cell for key, cell in zip(deleted, sent[at], strict=True)])
            for k, at in enumerate(self._key_indexes)
        }
        before = [typed(at, [key and key[k] for key in old_keys]) for k, at in enumerate(self._key_indexes)]
        cells = [
            now[at] if at in now else typed(at, [None if cell is UNSET else cell for cell in column])
            for at, column in enumerate(sent)
        ]
        return self._rows.batch(
            pa.array(self._positions, pa.int64()),
            pa.array(ops, pa.string()),
            cells,
            ordinals=pa.array(self._ordinals, pa.int32()),
            old_keys=before,
            present=self._present(ops, sent),
        )

    def _present(self, ops: Sequence[str], sent: Sequence[Sequence[Any]]) -> pa.Array:
        """Return the known columns: for a partial update, those that were sent."""
        known = np.array([[cell is not UNSET for cell in column] for column in sent])
        partial = (np.array(ops) == "update") & ~known.all(axis=0) & (self._options.update_columns == "partial")
        return names_sent(self._names, list(known), partial)
