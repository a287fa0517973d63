"""Walks many messages of one template together, recording where their blocks, entries and data are.

Every step is one numpy operation over all bodies that have reached it: the blocks; for each group its dimensions, then
the entries of flat groups all at once; the lengths of data. Other entries are stepped through one by one, in all bodies
that still have one; once those are few, a compiled function finds where the rest of their entries begin. Counts and
lengths are checked against the bytes before use. A message that fails a check is marked as bad and dropped from the
walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from silverfold.connectors.wire.sbe.codec.skip import Skipper, Unskippable
from silverfold.connectors.wire.sbe.codec.values import Fault
from silverfold.connectors.wire.sbe.columnar.byte_arrays import ALL, CLAMP, Bools, Indices, Longs, where
from silverfold.connectors.wire.sbe.columnar.headers import NOT_COUNTED
from silverfold.connectors.wire.sbe.columnar.levels import FIRST_GROUP, BlockTable
from silverfold.connectors.wire.sbe.columnar.plan import BodyPlan, DataPlan, GroupPlan
from silverfold.connectors.wire.sbe.columnar.state import WalkState

_FEW = 4
"""Up to so many bodies for each entry of the longest, finding all their entries first is faster than stepping through
them: 150 times (0.2 for 31 µs an entry) for one body of 60,000, and no slower for 500 of up to 60."""
_UNKNOWN = -1

PartPlans: TypeAlias = Sequence[GroupPlan] | Sequence[DataPlan]


class Shapes(NamedTuple):
    """Block lengths and counts of bodies, or of each entry of a group, according to the messages."""

    block_length: Longs
    groups: Longs | None
    """Number of groups, or `NOT_COUNTED`; None if the schema has no such count."""
    data: Longs | None

    def of(self, which: Indices) -> Shapes:
        """Return those of the selected bodies."""
        if which is ALL:
            return self
        groups, data = (None if counts is None else counts[which] for counts in (self.groups, self.data))
        return Shapes(self.block_length[which], groups, data)


class Runs(NamedTuple):
    """Consecutive entries of a group in each of several bodies."""

    which: Longs
    """Message of each body."""
    start: Longs
    """Offset of the first entry."""
    entries: Longs
    shapes: Shapes

    def of(self, which: Indices) -> Runs:
        """Return those of the selected bodies."""
        if which is ALL:
            return self
        return Runs(self.which[which], self.start[which], self.entries[which], self.shapes.of(which))


class Walk:
    """Walks the messages of a state.

    Bodies are given by their messages, of which each may have several, and the offsets of their next part.
    """

    def __init__(self, state: WalkState, skipper: Skipper) -> None:
        self._state, self._skipper = state, skipper

    def messages(self, plan: BodyPlan, level: BlockTable, shapes: Shapes) -> None:
        """Walk all messages, with the cursors at their root blocks; move the cursors to their ends."""
        state = self._state
        state.cursor = self._bodies(plan, level, np.arange(len(state.version)), state.cursor, shapes)

    def _bodies(self, plan: BodyPlan, level: BlockTable, which: Longs, start: Longs, shapes: Shapes) -> Longs:
        """Record bodies by the offsets of their blocks; return their ends, which are undefined in bad messages."""
        state = self._state
        state.count_memory(len(which), plan.body.content_length)
        state.fail(which, shapes.block_length > state.end[which] - start)
        columns = level.chunk(which, start, shapes.block_length)
        cursor = start + shapes.block_length
        for number, group in enumerate(plan.groups):
            at = self._bodies_with(which, plan.groups, number, shapes.groups)
            counts, ends = self._group(group, level.groups[number], which[at], cursor[at])
            columns[FIRST_GROUP + number, at], cursor[at] = counts, ends
        if shapes.groups is not None:
            unknown = shapes.groups - self._known(which, plan.groups)
            is_last = self._known(which, plan.data) == 0
            if shapes.data is not None:
                is_last |= shapes.data == 0
            self._skip(which, cursor, unknown, "groups", plan.root & is_last)
        for number, datum in enumerate(plan.data):
            at, column = self._bodies_with(which, plan.data, number, shapes.data), level.data_column(number)
            columns[column, at], columns[column + 1, at], cursor[at] = self._data(datum, which[at], cursor[at])
        if shapes.data is not None:
            unknown = shapes.data - self._known(which, plan.data)
            self._skip(which, cursor, unknown, "data", np.full(len(which), plan.root))
        return cursor

    def _skip(self, which: Longs, cursor: Longs, unknown: Longs, part: str, may_fail: Bools) -> None:
        """Move cursors behind parts unknown to the schema, body by body, as they are rare.

        Args:
            part: What to skip: ``groups`` or ``data``.
            may_fail: Nothing known follows: failing to skip them is no error.
        """
        state = self._state
        for index in np.flatnonzero((unknown > 0) & ~state.bad[which] & ~state.stopped[which]).tolist():
            message = int(which[index])
            begin, numbers = int(state.begin[message]), {"groups": 0, "data": 0, part: int(unknown[index])}
            try:
                end = self._skipper.skip(state.message(message), int(cursor[index]) - begin, **numbers)
                cursor[index] = begin + end
            except Unskippable:
                if may_fail[index]:
                    state.stopped[message] = True
                else:
                    state.mark_bad(message)
            except Fault:
                state.mark_bad(message)

    def _known(self, which: Longs, parts: PartPlans) -> Longs:
        """Return how many of the parts exist in the version of each body."""
        version = self._state.version[which]
        known = np.zeros(len(which), np.int64)
        for part in parts:
            known += version >= part.since
        return known

    def _bodies_with(self, which: Longs, parts: PartPlans, number: int, counts: Longs | None) -> Indices:
        """Return the index of bodies that have a part: in their version, and within the count they carry."""
        state, since = self._state, parts[number].since
        if counts is None and state.oldest >= since:
            return state.good(which)
        present = state.version[which] >= since
        if counts is not None:
            present &= (counts == NOT_COUNTED) | (counts > self._known(which, parts[:number]))
        return where(present & ~state.bad[which])

    def _group(self, group: GroupPlan, level: BlockTable, which: Longs, cursor: Longs) -> tuple[Longs, Longs]:
        """Record the entries of the group whose dimensions are next; return their number and end for each body."""
        state, counts, ends = self._state, np.zeros(len(which), np.int64), cursor.copy()
        at = state.fail(which, cursor + group.dimensions.size > state.end[which])
        which, start = which[at], cursor[at] + group.dimensions.size
        read = group.dimensions.read(state.octets, cursor[at])
        count, block_length = np.minimum(read["numInGroup"], CLAMP), np.minimum(read["blockLength"], CLAMP)
        wrong = (count < group.minimum) | (count > group.maximum) | (block_length * count > state.end[which] - start)
        right = state.fail(which, wrong)
        at = right if isinstance(at, slice) else at[right]
        shapes = Shapes(block_length, read.get("numGroups"), read.get("numVarDataFields"))
        runs = Runs(which, start, count, shapes).of(right)
        is_flat, end = self._flat(group.entry, runs), np.empty(len(runs.which), np.int64)
        for record, chosen in ((self._flat_entries, is_flat), (self._entries, ~is_flat)):
            if chosen.any():
                indices = where(chosen)
                end[indices] = record(group.entry, level, runs.of(indices))
        counts[at], ends[at] = runs.entries, end
        return counts, ends

    def _flat(self, entry: BodyPlan, runs: Runs) -> Bools:
        """Return which bodies have nothing after the blocks of the group's entries."""
        state, which, shapes, flat = self._state, runs.which, runs.shapes, np.ones(len(runs.which), np.bool_)
        for oldest, counts in ((entry.first_group, shapes.groups), (entry.first_data, shapes.data)):
            if counts is not None:
                flat &= np.where(counts == NOT_COUNTED, state.version[which] < oldest, counts <= 0)
            elif state.newest >= oldest:
                flat &= state.version[which] < oldest
        return flat

    def _flat_entries(self, entry: BodyPlan, level: BlockTable, runs: Runs) -> Longs:
        """Record entries with nothing after their blocks; return their ends."""
        state, block_length = self._state, runs.shapes.block_length
        ends = runs.start + block_length * runs.entries
        empty = block_length == 0
        if empty.any():
            state.count_empty(runs.which[empty], runs.entries[empty])
            runs = runs.of(state.good(runs.which))
        state.count_memory(int(runs.entries.sum()), entry.body.content_length)
        level.runs(runs.which, runs.start, runs.shapes.block_length, runs.entries)
        return ends

    def _entries(self, entry: BodyPlan, level: BlockTable, runs: Runs) -> Longs:
        """Record entries with nested parts: the first of all bodies, then the second, and so on; return their ends."""
        state, ends, index, searched = self._state, runs.start.copy(), np.arange(len(runs.which)), False
        while True:
            more = where((runs.entries > 0) & ~state.bad[runs.which])
            index, runs = index[more], runs.of(more)
            if not searched and len(index) <= _FEW * int(runs.entries.max(initial=0)):
                ends[index], searched = self._find_entries(entry, level, runs), True
                more = where((ends[index] == _UNKNOWN) & ~state.bad[runs.which])
                index, runs = index[more], runs.of(more)
            if not len(index):
                return ends
            ends[index] = end = self._bodies(entry, level, runs.which, runs.start, runs.shapes)
            empty = runs.which[(end == runs.start) & ~state.bad[runs.which]]
            if len(empty):
                state.count_empty(empty, 1)
            runs = runs._replace(start=end, entries=runs.entries - 1)

    def _find_entries(self, entry: BodyPlan, level: BlockTable, runs: Runs) -> Longs:
        """Record all entries of the bodies that have no unknown parts; return their ends, `_UNKNOWN` for the others."""
        state, known = self._state, np.ones(len(runs.which), np.bool_)
        for parts, counts in ((entry.groups, runs.shapes.groups), (entry.data, runs.shapes.data)):
            if counts is not None:
                known &= (counts == NOT_COUNTED) | (counts == self._known(runs.which, parts))
        ends, starts = np.full(len(known), _UNKNOWN), [np.empty(0, np.int64)]
        for body in np.flatnonzero(known).tolist():
            message = int(runs.which[body])
            find, begin = entry.entry_finder(int(state.version[message])), state.begin[message]
            if find is None or state.bad[message]:
                continue
            block_length, first = int(runs.shapes.block_length[body]), int(runs.start[body] - begin)
            found = find(state.message(message), first, block_length, int(runs.entries[body]))
            if found is None:
                state.mark_bad(message)
            elif found[0] is not None:
                starts.append(np.frombuffer(found[0], np.int64) + begin)
                ends[body] = found[1] + begin
        bodies = np.flatnonzero(ends != _UNKNOWN)
        each = np.repeat(bodies, runs.entries[bodies])
        self._bodies(entry, level, runs.which[each], np.concatenate(starts), runs.shapes.of(each))
        return ends

    def _data(self, datum: DataPlan, which: Longs, cursor: Longs) -> tuple[Longs, Longs, Longs]:
        """Return offset, length and end of the data whose length is next."""
        state, found = self._state, np.zeros((3, len(which)), np.int64)
        at = state.fail(which, cursor + datum.length.size > state.end[which])
        which, cursor = which[at], cursor[at]
        start, length = cursor + datum.offset, datum.length.read(state.octets, cursor)["length"]
        state.fail(which, (length < datum.minimum) | (length > datum.maximum) | (length > state.end[which] - start))
        found[:, at] = start, length, start + length
        return found[0], found[1], found[2]
