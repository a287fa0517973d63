"""Encodes columns and removed rows, split over as many messages as the message buffer requires.

Ranges may be split, values never: each message names exactly the rows whose values it holds. Sizes are known before the
first message is built, so a value that fits into no message is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import LocalProtocolError, SourceRefused
from silverfold.connectors.deephaven.protocol.columns.rowdata import RowData, row_data
from silverfold.connectors.deephaven.protocol.layouts import Longs, write_blocks
from silverfold.connectors.deephaven.protocol.messages import ErrorCode
from silverfold.connectors.deephaven.protocol.roles import Column, Ranges, Removed, Roles
from silverfold.connectors.deephaven.protocol.types import ColumnType

_MAX_ENTRIES = 65_534
"""Limit per group and message, the same as in the reference implementations."""


def encode_column(
    roles: Roles,
    kind: ColumnType,
    values: npt.NDArray[Any] | Sequence[Any],
    *,
    subscription_id: int,
    column_id: int,
    modified: bool,
    ranges: Longs,
    limit: int,
) -> Iterator[bytes]:
    """Return messages, without length prefix, that carry a column's values for the rows of ``ranges``.

    Args:
        values: In the order of the rows. Fixed types: a numpy array of the native type with Deephaven's sentinels, or
            Python values with None. Others: Python values with None: str, `decimal.Decimal`, sequences (a set is
            written sorted); elements of fixed arrays as for fixed types.
        ranges: Ascending row ranges, shape (n, 2), both ends inclusive.
        limit: Maximum message length in bytes, header included.

    Raises:
        SourceRefused: ``OBJECT_OVERFLOW``: a single value does not fit. Raised before the first message is returned.
        LocalProtocolError: The ranges hold another number of rows, or the schema has no message for the type.
        InvalidValue: A value is outside its type, or outside the type that the schema declares.
    """
    role = roles.column(kind)
    if role is None:
        raise LocalProtocolError(f"the schema has no {kind.message}")
    counts = ranges[:, 1] - ranges[:, 0] + 1
    if counts.sum() != len(values):
        raise LocalProtocolError(f"ranges hold {counts.sum()} rows, there are {len(values)} values")
    rows = row_data(role.values, values)
    flag = role.modified.true if modified else role.modified.false
    root = bytes(roles.write_root(role, (subscription_id, column_id, flag)))
    cuts = _cuts(role, rows, counts, limit - len(root) - len(role.tail.write({})))
    return (root + role.tail.write(_groups(role, rows, ranges, counts, cut)) for cut in cuts)


def encode_removed(roles: Roles, *, subscription_id: int, ranges: Longs, limit: int) -> Iterator[bytes]:
    """Return RowsRemoved messages, without length prefix, for ranges of shape (n, 2), both ends inclusive.

    Raises:
        SourceRefused: ``OBJECT_OVERFLOW``: not even one range fits into ``limit`` bytes.
    """
    role: Removed = roles.removed
    root = bytes(roles.write_root(role, (subscription_id,)))
    room = (limit - len(root) - len(role.tail.write({}))) // role.ranges.entries.group.block_length
    step = min(room, role.ranges.entries.max_entries, _MAX_ENTRIES)
    if step < 1:
        raise SourceRefused(code=ErrorCode.OBJECT_OVERFLOW, text=f"a range does not fit into {limit} bytes")
    cuts = (ranges[first : first + step] for first in range(0, len(ranges), step))
    return (root + role.tail.write({role.ranges.entries.name: _write_ranges(role.ranges, cut)}) for cut in cuts)


def _cuts(role: Column, rows: RowData, counts: Longs, room: int) -> list[tuple[int, int]]:
    """Return the (begin, end) row numbers of each message, which holds as many rows as fit beside their ranges."""
    range_size = role.ranges.entries.group.block_length
    max_rows = min(role.values.entries.max_entries, _MAX_ENTRIES)
    max_ranges = min(role.ranges.entries.max_entries, _MAX_ENTRIES)
    if len(rows) and rows.longest + range_size > room:
        text = f"a value takes {rows.longest} bytes, a message of the buffer's size has room for {room - range_size}"
        raise SourceRefused(code=ErrorCode.OBJECT_OVERFLOW, text=text)
    range_of = np.repeat(np.arange(len(counts)), counts)
    first_row = np.append(np.cumsum(counts) - counts, len(rows))
    cost = rows.ends + range_size * (range_of + 1)
    cuts, at = [], 0
    while at < len(rows):
        spent = (rows.ends[at - 1] if at else 0) + range_size * range_of[at]
        end = int(np.searchsorted(cost, room + spent, "right"))
        last_range = min(range_of[at] + max_ranges, len(counts))
        end = min(end, at + max_rows, int(first_row[last_range]))
        cuts.append((at, end))
        at = end
    return cuts


def _groups(role: Column, rows: RowData, ranges: Longs, counts: Longs, cut: tuple[int, int]) -> Mapping[str, bytes]:
    begin, end = cut
    entries = role.values.entries
    return {
        role.ranges.entries.name: _write_ranges(role.ranges, _clip(ranges, counts, begin, end)),
        entries.name: entries.announce(end - begin) + rows.between(begin, end),
    }


def _clip(ranges: Longs, counts: Longs, begin: int, end: int) -> Longs:
    """Return the ranges of rows ``begin`` up to, but excluding, ``end``."""
    ends = np.cumsum(counts)
    first, last = np.searchsorted(ends, (begin, end - 1), "right").tolist()
    clipped: Longs = ranges[first : last + 1].copy()
    clipped[0, 0] += begin - (ends[first] - counts[first])
    clipped[-1, 1] -= ends[last] - end
    return clipped


def _write_ranges(role: Ranges, ranges: Longs) -> bytes:
    entries, length = role.entries, role.entries.group.block_length
    columns = [(found, ranges[:, at].astype(found.dtype)) for at, found in enumerate((role.first, role.last))]
    blocks = write_blocks(length, *columns)
    if entries.tail.groups or entries.tail.texts:
        rest = entries.tail.write({})
        return entries.write([blocks[at : at + length] + rest for at in range(0, len(blocks), length)])
    return entries.announce(len(ranges)) + blocks
