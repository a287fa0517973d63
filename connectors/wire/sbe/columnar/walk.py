"""Walks many messages of one template together, recording where their blocks, entries and data are.

Every step is one numpy operation over all messages that have reached it: the root blocks; for each group its
dimensions, then the entries of flat groups all at once, other entries one by one in all messages that still have one;
the lengths of data. Counts and lengths are checked against the bytes before use. A message that fails a check is marked
as bad and dropped from the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from silverfold.connectors.wire.sbe.codec.skip import Skipper
from silverfold.connectors.wire.sbe.codec.values import Fault
from silverfold.connectors.wire.sbe.columnar.byte_arrays import ALL, CLAMP, Bools, Longs, Places, where
from silverfold.connectors.wire.sbe.columnar.dense import Entries, dense_messages, dense_parts, read_dense
from silverfold.connectors.wire.sbe.columnar.headers import NOT_COUNTED
from silverfold.connectors.wire.sbe.columnar.levels import FIRST_GROUP, BlockTable
from silverfold.connectors.wire.sbe.columnar.plan import BodyPlan, DataPlan, GroupPlan
from silverfold.connectors.wire.sbe.columnar.single import FEW, Shape, Single
from silverfold.connectors.wire.sbe.columnar.state import WalkState

_LARGE_MESSAGE = 1 << 12
"""Bytes per message above which even few messages are walked together: their entries may be found all at once."""

PartPlans: TypeAlias = Sequence[GroupPlan] | Sequence[DataPlan]
Skip: TypeAlias = Callable[[Single, BodyPlan, Shape, int], int]


class Shapes(NamedTuple):
    """Block lengths and counts of bodies, or of each entry of a group, according to the messages."""

    block_length: Longs
    groups: Longs | None
    """Number of groups, or `NOT_COUNTED`; None if the schema has no such count."""
    data: Longs | None

    def of(self, which: Places) -> Shapes:
        """Return those of the selected messages."""
        if which is ALL:
            return self
        groups, data = (None if counts is None else counts[which] for counts in (self.groups, self.data))
        return Shapes(self.block_length[which], groups, data)

    def one(self, index: int) -> Shape:
        """Return the shape of one message."""
        groups, data = (NOT_COUNTED if counts is None else int(counts[index]) for counts in (self.groups, self.data))
        return Shape(int(self.block_length[index]), groups, data)


class Walk:
    """Walks the messages of a state. Arrays of messages contain each message once."""

    def __init__(self, state: WalkState, skipper: Skipper) -> None:
        self._state, self._skipper = state, skipper

    def messages(self, plan: BodyPlan, level: BlockTable, shapes: Shapes) -> None:
        """Walk all messages, with the cursors at their root blocks."""
        which = np.arange(len(self._state.version))
        if len(which) >= FEW or len(self._state.octets) > _LARGE_MESSAGE * len(which):
            self._bodies(plan, level, which, shapes)
            return
        for message in which.tolist():
            self._walk_single(message, plan, level, None, shapes.one(message))

    def _walk_single(self, message: int, body: BodyPlan, level: BlockTable, entries: int | None, shape: Shape) -> None:
        """Walk ``entries`` entries of one message, or its root body if None."""
        one, state = Single(self._state, self._skipper, message), self._state
        start = int(state.cursor[message] - state.begin[message])
        try:
            if entries is None:
                end = one.read(body, level, start, shape)
            else:
                end = one.entries(body, level, start, entries, shape)
            state.cursor[message] = end + state.begin[message]
        except Fault:
            state.mark_bad(message)

    def _bodies(self, plan: BodyPlan, level: BlockTable, which: Longs, shapes: Shapes) -> None:
        """Record one body of each message, its block at the message's cursor; move the cursors behind it."""
        state = self._state
        start = state.cursor[which]
        fits = state.fail(which, shapes.block_length > state.end[which] - start)
        which, start, shapes = which[fits], start[fits], shapes.of(fits)
        state.count_memory(len(which), plan.body.content_length)
        columns = level.chunk(which, start, shapes.block_length)
        state.cursor[which] = start + shapes.block_length
        for number, group in enumerate(plan.groups):
            at = self._messages_with(which, plan.groups, number, shapes.groups)
            columns[FIRST_GROUP + number, at] = self._group(group, level.groups[number], which[at])
        if shapes.groups is not None:
            self._skip(which, plan, shapes, Single.skip_groups, shapes.groups > self._known(which, plan.groups))
        for number, datum in enumerate(plan.data):
            at, column = self._messages_with(which, plan.data, number, shapes.data), level.data_column(number)
            columns[column, at], columns[column + 1, at] = self._data(datum, which[at])
        if shapes.data is not None:
            self._skip(which, plan, shapes, Single.skip_data, shapes.data > self._known(which, plan.data))

    def _skip(self, which: Longs, plan: BodyPlan, shapes: Shapes, skip: Skip, unknown: Bools) -> None:
        """Skip parts unknown to the schema, message by message, as they are rare."""
        state = self._state
        for index in np.flatnonzero(unknown & ~state.bad[which]).tolist():
            message = int(which[index])
            begin = int(state.begin[message])
            try:
                one = Single(state, self._skipper, message)
                state.cursor[message] = begin + skip(one, plan, shapes.one(index), int(state.cursor[message]) - begin)
            except Fault:
                state.mark_bad(message)

    def _known(self, which: Longs, parts: PartPlans) -> Longs:
        """Return how many of the parts exist in the version of each message."""
        version = self._state.version[which]
        known = np.zeros(len(which), np.int64)
        for part in parts:
            known += version >= part.since
        return known

    def _messages_with(self, which: Longs, parts: PartPlans, number: int, counts: Longs | None) -> Places:
        """Return the index of messages that have a part: in their version, and within the count they carry."""
        state, since = self._state, parts[number].since
        if counts is None and state.oldest >= since:
            return state.good(which)
        present = state.version[which] >= since
        if counts is not None:
            present &= (counts == NOT_COUNTED) | (counts > self._known(which, parts[:number]))
        return where(present & ~state.bad[which])

    def _group(self, group: GroupPlan, level: BlockTable, which: Longs) -> Longs:
        """Record the entries of the group whose dimensions are next; return their number for each message."""
        state, counts = self._state, np.zeros(len(which), np.int64)
        at, cursor = self._readable(which, group.dimensions.size)
        which, start = which[at], cursor + group.dimensions.size
        read = group.dimensions.read(state.octets, cursor)
        count, block_length = np.minimum(read["numInGroup"], CLAMP), np.minimum(read["blockLength"], CLAMP)
        wrong = (count < group.minimum) | (count > group.maximum) | (block_length * count > state.end[which] - start)
        right = state.fail(which, wrong)
        counts[at] = count
        which, count = which[right], count[right]
        shapes = Shapes(block_length, read.get("numGroups"), read.get("numVarDataFields")).of(right)
        state.cursor[which] = start[right]
        is_flat = self._flat(group.entry, which, shapes)
        flat, others = where(is_flat), where(~is_flat)
        self._flat_entries(level, which[flat], count[flat], shapes.block_length[flat])
        self._entries(group, level, which[others], count[others], shapes.of(others))
        return counts

    def _readable(self, which: Longs, size: int) -> tuple[Places, Longs]:
        """Return the index of messages with at least ``size`` bytes left, and their cursors."""
        cursor = self._state.cursor[which]
        at = self._state.fail(which, cursor + size > self._state.end[which])
        return at, cursor[at]

    def _flat(self, entry: BodyPlan, which: Longs, shapes: Shapes) -> Bools:
        """Return which messages have nothing after the blocks of the group's entries."""
        state, flat = self._state, np.ones(len(which), np.bool_)
        for oldest, counts in ((entry.first_group, shapes.groups), (entry.first_data, shapes.data)):
            if counts is not None:
                flat &= np.where(counts == NOT_COUNTED, state.version[which] < oldest, counts <= 0)
            elif state.newest >= oldest:
                flat &= state.version[which] < oldest
        return flat

    def _flat_entries(self, level: BlockTable, which: Longs, count: Longs, block_length: Longs) -> None:
        state = self._state
        empty = block_length == 0
        if empty.any():
            state.count_empty(which[empty], count[empty])
            good = state.good(which)
            which, count, block_length = which[good], count[good], block_length[good]
        state.count_memory(int(count.sum()), level.body.content_length)
        cursor = state.cursor[which]
        level.runs(which, cursor, block_length, count)
        state.cursor[which] = cursor + block_length * count

    def _entries(self, group: GroupPlan, level: BlockTable, which: Longs, count: Longs, shapes: Shapes) -> None:
        """Record entries with nested parts: the first of all messages, then the second, and so on."""
        state, done = self._state, 0
        if not group.counts_parts:
            others = self._dense_entries(group, level, which, count, shapes.block_length)
            which, count, shapes = which[others], count[others], shapes.of(others)
        while True:
            more = where((count > done) & ~state.bad[which])
            which, count, shapes = which[more], count[more], shapes.of(more)
            if len(which) < FEW:
                break
            begin = state.cursor[which]
            self._bodies(group.entry, level, which, shapes)
            empty = which[(state.cursor[which] == begin) & ~state.bad[which]]
            if len(empty):
                state.count_empty(empty, 1)
            done += 1
        for index, message in enumerate(which.tolist()):
            self._walk_single(message, group.entry, level, int(count[index]) - done, shapes.one(index))

    def _dense_entries(
        self, group: GroupPlan, level: BlockTable, which: Longs, count: Longs, block_length: Longs
    ) -> Places:
        """Record the entries of messages with many small ones; return the index of the other messages."""
        state, others = self._state, np.ones(len(which), np.bool_)
        for index in dense_messages(count, state.end[which] - state.cursor[which]).tolist():
            message = int(which[index])
            parts = dense_parts(group.entry, int(state.version[message]))
            if parts is not None:
                others[index] = False
                read_dense(state, level, message, Entries(int(count[index]), int(block_length[index])), parts)
        return where(others)

    def _data(self, datum: DataPlan, which: Longs) -> tuple[Longs, Longs]:
        """Return offset and length of the data whose length is next."""
        state, found = self._state, np.zeros((2, len(which)), np.int64)
        at, cursor = self._readable(which, datum.length.size)
        which, start = which[at], cursor + datum.offset
        length = datum.length.read(state.octets, cursor)["length"]
        wrong = (length < datum.minimum) | (length > datum.maximum) | (length > state.end[which] - start)
        found[0, at], found[1, at] = start, length
        right = state.fail(which, wrong)
        state.cursor[which[right]] = start[right] + length[right]
        return found[0], found[1]
