"""Finds the elements of arrays: the group nested in each entry of a group.

One tight loop over the rows finds where everything is; if anything does not fit, or a schema has parts that the loop
does not know, a slow walk over the same bytes takes its place and says exactly what is wrong.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from connectors.deephaven.groups import OpenMessage
from connectors.deephaven.layouts import Blocks, Longs
from connectors.deephaven.roles import Values
from connectors.wire.sbe.walk import Dimensions

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Nested:
    """Where the elements of all rows of a message are.

    Args:
        rows: Start of each row's entry.
        lengths: Block length of each row's elements: every nested group has dimensions of its own.
        counts: Elements of each row.
        firsts: Start of each row's first element.
        end: Where the outer group ends.
        elements: Start of every element; None when those of a row follow each other without a gap.
        places: Start of every element's data; None for elements without.
    """

    rows: Longs
    lengths: Longs
    counts: Longs
    firsts: Longs
    end: int
    elements: Longs | None = None
    places: Longs | None = None

    def blocks(self, opened: OpenMessage, keep: Mask) -> Blocks:
        """Return the blocks of the elements of the rows to keep, in order."""
        body, version = opened.body, opened.version
        full = keep & (self.counts > 0)
        lengths, counts, firsts = self.lengths[full], self.counts[full], self.firsts[full]
        total = int(counts.sum())
        length = int(lengths.min(initial=np.iinfo(np.int32).max)) if total else 0
        place = int(firsts[0]) if total else self.end
        if self.elements is not None:
            return Blocks(body, version, length, total, place, place, self.elements[np.repeat(keep, self.counts)])
        if (lengths == length).all():
            joined = b"".join([body[a : a + n * length] for a, n in zip(firsts.tolist(), counts.tolist(), strict=True)])
            return Blocks(joined, version, length, total, 0, place)
        return Blocks(body, version, length, total, place, place, _starts(firsts, lengths, counts))


def find_nested(opened: OpenMessage, values: Values, elements: Values, found: Dimensions) -> Nested:
    """Return where the elements of the rows are.

    Raises:
        TruncatedMessage, InvalidValue: Something does not fit, or the message lacks the nested group.
    """
    if _is_plain(values, elements, opened.version):
        run = _run_blocks if elements.text is None else _run_texts
        nested = run(elements, opened.body, found)
        if nested is not None:
            return nested
    return _walk(opened, values, elements, found)


def _is_plain(values: Values, elements: Values, version: int) -> bool:
    newest = max(elements.entries.group.since_version, elements.text.found.since_version if elements.text else 0)
    return values.alone and elements.alone and version >= newest and elements.entries.dimensions.picks is None


def _run_blocks(elements: Values, body: bytes, found: Dimensions) -> Nested | None:
    """Rows whose elements are blocks alone; None when they do not fit."""
    read = struct.Struct(elements.entries.dimensions.format).unpack_from
    size, row_block, at = elements.entries.group.dimensions.size, found.block_length, found.start
    lengths, counts, ends = [], [], []
    try:
        for _ in range(found.entries):
            length, count = read(body, at + row_block)
            at += row_block + size + length * count
            lengths.append(length)
            counts.append(count)
            ends.append(at)
    except struct.error:
        return None
    if at > len(body) or not _allowed(elements, counts):
        return None
    rows = _longs([found.start, *ends])[:-1]
    return Nested(rows, _longs(lengths), _longs(counts), rows + (row_block + size), at)


def _run_texts(elements: Values, body: bytes, found: Dimensions) -> Nested | None:
    """Rows whose elements are a block and one data; None when they do not fit."""
    assert elements.text is not None
    read = struct.Struct(elements.entries.dimensions.format).unpack_from
    read_length = struct.Struct(elements.text.format).unpack_from
    data = elements.text.found
    size, row_block, at = elements.entries.group.dimensions.size, found.block_length, found.start
    rows, lengths, counts, starts = [], [], [], []
    try:
        for _ in range(found.entries):
            rows.append(at)
            length, count = read(body, at + row_block)
            at += row_block + size
            to_length, overhead = length + data.length.offset, length + data.data_offset
            for _ in range(count):
                starts.append(at)
                at += read_length(body, at + to_length)[0] + overhead
            lengths.append(length)
            counts.append(count)
    except struct.error:
        return None
    if at > len(body) or not _allowed(elements, counts):
        return None
    found_lengths, found_counts = _longs(lengths), _longs(counts)
    inner = _longs(starts)
    places = inner + np.repeat(found_lengths, found_counts)
    outer = _longs(rows)
    return Nested(outer, found_lengths, found_counts, outer + (row_block + size), at, inner, places)


def _walk(opened: OpenMessage, values: Values, elements: Values, found: Dimensions) -> Nested:
    wanted = "" if elements.text is None else elements.text.name
    walked = values.entries.walk(opened, found, elements.entries.name)
    each, starts, places = [], [], []
    for place in walked.places:
        nested = elements.entries.open(opened, place)
        inner = elements.entries.walk(opened, nested, wanted)
        each.append(nested)
        starts += inner.starts
        places += inner.places
    return Nested(
        rows=_longs(walked.starts),
        lengths=_longs([nested.block_length for nested in each]),
        counts=_longs([nested.entries for nested in each]),
        firsts=_longs([nested.start for nested in each]),
        end=walked.end,
        elements=_longs(starts),
        places=_longs(places) if wanted else None,
    )


def _allowed(elements: Values, counts: list[int]) -> bool:
    role = elements.entries.group.dimensions.roles["numInGroup"]
    return min(counts, default=role.minimum) >= role.minimum and max(counts, default=0) <= role.maximum


def _starts(firsts: Longs, lengths: Longs, counts: Longs) -> Longs:
    """Where each element starts, when those of a row follow each other."""
    before = np.repeat(np.cumsum(counts) - counts, counts)
    starts: Longs = np.repeat(firsts, counts) + (np.arange(int(counts.sum())) - before) * np.repeat(lengths, counts)
    return starts


def _longs(numbers: list[int]) -> Longs:
    return np.array(numbers, np.int64)
