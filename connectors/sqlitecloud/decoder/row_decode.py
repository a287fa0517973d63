"""Decoding of parsed notifications into change rows, change by change, for every form they may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.sqlitecloud.decoder.change_rows import ChangeRows, error_rows, take_lists, without
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Change, Key, Notified, TableUpdate

_ChangeRow: TypeAlias = tuple[int, int, str, Key, Key | None, dict[str, Any], int]
"""One change: position, ordinal, operation, key, old key, the columns sent, and the index of the list of known columns;
-1 if all or none are known."""


class RowDecoder:
    """A batch of changes from notifications.

    Args:
        snapshot_end: Position up to which notifications overlay a snapshot; -1 without one.
    """

    def __init__(
        self, rows: ChangeRows, described: Description, options: SqliteCloudOptions, snapshot_end: int
    ) -> None:
        self._rows, self._options, self._snapshot_end = rows, options, snapshot_end
        self._names, self._keys = described.names, described.keys
        self._known = frozenset(column.name for column in described.columns)
        self._lists: list[list[str]] = []
        self._shapes: dict[tuple[str, ...], int] = {}
        self._changes: list[_ChangeRow] = []

    @property
    def size(self) -> int:
        """The number of changes in the batch."""
        return len(self._changes)

    def take(self, position: int, update: Notified) -> None:
        """Add all changes of a notification, or none. Raise InvalidValue."""
        if not isinstance(update, TableUpdate):
            raise InvalidValue("the message of a channel changes no table", reason="unknown_kind")
        changes = update.changes if update.keys == self._keys else self._reordered(update)
        decoded: list[_ChangeRow] = []
        for change in changes:
            present = self._present(change)
            op, key, old_key, columns = change
            decoded.append((position, len(decoded), op, key, old_key, columns, present))
            if position <= self._snapshot_end and old_key is not None and present < 0:
                # The snapshot may lack the old row if it had moved by then; the new row is completely known here.
                decoded.append((position, len(decoded), "insert", key, None, columns, -1))
        self._changes += decoded

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the change rows, and error rows for notifications with a value that does not fit; clear the batch."""
        changes, self._changes = self._changes, []
        if not changes:
            return
        errors: dict[int, WireError] = {}
        batch = self._batch(changes, errors)
        yield without(batch, errors)
        if errors:
            yield error_rows(list(errors), list(errors.values()), self._rows.type)

    def _reordered(self, update: TableUpdate) -> list[Change]:
        if sorted(update.keys) != sorted(self._keys):
            detail = f"the key is {', '.join(update.keys)}, in the snapshot it was {', '.join(self._keys)}"
            raise InvalidValue(detail, reason="other_keys")
        order = [update.keys.index(name) for name in self._keys]

        def ordered(key: Key) -> Key:
            return tuple([key[at] for at in order])

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
        if change.op == "insert":
            if shape >= 0 and self._options.insert_absent == "error":
                absent = sorted({*self._names} - {*names})
                raise InvalidValue(f"an INSERT lacks {', '.join(absent)}", reason="absent_column")
            return -1
        return -1 if self._options.update_columns == "full" else shape

    def _shape(self, names: tuple[str, ...]) -> int:
        """Return the index of the columns known to a change that carries these; -1 for all."""
        unknown = sorted({*names} - self._known)
        if unknown:
            detail = f"column {unknown[0]!r:.80} was not there when the snapshot was taken"
            raise InvalidValue(detail, reason="unknown_column")
        sent = [name for name in self._names if name in names or name in self._keys]
        if len(sent) == len(self._names):
            return -1
        self._lists.append(sent)
        return len(self._lists) - 1

    def _batch(self, changes: list[_ChangeRow], errors: dict[int, WireError]) -> pa.RecordBatch:
        positions, ordinals, ops, keys, old_keys, sent, present = zip(*changes, strict=True)

        def typed(name: str, values: list[Any]) -> pa.Array:
            array, wrong = columns[name].array(values, sent=True)
            for index, error in wrong.items():
                errors.setdefault(positions[index], error)
            return array

        columns = {column.name: column for column in self._rows.columns}
        now = {name: typed(name, [key[at] for key in keys]) for at, name in enumerate(self._keys)}
        before = [typed(name, [key and key[at] for key in old_keys]) for at, name in enumerate(self._keys)]
        cells = [
            now[name] if name in now else typed(name, [columns_sent.get(name) for columns_sent in sent])
            for name in columns
        ]
        return self._rows.batch(
            pa.array(positions, pa.int64()),
            pa.array(ordinals, pa.int32()),
            pa.array(ops, pa.string()),
            cells=cells,
            old_keys=before,
            present=take_lists(self._lists, np.array(present, np.int64)),
        )
