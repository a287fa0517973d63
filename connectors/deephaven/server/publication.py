"""Produces the messages of one subscription: the selected columns of the rows that satisfy its filter.

Pure: rows in, messages out. Messages are built lazily, so that a snapshot of millions of rows is never held as
messages. Within an update, removed rows come first, then added rows, then modified rows. A row that begins to satisfy
the filter is added; one that ceases to is removed. An update with nothing left is not sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from silverfold.connectors.deephaven.protocol.columns.encode import encode_column, encode_removed
from silverfold.connectors.deephaven.protocol.control import encode_begin, encode_end
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.server.filters.filters import RowFilter
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.tables.rowkeys import Longs, Mask, ranges
from silverfold.connectors.deephaven.server.tables.rows import NetChange, Rows, rows_at


@dataclass(frozen=True)
class Publication:
    """One subscription, as the server sees it.

    Args:
        id: The subscription id, chosen by the client.
        table: The table, which may no longer be exported.
        mode: What is sent.
        columns: Selected columns; a column's id is its index here.
        filter: Bound row filter; None for all rows.
        roles: Roles for writing messages.
        largest: Longest message in bytes, without length prefix.
    """

    id: int
    table: LiveTable
    mode: SubscribeMode
    columns: tuple[str, ...]
    filter: RowFilter | None
    roles: Roles
    largest: int

    @property
    def snapshot_columns(self) -> tuple[str, ...]:
        """Columns that a snapshot must have: the selected ones and those of the filter."""
        return tuple(dict.fromkeys((*self.columns, *self.filter_columns)))

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """Columns of the filter."""
        return () if self.filter is None else self.filter.columns

    def snapshot(self, rows: Rows) -> Iterator[bytes]:
        """Yield the messages of a snapshot, which is one update that adds all rows; there may be none.

        Raises (as `update` does):
            SourceRefused: ``OBJECT_OVERFLOW``: a single value does not fit a message.
            InvalidValue: The schema's types cannot hold a value.
        """
        yield encode_begin(self.roles, self.id)
        wanted = rows if self.filter is None else rows.where(self.filter.mask(rows))
        yield from self._columns(wanted, {}, modified=False)
        yield encode_end(self.roles, self.id)

    def update(self, delta: NetChange) -> Iterator[bytes]:
        """Yield the messages of one update; none when it does not concern the subscription."""
        removed, added, modified = self._filtered_delta(delta)
        written = self._sent_keys(delta, modified)
        if not (len(removed) or len(added) or any(len(keys) for keys in written.values())):
            return
        yield encode_begin(self.roles, self.id)
        yield from encode_removed(self.roles, subscription_id=self.id, ranges=ranges(removed), limit=self.largest)
        yield from self._columns(added, {}, modified=False)
        yield from self._columns(modified, written, modified=True)
        yield encode_end(self.roles, self.id)

    def _sent_keys(self, delta: NetChange, modified: Rows) -> Mapping[str, Longs]:
        """Return, per selected column, the keys of the modified rows in which it is sent."""
        if not self.table.partial_columns:
            return dict.fromkeys(self.columns, modified.keys)
        nothing = np.empty(0, np.int64)
        return {
            name: np.intersect1d(delta.written.get(name, nothing), modified.keys, assume_unique=True)
            for name in self.columns
        }

    def _columns(self, rows: Rows, written: Mapping[str, Longs], *, modified: bool) -> Iterator[bytes]:
        for column_id, name in enumerate(self.columns):
            sent = rows_at(rows.only((name,)), written.get(name, rows.keys))
            if len(sent):
                yield from encode_column(
                    self.roles,
                    self.table.columns[name],
                    sent.columns[name],
                    subscription_id=self.id,
                    column_id=column_id,
                    modified=modified,
                    ranges=ranges(sent.keys),
                    limit=self.largest,
                )

    def _filtered_delta(self, delta: NetChange) -> tuple[Longs, Rows, Rows]:
        """Return the part of the update that concerns rows satisfying the filter: removed, added, modified."""
        if self.filter is None:
            return delta.removed, delta.added, delta.modified
        satisfied_before = self.filter.mask(delta.before)
        was = _mask_at(delta.before.keys, satisfied_before, delta.modified.keys)
        now = self.filter.mask(delta.modified)
        removed = delta.removed[_mask_at(delta.before.keys, satisfied_before, delta.removed)]
        ceased, begun = delta.modified.keys[was & ~now], delta.modified.where(~was & now)
        added = delta.added.where(self.filter.mask(delta.added))
        return np.union1d(removed, ceased), _merge_rows(added, begun), delta.modified.where(was & now)


def _mask_at(keys: Longs, mask: Mask, wanted: Longs) -> Mask:
    found: Mask = mask[np.searchsorted(keys, wanted)]
    return found


def _merge_rows(some: Rows, others: Rows) -> Rows:
    if not len(others):
        return some
    keys = np.concatenate([some.keys, others.keys])
    order = np.argsort(keys)
    columns = {name: np.concatenate([cells, others.columns[name]])[order] for name, cells in some.columns.items()}
    return Rows(some.types, keys[order], columns)
