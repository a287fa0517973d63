"""Row ranges: pairs of a first and a last row key, both inclusive.

A range may cover a trillion rows in sixteen bytes. It is expanded only where as many values accompany it, and the sum
is checked before anything is allocated. Removed rows stay ranges.
"""

from __future__ import annotations

import numpy as np

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.deephaven.protocol.groups import OpenMessage
from silverfold.connectors.deephaven.protocol.layouts import Longs
from silverfold.connectors.deephaven.protocol.roles import Ranges

_ROW_KEYS = np.iinfo(np.int64)


def read_ranges(opened: OpenMessage, ranges: Ranges, at: int) -> tuple[Longs, int]:
    """Return the ranges at ``at``, shape (n, 2), in message order, and their end offset.

    Raises:
        TruncatedMessage: They do not fit.
        InvalidValue: ``range-order``: one ends before it begins; ``count-range``, ``absent``, ``row-key``.
    """
    blocks, end = ranges.entries.blocks(opened, at)
    pairs = np.empty((blocks.total, 2), np.int64)
    for column, found in enumerate((ranges.first, ranges.last)):
        raw = blocks.read(found)
        if raw.dtype.kind == "u" and blocks.total and int(raw.max()) > _ROW_KEYS.max:
            raise InvalidValue(f"{found.name} is {raw.max()}", offset=at, reason="row-key")
        pairs[:, column] = raw
    if not _is_forward(pairs):
        first, last = pairs[pairs[:, 1] < pairs[:, 0]][0].tolist()
        detail = f"{ranges.last.name} {last} is below {ranges.first.name} {first}"
        raise InvalidValue(detail, offset=at, reason="range-order")
    return pairs, end


def _is_forward(pairs: Longs) -> bool:
    if len(pairs) == 1:  # the usual case, without the cost of an array operation
        return bool(pairs[0, 0] <= pairs[0, 1])
    return bool((pairs[:, 0] <= pairs[:, 1]).all())


def are_disjoint(ranges: Longs) -> bool:
    """Return whether ranges ascend and do not overlap."""
    return len(ranges) < 2 or bool((ranges[1:, 0] > ranges[:-1, 1]).all())


def expand(ranges: Longs, rows: int) -> Longs:
    """Return the row keys of ranges that must hold exactly ``rows`` of them, in the order of the ranges.

    Raises:
        InvalidValue: ``range-count``: they hold another number. Raised before anything is allocated.
    """
    if len(ranges) == 1:
        first, last = ranges[0].tolist()
        _check_total(last - first + 1, rows)
        keys: Longs = np.arange(rows) + first
        return keys
    if len(ranges) == rows and bool((ranges[:, 0] == ranges[:, 1]).all()):
        return ranges[:, 0].copy()  # scattered rows: the usual small change
    steps = ranges[:, 1].view(np.uint64) - ranges[:, 0].view(np.uint64)  # number of rows minus one; never overflows
    if steps.max(initial=0) >= max(rows, 1):
        _check_total(sum(steps.tolist()) + len(ranges), rows)
    _check_total(int(steps.sum()) + len(ranges), rows)
    counts = steps.astype(np.int64) + 1
    keys = np.repeat(ranges[:, 0] - (np.cumsum(counts) - counts), counts)
    keys += np.arange(rows)
    return keys


def _check_total(total: int, rows: int) -> None:
    if total != rows:
        raise InvalidValue(f"ranges hold {total} rows, there are {rows} values", reason="range-count")
