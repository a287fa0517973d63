"""Finds many small entries of one message: computes for every byte where an entry beginning there would end.

Following the entries is then one look-up each instead of one read each. Applies to groups whose entries contain nothing
but flat groups and data; an invalid count or length ends the chain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from silverfold.connectors.wire.sbe.columnar.byte_arrays import Bools, Longs, Octets
from silverfold.connectors.wire.sbe.columnar.levels import FIRST_GROUP, BlockTable
from silverfold.connectors.wire.sbe.columnar.plan import BodyPlan, DataPlan, GroupPlan
from silverfold.connectors.wire.sbe.columnar.state import WalkState

_MIN_ENTRIES = 64
"""Fewest entries for which it pays."""
_MAX_ENTRY_SIZE = 64
"""Largest entry size, in bytes, for which it pays."""
_MAX_MESSAGES = 400
"""Most messages for which it pays; with more, it is faster to read the first entries of all, then the second."""
_MAX_PART_SIZE = 32
"""Largest dimensions or length, in bytes, that are searched for."""
_WINDOW = 1 << 15
"""Bytes examined together."""
_INVALID = -1


class Entries(NamedTuple):
    """Values of a group's dimensions."""

    number: int
    block_length: int


class DenseParts(NamedTuple):
    """Parts after the blocks of a group's entries, in messages of one version."""

    groups: tuple[tuple[int, GroupPlan], ...]
    """Each with its index in the body."""
    data: tuple[tuple[int, DataPlan], ...]


def dense_parts(entry: BodyPlan, version: int) -> DenseParts | None:
    """Return the parts of entries that can be found this way; None if some have parts of their own.

    Also None where dimensions count parts, or parts need no bytes.
    """
    groups = tuple((number, group) for number, group in enumerate(entry.groups) if group.since <= version)
    data = tuple((number, datum) for number, datum in enumerate(entry.data) if datum.since <= version)
    for _, group in groups:
        if group.counts_parts or min(group.entry.first_group, group.entry.first_data) <= version:
            return None
    sizes = [group.dimensions.size for _, group in groups] + [datum.length.size for _, datum in data]
    return DenseParts(groups, data) if all(0 < size <= _MAX_PART_SIZE for size in sizes) else None


def dense_messages(counts: Longs, octets: Longs) -> Longs:
    """Return the indexes of messages for which it pays, given the number of entries and the most bytes they take."""
    if len(counts) == 0 or int(counts.sum()) > _MAX_MESSAGES * int(counts.max()):
        return np.empty(0, np.int64)
    return np.flatnonzero((counts >= _MIN_ENTRIES) & (octets >= counts) & (octets <= counts * _MAX_ENTRY_SIZE))


def read_dense(state: WalkState, level: BlockTable, message: int, entries: Entries, parts: DenseParts) -> None:
    """Record all entries of a message, the first at its cursor, and move the cursor behind them."""
    first, last = int(state.cursor[message]), int(state.end[message])
    starts = _starts(state.octets, (first, last), entries, parts)
    if starts is None:
        state.mark_bad(message)
        return
    state.count_memory(entries.number, level.body.content_length)
    cursor, owner = starts[:-1], np.full(entries.number, message, np.int64)
    columns = level.chunk(owner, cursor, np.full(entries.number, entries.block_length, np.int64))
    cursor = cursor + entries.block_length
    for number, group in parts.groups:
        read, first_block = group.dimensions.read(state.octets, cursor), cursor + group.dimensions.size
        counts, length = read["numInGroup"], read["blockLength"]
        if state.count_empty_of(message, int(counts[length == 0].sum())) < 0:
            state.mark_bad(message)
            return
        columns[FIRST_GROUP + number] = counts
        state.count_memory(int(counts.sum()), group.entry.body.content_length)
        level.groups[number].runs(owner, first_block, length, counts)
        cursor = first_block + counts * length
    for number, datum in parts.data:
        column, length = level.data_column(number), datum.length.read(state.octets, cursor)["length"]
        columns[column], columns[column + 1] = cursor + datum.offset, length
        cursor = cursor + datum.offset + length
    state.cursor[message] = starts[-1]


def _starts(octets: Octets, span: tuple[int, int], entries: Entries, parts: DenseParts) -> Longs | None:
    """Return the offsets where entries begin, and where the last one ends; None if they do not fit.

    Args:
        span: Offsets of the first entry, and of the end of the message.
    """
    at, last = span
    starts = [at]
    while len(starts) <= entries.number:
        window = np.arange(at, min(at + _WINDOW, last))
        follow = _ends(octets, window, last, entries.block_length, parts).tolist()
        base, reach = at, at + len(follow)
        while at < reach and len(starts) <= entries.number:
            at = follow[at - base]
            if at == _INVALID:
                return None
            starts.append(at)
        if at >= last and len(starts) <= entries.number:
            return None
    return np.array(starts, np.int64)


def _ends(octets: Octets, start: Longs, last: int, block_length: int, parts: DenseParts) -> Longs:
    """Return for each offset where an entry beginning there would end; `_INVALID` where none can."""
    cursor = start + block_length
    invalid = cursor > last
    for _, group in parts.groups:
        cursor, invalid = _skip_group(octets, cursor, invalid, last, group)
    for _, datum in parts.data:
        cursor, invalid = _skip_data(octets, cursor, invalid, last, datum)
    return np.where(invalid, _INVALID, cursor)


def _skip_group(octets: Octets, cursor: Longs, invalid: Bools, last: int, group: GroupPlan) -> tuple[Longs, Bools]:
    size = group.dimensions.size
    invalid = invalid | (cursor + size > last)
    read = group.dimensions.read(octets, np.where(invalid, 0, cursor))
    count, length = read["numInGroup"], np.minimum(read["blockLength"], last)
    invalid |= (count < group.minimum) | (count > group.maximum)
    count = np.minimum(count, last)
    cursor = cursor + size + np.where(invalid, 0, count * length)
    return cursor, invalid | (cursor > last)


def _skip_data(octets: Octets, cursor: Longs, invalid: Bools, last: int, datum: DataPlan) -> tuple[Longs, Bools]:
    invalid = invalid | (cursor + datum.length.size > last)
    length = datum.length.read(octets, np.where(invalid, 0, cursor))["length"]
    invalid |= (length < datum.minimum) | (length > datum.maximum)
    cursor = cursor + datum.offset + np.where(invalid, 0, np.minimum(length, last))
    return cursor, invalid | (cursor > last)
